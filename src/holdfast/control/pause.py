"""The pause switch. While paused, nothing new begins; actions under way are finished.

Several people may use it at once. The first one pauses, and their reason stays until someone resumes. Resuming ends
only the pause that the person has seen: a later one may have another reason.
"""

import logging
from dataclasses import dataclass
from typing import Final, Literal

from msgspec import field

from holdfast.control.decision_log import PAUSED_KIND, RESUMED_KIND, DecisionLog
from holdfast.control.stored_attributes import AttributeReader
from holdfast.kernel.errors import HoldfastError, WriteConflict
from holdfast.kernel.ids import ClusterId, cluster_words
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Shape, Time
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.store import Item, Key, Store, attr, set_all
from holdfast.ports.store.tables import STATE

PauseStep = Literal["paused", "resumed", "already paused", "paused again", "not paused", "would pause", "would resume"]
_UNCHANGED: Final = "nothing was changed"
_logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Pause:
    """Who paused it, when, and why."""

    by: str
    since: Instant
    reason: str

    def words(self) -> str:
        return f"paused since {self.since.iso_seconds()} by {self.by}" + (f": {self.reason}" if self.reason else "")

    def status(self) -> "PauseStatus":
        return PauseStatus(by=self.by, since=self.since.iso(), reason=self.reason)


class PauseStatus(Shape, frozen=True, kw_only=True):
    """A pause in JSON answers."""

    by: str
    since: Time
    reason: str


class PauseAnswer(Shape, frozen=True, kw_only=True):
    """What became of a pause or a resume; `paused`: the pause that is in force now."""

    cluster: str
    step: PauseStep
    done: bool
    message: str = field(name="told")
    paused: PauseStatus | None


@dataclass(frozen=True, slots=True)
class Switched:
    """Whether it was done, and the pause in force now."""

    is_done: bool
    pause: Pause | None


def pause_key(cluster: ClusterId) -> Key:
    return Key(f"{cluster}#pause")


def read_pause(store: Store, cluster: ClusterId) -> Pause | None:
    return _pause_of(store.get(STATE, pause_key(cluster)))


def set_pause(store: Store, cluster: ClusterId, pause: Pause) -> Switched:
    """Pause it, unless it is paused."""
    values = {"paused": True, "by": pause.by, "sinceEpoch": pause.since.epoch_seconds, "reason": pause.reason}
    try:
        store.update(STATE, pause_key(cluster), set_all(values), ~attr("paused").equals(True))
    except WriteConflict as conflict:
        found = conflict.item or {}
        # The write that won may be this one, if the store's response was lost.
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


class PauseSwitch:
    """Pause and resume one cluster, as the command line, the API and the console do."""

    def __init__(self, store: Store, clock: Clock, cluster: ClusterId) -> None:
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self._name = cluster_words(cluster)

    def pause(self, by: str, reason: str) -> PauseAnswer:
        now = Instant.from_epoch_seconds(self._clock.now().epoch_seconds)  # as it is stored
        pause = Pause(_name_of(by), now, cut(reason, 500))
        found = set_pause(self._store, self._cluster, pause)
        if not found.is_done and found.pause is not None:
            return self._already(found.pause)
        self._log(PAUSED_KIND, f"by {pause.by}" + (f": {pause.reason}" if pause.reason else ""), now)
        return self._answer("paused", f"paused {self._name}", pause, done=True)

    def resume(self, by: str, since: str = "") -> PauseAnswer:
        """Resume. `since` identifies the pause that the person has seen: another one is not ended."""
        pause = read_pause(self._store, self._cluster)
        if pause is None:
            return self._not_paused()
        if since and since != pause.since.iso():
            return self._again(pause)
        now = self._clock.now()
        found = end_pause(self._store, self._cluster, pause, _name_of(by), now)
        if found.is_done:
            self._log(RESUMED_KIND, f"by {_name_of(by)}; it was {pause.words()}", now)
            return self._answer("resumed", f"resumed {self._name}, which was {pause.words()}", None, done=True)
        return self._not_paused() if found.pause is None else self._again(found.pause)

    def _log(self, kind: str, words: str, now: Instant) -> None:
        """The switch has already been made: a failure to log does not undo it."""
        try:
            DecisionLog(self._store, self._cluster).record_switch(kind, words, now)
        except HoldfastError as error:
            _logger.warning("%s %s; could not write this to the decision log: %s", kind, words, error)

    def would_pause(self) -> PauseAnswer:
        pause = read_pause(self._store, self._cluster)
        if pause is not None:
            return self._already(pause)
        return self._answer("would pause", f"would pause {self._name}", None)

    def would_resume(self) -> PauseAnswer:
        pause = read_pause(self._store, self._cluster)
        if pause is None:
            return self._not_paused()
        return self._answer("would resume", f"would resume {self._name}, which is {pause.words()}", pause)

    def _already(self, pause: Pause) -> PauseAnswer:
        return self._answer("already paused", f"{self._name} is already {pause.words()}; {_UNCHANGED}", pause)

    def _again(self, pause: Pause) -> PauseAnswer:
        return self._answer("paused again", f"{self._name} has meanwhile been {pause.words()}; {_UNCHANGED}", pause)

    def _not_paused(self) -> PauseAnswer:
        return self._answer("not paused", f"{self._name} is not paused; {_UNCHANGED}", None)

    def _answer(self, step: PauseStep, message: str, pause: Pause | None, *, done: bool = False) -> PauseAnswer:
        current = None if pause is None else pause.status()
        return PauseAnswer(cluster=self._cluster, step=step, done=done, message=message, paused=current)


def _name_of(by: str) -> str:
    return cut(by, 100) or "somebody"


def _has(item: Item, values: Item) -> bool:
    return all(item.get(name) == value for name, value in values.items())


def _pause_of(item: Item | None) -> Pause | None:
    if item is None or item.get("paused") is not True:
        return None
    since = AttributeReader(item, "pause: ").instant("sinceEpoch")
    return Pause(str(item.get("by", "")), since, str(item.get("reason", "")))
