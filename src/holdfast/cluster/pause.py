"""The pause switch. While it is set nothing new is begun; what is under way is brought to its end.

Several people may press it at once. Who comes first pauses; their reason stays until somebody has resumed. Who resumes
ends the pause that they have seen, and no other: one that was set meanwhile has a reason that they do not know.
"""

from dataclasses import dataclass

from holdfast.cluster.attributes import Reader
from holdfast.cluster.memory import memory_keys
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, attr, set_all
from holdfast.ports.store.tables import STATE


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused it, when, and why."""

    by: str
    since: Instant
    reason: str

    def words(self) -> str:
        return f"paused since {self.since.iso_seconds()} by {self.by}" + (f": {self.reason}" if self.reason else "")

    def shown(self) -> dict[str, str]:
        return {"by": self.by, "since": self.since.iso(), "reason": self.reason}


@dataclass(frozen=True, slots=True)
class Switched:
    """Whether that was done, and the pause that stands now."""

    is_done: bool
    pause: Pause | None


def pause_key(cluster: ClusterId) -> Key:
    return memory_keys(cluster)[2]


def read_pause(store: Store, cluster: ClusterId) -> Pause | None:
    return _pause_of(store.get(STATE, pause_key(cluster)))


def set_pause(store: Store, cluster: ClusterId, pause: Pause) -> Switched:
    """Pause it, unless it is paused."""
    values = {"paused": True, "by": pause.by, "sinceEpoch": pause.since.epoch_seconds, "reason": pause.reason}
    try:
        store.update(STATE, pause_key(cluster), set_all(values), ~attr("paused").equals(True))
    except WriteConflict as conflict:
        found = conflict.item or {}
        # What won may be this very write, of which the store's answer was lost.
        return Switched(_has(found, values), _pause_of(found))
    return Switched(is_done=True, pause=pause)


def end_pause(store: Store, cluster: ClusterId, pause: Pause, by: str, now: Instant) -> Switched:
    """End this pause, unless it has ended."""
    values = {"paused": False, "endedBy": by, "endedEpoch": now.epoch_seconds}
    is_this = attr("by").equals(pause.by) & attr("sinceEpoch").equals(pause.since.epoch_seconds)
    try:
        store.update(STATE, pause_key(cluster), set_all(values), attr("paused").equals(True) & is_this)
    except WriteConflict as conflict:
        found = conflict.item or {}
        return Switched(_has(found, values), _pause_of(found))
    return Switched(is_done=True, pause=None)


def _has(item: Item, values: Item) -> bool:
    return all(item.get(name) == value for name, value in values.items())


def _pause_of(item: Item | None) -> Pause | None:
    if item is None or item.get("paused") is not True:
        return None
    since = Reader(item, "pause: ").instant("sinceEpoch")
    return Pause(str(item.get("by", "")), since, str(item.get("reason", "")))
