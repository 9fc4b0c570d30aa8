"""Counts the jobs of an installation, hour by hour, and merges hours to days.

Everything is counted again from what is stored, never incremented: a pass may die at any line, run twice at once, or be
repeated, and a webhook may arrive late or twice. The next pass counts what is there then.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final

from holdfast.jobs.figures.calendar import (
    DAY_HOURS,
    DAYS_KEPT_DAYS,
    HOUR_MS,
    HOURS_KEPT_DAYS,
    Calendar,
    day_start,
    day_text,
    due_hours,
    first_unsealed,
    hour_named,
    hour_of,
    hour_text,
    next_calendar,
    resumed,
    walk_hours,
)
from holdfast.jobs.figures.contribution import contribution, group_of, team_of, with_all_it_needs
from holdfast.jobs.figures.slices import Body, Slice, Slices, day_slice, hour_slice, repository_slice
from holdfast.jobs.figures.stored_calendar import put_calendar, read_calendar
from holdfast.jobs.figures.totals import Figures, merged, within
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import by_status, job_key_of
from holdfast.jobs.read.item_views import TEAM_PROPERTY
from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Item, Query, SortRange, Store, every_item
from holdfast.ports.store.tables import JOBS

WALK_DAYS: Final = 2  # that one pass counts for the first time, or again
GROUPS_MOST: Final = 1000  # of a day, and of a repository on a day
OPEN: Final = (Status.QUEUED, Status.WAITING, Status.SCHEDULED, Status.IN_PROGRESS)
_TRIES: Final = 4
_PAGE: Final = 1000
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class PassResult:
    """What a pass did. `is_behind`: there is more to count at once."""

    hours: int
    days: int
    is_behind: bool


class Counting:
    """Counts the jobs of one installation."""

    def __init__(
        self, store: Store, clock: Clock, installation: InstallationId, team_property: str = TEAM_PROPERTY
    ) -> None:
        self._store = store
        self._clock = clock
        self._installation = installation
        self._team_property = team_property
        self._slices = Slices(store, installation)

    def run_pass(self) -> PassResult:
        """Count what is due, then say so in the calendar. A pass that dies before leaves the calendar as it was."""
        now = self._clock.now()
        stored = read_calendar(self._store, self._installation)
        calendar = resumed(stored or self._first_calendar(now), now)
        open_now = self._open_jobs()
        walk = self._walk(calendar, now)
        hours = sorted(due_hours(calendar, now, open_now) | set(walk))
        tags = {hour: self._counted(hour).tag for hour in hours}
        after = next_calendar(calendar, now, max(walk.stop, calendar.frontier), open_now)
        days = self._build_days(tags, after, now)
        try:
            put_calendar(self._store, self._installation, after, stored.version if stored else 0)
        except WriteConflict:
            # Another pass ended meanwhile, with its own calendar: it knows of no hour that this one left undone.
            return PassResult(len(hours), days, is_behind=False)
        return PassResult(len(hours), days, is_behind=after.frontier < hour_of(now) - 1)

    def is_due(self, every_seconds: float) -> bool:
        """Whether no process has ended a pass for so long, or there is more to count at once."""
        stored = read_calendar(self._store, self._installation)
        if stored is None or stored.frontier < hour_of(stored.passed) - 1:
            return True
        return not 0 <= self._clock.now().seconds_since(stored.passed) < every_seconds

    def recount(self, since: Instant | None = None) -> None:
        """Let the next passes count all hours again: from `since`, or from the first whose jobs have not expired."""
        for _ in range(_TRIES):
            stored = read_calendar(self._store, self._installation)
            if stored is None:
                return  # the first pass counts everything
            oldest = first_unsealed(self._clock.now())
            again = stored.counting_again_from(max(hour_of(since), oldest) if since else oldest)
            try:
                put_calendar(
                    self._store, self._installation, replace(again, version=stored.version + 1), stored.version
                )
            except WriteConflict:
                continue
            return
        raise self._restless("the calendar")

    def _first_calendar(self, now: Instant) -> Calendar:
        first = self._next_job_hour(first_unsealed(now)) or hour_of(now)
        first = min(first, hour_of(now) - 1)
        return Calendar(passed=now, frontier=first, reached=first)

    def _walk(self, calendar: Calendar, now: Instant) -> range:
        """The hours to walk, beginning with the next one that has jobs."""
        walk = walk_hours(calendar, now, WALK_DAYS)
        if not walk:
            return walk
        following = self._next_job_hour(walk.start)
        start = hour_of(now) - 1 if following is None else max(walk.start, day_start(following))
        return walk_hours(replace(calendar, frontier=min(start, hour_of(now) - 1)), now, WALK_DAYS)

    def _next_job_hour(self, hour: int) -> int | None:
        partition = by_status(self._installation, Status.COMPLETED)
        query = Query(JOBS, partition, sort=SortRange.at_or_after(hour_text(hour)), index="GSI1", limit=1)
        for job in every_item(self._store, query):
            return hour_named(job["created_at"])
        return None

    def _open_jobs(self) -> dict[int, str]:
        """A digest of the open jobs of each hour."""
        found: dict[int, list[str]] = {}
        for status in OPEN:
            query = Query(JOBS, by_status(self._installation, status), index="GSI1")
            for job in every_item(self._store, query):
                found.setdefault(hour_named(job["created_at"]), []).append(job["PK"])
        return {hour: hashlib.sha256(" ".join(sorted(jobs)).encode()).hexdigest()[:12] for hour, jobs in found.items()}

    # Hours

    def _counted(self, hour: int) -> Slice:
        name, kept_days = hour_slice(hour_text(hour)), HOURS_KEPT_DAYS
        for _ in range(_TRIES):
            known = self._slices.read(name)  # before the jobs: who counts later must win
            body = self._count(hour, known.body.sources)
            if not known.version and not len(body.figures):
                return known
            now = self._clock.now()
            try:
                return self._slices.put(known, body, now, _kept_until((hour + 1) * HOUR_MS, now, kept_days))
            except WriteConflict:
                continue
        raise self._restless(name)

    def _count(self, hour: int, known_teams: Mapping[str, list[str]]) -> Body:
        query = Query(
            JOBS,
            by_status(self._installation, Status.COMPLETED),
            sort=SortRange.begins_with(hour_text(hour)),
            index="GSI1",
        )
        figures, first = Figures(), dict[str, Item]()
        for job in self._completed(query):
            group = group_of(job)
            figures.add(group, contribution(job))
            first[group.repository] = min(job, first.get(group.repository, job), key=_age)
        teams = self._teams(first, known_teams)
        return Body(figures.renamed(lambda group: group._replace(team=teams[group.repository][2])), teams)

    def _completed(self, query: Query) -> Iterator[Item]:
        """Page by page: an hour may have more jobs than fit in memory."""
        entries = every_item(self._store, query)
        while some := list(islice(entries, _PAGE)):
            yield from with_all_it_needs(self._store, some)

    def _teams(self, first: Mapping[str, Item], known: Mapping[str, list[str]]) -> dict[str, list[str]]:
        """The team of each repository, from its first job: the index does not hold properties."""
        found: dict[str, list[str]] = {}
        for repository, job in sorted(first.items()):
            source = [self._team_property, job["PK"]]
            if known.get(repository, [])[:2] == source:
                found[repository] = known[repository]
                continue
            whole = self._store.get(JOBS, job_key_of(job["PK"]).item) or {}
            found[repository] = [*source, team_of(whole, self._team_property)]
        return found

    # Days

    def _build_days(self, tags: Mapping[int, str], after: Calendar, now: Instant) -> int:
        """Merge the days of these hours again, if one of them has changed. A day is made once all of it is counted."""
        built = 0
        for start in sorted({day_start(hour) for hour in tags}):
            if start + DAY_HOURS <= min(after.reached, day_start(hour_of(now))):
                built += self._build_day(start, {hour: tag for hour, tag in tags.items() if day_start(hour) == start})
        return built

    def _build_day(self, start: int, tags: Mapping[int, str]) -> bool:
        day = day_text(start)
        repositories: set[str] = set()
        for _ in range(_TRIES):
            total = self._slices.read(day_slice(day))
            known_tags = total.body.sources
            if all(known_tags.get(hour_text(hour), "") == tag for hour, tag in tags.items()):
                return False
            repositories |= total.figures.repositories
            # Before the hours, like the day itself: who reads the hours later must win.
            known = self._slices.read_all(repository_slice(name, day) for name in repositories)
            hours = self._slices.between(
                hour_slice(hour_text(start)), hour_slice(hour_text(start + DAY_HOURS - 1)), consistent=True
            )
            figures = merged(each.figures for each in hours.values())
            tags = {hour_named(name.partition("#")[2]): each.tag for name, each in hours.items()}
            conflict = self._put_repositories(day, figures, repositories, known)
            if conflict is not None:
                repositories.add(conflict)
                continue
            sources = {hour_text(hour): tag for hour, tag in tags.items()}
            if self._put_day(total, Body(within(figures, GROUPS_MOST), sources), start):
                return True
        raise self._restless(day_slice(day))

    def _put_repositories(
        self, day: str, figures: Figures, listed: Iterable[str], known: Mapping[str, Slice]
    ) -> str | None:
        """Put a slice for each repository; returns one that another process has put meanwhile.

        One that is listed and has no jobs any more was renamed.
        """
        for repository in sorted({*figures.repositories, *listed}):
            name = repository_slice(repository, day)
            body = Body(within(figures.of_repository(repository), GROUPS_MOST))
            if not self._put_day(known.get(name) or Slice(name), body, hour_named(f"{day}T00")):
                return repository
        return None

    def _put_day(self, known: Slice, body: Body, start: int) -> bool:
        now = self._clock.now()
        try:
            self._slices.put(known, body, now, _kept_until((start + DAY_HOURS) * HOUR_MS, now, DAYS_KEPT_DAYS))
        except WriteConflict:
            return False
        return True

    def _restless(self, what: str) -> Retryable:
        return Retryable(f"figures: {what} changed during each of {_TRIES} attempts; the next pass counts it again")


def _age(job: Item) -> tuple[str, str]:
    return job["created_at"], job["PK"]


def _kept_until(end_ms: int, now: Instant, days: int) -> Instant:
    """Counted from now if that is later, so that an old hour that is counted again is not stored as expired."""
    return max(Instant(end_ms), now).plus(days * _DAY_SECONDS)
