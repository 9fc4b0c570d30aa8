"""A run on one time line, as SVG: workers, waiting pods, CPU, cost, actions and faults, under one another.

Written by hand: a plotting library would be the largest thing that Holdfast installs.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.simulator.run import Outcome, Sample

_WIDTH: Final = 1200
_LEFT: Final = 90
_RIGHT: Final = 150
_PLOT: Final = _WIDTH - _LEFT - _RIGHT
_PANEL: Final = 110
_GAP: Final = 26
_TOP: Final = 74
_USD_PER_HOUR: Final = {"on-demand": 0.0416, "spot": 0.0125}  # of a t3.medium, about
_ACTIONS: Final = {"scale-up": "#2e9d57", "scale-down": "#d9822b"}
_FAULTS: Final = ("#7b3fb5", "#c2334d", "#1f77b4", "#8c6d1f", "#159a9c", "#555555", "#d0559a", "#3b6e22")
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.t{font-size:16px;font-weight:600}.s{fill:#777}"
    ".g{stroke:#e6e6e6}.l{fill:none;stroke-width:1.6}.m{stroke-dasharray:4 3;stroke:#999}"
)


def drawn_run(outcome: Outcome) -> str:
    """The whole picture."""
    picture = _Picture(outcome)
    return "\n".join(picture.parts())


class _Picture:
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._seconds = outcome.setup.seconds
        self._kinds = sorted({kind for kind, _ in outcome.marks.faults})
        self._lanes = max(1, len(self._kinds))
        self._height = _TOP + 4 * (_PANEL + _GAP) + 90 + _GAP + self._lanes * 15 + 60

    def parts(self) -> Iterator[str]:
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {self._height}" '
            f'width="{_WIDTH}" height="{self._height}"><style>{_STYLE}</style>'
        )
        yield f'<rect width="{_WIDTH}" height="{self._height}" fill="#fff"/>'
        yield from self._title()
        bottom = self._height - 40
        yield from self._phases(bottom)
        yield from self._hours(bottom)
        tops = [_TOP + number * (_PANEL + _GAP) for number in range(4)]
        yield from self._workers(tops[0])
        yield from self._pending(tops[1])
        yield from self._cpu(tops[2])
        yield from self._cost(tops[3])
        top = tops[3] + _PANEL + _GAP
        yield from self._actions(top)
        yield from self._faults(top + 90 + _GAP)
        yield from self._violations(bottom)
        yield "</svg>"

    # Around

    def _title(self) -> Iterator[str]:
        setup = self._outcome.setup
        yield f'<text class="t" x="{_LEFT}" y="26">Holdfast, seed {setup.seed}: {escape(setup.shape)} load</text>'
        broken = ", ".join(self._outcome.invariants) or "every invariant held"
        words = (
            f"{self._seconds / 3600:.0f} h, zones: {setup.zones}, GitHub jobs: {self._outcome.tracked.jobs}, "
            f"{self._outcome.port_calls:,} port calls, "
            f"{len(self._outcome.fault_names)} faults; {broken}"
        )
        yield f'<text class="s" x="{_LEFT}" y="46">{escape(words)}</text>'

    def _phases(self, bottom: float) -> Iterator[str]:
        start = self._x(self._outcome.setup.safety_seconds)
        width = _LEFT + _PLOT - start
        yield f'<rect x="{start:.1f}" y="{_TOP}" width="{width:.1f}" height="{bottom - _TOP}" fill="#f1f8f1"/>'
        yield f'<text class="s" x="{start + 6:.1f}" y="{_TOP - 6}">the world heals</text>'

    def _hours(self, bottom: float) -> Iterator[str]:
        step = max(1, round(self._seconds / 3600 / 12)) * 3600
        for at in range(0, self._seconds + 1, step):
            x = self._x(at)
            yield f'<line class="g" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}"/>'
            yield f'<text class="s" x="{x:.1f}" y="{bottom + 16}" text-anchor="middle">{at // 3600} h</text>'

    def _violations(self, bottom: float) -> Iterator[str]:
        for violation, _ in self._outcome.violations:
            x = self._x(self._since(violation.at))
            yield f'<line x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}" stroke="#d00" stroke-width="2"/>'
            yield f'<text x="{x - 4:.1f}" y="{_TOP + 12}" text-anchor="end" fill="#d00">{violation.invariant}</text>'

    # Curves

    def _workers(self, top: float) -> Iterator[str]:
        numbers = self._outcome.setup.numbers
        most = max([numbers.max_workers, *(s.workers + s.joining for s in self._outcome.samples)]) + 1
        yield from self._frame(top, "workers", most)
        yield self._area(top, most, lambda s: s.workers + s.joining, "#cfe3f7")
        yield self._area(top, most, lambda s: s.workers, "#6aa5dd")
        yield self._line(top, most, lambda s: s.spot, "#7b3fb5")
        for limit in (numbers.min_workers, numbers.max_workers):
            y = _y(top, limit, most)
            yield f'<line class="m" x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _PLOT}" y2="{y:.1f}"/>'
        legend = (("in service", "#6aa5dd"), ("on their way", "#cfe3f7"), ("spot", "#7b3fb5"), ("min, max", "#999"))
        yield from _legend(top, legend)

    def _pending(self, top: float) -> Iterator[str]:
        most = max([5, *(s.pending for s in self._outcome.samples)])
        yield from self._frame(top, "waiting pods", most)
        yield self._area(top, most, lambda s: s.pending, "#e9a23b")

    def _cpu(self, top: float) -> Iterator[str]:
        numbers = self._outcome.setup.numbers
        yield from self._frame(top, "CPU, %", 100)
        yield self._line(top, 100, lambda s: s.cpu * 100, "#c2334d")
        for limit in (numbers.cpu_down, numbers.cpu_up):
            y = _y(top, limit * 100, 100)
            yield f'<line class="m" x1="{_LEFT}" y1="{y:.1f}" x2="{_LEFT + _PLOT}" y2="{y:.1f}"/>'
        yield from _legend(top, (("used", "#c2334d"), ("limits", "#999")))

    def _cost(self, top: float) -> Iterator[str]:
        def cents(sample: Sample) -> float:
            other = sample.workers + sample.joining - sample.spot
            return 100 * (sample.spot * _USD_PER_HOUR["spot"] + other * _USD_PER_HOUR["on-demand"])

        samples = self._outcome.samples
        most = max([1.0, *map(cents, samples)]) * 1.1
        yield from self._frame(top, "cost, ¢/h", most)
        yield self._area(top, most, cents, "#bcd9c0")
        spent = sum(map(cents, samples)) / 60
        yield from _legend(top, ((f"{spent:.0f} ¢ in all", "#bcd9c0"),))

    def _actions(self, top: float) -> Iterator[str]:
        yield f'<text x="{_LEFT - 8}" y="{top + 15}" text-anchor="end">actions</text>'
        for kind, begun, ended in self._outcome.marks.actions:
            start = self._x(self._since(begun))
            end = self._x(self._since(ended)) if ended else _LEFT + _PLOT
            y = top if kind == "scale-up" else top + 18
            yield _bar(start, y, end - start, 14, _ACTIONS[kind], kind)
        yield f'<text x="{_LEFT - 8}" y="{top + 51}" text-anchor="end">spot</text>'
        for kind, at in self._outcome.marks.notices:
            x = self._x(self._since(at))
            color = "#7b3fb5" if kind == "interruption" else "#c9b3e0"
            yield f'<circle cx="{x:.1f}" cy="{top + 47}" r="4" fill="{color}"><title>{escape(kind)}</title></circle>'
        yield f'<text x="{_LEFT - 8}" y="{top + 75}" text-anchor="end">troubles</text>'
        for what, since, seconds in self._outcome.marks.troubles:
            start = self._x(self._since(since))
            width = self._x(min(self._seconds, self._since(since) + seconds)) - start
            yield _bar(start, top + 62, width, 14, "#d4d4d4", what)
            if width > 7 * len(what):
                yield f'<text x="{start + 4:.1f}" y="{top + 73}">{escape(what)}</text>'
        yield from _legend(top, (*_ACTIONS.items(), ("interruption", "#7b3fb5"), ("outage", "#d4d4d4")))

    def _faults(self, top: float) -> Iterator[str]:
        for number, kind in enumerate(self._kinds):
            y, color = top + number * 15, _FAULTS[number % len(_FAULTS)]
            times = [self._x(self._since(at)) for name, at in self._outcome.marks.faults if name == kind]
            yield f'<text x="{_LEFT - 8}" y="{y + 11}" text-anchor="end">{escape(kind)}</text>'
            path = "".join(f"M{x:.1f} {y + 2}v10" for x in times)
            yield f'<path d="{path}" stroke="{color}" stroke-width="1.5"/>'
            yield f'<text class="s" x="{_LEFT + _PLOT + 12}" y="{y + 11}">{len(times)}</text>'

    # Strokes

    def _frame(self, top: float, name: str, most: float) -> Iterator[str]:
        bottom = top + _PANEL
        yield f'<text x="{_LEFT - 8}" y="{top + 12}" text-anchor="end">{escape(name)}</text>'
        yield f'<text class="s" x="{_LEFT - 8}" y="{top + 28}" text-anchor="end">{most:.0f}</text>'
        yield f'<text class="s" x="{_LEFT - 8}" y="{bottom}" text-anchor="end">0</text>'
        yield f'<line x1="{_LEFT}" y1="{bottom}" x2="{_LEFT + _PLOT}" y2="{bottom}" stroke="#999"/>'

    def _area(self, top: float, most: float, value: Callable[[Sample], float], color: str) -> str:
        points = self._steps(top, most, value)
        if not points:
            return ""
        bottom = top + _PANEL
        path = f"M{points[0][0]:.1f} {bottom} " + " ".join(f"L{x:.1f} {y:.1f}" for x, y in points)
        return f'<path d="{path} L{points[-1][0]:.1f} {bottom} Z" fill="{color}"/>'

    def _line(self, top: float, most: float, value: Callable[[Sample], float], color: str) -> str:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in self._steps(top, most, value))
        return f'<polyline class="l" stroke="{color}" points="{points}"/>'

    def _steps(self, top: float, most: float, value: Callable[[Sample], float]) -> list[tuple[float, float]]:
        return [(self._x(s.at_seconds), _y(top, value(s), most)) for s in self._outcome.samples]

    def _x(self, seconds: float) -> float:
        return _LEFT + _PLOT * min(1.0, max(0.0, seconds / self._seconds))

    def _since(self, at: Instant) -> float:
        return at.seconds_since(self._outcome.began)


def _y(top: float, value: float, most: float) -> float:
    return top + _PANEL - _PANEL * min(1.0, value / most)


def _bar(x: float, y: float, width: float, height: float, color: str, words: str) -> str:
    title = f"<title>{escape(words)}</title>"
    return f'<rect x="{x:.1f}" y="{y}" width="{max(2.0, width):.1f}" height="{height}" fill="{color}">{title}</rect>'


def _legend(top: float, entries: Sequence[tuple[str, str]]) -> Iterator[str]:
    x = _LEFT + _PLOT + 12
    for number, (words, color) in enumerate(entries):
        y = top + 4 + number * 17
        yield f'<rect x="{x}" y="{y}" width="10" height="10" fill="{color}"/>'
        yield f'<text x="{x + 15}" y="{y + 9}">{escape(words)}</text>'
