"""The figures of open jobs: they change at any time, so they are read from the index at each request."""

from dataclasses import dataclass
from typing import Final

from msgspec.structs import replace

from holdfast.jobs.figures.contribution import contribution, group_of, team_of, with_all_it_needs
from holdfast.jobs.figures.counting import OPEN
from holdfast.jobs.figures.totals import Figures
from holdfast.jobs.model.keys import by_status
from holdfast.jobs.read.queries import Span
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Query, Store
from holdfast.ports.store.tables import JOBS

OPEN_MOST: Final = 5000  # of each status, the newest


@dataclass(frozen=True, slots=True)
class OpenFigures:
    """By day; a note says if there are more open jobs than were read."""

    days: dict[str, Figures]
    examined: int
    notes: list[str]


def open_figures(
    store: Store,
    installation: InstallationId,
    span: Span,
    now: Instant,
    repository: str | None,
    team_property: str,
) -> OpenFigures:
    jobs, notes = list[Item](), list[str]()
    for status in OPEN:
        query = Query(JOBS, by_status(installation, status), sort=span.sort_range(), index="GSI1", reverse=True)
        found, is_whole = _newest(store, query)
        jobs += found
        if not is_whole:
            notes.append(f"of the jobs that are {status}, the newest {len(found)} are counted; there are more")
    examined = len(jobs)
    jobs = [job for job in jobs if repository in (None, group_of(job).repository)]
    jobs = with_all_it_needs(store, jobs)
    teams = _teams(store, jobs, team_property)
    days: dict[str, Figures] = {}
    for job in jobs:
        group = group_of(job)
        day = days.setdefault(job["created_at"][:10], Figures())
        day.add(group._replace(team=teams[group.repository]), contribution(job, now))
    return OpenFigures(dict(sorted(days.items())), examined, notes)


def _newest(store: Store, query: Query) -> tuple[list[Item], bool]:
    """The newest jobs of the query, and whether these are all."""
    found: list[Item] = []
    while len(found) < OPEN_MOST:
        page = store.query(replace(query, limit=OPEN_MOST - len(found)))
        found += page.items
        if page.cursor is None:
            return found, True
        query = replace(query, cursor=page.cursor)
    return found, False


def _teams(store: Store, jobs: list[Item], team_property: str) -> dict[str, str]:
    """The team of each repository, from one of its jobs: the index does not hold properties."""
    some = {group_of(job).repository: job for job in jobs}
    keys = [Key(job["PK"], job["SK"]) for job in some.values()]
    whole = store.batch_get(JOBS, keys) if keys else []
    return {name: team_of(item or {}, team_property) for name, item in zip(some, whole, strict=True)}
