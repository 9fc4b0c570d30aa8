"""Reads the figures of a range of time: one query for its days, however many jobs they have.

A day that has no slice of its own yet, and the edges of a range that begins or ends within a day, are read by the hour.
"""

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.figures.calendar import (
    DAY_HOURS,
    DAYS_KEPT_DAYS,
    HOUR_MS,
    HOURS_KEPT_DAYS,
    Calendar,
    day_start,
    day_text,
    hour_of,
    hour_text,
)
from holdfast.jobs.figures.slices import Slice, Slices, day_slice, hour_slice, repository_slice
from holdfast.jobs.figures.stored_calendar import read_calendar
from holdfast.jobs.figures.totals import Figures, merged
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Store

NOT_COUNTED: Final = "jobs that have ended are not counted yet: the first count has not run"
# A day has its slice at the latest 24 hours after its last hour: see `CHECKPOINTS`.
_WITHOUT_SLICE_HOURS: Final = 2 * DAY_HOURS


@dataclass(frozen=True, slots=True)
class CountedFigures:
    """Figures by day, as of the last pass; `notes` says where they differ from the range that was asked for."""

    days: dict[str, Figures] = field(default_factory=dict)
    counted_at: Instant | None = None
    unknown_days: list[str] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)


def counted_figures(
    store: Store, installation: InstallationId, since: Instant, until: Instant, now: Instant, repository: str | None
) -> CountedFigures:
    calendar = read_calendar(store, installation, consistent=False)
    first, last, notes = _hours_of(since, until, now)
    if calendar is None:
        days = sorted({day_text(hour) for hour in range(first, last + 1, DAY_HOURS)} | {day_text(last)})
        return CountedFigures(unknown_days=days if first <= last else [], notes=[NOT_COUNTED])
    found = _days(Slices(store, installation), calendar, (first, last), repository)
    return CountedFigures(found, calendar.passed, calendar.unknown_days(first, last), notes)


def _hours_of(since: Instant, until: Instant, now: Instant) -> tuple[int, int, list[str]]:
    """The first and the last hour to read, and what that changes."""
    oldest = day_start(hour_of(now)) - DAYS_KEPT_DAYS * DAY_HOURS
    # An end at a full hour is exclusive, like the next day's beginning.
    first, last = max(hour_of(since), oldest), hour_of(now if until >= now else until.plus(-0.001))
    notes: list[str] = []
    by_the_hour_from = hour_of(now) - (HOURS_KEPT_DAYS - 1) * DAY_HOURS
    if first % DAY_HOURS and first < by_the_hour_from:
        first = day_start(first)
    if last % DAY_HOURS != DAY_HOURS - 1 and last < by_the_hour_from:
        last = day_start(last) + DAY_HOURS - 1
    begin, end = Instant(first * HOUR_MS), Instant((last + 1) * HOUR_MS)
    if begin != since and hour_of(since) >= oldest:
        notes.append(f"figures begin at {begin.iso_seconds()}: {_grain(first)} are counted as a whole")
    if until < now and end != until and end.plus(-1) != until:
        notes.append(f"figures end at {end.iso_seconds()}: {_grain(last + 1)} are counted as a whole")
    return first, last, notes


def _grain(hour: int) -> str:
    return "hours" if hour % DAY_HOURS else "days and hours"


def _days(slices: Slices, calendar: Calendar, hours: tuple[int, int], repository: str | None) -> dict[str, Figures]:
    first, last = hours
    if first > last:
        return {}
    whole = range(first + -first % DAY_HOURS, last + 1 - (last + 1) % DAY_HOURS, DAY_HOURS)
    found: dict[str, Figures] = {}
    if whole:
        names = [_day_name(start, repository) for start in (whole[0], whole[-1])]
        stored = slices.between(names[0], names[1])
        found = {name.rpartition("#")[2]: each.figures for name, each in stored.items()}
    recent = min(hour_of(calendar.passed), calendar.reached) - _WITHOUT_SLICE_HOURS
    for start in range(day_start(first), last + 1, DAY_HOURS):
        day, end = day_text(start), start + DAY_HOURS - 1
        if day in found or (first <= start and end <= last and end < recent):
            continue
        span = hour_slice(hour_text(max(first, start))), hour_slice(hour_text(min(last, end)))
        figures = _of(slices.between(*span).values(), repository)
        if len(figures):
            found[day] = figures
    return dict(sorted(found.items()))


def _day_name(start: int, repository: str | None) -> str:
    return day_slice(day_text(start)) if repository is None else repository_slice(repository, day_text(start))


def _of(slices: Iterable[Slice], repository: str | None) -> Figures:
    figures = merged(each.figures for each in slices)
    return figures if repository is None else figures.of_repository(repository)
