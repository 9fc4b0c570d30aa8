"""Pages of jobs from several places of an index: jobs of every status, and stuck jobs of any.

Their cursor holds how far each place was read. It comes back from clients, so it is validated.
"""

import base64
import binascii
import json
from collections.abc import Mapping
from typing import Final

from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import by_status
from holdfast.jobs.read.queries import ANY, EXAMINED_MOST, Filter, FoundItems, Paging, Span, jobs_by_status
from holdfast.jobs.read.stuck import StuckLimits, stuck_jobs
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Item, Key, Query, Store, cursors
from holdfast.ports.store.tables import JOBS

# The worst to be stuck in first.
STUCK: Final = (Status.IN_PROGRESS, Status.SCHEDULED, Status.QUEUED, Status.WAITING)

Places = dict[Status, str | None]  # of each status that has more: its cursor; None: from its beginning


def all_jobs(
    store: Store, installation: InstallationId, span: Span, paging: Paging, wanted: Filter = ANY
) -> FoundItems:
    """Jobs of every status, newest first: no index holds them all, so the five parts are merged.

    A page may have fewer items than its limit although more follow: then it has a cursor.
    """
    places: Places = dict.fromkeys(Status) if paging.cursor is None else _read_places(paging.cursor)
    # What does not fit in the page is read again for the next one, so a part reads no more than fits.
    share = max(1, EXAMINED_MOST // len(places))
    each = Paging(min(share, paging.limit) if wanted is ANY else share)
    parts = {
        status: jobs_by_status(
            store,
            installation,
            status,
            span,
            Paging(each.limit, cursor),
            whole=not wanted.is_within_index,
        )
        for status, cursor in places.items()
    }
    return _merged(store, installation, places, parts, wanted, paging.limit)


def _merged(
    store: Store,
    installation: InstallationId,
    places: Places,
    parts: Mapping[Status, FoundItems],
    wanted: Filter,
    limit: int,
) -> FoundItems:
    kept: list[Item] = []
    examined = 0
    left = {status: list(reversed(found.items)) for status, found in parts.items()}
    while len(kept) < limit:
        # A part that is used up may continue with jobs that are newer than those of the other parts.
        if any(not left[status] and parts[status].cursor is not None for status in places):
            break
        status = max((each for each in places if left[each]), key=lambda each: _newness(left[each][-1]), default=None)
        if status is None:
            break
        job = left[status].pop()
        examined += 1
        places[status] = cursors.encoded(
            Query(JOBS, by_status(installation, status), index="GSI1"),
            {**job, "GSI1-PK": by_status(installation, status)},
        )
        if wanted(job):
            kept.append(job)
    for status, found in parts.items():
        if not left[status] and found.cursor is None:
            del places[status]
        elif not left[status]:
            places[status] = found.cursor  # beyond what has expired meanwhile, too
    return FoundItems(now_whole(store, kept), _written_places(places) if places else None, examined)


def _newness(job: Item) -> tuple[str, str]:
    return job["created_at"], job["PK"]


def now_whole(store: Store, entries: list[Item]) -> list[Item]:
    """The jobs of entries of the index by status, without those that are gone or have another status now."""
    if not entries:
        return []
    found = store.batch_get(JOBS, [Key(entry["PK"], entry["SK"]) for entry in entries])
    pairs = zip(entries, found, strict=True)
    return [item for entry, item in pairs if item is not None and item.get("GSI1-PK") == entry.get("GSI1-PK")]


def all_stuck(
    store: Store,
    installation: InstallationId,
    statuses: tuple[Status, ...],
    now: Instant,
    patience: StuckLimits,
    paging: Paging,
) -> FoundItems:
    """The stuck jobs of these statuses, one status after the other, oldest first."""
    status, cursor = _read_turn(paging.cursor, statuses)
    turns = statuses[statuses.index(status) :]
    kept: list[Item] = []
    examined = 0
    for turn in turns:
        while True:
            room = min(paging.limit - len(kept), EXAMINED_MOST - examined)
            if room == 0:
                return FoundItems(kept, _written({"turn": turn, "cursor": cursor}), examined)
            page = Paging(room, cursor, is_newest_first=False)
            found = stuck_jobs(store, installation, turn, now, patience, page)
            kept += [job for job in found.items if job.get("status") == turn]  # the index may lag behind
            examined += found.examined
            cursor = found.cursor
            if cursor is None:
                break
    return FoundItems(kept, None, examined)


# Cursors


def _read_places(cursor: str) -> Places:
    found = _read(cursor)
    places = {
        Status(name): place for name, place in found.items() if name in set(Status) and isinstance(place, str | None)
    }
    if not places or len(places) != len(found):
        raise _bad(cursor)
    return places


def _written_places(places: Places) -> str:
    return _written({str(status): cursor for status, cursor in places.items()})


def _read_turn(cursor: str | None, statuses: tuple[Status, ...]) -> tuple[Status, str | None]:
    if cursor is None:
        return statuses[0], None
    found = _read(cursor)
    turn, place = found.get("turn"), found.get("cursor")
    if not isinstance(turn, str) or turn not in statuses or not isinstance(place, str | None):
        raise _bad(cursor)
    return Status(turn), place


def _written(value: Mapping[str, str | None]) -> str:
    return base64.urlsafe_b64encode(json.dumps(value, separators=(",", ":")).encode()).decode().rstrip("=")


def _read(cursor: str) -> dict[str, object]:
    try:
        found = json.loads(base64.b64decode(cursor + "=" * (-len(cursor) % 4), altchars=b"-_", validate=True))
    except (binascii.Error, ValueError, RecursionError) as error:
        raise _bad(cursor) from error
    if not isinstance(found, dict):
        raise _bad(cursor)
    return found


def _bad(cursor: str) -> BadRequest:
    return BadRequest(f"cursor {cut(cursor, 40)!r} does not belong to this list; start without a cursor")
