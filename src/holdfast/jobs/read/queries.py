"""Queries about jobs. Each reads an index page by page; no table is ever scanned.

Attributes without an index (pool, label, workflow, conclusion, a part of the repository's name) filter the pages of an
index by time. A page examines at most 1,000 items; `examined` is their number.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Final

from msgspec.structs import replace

from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey, by_repository, by_status, job_key_of
from holdfast.jobs.model.machines import machine_named, machine_of
from holdfast.jobs.read.run_jobs import run_with_jobs
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Query, SortRange, Store, cursors
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS

EXAMINED_MOST: Final = 1000
LIMIT_MOST: Final = 1000
_CHUNK: Final = 100
FILTERS: Final = ("pool", "label", "workflow", "conclusion", "job_name", "instance_id")
REPOSITORY_PART: Final = "repo"


@dataclass(frozen=True, slots=True)
class FoundItems:
    """Some items, the cursor of the next page, and how many items were examined."""

    items: list[Item]
    cursor: str | None
    examined: int


@dataclass(frozen=True, slots=True)
class Span:
    """From `since` to `until`, both inclusive; None: unbounded."""

    since: Instant | None = None
    until: Instant | None = None

    def sort_range(self) -> SortRange | None:
        if self.since and self.until:
            if self.since > self.until:
                raise BadRequest(f"since {self.since} is after until {self.until}")
            return SortRange.between(self.since.iso_seconds(), self.until.iso_seconds())
        if self.since:
            return SortRange.at_or_after(self.since.iso_seconds())
        return SortRange.up_to(self.until.iso_seconds()) if self.until else None


@dataclass(frozen=True, slots=True)
class Paging:
    limit: int = 50
    cursor: str | None = None
    is_newest_first: bool = True

    def __post_init__(self) -> None:
        if not 1 <= self.limit <= LIMIT_MOST:
            raise BadRequest(f"limit {self.limit}: expected 1 to {LIMIT_MOST}")


@dataclass(frozen=True, slots=True)
class Filter:
    """Conditions on a job beyond those of the index.

    Repository, workflow, job name and label match by part, and upper and lower case are the same: people type them.
    Pool and conclusion are words of a closed list, and match as a whole.
    """

    wanted: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        unknown = sorted(set(self.wanted) - {*FILTERS, REPOSITORY_PART})
        if unknown:
            raise BadRequest(f"filter {unknown[0]!r}: expected one of {', '.join(FILTERS)}")

    def __call__(self, job: Item) -> bool:
        return all(_holds(job, name, value) for name, value in self.wanted.items())

    @property
    def is_within_index(self) -> bool:
        """Whether the index by status holds every filtered attribute."""
        return not {"label", "instance_id"} & self.wanted.keys()


def _holds(job: Item, name: str, value: str) -> bool:
    match name:
        case "repo":
            # From the key: the index by status does not hold the name itself.
            return _is_part(value, str(job.get("GSI2-PK", "")).partition("#")[2])
        case "label":
            return any(_is_part(value, label) for label in job.get("labels", ()))
        case "workflow":
            return _is_part(value, job.get("workflow_name"))
        case "job_name":
            return _is_part(value, job.get("job_name"))
        case "pool":
            return _is_same(value, job.get("pool_name"))
        case "instance_id":
            return _is_same(value, machine_of(job))
        case _:
            return _is_same(value, job.get(name))


def _is_part(part: str, text: str | None) -> bool:
    return text is not None and part.casefold() in text.casefold()


def _is_same(wanted: str, text: str | None) -> bool:
    return text is not None and wanted.casefold() == text.casefold()


ANY: Final = Filter()
ALWAYS: Final = Span()
FIRST: Final = Paging()


# Single items


def job(store: Store, key: JobKey) -> Item | None:
    return store.get(JOBS, key.item)


def run(store: Store, key: RunKey) -> Item | None:
    """The run with its open, done and failed jobs."""
    return run_with_jobs(store, key)


def deployment(store: Store, key: DeploymentKey) -> tuple[Item, list[Item]] | None:
    """The deployment and its jobs."""
    found = store.get(DEPLOYMENTS, key.item)
    if found is None:
        return None
    keys = [JobKey(key.installation_id, JobId(number)).item for number in sorted(found.get("job_ids", ()))]
    return found, [item for item in store.batch_get(JOBS, keys) if item is not None] if keys else []


# Lists


def jobs_by_status(
    store: Store,
    installation: InstallationId,
    status: str,
    span: Span = ALWAYS,
    paging: Paging = FIRST,
    wanted: Filter = ANY,
    *,
    whole: bool = False,
) -> FoundItems:
    """Ordered by creation. The items have the attributes of the index, unless `whole`, or a filter needs more."""
    query = _query("GSI1", by_status(installation, status), span, paging)
    return _page_of(store, query, paging, wanted, whole=whole or not wanted.is_within_index)


def running_on(store: Store, installation: InstallationId, instance_id: str) -> JobKey | None:
    """The job that runs on the machine, by its runner's name; looked for among the 1,000 newest jobs in progress."""
    query = _query("GSI1", by_status(installation, "in_progress"), ALWAYS, FIRST)
    found = _page_of(store, query, Paging(1), lambda job: machine_named(job.get("runner_name", "")) == instance_id)
    return job_key_of(found.items[0]["PK"]) if found.items else None


def jobs_by_repository(
    store: Store,
    installation: InstallationId,
    repository: str,
    span: Span = ALWAYS,
    paging: Paging = FIRST,
    wanted: Filter = ANY,
) -> FoundItems:
    return _page_of(store, _query("GSI2", by_repository(installation, repository), span, paging), paging, wanted)


def has_jobs(store: Store, installation: InstallationId, repository: str) -> bool:
    """Whether the repository of exactly this name has jobs."""
    query = _query("GSI2", by_repository(installation, repository), ALWAYS, FIRST)
    return bool(store.query(replace(query, limit=1)).items)


def jobs_by_run(store: Store, key: RunKey, paging: Paging = FIRST) -> FoundItems:
    return _page_of(store, _query("GSI3", key.partition, ALWAYS, paging), paging, ANY)


def events(
    store: Store, key: JobKey, paging: Paging = FIRST, *, day: str | None = None, event_type: str | None = None
) -> FoundItems:
    """A job's history, ordered by the senders' times."""
    sort = SortRange.begins_with(day) if day else None
    query = Query(JOB_EVENTS, key.partition, sort=sort, reverse=paging.is_newest_first, cursor=paging.cursor)
    return _page_of(store, query, paging, lambda entry: event_type in (None, entry.get("event_type")), whole=False)


def gathered(next_page: Callable[[Paging], FoundItems], most: int) -> FoundItems:
    """The pages of a query as one, up to `most` items; a cursor means that there are more."""
    page = next_page(Paging(limit=min(most, LIMIT_MOST)))
    items, examined = page.items, page.examined
    while page.cursor is not None and examined < most:
        page = next_page(Paging(limit=min(most - len(items), LIMIT_MOST), cursor=page.cursor))
        items, examined = items + page.items, examined + page.examined
    return FoundItems(items, page.cursor, examined)


def _query(index: str, partition: str, span: Span, paging: Paging) -> Query:
    return Query(
        JOBS,
        partition,
        sort=span.sort_range(),
        index=index,
        reverse=paging.is_newest_first,
        cursor=paging.cursor,
    )


def _page_of(
    store: Store, query: Query, paging: Paging, wanted: Callable[[Item], bool], *, whole: bool = True
) -> FoundItems:
    """Read the index until the page is full or enough items were examined. `whole`: read the items themselves."""
    kept: list[tuple[Item, Item]] = []
    examined = 0
    while True:
        # Without a filter, read no more than fits the page.
        room = paging.limit - len(kept)
        chunk = min(EXAMINED_MOST - examined, room if wanted is ANY else max(_CHUNK, room))
        page = store.query(replace(query, limit=chunk))
        items = _whole(store, page.items) if whole else dict(enumerate(page.items))
        for position, entry in enumerate(page.items):
            examined += 1
            item = items.get(position)
            if item is not None and wanted(item):
                kept.append((entry, item))
                if len(kept) == paging.limit:
                    is_last = page.cursor is None and position == len(page.items) - 1
                    return FoundItems(
                        _in_order(kept, query), None if is_last else cursors.encoded(query, entry), examined
                    )
        if page.cursor is None or examined >= EXAMINED_MOST:
            return FoundItems(_in_order(kept, query), page.cursor, examined)
        query = replace(query, cursor=page.cursor)


def _in_order(kept: list[tuple[Item, Item]], query: Query) -> list[Item]:
    """The items in the order of their entries; jobs of the same second by their ids.

    Each backend returns those in an order of its own. An item may be older than its entry, and have no time yet.
    """
    if query.index is not None:
        kept = sorted(kept, key=lambda pair: (pair[0]["created_at"], job_key_of(pair[0]["PK"])), reverse=query.reverse)
    return [item for _, item in kept]


def _whole(store: Store, entries: list[Item]) -> dict[int, Item]:
    """The items of the index entries, by position; expired ones are left out."""
    keys = [Key(entry["PK"], entry["SK"]) for entry in entries]
    found = store.batch_get(JOBS, keys) if keys else []
    return {position: item for position, item in enumerate(found) if item is not None}
