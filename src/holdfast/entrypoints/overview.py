"""What people ask about the cluster, as plain data: the command line, the API and the console show the same."""

import re
from itertools import islice
from typing import Any, Final

from holdfast.cluster.attributes import Reader
from holdfast.cluster.failure import newest_failure
from holdfast.cluster.ledger import Ledger
from holdfast.cluster.log import entries, last_tick
from holdfast.cluster.memory import spots_key
from holdfast.cluster.notices import notice_shown, read_notices
from holdfast.cluster.pause import read_pause
from holdfast.cluster.policy import Policy
from holdfast.cluster.spot import SpotPhase
from holdfast.cluster.state import ClusterState
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE

PAGE_MOST: Final = 200


def cluster_overview(store: Store, cluster: ClusterId, policy: Policy, now: Instant) -> dict[str, Any]:
    """The state, in words and numbers, what spot takes, the last tick's rules, and the newest failure."""
    state = Ledger(store, cluster).read()
    pause = read_pause(store, cluster)
    last = last_tick(store, cluster, now)
    failure = newest_failure(store, cluster)
    return {
        "cluster": cluster,
        "workers": state.timers.workers,
        "action": action_shown(state, now),
        "notices": _notices_shown(store, cluster, policy),
        "lastScaleAt": _time(state.last_scale),
        "pendingSince": _time(state.timers.pending_since),
        "idleSince": _time(state.timers.idle_since),
        "upFailures": state.up_failures,
        "upBackoffUntil": _time(state.up_backoff_until),
        "lease": {"owner": state.lock_owner, "until": _time(state.lock_until), "fence": state.fence},
        "paused": None if pause is None else pause.shown(),
        "lastTick": None if last is None else last.shown(),
        "lastFailure": None if failure is None else failure.shown(),
    }


def _notices_shown(store: Store, cluster: ClusterId, policy: Policy) -> list[dict[str, Any]]:
    """What EC2 announced to take, and nodes that are replaced; the oldest first."""
    noticed = Reader(store.get(STATE, spots_key(cluster)) or {}, "spots: ").text_set("open")
    found = read_notices(store, map(InstanceId, noticed)).values()
    under_way = [notice for notice in found if notice.phase is not SpotPhase.CLOSED]
    return [notice_shown(notice, policy) for notice in sorted(under_way, key=lambda one: (one.noticed, one.instance))]


def action_shown(state: ClusterState, now: Instant) -> dict[str, Any] | None:
    if state.up is not None:
        return {
            "kind": "scale-up",
            "id": state.up.action,
            "phase": str(state.up.phase),
            "seconds": round(now.seconds_since(state.up.started)),
            "requested": state.up.requested,
            "machines": list(state.up.instances),
            "slots": [slot.stored() for slot in state.up.slots],
        }
    if state.down is not None:
        return {
            "kind": "scale-down",
            "id": state.down.action,
            "phase": str(state.down.phase),
            "seconds": round(now.seconds_since(state.down.started)),
            "targets": list(state.down.targets),
            "committed": sorted(state.down.committed),
            "completed": list(state.down.completed),
        }
    return None


def decisions(
    store: Store, cluster: ClusterId, since: Instant, until: Instant, cursor: str | None = None
) -> dict[str, Any]:
    """A page of the log, the oldest first. A cursor goes on where the page before it ended."""
    found = list(islice(entries(store, cluster, since, until, _checked_cursor(cursor)), PAGE_MOST + 1))
    page = found[:PAGE_MOST]
    return {"items": [entry.shown() for entry in page], "cursor": page[-1].key if len(found) > PAGE_MOST else None}


def all_decisions(store: Store, cluster: ClusterId, since: Instant, until: Instant) -> list[dict[str, Any]]:
    return [entry.shown() for entry in entries(store, cluster, since, until)]


def _checked_cursor(cursor: str | None) -> str | None:
    if cursor is not None and not re.fullmatch(r"[0-9]{13}#[a-z-]{1,20}#[!-~]{1,200}", cursor, re.ASCII):
        raise BadRequest(f"{cut(cursor)!r} is no cursor; take it from the page before, as it is")
    return cursor


def _time(instant: Instant | None) -> str | None:
    return None if instant is None or instant.epoch_ms == 0 else instant.iso()
