"""The pause switch. While it is set nothing new is begun; what is under way is brought to its end."""

from dataclasses import dataclass

from holdfast.cluster.attributes import Reader
from holdfast.cluster.memory import memory_keys
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Key, Store, set_all
from holdfast.ports.store.tables import STATE


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused it, when, and why."""

    by: str
    since: Instant
    reason: str


def pause_key(cluster: ClusterId) -> Key:
    return memory_keys(cluster)[2]


def read_pause(store: Store, cluster: ClusterId) -> Pause | None:
    item = store.get(STATE, pause_key(cluster)) or {}
    if item.get("paused") is not True:
        return None
    since = Reader(item, "pause: ").instant("sinceEpoch")
    return Pause(str(item.get("by", "")), since, str(item.get("reason", "")))


def set_pause(store: Store, cluster: ClusterId, pause: Pause) -> None:
    values = {"paused": True, "by": pause.by, "sinceEpoch": pause.since.epoch_seconds, "reason": pause.reason[:500]}
    store.update(STATE, pause_key(cluster), set_all(values))


def end_pause(store: Store, cluster: ClusterId) -> None:
    store.update(STATE, pause_key(cluster), set_all({"paused": False}))
