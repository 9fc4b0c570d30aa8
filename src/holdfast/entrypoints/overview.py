"""What people ask about the cluster, as plain data: the command line, the API and the console show the same."""

from typing import Any

from holdfast.cluster.ledger import Ledger
from holdfast.cluster.log import Entry, entries
from holdfast.cluster.pause import read_pause
from holdfast.cluster.state import ClusterState
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Store

_LOOK_BACK_SECONDS = 3600


def cluster_overview(store: Store, cluster: ClusterId, now: Instant) -> dict[str, Any]:
    """The state, in words and numbers, and the last tick's rules."""
    state = Ledger(store, cluster).read()
    pause = read_pause(store, cluster)
    last = last_entry(store, cluster, now)
    return {
        "cluster": cluster,
        "workers": state.timers.workers,
        "action": action_shown(state, now),
        "lastScaleAt": _time(state.last_scale),
        "pendingSince": _time(state.timers.pending_since),
        "idleSince": _time(state.timers.idle_since),
        "upFailures": state.up_failures,
        "upBackoffUntil": _time(state.up_backoff_until),
        "lease": {"owner": state.lock_owner, "until": _time(state.lock_until), "fence": state.fence},
        "paused": None if pause is None else {"by": pause.by, "since": pause.since.iso(), "reason": pause.reason},
        "lastTick": None if last is None else last.shown(),
    }


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


def last_entry(store: Store, cluster: ClusterId, now: Instant) -> Entry | None:
    last = None
    for entry in entries(store, cluster, now.plus(-_LOOK_BACK_SECONDS), now):
        last = entry
    return last


def decisions(store: Store, cluster: ClusterId, since: Instant, until: Instant) -> list[dict[str, Any]]:
    return [entry.shown() for entry in entries(store, cluster, since, until)]


def _time(instant: Instant | None) -> str | None:
    return None if instant is None or instant.epoch_ms == 0 else instant.iso()
