"""Charts as numbers, drawn by the templates as inline SVG: 1000 wide and 100 high, whatever the screen's size.

Colours and lines come from the style sheet, and every chart has the same data in words beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final, Literal

from msgspec import structs

from holdfast.jobs.read.item_views import JobView
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Shape
from holdfast.views.cluster_history import ActionSpan, TimelinePoint
from holdfast.views.cluster_now import TimeLine
from holdfast.views.job_types import CostRow

WIDTH: Final = 1000.0
HEIGHT: Final = 100.0
_POINTS_MOST: Final = 240
_LEAST_WIDTH: Final = 2.0
_COLUMN_MOST: Final = 60.0
_GAP_SECONDS: Final = 900
# Up to so many hours, a time on the axis every so many minutes.
_AXIS_MINUTES: Final = ((1, 10), (3, 30), (6, 60), (24, 240))
_HEADROOM: Final = 1.35
_DAY_SECONDS: Final = 86_400
# Between the times under a run's jobs: round ones, and no more than fit beside each other.
_STEPS_SECONDS: Final = (5, 10, 15, 30, 60, 120, 300, 600, 1200, 1800, 3600, 7200, 14_400, 21_600, 43_200, _DAY_SECONDS)
_STEPS_MOST: Final = 6
# The stages of a job in their order, and what happens in each.
_STAGES: Final = {
    "webhook_lag": "until GitHub's first webhook about the job arrived",
    "approval": "until a person approved its deployment",
    "held": "until GitHub released it: by a concurrency limit, or a rule without a deployment",
    "decision": "in the queue, until the runner fleet decided to start a machine for it",
    "launch": "until EC2 launched the machine",
    "boot": "until the machine had booted",
    "register": "until its runner had registered with GitHub",
    "assign": "until GitHub assigned the job to the runner",
    "run": "until the job completed, or so far",
}

Measure = Literal["workers", "pending", "cpu"]


class Limit(Shape, frozen=True, kw_only=True):
    """A dashed line across a lane, and what happens there. `y`: from the top."""

    y: float
    words: str


class AxisTick(Shape, frozen=True, kw_only=True):
    at: str
    x: float


class Lane(Shape, frozen=True, kw_only=True):
    """One measure over time. `last`: as the newest tick observed it. `ground`: the area below the line.

    `top` is the value at the upper end of the lane; the lower end is always 0.
    """

    name: str
    attribute: Measure
    top: str
    limits: list[Limit]
    line: str
    ground: str
    last: float | None


class Band(Shape, frozen=True, kw_only=True):
    """An action, behind the lanes."""

    kind: str
    result: str | None
    x: float
    width: float


class Mark(Shape, frozen=True, kw_only=True):
    kind: str
    x: float


class TimeChart(Shape, frozen=True, kw_only=True):
    """`readings`: at, x, workers, pending, cpu; for the pointer to show."""

    lanes: list[Lane]
    bands: list[Band]
    marks: list[Mark]
    ticks: list[AxisTick]
    readings: list[tuple[str, float, int | None, int | None, float | None]]


class StageBar(Shape, frozen=True, kw_only=True):
    """`about`: what happens in this stage."""

    name: str
    about: str
    seconds: int
    x: float
    width: float


class GanttRow(Shape, frozen=True, kw_only=True):
    job: JobView
    wait_x: float
    wait_width: float
    run_x: float
    run_width: float


class Gantt(Shape, frozen=True, kw_only=True):
    rows: list[GanttRow]
    ticks: list[AxisTick]
    tick_form: Literal["seconds", "clock", "day"]
    seconds: float


class CostBar(CostRow, frozen=True, kw_only=True):
    width: float


class CostColumn(CostRow, frozen=True, kw_only=True):
    x: float
    width: float
    height: float


def time_chart(line: TimeLine, now: str) -> TimeChart:
    """Three lanes over the same hours: workers, pending pods and CPU, with actions and interruptions."""
    end = Instant.from_iso(now)
    begin = end.plus(-line.hours * 3600)
    # No line is drawn over a long time without ticks.
    gap_ms = max(_GAP_SECONDS, line.hours * 3600 / _POINTS_MOST * 4) * 1000
    points = _with_gaps(_thinned(line.points), gap_ms)
    # Room above the maximum, for its name: nothing is drawn there.
    most_workers = max([line.max_workers, *_known(points, "workers")], default=1) * _HEADROOM
    most_pending = max([5, *_known(points, "pending")])
    place = _placing(begin, end)
    # The newest tick of all: what it could not observe is unknown now, whatever was before.
    newest = line.points[-1] if line.points else None

    cpu_limits = {f"add at {line.cpu_up:.0%}": line.cpu_up, f"remove below {line.cpu_down:.0%}": line.cpu_down}

    def lane(name: str, attribute: Measure, most: float, limits: Mapping[str, float], *, is_step: bool = True) -> Lane:
        values = [(place(point.at), value_of(point, attribute)) for point in points]
        drawn, ground = _paths(values, most, is_step=is_step)
        return Lane(
            name=name,
            attribute=attribute,
            top="" if attribute == "workers" else f"{most:.0%}" if attribute == "cpu" else f"{most:g}",
            limits=[Limit(y=_height(limit, most), words=words) for words, limit in limits.items()],
            line=drawn,
            ground=ground,
            last=value_of(newest, attribute) if newest else None,
        )

    return TimeChart(
        lanes=[
            lane("Workers", "workers", most_workers, {f"maximum {line.max_workers}": line.max_workers}),
            lane("Pending pods", "pending", most_pending, {}),
            lane("CPU", "cpu", 1.0, cpu_limits, is_step=False),
        ],
        bands=[_band(action, place) for action in line.actions],
        marks=[Mark(kind=mark.kind, x=place(mark.at)) for mark in line.marks],
        ticks=[AxisTick(at=at.iso(), x=round(place(at.iso()), 1)) for at in _round_times(begin, end, line.hours)],
        readings=[
            (point.at, round(place(point.at), 1), point.workers, point.pending, point.cpu)
            for point in points
            if point.workers is not None or point.pending is not None or point.cpu is not None
        ],
    )


def _round_times(begin: Instant, end: Instant, hours: int) -> list[Instant]:
    """About six times on the axis, at whole hours or round minutes."""
    return _times_every(next(minutes for most, minutes in _AXIS_MINUTES if hours <= most) * 60, begin, end)


def _times_every(step_seconds: int, begin: Instant, end: Instant) -> list[Instant]:
    step_ms = step_seconds * 1000
    first = -(-begin.epoch_ms // step_ms)
    return [Instant(number * step_ms) for number in range(first, end.epoch_ms // step_ms + 1)]


def value_of(point: TimelinePoint, measure: Measure) -> float | None:
    match measure:
        case "workers":
            return point.workers
        case "pending":
            return point.pending
        case "cpu":
            return point.cpu


def _with_gaps(points: Sequence[TimelinePoint], gap_ms: float) -> list[TimelinePoint]:
    found: list[TimelinePoint] = []
    for point in points:
        at = Instant.from_iso(point.at)
        if found and at.epoch_ms - Instant.from_iso(found[-1].at).epoch_ms > gap_ms:
            found.append(TimelinePoint(at=at.plus(-0.001).iso(), workers=None, pending=None, cpu=None))
        found.append(point)
    return found


def _paths(values: Sequence[tuple[float, float | None]], most: float, *, is_step: bool) -> tuple[str, str]:
    """The line, and the area below it; interrupted where a value is unknown."""
    line: list[str] = []
    ground: list[str] = []
    piece: list[tuple[float, float]] = []
    for x, value in [*values, (0.0, None)]:
        if value is not None:
            piece.append((x, _height(value, most)))
            continue
        if piece:
            drawn = _drawn(piece, is_step=is_step)
            line.append(drawn)
            ground.append(f"{drawn}L{piece[-1][0]:.1f} {HEIGHT:g}L{piece[0][0]:.1f} {HEIGHT:g}Z")
            piece = []
    return "".join(line), "".join(ground)


def _drawn(piece: Sequence[tuple[float, float]], *, is_step: bool) -> str:
    x, y = piece[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for x, y in piece[1:]:
        parts.append(f"H{x:.1f}V{y:.1f}" if is_step else f"L{x:.1f} {y:.1f}")
    return "".join(parts)


def _height(value: float, most: float) -> float:
    """From the top, with a margin above and below so that no line is cut in half."""
    return round(96 - 92 * min(1.0, max(0.0, value / most)), 1)


def _placing(begin: Instant, end: Instant) -> Callable[[str], float]:
    whole = max(1, end.epoch_ms - begin.epoch_ms)

    def place(iso: str) -> float:
        return min(WIDTH, max(0.0, (Instant.from_iso(iso).epoch_ms - begin.epoch_ms) * WIDTH / whole))

    return place


def _band(action: ActionSpan, place: Callable[[str], float]) -> Band:
    left = place(action.begin) if action.begin else 0.0
    right = place(action.end) if action.end else WIDTH
    width = max(_LEAST_WIDTH, right - left)
    return Band(kind=action.kind, result=action.result, x=round(left, 1), width=round(width, 1))


def _thinned(points: Sequence[TimelinePoint]) -> list[TimelinePoint]:
    """No more than a screen can show. Of points that coincide, the one with the most pending pods is kept."""
    if len(points) <= _POINTS_MOST:
        return list(points)
    size = len(points) / _POINTS_MOST
    parts = (points[round(number * size) : round((number + 1) * size)] for number in range(_POINTS_MOST))
    return [max(part, key=lambda point: point.pending or 0) for part in parts if part]


def _known(points: Sequence[TimelinePoint], measure: Measure) -> list[float]:
    return [value for value in (value_of(point, measure) for point in points) if value is not None]


def stage_bars(job: JobView, now: str) -> list[StageBar]:
    """How long a job spent in each stage.

    Seconds are rounded from one boundary to the next, so that they add up to the total.
    """
    spent = {**job.stages_in_ms, "run": _run_ms(job, now)}
    stages = [(name, spent.get(name)) for name in _STAGES]
    known = [(name, ms) for name, ms in stages if ms]
    total = sum(ms for _, ms in known) or 1
    before, found = 0, []
    for name, ms in known:
        seconds = int(before + ms) // 1000 - int(before) // 1000
        left, width = before * WIDTH / total, ms * WIDTH / total
        found.append(StageBar(name=name, about=_STAGES[name], seconds=seconds, x=round(left, 1), width=round(width, 1)))
        before += ms
    return found


def gantt(jobs: Sequence[JobView], now: str) -> Gantt:
    """A run's jobs over time: each waits from its creation, and runs from its start."""
    ordered = sorted(jobs, key=lambda job: (job.created_at or "", job.started_at or "~", job.job_id))
    begins = [job.created_at for job in ordered if job.created_at]
    if not begins:
        return Gantt(rows=[], ticks=[], tick_form="clock", seconds=0.0)
    begin = Instant.from_iso(min(begins))
    end = max(begin.plus(1), *(Instant.from_iso(job.completed_at or now) for job in ordered))
    place = _placing(begin, end)
    seconds = end.seconds_since(begin)
    step_seconds = next((step for step in _STEPS_SECONDS if seconds / step <= _STEPS_MOST), _DAY_SECONDS * 7)
    return Gantt(
        rows=[_gantt_row(job, now, place) for job in ordered],
        ticks=[AxisTick(at=at.iso(), x=round(place(at.iso()), 1)) for at in _times_every(step_seconds, begin, end)],
        tick_form="seconds" if step_seconds < 60 else "clock" if step_seconds < _DAY_SECONDS else "day",
        seconds=seconds,
    )


def _gantt_row(job: JobView, now: str, place: Callable[[str], float]) -> GanttRow:
    created = place(job.created_at) if job.created_at else 0.0
    ended = place(job.completed_at or now)
    started = place(job.started_at) if job.started_at else ended
    return GanttRow(
        job=job,
        wait_x=round(created, 1),
        wait_width=round(max(0.0, started - created), 1),
        run_x=round(started, 1),
        run_width=round(max(_LEAST_WIDTH, ended - started), 1) if job.started_at else 0,
    )


def cost_bars(rows: Sequence[CostRow]) -> list[CostBar]:
    """A bar for each row, as wide as its share of the most expensive one."""
    most = _most(rows)
    return [CostBar(**structs.asdict(row), width=round(float(row.usd) * WIDTH / most, 1)) for row in rows]


def cost_columns(rows: Sequence[CostRow]) -> list[CostColumn]:
    """The rows side by side as columns."""
    most = _most(rows)
    step = WIDTH / max(1, len(rows))
    width = min(step * 0.8, _COLUMN_MOST)
    return [
        CostColumn(
            **structs.asdict(row),
            x=round((number + 0.5) * step - width / 2, 1),
            width=round(width, 1),
            height=round(max(0.5, float(row.usd) * HEIGHT / most), 1),
        )
        for number, row in enumerate(rows)
    ]


def _most(rows: Sequence[CostRow]) -> float:
    return max((float(row.usd) for row in rows), default=0) or 1


def _run_ms(job: JobView, now: str) -> int | None:
    if job.usage_in_seconds is not None:
        return int(job.usage_in_seconds * 1000)
    if not job.started_at:
        return None
    return max(0, Instant.from_iso(now).epoch_ms - Instant.from_iso(job.started_at).epoch_ms)
