"""Drawing primitives of the plot: scales with round steps, axes, legends, bars."""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from html import escape
from typing import Final, Self

from holdfast.simulator.proof.run import Sample

WIDTH: Final = 1320
LEFT: Final = 190
RIGHT_EDGE: Final = 1090
PLOT: Final = RIGHT_EDGE - LEFT
HEIGHT: Final = 96  # of a panel
POINTS_MOST: Final = 1500  # of a curve: more would not be visible
_HOURS: Final = (0.1, 0.25, 0.5, 1, 2, 3, 6, 12, 24, 48, 120, 240, 480, 960)
_TICKS_MOST: Final = 13
Entry = tuple[str, str, str]  # of a legend: text, color, and one of box, line, dash, dot


@dataclass(frozen=True, slots=True)
class Scale:
    """From 0 up to `most`, with a grid line at each `step`."""

    most: float
    step: float

    @classmethod
    def of(cls, value: float, *, whole: bool = False) -> Self:
        """A scale that has room for the value, with two to five round steps."""
        size = 10 ** math.floor(math.log10(value / 2))
        step = next(factor * size for factor in (1, 2, 5, 10) if value <= 4 * factor * size * 1.0001)
        step = max(1, step) if whole else step
        return cls(math.ceil(value / step - 1e-9) * step, step)

    def steps(self) -> list[float]:
        return [number * self.step for number in range(round(self.most / self.step) + 1)]


def hours_step(hours: float) -> float:
    """The step of the time axis."""
    return next((step for step in _HOURS if hours / step < _TICKS_MOST), _HOURS[-1])


def thinned(samples: Sequence[Sample], most: int = POINTS_MOST) -> list[Sample]:
    """At most `most` samples. Peaks remain: each group keeps its largest values and all its faults."""
    size = -(-len(samples) // most) or 1
    return [_merged(samples[start : start + size]) for start in range(0, len(samples), size)]


def _merged(group: Sequence[Sample]) -> Sample:
    if len(group) == 1:
        return group[0]
    return Sample(
        group[0].at_seconds,
        max(sample.workers for sample in group),
        max(sample.joining for sample in group),
        max(sample.pending for sample in group),
        max(sample.cpu for sample in group),
        max(sample.spot for sample in group),
        max(sample.jobs_open for sample in group),
        max(sample.jobs_running for sample in group),
        tuple(kind for sample in group for kind in sample.faults),
    )


def y_of(top: float, value: float, scale: Scale) -> float:
    return top + HEIGHT - HEIGHT * min(1.0, value / scale.most)


def y_axis(top: float, scale: Scale) -> Iterator[str]:
    for value in scale.steps():
        y = y_of(top, value, scale)
        yield f'<line class="{"a" if value == 0 else "g"}" x1="{LEFT}" y1="{y:.1f}" x2="{RIGHT_EDGE}" y2="{y:.1f}"/>'
        yield f'<line class="a" x1="{LEFT - 4}" y1="{y:.1f}" x2="{LEFT}" y2="{y:.1f}"/>'
        yield text(LEFT - 8, y + 4, f"{value:g}", "s", "end")
    yield f'<line class="a" x1="{LEFT}" y1="{top}" x2="{LEFT}" y2="{top + HEIGHT}"/>'


def text(x: float, y: float, words: str, kind: str = "", anchor: str = "") -> str:
    more = f' class="{kind}"' if kind else ""
    more += f' text-anchor="{anchor}"' if anchor else ""
    return f'<text x="{x:.1f}" y="{y:.1f}"{more}>{escape(words)}</text>'


def lane_name(y: float, words: str) -> str:
    return text(LEFT - 8, y, words, anchor="end")


def bar(x: float, y: float, width: float, height: float, color: str, words: str) -> str:
    title = f"<title>{escape(words)}</title>"
    return f'<rect x="{x:.1f}" y="{y}" width="{max(2.5, width):.1f}" height="{height}" fill="{color}">{title}</rect>'


def legend(top: float, entries: Sequence[Entry], x: float = RIGHT_EDGE + 16) -> Iterator[str]:
    for number, (words, color, shape) in enumerate(entries):
        y = top + 8 + number * 18
        match shape:
            case "dot":
                yield f'<circle cx="{x + 7}" cy="{y}" r="4.5" fill="{color}"/>'
            case "line" | "dash":
                dashes = ' stroke-dasharray="5 3"' if shape == "dash" else ""
                yield f'<line x1="{x}" y1="{y}" x2="{x + 14}" y2="{y}" stroke="{color}" stroke-width="2"{dashes}/>'
            case _:
                yield f'<rect x="{x + 1}" y="{y - 6}" width="12" height="12" fill="{color}"/>'
        yield text(x + 20, y + 4, words)
