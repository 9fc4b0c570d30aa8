"""Charts are drawn from known values, with gaps where values are unknown."""

import re
from collections.abc import Sequence
from decimal import Decimal

import pytest
from msgspec import structs

from holdfast.console.pages.charts import WIDTH, cost_bars, cost_columns, gantt, stage_bars, time_chart
from holdfast.control.steps import Direction
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.read.item_views import JobView, Viewing, job_view
from holdfast.kernel.instants import Instant
from holdfast.views.cluster_history import ActionSpan, TimelinePoint
from holdfast.views.cluster_now import TimeLine
from holdfast.views.job_types import CostRow

NOW = Instant.from_iso("2026-01-15T12:00:00Z")


def line(points: list[TimelinePoint], actions: Sequence[ActionSpan] = ()) -> TimeLine:
    return TimeLine(hours=1, points=points, actions=list(actions), marks=[], cpu_up=0.7, cpu_down=0.3, max_workers=10)


def point(minutes: float, workers: int | None = 2, pending: int | None = 0, cpu: float | None = 0.5) -> TimelinePoint:
    return TimelinePoint(at=NOW.plus(-60 * minutes).iso(), workers=workers, pending=pending, cpu=cpu)


def test_without_known_values_no_line_is_drawn() -> None:
    chart = time_chart(line([]), NOW.iso())
    assert [lane.line for lane in chart.lanes] == ["", "", ""]
    assert [lane.last for lane in chart.lanes] == [None, None, None]


def test_the_axis_has_round_times_and_the_limits_have_names() -> None:
    odd = NOW.plus(1234)
    for hours, times in (
        (1, ["11:30", "11:40", "11:50", "12:00", "12:10", "12:20"]),
        (3, ["09:30", "10:00", "10:30", "11:00", "11:30", "12:00"]),
        (6, ["07:00", "08:00", "09:00", "10:00", "11:00", "12:00"]),
        (24, ["16:00", "20:00", "00:00", "04:00", "08:00", "12:00"]),
    ):
        chart = time_chart(structs.replace(line([point(0)]), hours=hours), odd.iso())
        assert [tick.at[11:16] for tick in chart.ticks] == times
        assert all(0 <= tick.x <= WIDTH for tick in chart.ticks)
    workers, pending, cpu = chart.lanes
    assert [limit.words for limit in workers.limits] == ["maximum 10"]
    assert [limit.words for limit in cpu.limits] == ["add at 70%", "remove below 30%"]
    assert (workers.top, pending.top, cpu.top) == ("", "5", "100%")


def test_nothing_is_drawn_where_the_maximum_has_its_name() -> None:
    """The name stands above its line, and no line of workers comes there."""
    full = time_chart(line([structs.replace(point(minutes), workers=10) for minutes in (20, 10, 0)]), NOW.iso())
    workers = full.lanes[0]
    (maximum,) = workers.limits
    assert maximum.y > 25
    assert {float(y) for y in re.findall(r"[MV](?:[\d.]+ )?([\d.]+)", workers.line)} == {maximum.y}


def test_a_line_has_a_gap_where_a_value_is_unknown() -> None:
    chart = time_chart(line([point(30), point(20, cpu=None), point(10), point(0)]), NOW.iso())
    assert chart.lanes[0].line.count("M") == 1
    assert chart.lanes[2].line.count("M") == 2


def test_the_value_beside_a_line_is_that_of_the_newest_tick() -> None:
    """Not the last known one, nor the maximum of its bucket: elsewhere the page shows the same value."""
    chart = time_chart(line([point(20), point(10), point(0, cpu=None)]), NOW.iso())
    assert [lane.last for lane in chart.lanes] == [2, 0, None]
    points = [point(60 - number / 50, pending=40 if number == 2998 else 0) for number in range(3000)]
    assert [lane.last for lane in time_chart(line(points), NOW.iso()).lanes] == [2, 0, 0.5]


def test_a_line_has_a_gap_where_no_tick_ran() -> None:
    chart = time_chart(line([point(50), point(49), point(10), point(9)]), NOW.iso())
    assert [lane.line.count("M") for lane in chart.lanes] == [2, 2, 2]
    assert len(chart.readings) == 4


def test_thousands_of_ticks_become_a_few_hundred_points_without_losing_a_peak() -> None:
    points = [point(60 - number / 50, pending=40 if number == 1777 else 0) for number in range(3000)]
    chart = time_chart(line(points), NOW.iso())
    assert len(chart.readings) <= 240
    assert max(reading[3] or 0 for reading in chart.readings) == 40


def test_an_action_in_progress_extends_to_now() -> None:
    begun = ActionSpan(kind=Direction.UP, begin=NOW.plus(-600).iso(), end=None, result=None, because="")
    ended = ActionSpan(kind=Direction.DOWN, begin=None, end=NOW.plus(-1800).iso(), result="done", because="")
    up, down = time_chart(line([], actions=[begun, ended]), NOW.iso()).bands
    assert round(up.x + up.width) == WIDTH
    assert (down.x, down.width) == (0.0, 500.0)


def job(number: int, created: float, started: float | None, completed: float | None) -> JobView:
    def iso(seconds: float | None) -> str | None:
        return None if seconds is None else NOW.plus(seconds).iso_seconds()

    blank = job_view({"PK": f"1#{number}"}, Viewing(shipped_prices()))
    return structs.replace(
        blank,
        created_at=iso(created),
        started_at=iso(started),
        completed_at=iso(completed),
        usage_in_seconds=None if started is None or completed is None else completed - started,
        stages_in_ms={"launch": 20_000, "boot": 20_000, "approval": None},
    )


def cost(usd: int) -> CostRow:
    return CostRow(name="all", jobs=1, usd=Decimal(usd), is_estimate=False, unpriced=0)


def test_a_run_is_drawn_over_the_time_it_took() -> None:
    chart = gantt([job(2, -50, -25, 0), job(1, -100, -75, -50), job(3, -50, None, None)], NOW.iso())
    first, second, third = chart.rows
    assert (first.wait_x, first.wait_width, first.run_x, first.run_width) == (0, 250, 250, 250)
    assert (second.run_x, second.run_width) == (750, 250)
    assert third.run_width == 0
    assert third.wait_width == 500
    assert gantt([], NOW.iso()).rows == []


@pytest.mark.parametrize(
    ("seconds", "times", "form"),
    [
        (20, ["11:59:40", "11:59:45", "11:59:50", "11:59:55", "12:00:00"], "seconds"),
        (100, ["11:58:30", "11:59:00", "11:59:30", "12:00:00"], "seconds"),
        (400, ["11:54:00", "11:56:00", "11:58:00", "12:00:00"], "clock"),
        (5000, ["10:40:00", "11:00:00", "11:20:00", "11:40:00", "12:00:00"], "clock"),
        (4 * 86_400, ["00:00:00"] * 4, "day"),
    ],
)
def test_the_times_under_a_run_are_round(seconds: int, times: list[str], form: str) -> None:
    """Quarters of the time that it took were 10:03, 10:07, 10:11; in a short run, two were the same."""
    chart = gantt([job(1, -seconds, -seconds, 0)], NOW.iso())
    assert ([tick.at[11:19] for tick in chart.ticks], chart.tick_form) == (times, form)
    assert all(0 <= tick.x <= WIDTH for tick in chart.ticks)


def test_the_stages_of_a_job_add_up_to_its_wait() -> None:
    """Each rounded down to seconds by itself, these would be 60 of 63."""
    waited = {"webhook_lag": 5_812, "launch": 19_400, "boot": 27_395, "register": 7_839, "assign": 2_554}
    found = stage_bars(structs.replace(job(1, -100, -37, 0), stages_in_ms=waited), NOW.iso())
    assert sum(stage.seconds for stage in found[:-1]) == 63
    assert [stage.seconds for stage in found] == [5, 20, 27, 8, 3, 37]


def test_the_stages_of_a_job_fill_its_bar() -> None:
    found = stage_bars(job(1, -100, -60, 0), NOW.iso())
    assert [(stage.name, stage.width) for stage in found] == [("launch", 200), ("boot", 200), ("run", 600)]
    assert stage_bars(job(1, -100, -60, None), NOW.iso())[-1].seconds == 60


def test_bars_and_columns_are_relative_to_the_largest() -> None:
    rows = [cost(4), cost(1), cost(0)]
    assert [bar.width for bar in cost_bars(rows)] == [1000, 250, 0]
    assert [column.height for column in cost_columns(rows)] == [100, 25, 0.5]
    assert cost_bars([]) == []
    assert [bar.width for bar in cost_bars([cost(0)])] == [0]
