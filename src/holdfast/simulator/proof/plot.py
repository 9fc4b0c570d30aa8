"""A run on one time line, as SVG: the cluster, its jobs, each action and every fault.

Without a plotting library: it would be the largest dependency of Holdfast.
"""

from collections.abc import Callable, Iterator, Sequence
from html import escape
from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.simulator.proof.faults import FaultKind
from holdfast.simulator.proof.plot_strokes import (
    HEIGHT,
    LEFT,
    PLOT,
    RIGHT_EDGE,
    WIDTH,
    Entry,
    Scale,
    bar,
    hours_step,
    lane_name,
    legend,
    text,
    thinned,
    y_axis,
    y_of,
)
from holdfast.simulator.proof.run import Outcome, Sample

_TOP: Final = 126
_BAND: Final = 78  # the phases, above all panels
_GAP: Final = 38
_LANE: Final = 17
_USD_PER_HOUR: Final = {"on-demand": 0.0416, "spot": 0.0125}  # of a t3.medium, about
_UP, _DOWN, _SPOT, _HINT, _OUTAGE = "#2e9d57", "#d9822b", "#7b3fb5", "#c9b3e0", "#8f8f8f"
_LIMIT: Final = "#777"
_FAULTS: Final = (  # name in the legend, color, kinds of faults
    ("killed", "#c2334d", {FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER}),
    ("no answer, or a stale one", "#d9822b", {FaultKind.LOST, FaultKind.REFUSED, FaultKind.STALE}),
    ("slow or suspended", "#1f77b4", {FaultKind.SWITCH, FaultKind.DELAY, FaultKind.PAUSE}),
    ("wrong clock", "#159a9c", {FaultKind.SKEW, FaultKind.JUMP}),
    (
        "late, duplicate or missing",
        "#7b3fb5",
        {kind for kind in FaultKind if kind.startswith(("tick", "event", "hook"))},
    ),
)
_WORLD: Final = ("outage", _OUTAGE)
_STYLE: Final = (
    "text{font:12px system-ui,sans-serif;fill:#333}.t{font-size:17px;font-weight:600}.p{font-weight:600}"
    ".s{fill:#6b6b6b}.ok{fill:#1d7a3e;font-weight:600}.bad{fill:#c00;font-weight:600}.g{stroke:#e4e4e4}"
    ".a{stroke:#888}.l{fill:none;stroke-width:1.6}.m{stroke-dasharray:5 3;stroke:#777}"
)


def drawn_run(outcome: Outcome) -> str:
    """The plot of a run, as SVG."""
    return "\n".join(_Picture(outcome).parts())


class _Picture:
    def __init__(self, outcome: Outcome) -> None:
        self._outcome = outcome
        self._setup = outcome.setup
        self._seconds = outcome.setup.seconds
        self._samples = thinned(outcome.samples)
        # A run may end at its first violation; the plot ends there too.
        self._ended = self._since(outcome.violations[0][0].at) if outcome.violations else self._seconds
        self._top = _TOP

    def parts(self) -> Iterator[str]:
        body = list(self._body())  # the body decides the height of the picture
        bottom = self._top
        height = bottom + 56
        yield (
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" '
            f'width="{WIDTH}" height="{height}"><style>{_STYLE}</style>'
        )
        yield f'<rect width="{WIDTH}" height="{height}" fill="#fff"/>'
        yield from self._title()
        yield from self._phases(bottom)
        yield from self._hours(bottom)
        yield from body
        yield from self._violations(bottom)
        yield "</svg>"

    def _body(self) -> Iterator[str]:
        if self._setup.ticks:
            yield from self._workers()
            yield from self._pending()
            yield from self._cpu()
            yield from self._cost()
        if self._setup.github is not None:
            yield from self._jobs()
        if self._setup.ticks:
            yield from self._actions()
        yield from self._faults()

    # Around

    def _title(self) -> Iterator[str]:
        setup, tracked = self._setup, self._outcome.tracked
        what = "a scenario" if setup.shape == "scenario" else f"{setup.shape} load"
        yield text(LEFT, 26, f"Holdfast, seed {setup.seed}: {what}", "t")
        zones = f"{setup.zones} zones" if setup.zones > 1 else "1 zone"
        words = [
            f"{self._seconds / 3600:.3g} h",
            *([f"{setup.workers} workers in {zones} at the start"] if setup.ticks else []),
            *([f"{tracked.jobs} jobs of {tracked.runs} runs at GitHub"] if setup.github is not None else []),
            f"{self._outcome.port_calls:,} port calls",
            f"{len(self._outcome.fault_names)} faults",
        ]
        yield text(LEFT, 46, ", ".join(words), "s")
        broken = self._outcome.invariants
        yield text(
            LEFT, 65, f"violated: {', '.join(broken)}" if broken else "every invariant held", "bad" if broken else "ok"
        )

    def _phases(self, bottom: float) -> Iterator[str]:
        """The two phases, with faults and healed: a band above the time line, and a green background for the second."""
        heals = self._x(self._setup.safety_seconds)
        ground = f'x="{heals:.1f}" y="{_BAND}" width="{RIGHT_EDGE - heals:.1f}" height="{bottom - _BAND}"'
        yield f'<rect {ground} fill="#f3faf4"/>'
        phases = (
            (LEFT, heals, "#f7dcd6", "faults", "nothing unsafe may happen"),
            (heals, RIGHT_EDGE, "#cfe8d3", "healed", "everything must settle"),
        )
        for start, end, color, name, says in phases:
            words = f"{name}: {says}" if end - start > 280 else name
            yield bar(start, _BAND, end - start, 18, color, f"{name}: {says}")
            yield text((start + end) / 2, _BAND + 13, words, anchor="middle")
        yield f'<line class="a" x1="{heals:.1f}" y1="{_BAND}" x2="{heals:.1f}" y2="{bottom}"/>'

    def _hours(self, bottom: float) -> Iterator[str]:
        step = hours_step(self._seconds / 3600)
        yield f'<line class="a" x1="{LEFT}" y1="{bottom}" x2="{RIGHT_EDGE}" y2="{bottom}"/>'
        for number in range(int(self._seconds / 3600 / step + 1e-9) + 1):
            x = self._x(number * step * 3600)
            yield f'<line class="g" x1="{x:.1f}" y1="{_TOP}" x2="{x:.1f}" y2="{bottom}"/>'
            yield f'<line class="a" x1="{x:.1f}" y1="{bottom}" x2="{x:.1f}" y2="{bottom + 5}"/>'
            yield text(x, bottom + 19, f"{number * step:g}", "s", "middle")
        yield text(LEFT + PLOT / 2, bottom + 40, "hours since the start", anchor="middle")

    def _violations(self, bottom: float) -> Iterator[str]:
        for violation, _ in self._outcome.violations:
            x = self._x(self._since(violation.at))
            anchor, dx = ("end", -5) if x > LEFT + PLOT / 2 else ("start", 5)
            yield f'<line x1="{x:.1f}" y1="{_BAND}" x2="{x:.1f}" y2="{bottom}" stroke="#c00" stroke-width="2"/>'
            yield text(x + dx, _BAND + 32, f"{violation.invariant} is violated", "bad", anchor)

    # Curves

    def _workers(self) -> Iterator[str]:
        numbers = self._setup.numbers
        scale = Scale.of(max([numbers.max_workers, *(s.workers + s.joining for s in self._samples)]), whole=True)
        yield from self._panel("workers", "number", scale)
        yield self._area(scale, lambda s: s.workers + s.joining, "#b9d7f3")
        yield self._area(scale, lambda s: s.workers, "#5b9bd8")
        yield self._line(scale, lambda s: s.spot, _SPOT)
        yield from self._limits(scale, numbers.min_workers, numbers.max_workers)
        limits = f"limits: {numbers.min_workers}, {numbers.max_workers}"
        entries = (
            ("in service", "#5b9bd8", "box"),
            ("joining", "#b9d7f3", "box"),
            ("of these, spot", _SPOT, "line"),
        )
        yield from self._end_panel((*entries, (limits, _LIMIT, "dash")))

    def _pending(self) -> Iterator[str]:
        scale = Scale.of(max([4, *(s.pending for s in self._samples)]), whole=True)
        yield from self._panel("pending pods", "number", scale)
        yield self._area(scale, lambda s: s.pending, "#e9a23b")
        yield from self._end_panel((("no machine has room", "#e9a23b", "box"),))

    def _cpu(self) -> Iterator[str]:
        numbers, scale = self._setup.numbers, Scale.of(100)
        yield from self._panel("CPU of the workers", "%", scale)
        yield self._line(scale, lambda s: s.cpu * 100, "#c2334d")
        yield from self._limits(scale, numbers.cpu_down * 100, numbers.cpu_up * 100)
        limits = f"limits: {numbers.cpu_down:.0%}, {numbers.cpu_up:.0%}"
        yield from self._end_panel((("used", "#c2334d", "line"), (limits, _LIMIT, "dash")))

    def _cost(self) -> Iterator[str]:
        scale = Scale.of(max([1.0, *map(_cents_per_hour, self._samples)]))
        yield from self._panel("cost", "US cents an hour", scale)
        yield self._area(scale, _cents_per_hour, "#9cc9a3")
        spent = sum(map(_cents_per_hour, self._outcome.samples)) / 60
        yield from self._end_panel(((f"{spent:.0f} cents in total", "#9cc9a3", "box"),))

    def _jobs(self) -> Iterator[str]:
        scale = Scale.of(max([3, *(s.jobs_open for s in self._samples)]), whole=True)
        yield from self._panel("jobs at GitHub", "number", scale)
        yield self._area(scale, lambda s: s.jobs_open, "#d5c8e8")
        yield self._area(scale, lambda s: s.jobs_running, "#8f6cc0")
        yield from self._end_panel((("running", "#8f6cc0", "box"), ("queued or waiting", "#d5c8e8", "box")))

    # Lanes

    def _actions(self) -> Iterator[str]:
        events = self._outcome.plot_events
        outages = list(dict.fromkeys(what for what, _, _ in events.outages))
        yield text(LEFT, self._top - 6, "actions, spot notices and outages", "p")
        yield from legend(
            self._top,
            (("interruption", _SPOT, "dot"), ("rebalance hint", _HINT, "dot"), ("outage or pause", _OUTAGE, "box")),
        )
        for kind, color in (("scale-up", _UP), ("scale-down", _DOWN)):
            yield from self._lane(kind)
            for action, begun, ended in events.actions:
                end = self._since(ended) if ended else self._ended
                yield self._span(self._since(begun), end, color, kind) if action == kind else ""
            self._top += _LANE
        yield from self._lane("spot notices")
        for kind, at in events.notices:
            color = _SPOT if kind == "interruption" else _HINT
            x, y = self._x(self._since(at)), self._top + 7
            yield f'<circle cx="{x:.1f}" cy="{y}" r="4.5" fill="{color}"><title>{escape(kind)}</title></circle>'
        self._top += _LANE
        for what in outages:
            yield from self._lane(what)
            for name, since, seconds in events.outages:
                end = min(self._ended, self._since(since) + seconds)
                yield self._span(self._since(since), end, _OUTAGE, what) if name == what else ""
            self._top += _LANE
        self._top += _GAP

    def _faults(self) -> Iterator[str]:
        """A stroke for each minute with a fault of the kind."""
        found = {kind for sample in self._samples for kind in sample.faults}
        groups = [
            (name, color, [kind for kind in FaultKind if kind in kinds & found]) for name, color, kinds in _FAULTS
        ]
        named = {kind for _, _, kinds in _FAULTS for kind in kinds}
        groups.append((*_WORLD, [kind for kind in FaultKind if kind in found - named]))
        groups = [group for group in groups if group[2]]
        yield text(LEFT, self._top - 6, "faults, by kind" if groups else "no faults", "p")
        yield from legend(self._top, [(name, color, "box") for name, color, _ in groups], x=RIGHT_EDGE + 44)
        lowest = self._top + 18 * len(groups)
        for _, color, kinds in groups:
            for kind in kinds:
                yield from self._lane(kind)
                times = [self._x(sample.at_seconds) for sample in self._samples if kind in sample.faults]
                path = "".join(f"M{x:.1f} {self._top + 2}v11" for x in times)
                yield f'<path d="{path}" stroke="{color}" stroke-width="2"/>'
                yield text(RIGHT_EDGE + 8, self._top + 12, str(self._outcome.faults[kind]), "s")
                self._top += _LANE
        self._top = max(self._top, lowest) + 6

    def _lane(self, name: str) -> Iterator[str]:
        yield f'<line class="g" x1="{LEFT}" y1="{self._top + 15}" x2="{RIGHT_EDGE}" y2="{self._top + 15}"/>'
        yield lane_name(self._top + 12, name)

    def _span(self, start: float, end: float, color: str, words: str) -> str:
        x = self._x(start)
        return bar(x, self._top + 1, self._x(end) - x, 13, color, words)

    # Strokes

    def _panel(self, name: str, unit: str, scale: Scale) -> Iterator[str]:
        yield text(LEFT, self._top - 6, f"{name}, {unit}", "p")
        yield from y_axis(self._top, scale)

    def _end_panel(self, entries: Sequence[Entry]) -> Iterator[str]:
        yield from legend(self._top, entries)
        self._top += HEIGHT + _GAP

    def _limits(self, scale: Scale, *limits: float) -> Iterator[str]:
        for limit in limits:
            y = y_of(self._top, limit, scale)
            yield f'<line class="m" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT_EDGE}" y2="{y:.1f}"/>'

    def _area(self, scale: Scale, value: Callable[[Sample], float], color: str) -> str:
        points = self._points(scale, value)
        if not points:
            return ""
        bottom = self._top + HEIGHT
        path = f"M{points[0][0]:.1f} {bottom} " + " ".join(f"L{x:.1f} {y:.1f}" for x, y in points)
        return f'<path d="{path} L{points[-1][0]:.1f} {bottom} Z" fill="{color}"/>'

    def _line(self, scale: Scale, value: Callable[[Sample], float], color: str) -> str:
        points = " ".join(f"{x:.1f},{y:.1f}" for x, y in self._points(scale, value))
        return f'<polyline class="l" stroke="{color}" points="{points}"/>'

    def _points(self, scale: Scale, value: Callable[[Sample], float]) -> list[tuple[float, float]]:
        """Steps: each sample holds until the next one."""
        ends = [*(self._x(sample.at_seconds) for sample in self._samples[1:]), self._x(self._ended)]
        heights = [(self._x(s.at_seconds), y_of(self._top, value(s), scale)) for s in self._samples]
        return [(x, y) for (start, y), end in zip(heights, ends, strict=False) for x in (start, end)]

    def _x(self, seconds: float) -> float:
        return LEFT + PLOT * min(1.0, max(0.0, seconds / self._seconds))

    def _since(self, at: Instant) -> float:
        return at.seconds_since(self._outcome.began)


def _cents_per_hour(sample: Sample) -> float:
    other = sample.workers + sample.joining - sample.spot
    return 100 * (sample.spot * _USD_PER_HOUR["spot"] + other * _USD_PER_HOUR["on-demand"])
