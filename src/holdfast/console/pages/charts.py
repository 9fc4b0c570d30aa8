"""Charts as numbers: what a template draws as inline SVG. Widths are of 1000, heights of 100, whatever the screen's.

Colours and lines are the style sheet's; every chart has the same in words beside it.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.kernel.instants import Instant

WIDTH: Final = 1000.0
HEIGHT: Final = 100.0
_POINTS_MOST: Final = 240
_LEAST_WIDTH: Final = 2.0
_COLUMN_MOST: Final = 60.0
_GAP_SECONDS: Final = 900

Point = Mapping[str, Any]


def time_line(line: Mapping[str, Any], now: str) -> dict[str, Any]:
    """Three lanes over the same hours: workers, pods that wait, CPU; and where actions and spot fall on them."""
    end = Instant.from_iso(now)
    begin = end.plus(-line["hours"] * 3600)
    points = _thinned(line["points"])
    # Where nobody ticked for long, nothing is known: no line is drawn over it.
    gap_ms = max(_GAP_SECONDS, line["hours"] * 3600 / _POINTS_MOST * 4) * 1000
    points = _with_gaps(points, gap_ms)
    most_workers = max([line["max_workers"], *_known(points, "workers")], default=1)
    most_pending = max([5, *_known(points, "pending")])
    place = _placing(begin, end)
    lanes = [
        _lane("Workers", "workers", points, place, most_workers, f"{line['max_workers']} at most", is_step=True),
        _lane("Pods waiting", "pending", points, place, most_pending, f"up to {most_pending}", is_step=True),
        {
            **_lane("CPU", "cpu", points, place, 1.0, f"add at {line['cpu_up']:.0%}"),
            "limits": [_height(line["cpu_up"], 1.0), _height(line["cpu_down"], 1.0)],
        },
    ]
    # What the newest tick saw, of all of them: what it could not see is not known now, whatever was before.
    newest = line["points"][-1] if line["points"] else {}
    return {
        "lanes": [{**lane, "last": newest.get(lane["attribute"])} for lane in lanes],
        "bands": [_band(action, place) for action in line["actions"]],
        "marks": [{**mark, "x": place(mark["at"])} for mark in line["marks"]],
        "ticks": [begin.plus(part * line["hours"] * 3600 / 4).iso() for part in range(5)],
        "readings": [
            [point["at"], round(place(point["at"]), 1), point["workers"], point["pending"], point["cpu"]]
            for point in points
            if any(point[name] is not None for name in ("workers", "pending", "cpu"))
        ],
    }


def _with_gaps(points: Sequence[Point], gap_ms: float) -> list[Point]:
    found: list[Point] = []
    for point in points:
        at = Instant.from_iso(point["at"])
        if found and at.epoch_ms - Instant.from_iso(found[-1]["at"]).epoch_ms > gap_ms:
            found.append({"at": at.plus(-0.001).iso(), "workers": None, "pending": None, "cpu": None})
        found.append(point)
    return found


def _lane(
    name: str,
    attribute: str,
    points: Sequence[Point],
    place: Callable[[str], float],
    most: float,
    note: str,
    *,
    is_step: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "attribute": attribute,
        "note": note,
        "limits": [],
        **_paths([(place(point["at"]), point[attribute]) for point in points], most, is_step=is_step),
    }


def _paths(values: Sequence[tuple[float, float | None]], most: float, *, is_step: bool) -> dict[str, str]:
    """The line, and the ground below it; broken where a value is not known."""
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
    return {"line": "".join(line), "ground": "".join(ground)}


def _drawn(piece: Sequence[tuple[float, float]], *, is_step: bool) -> str:
    x, y = piece[0]
    parts = [f"M{x:.1f} {y:.1f}"]
    for x, y in piece[1:]:
        parts.append(f"H{x:.1f}V{y:.1f}" if is_step else f"L{x:.1f} {y:.1f}")
    return "".join(parts)


def _height(value: float, most: float) -> float:
    """From the top; a little room is left above and below, so that no line is cut in half."""
    return round(96 - 92 * min(1.0, max(0.0, value / most)), 1)


def _placing(begin: Instant, end: Instant) -> Callable[[str], float]:
    whole = max(1, end.epoch_ms - begin.epoch_ms)

    def place(iso: str) -> float:
        return min(WIDTH, max(0.0, (Instant.from_iso(iso).epoch_ms - begin.epoch_ms) * WIDTH / whole))

    return place


def _band(action: Mapping[str, Any], place: Callable[[str], float]) -> dict[str, Any]:
    left = place(action["begin"]) if action["begin"] else 0.0
    right = place(action["end"]) if action["end"] else WIDTH
    return {**action, "x": round(left, 1), "width": round(max(_LEAST_WIDTH, right - left), 1)}


def _thinned(points: Sequence[Point]) -> list[Point]:
    """No more than a screen can show. Of those that fall together the one with the most waiting pods is kept."""
    if len(points) <= _POINTS_MOST:
        return list(points)
    size = len(points) / _POINTS_MOST
    parts = (points[round(number * size) : round((number + 1) * size)] for number in range(_POINTS_MOST))
    return [max(part, key=lambda point: point["pending"] or 0) for part in parts if part]


def _known(points: Sequence[Point], attribute: str) -> list[float]:
    return [point[attribute] for point in points if point[attribute] is not None]


def stages(job: Mapping[str, Any], now: str) -> list[dict[str, Any]]:
    """A job's life as a bar: what it spent on each stage, and how wide that is.

    Seconds are whole ones, from one end to the next, so that they add up to the whole, however they are cut.
    """
    known = dict(job["stages_in_ms"])
    run_ms = _run_ms(job, now)
    parts = [
        (name, known.get(name))
        for name in ("webhook_lag", "approval", "decision", "launch", "boot", "register", "assign")
    ]
    parts.append(("run", run_ms))
    shown = [(name, ms) for name, ms in parts if ms]
    whole = sum(ms for _, ms in shown) or 1
    over, found = 0, []
    for name, ms in shown:
        left, width = over * WIDTH / whole, ms * WIDTH / whole
        seconds = int(over + ms) // 1000 - int(over) // 1000
        found.append({"name": name, "seconds": seconds, "x": round(left, 1), "width": round(width, 1)})
        over += ms
    return found


def gantt(jobs: Sequence[Mapping[str, Any]], now: str) -> dict[str, Any]:
    """A run's jobs over its time: each waits from its creation, and runs from its start."""
    ordered = sorted(jobs, key=lambda job: (job["created_at"] or "", job["started_at"] or "~", job["job_id"]))
    begins = [job["created_at"] for job in ordered if job["created_at"]]
    if not begins:
        return {"rows": [], "ticks": []}
    ends = [job["completed_at"] or now for job in ordered]
    begin, end = Instant.from_iso(min(begins)), max(Instant.from_iso(text) for text in ends)
    end = max(end, begin.plus(1))
    place = _placing(begin, end)
    rows = []
    for job in ordered:
        made = place(job["created_at"]) if job["created_at"] else 0.0
        over = place(job["completed_at"] or now)
        started = place(job["started_at"]) if job["started_at"] else over
        rows.append(
            {
                "job": job,
                "wait_x": round(made, 1),
                "wait_width": round(max(0.0, started - made), 1),
                "run_x": round(started, 1),
                "run_width": round(max(_LEAST_WIDTH, over - started), 1) if job["started_at"] else 0,
            }
        )
    seconds = end.seconds_since(begin)
    return {"rows": rows, "ticks": [begin.plus(part * seconds / 4).iso() for part in range(5)], "seconds": seconds}


def bars(items: Sequence[Mapping[str, Any]], attribute: str) -> list[dict[str, Any]]:
    """The items, each with how wide its bar is beside the widest."""
    most = max((item[attribute] for item in items), default=0) or 1
    return [{**item, "width": round(item[attribute] * WIDTH / most, 1)} for item in items]


def columns(items: Sequence[Mapping[str, Any]], attribute: str) -> list[dict[str, Any]]:
    """The items side by side as columns."""
    most = max((item[attribute] for item in items), default=0) or 1
    step = WIDTH / max(1, len(items))
    width = min(step * 0.8, _COLUMN_MOST)
    return [
        {
            **item,
            "x": round((number + 0.5) * step - width / 2, 1),
            "width": round(width, 1),
            "height": round(max(0.5, item[attribute] * HEIGHT / most), 1),
        }
        for number, item in enumerate(items)
    ]


def _run_ms(job: Mapping[str, Any], now: str) -> int | None:
    if job["usage_in_seconds"] is not None:
        return int(job["usage_in_seconds"] * 1000)
    if not job["started_at"]:
        return None
    return max(0, Instant.from_iso(now).epoch_ms - Instant.from_iso(job["started_at"]).epoch_ms)
