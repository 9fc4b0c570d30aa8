"""Which hours have to be counted again, as arithmetic.

An hour is counted while jobs are created in it and in the hour after. Later it changes only when an open job of it ends
(the set of its open jobs changes), or when something is learned late: it is counted again at a few checkpoints.

    first job ......... frontier ................................. last hour, current hour
               counted            to be counted, or counted again              always

All hours before `reached` have been counted since they ended; those from there to the last hour are unknown. A recount
moves `frontier` back, not `reached`: what is stored stays known while it is counted again.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.kernel.instants import Instant

HOUR_MS: Final = 3_600_000
DAY_HOURS: Final = 24
# After the end of an hour, in hours: late webhooks, machines that end late, indexes that lag behind.
CHECKPOINTS: Final = (3, 12, 24, 3 * 24, 8 * 24, 36 * 24)
# Jobs are kept for 90 days: an older hour would be counted without those that have expired.
SEALED_HOURS: Final = 88 * 24
HOURS_KEPT_DAYS: Final = 40
DAYS_KEPT_DAYS: Final = 400
# Some hours of an older day may have expired, and a day is made of its hours: then all of them are counted again.
_ALONE_HOURS: Final = (HOURS_KEPT_DAYS - 2) * 24
# After a longer pause, everything that a checkpoint would find is counted again. Clocks differ a little.
_GAP_MS_MOST: Final = 24 * HOUR_MS
_BACK_MS_MOST: Final = 10 * 60_000


def hour_of(moment: Instant) -> int:
    """Hours since 1970. A day is 24 of them, beginning with a multiple of 24."""
    return moment.epoch_ms // HOUR_MS


def hour_text(hour: int) -> str:
    """`2026-11-18T10`: how the times in it begin."""
    return Instant(hour * HOUR_MS).iso()[:13]


def hour_named(text: str) -> int:
    return hour_of(Instant.from_iso(f"{text[:13]}:00:00Z"))


def day_text(hour: int) -> str:
    return hour_text(hour)[:10]


def day_start(hour: int) -> int:
    return hour - hour % DAY_HOURS


def first_unsealed(now: Instant) -> int:
    """The first hour that may be counted again; it begins a day."""
    return day_start(hour_of(now) - SEALED_HOURS) + DAY_HOURS


@dataclass(frozen=True, slots=True)
class OpenHour:
    """`digest` of its open jobs; `has_changed`: it differed from that of the pass before."""

    digest: str
    has_changed: bool


@dataclass(frozen=True, slots=True)
class Calendar:
    """What the last pass knew."""

    passed: Instant
    frontier: int
    reached: int
    open: Mapping[int, OpenHour] = field(default_factory=dict)
    version: int = 0

    def counting_again_from(self, hour: int) -> "Calendar":
        """Count all hours from there again, whole days."""
        return replace(self, frontier=min(self.frontier, day_start(hour)))

    def unknown_days(self, first: int, last: int) -> list[str]:
        """The days of these hours that have not been counted yet, or not since they ended."""
        passed = hour_of(self.passed)
        hours = [*range(max(first, self.reached), min(last, passed - 2) + 1), *range(max(first, passed + 2), last + 1)]
        return list(dict.fromkeys(map(day_text, hours)))


def resumed(calendar: Calendar, now: Instant) -> Calendar:
    """The calendar as a pass begins with it; further back after a long pause, or if the clock went back."""
    last = hour_of(now) - 1
    calendar = replace(calendar, frontier=min(calendar.frontier, last), reached=min(calendar.reached, last))
    if -_BACK_MS_MOST <= now.epoch_ms - calendar.passed.epoch_ms <= _GAP_MS_MOST:
        return calendar
    earlier = min(calendar.passed, now)
    return calendar.counting_again_from(hour_of(earlier) - CHECKPOINTS[-1])


def due_hours(calendar: Calendar, now: Instant, open_now: Mapping[int, str]) -> set[int]:
    """The hours to count in this pass, apart from those of the walk from the frontier."""
    current = hour_of(now)
    due = {current - 1, current} | _changed(calendar, open_now) | _at_checkpoints(calendar.passed, now)
    for hour in [hour for hour in due if hour < current - _ALONE_HOURS]:
        due |= set(range(day_start(hour), day_start(hour) + DAY_HOURS))
    return {hour for hour in due if hour >= first_unsealed(now)}


def walk_hours(calendar: Calendar, now: Instant, days: int) -> range:
    """The hours of the walk in this pass: to the end of a day, or to the last hour."""
    current = hour_of(now)
    start = max(calendar.frontier, first_unsealed(now))
    return range(start, max(start, min(day_start(start) + days * DAY_HOURS, current - 1)))


def next_calendar(calendar: Calendar, now: Instant, walked_to: int, open_now: Mapping[int, str]) -> Calendar:
    """The calendar after the pass."""
    known = calendar.open
    changed = _changed_now(calendar, open_now)
    hours = {
        hour: OpenHour(open_now.get(hour, ""), hour in changed)
        for hour in sorted({*open_now, *changed})
        if hour in open_now or (hour in known and known[hour].digest)
    }
    frontier = min(walked_to, hour_of(now) - 1)
    return replace(
        calendar,
        passed=now,
        frontier=frontier,
        reached=max(calendar.reached, frontier),
        open=hours,
        version=calendar.version + 1,
    )


def _changed(calendar: Calendar, open_now: Mapping[int, str]) -> set[int]:
    """An hour is counted twice after a change: an index may lag behind."""
    return _changed_now(calendar, open_now) | {hour for hour, known in calendar.open.items() if known.has_changed}


def _changed_now(calendar: Calendar, open_now: Mapping[int, str]) -> set[int]:
    known = {hour: each.digest for hour, each in calendar.open.items() if each.digest}
    return {hour for hour in {*known, *open_now} if known.get(hour) != open_now.get(hour)}


def _at_checkpoints(passed: Instant, now: Instant) -> set[int]:
    """The hours with a checkpoint after the last pass, and not after now."""
    found: set[int] = set()
    for hours in CHECKPOINTS:
        ended_after = passed.epoch_ms // HOUR_MS - hours
        ended_by = now.epoch_ms // HOUR_MS - hours
        found |= {end - 1 for end in range(ended_after + 1, ended_by + 1)}
    return found
