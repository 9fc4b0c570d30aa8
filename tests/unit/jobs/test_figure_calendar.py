"""Which hours are due: pure arithmetic on the calendar."""

from dataclasses import replace

from holdfast.jobs.figures.calendar import (
    CHECKPOINTS,
    Calendar,
    OpenHour,
    due_hours,
    first_unsealed,
    hour_of,
    next_calendar,
    resumed,
    walk_hours,
)
from tests.payloads import CREATED

NOW = CREATED.plus(20 * 60)
HERE = hour_of(NOW)
CALENDAR = Calendar(passed=NOW.plus(-300), frontier=HERE - 1, reached=HERE - 1)


def test_the_current_and_the_last_hour_are_always_due() -> None:
    assert due_hours(CALENDAR, NOW, {}) == {HERE - 1, HERE}


def test_an_hour_is_due_when_its_open_jobs_change_and_once_more_because_an_index_may_lag() -> None:
    old = HERE - 5
    calendar = replace(CALENDAR, open={old: OpenHour("two jobs", has_changed=False)})
    assert old not in due_hours(calendar, NOW, {old: "two jobs"}), "nothing has ended"
    for left in ({old: "one job"}, {}):
        assert old in due_hours(calendar, NOW, left)
        after = next_calendar(calendar, NOW, HERE - 1, left)
        later = NOW.plus(300)
        assert old in due_hours(after, later, left)
        settled = next_calendar(after, later, HERE - 1, left)
        assert old not in due_hours(settled, later.plus(300), left)


def test_each_checkpoint_is_met_once_however_far_apart_passes_are() -> None:
    for hours in CHECKPOINTS:
        begin = CREATED.plus(hours * 3600)
        met = []
        for step in range(6):
            now = begin.plus(step * 1700)
            calendar = replace(CALENDAR, passed=now.plus(-1700))
            met.append(HERE - 1 in due_hours(calendar, now, {}))
        assert met.count(True) == 1, f"{hours} hours"


def test_hours_whose_jobs_may_have_expired_are_not_counted() -> None:
    oldest = first_unsealed(NOW)
    calendar = replace(CALENDAR, open={oldest - 30: OpenHour("a job", has_changed=False)}, frontier=oldest - 100)
    assert min(due_hours(calendar, NOW, {})) >= oldest
    assert walk_hours(calendar, NOW, 2)[0] == oldest


def test_an_hour_whose_neighbours_may_have_expired_is_counted_with_its_whole_day() -> None:
    old = HERE - 50 * 24
    calendar = replace(CALENDAR, open={old: OpenHour("a job", has_changed=False)})
    day = old - old % 24
    assert set(range(day, day + 24)) <= due_hours(calendar, NOW, {})


def test_after_a_long_pause_or_a_clock_that_went_back_all_that_a_checkpoint_finds_is_walked_again() -> None:
    for passed in (NOW.plus(-3 * 86_400), NOW.plus(3 * 86_400)):
        again = resumed(replace(CALENDAR, passed=passed, frontier=HERE - 1), NOW)
        assert again.frontier <= HERE - CHECKPOINTS[-1]
    assert resumed(CALENDAR, NOW) == CALENDAR
    assert resumed(replace(CALENDAR, passed=NOW.plus(60)), NOW).frontier == HERE - 1, "clocks differ a little"
