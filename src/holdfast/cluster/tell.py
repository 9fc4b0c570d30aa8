"""What an operator wants to be told, and told once.

What is worth telling follows from a tick: what it did, and what it could not see. Telling is best effort and nothing
depends on it; but it is remembered in the store, so that neither a tick a minute nor a second process repeats it. While
the store is away, each process remembers by itself: rather told by two than by nobody.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Final
from zlib import crc32

from holdfast.cluster.lease import LeaseHeld
from holdfast.cluster.plan import Ticked
from holdfast.cluster.steps import Step
from holdfast.kernel.errors import HoldfastError, NeedsOperator, WriteConflict
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.notify import Notice, Notifier
from holdfast.ports.readings import Reading, Unknown
from holdfast.ports.store import Condition, Item, Key, Store, attr, set_all
from holdfast.ports.store.tables import STATE

AGAIN_SECONDS: Final = 4 * 3600  # what goes on is told again after this
PATIENCE_SECONDS: Final = 600  # what may pass by itself is told when it has lasted so long
_KEPT_SECONDS: Final = 86_400
_NEVER_SECONDS: Final = 10**9
_OWN_MOST: Final = 1000

# The steps worth telling: the title, and whether somebody should look at once.
_STEPS: Final[dict[str, tuple[str, bool]]] = {
    "repair": ("An odd state was repaired", False),
    "fail_scale_up": ("A scale-up failed", True),
    "terminate_unjoined": ("A new machine did not join and was terminated", True),
    "complete_scale_up": ("Workers were added", False),
    "abort_scale_down": ("A scale-down was given up", False),
    "complete_scale_down": ("A worker was taken away", False),
    "collect_machine": ("A machine that nobody used was terminated", False),
    "replace_not_ready": ("A node that stayed NotReady is replaced", True),
    "cordon_interrupted": ("A worker leaves", False),
    "give_up_replacement": ("A worker that leaves is not replaced", False),
}

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Told:
    """A notice, and how long its matter must have lasted before it is told."""

    notice: Notice
    patience_seconds: int = 0


def told_of(ticked: Ticked) -> list[Told]:
    """What of a tick is worth telling."""
    done = [_of_step(step, ticked.seen.now) for step in ticked.done if step.kind in _STEPS]
    readings: dict[str, Reading[Any]] = {
        "CPU use": ticked.seen.cpu,
        "waiting pods": ticked.seen.pending,
        "Kubernetes": ticked.seen.kube,
    }
    blind = [_of_unknown(what, reading) for what, reading in readings.items() if isinstance(reading, Unknown)]
    stuck = [_of_stopped(ticked.stopped)] if ticked.stopped and "lease held by" not in ticked.stopped else []
    return done + [Told(alarm) for alarm in ticked.alarms] + blind + stuck


def told_of_error(error: HoldfastError) -> Told:
    """A tick that could not even look, or that needs a person."""
    if isinstance(error, LeaseHeld):
        return Told(Notice("standing_by", "lease", "Another process acts", str(error)), _NEVER_SECONDS)
    needs_operator = isinstance(error, NeedsOperator)
    title = "Holdfast needs an operator" if needs_operator else "Ticks fail"
    # By what it says: another problem of the same kind is another matter.
    key = f"{type(error).__name__}-{crc32(str(error)[:60].encode()):08x}"
    notice = Notice("tick_failed", key, title, str(error), is_urgent=True)
    return Told(notice, 0 if needs_operator else PATIENCE_SECONDS)


def told_of_queue(error: HoldfastError) -> Told:
    """EC2's events cannot be read: spot may take a machine without our knowing."""
    text = f"{error}; until then EC2 may take a spot machine unheard"
    notice = Notice("events_unread", "queue", "EC2's events cannot be read", text, is_urgent=True)
    return Told(notice, 0 if isinstance(error, NeedsOperator) else PATIENCE_SECONDS)


def told_of_no_dead_letters(queue: str) -> Told:
    text = (
        f"{queue} has no dead-letter queue: an event that cannot be handled comes back until it expires, and is lost "
        "then; give it a RedrivePolicy, as docs/cluster.md shows"
    )
    return Told(Notice("no_dead_letters", "queue", "The events' queue has no dead-letter queue", text))


@dataclass(frozen=True, slots=True)
class _Memory:
    """What is remembered of one matter: when it began, was last seen and last told; 0 for never."""

    first: int = 0
    last: int = 0
    told: int = 0

    @classmethod
    def of(cls, item: Item, seconds: int) -> "_Memory":
        """As it was stored. What lies ahead of us was written by a clock that had jumped, and says nothing."""
        known = (_whole(item, name) for name in ("firstEpoch", "lastEpoch", "toldEpoch"))
        return cls(*(value if value <= seconds + PATIENCE_SECONDS else 0 for value in known))

    def stored(self) -> dict[str, int]:
        return {"firstEpoch": self.first, "lastEpoch": self.last, "toldEpoch": self.told}

    def is_due(self, patience_seconds: int) -> bool:
        """Whether it is to be told now, the moment at which it was last seen."""
        return self.last - self.first >= patience_seconds and self.last - self.told >= AGAIN_SECONDS

    def seen_again(self, seconds: int) -> "_Memory":
        goes_on = self.last > 0 and seconds - self.last <= PATIENCE_SECONDS
        return replace(self, first=min(self.first or seconds, seconds) if goes_on else seconds, last=seconds)


class Teller:
    """Tells what was not told yet."""

    def __init__(self, store: Store, cluster: ClusterId, notifiers: Sequence[Notifier]) -> None:
        self._store = store
        self._cluster = cluster
        self._notifiers = notifiers
        # What the store knows too, as far as it could be reached: a store that is away silences nobody.
        self._own: dict[str, _Memory] = {}

    def tell(self, what: Sequence[Told], now: Instant) -> None:
        for told in what if self._notifiers else ():
            if self._is_due(told, now):
                self._send(told.notice)

    def _send(self, notice: Notice) -> None:
        for notifier in self._notifiers:
            try:
                notifier.tell(notice)
            except HoldfastError as error:
                _log.warning("notice %s not sent: %s", notice.kind, error)

    def _is_due(self, told: Told, now: Instant) -> bool:
        """Whether it is for us to tell this now. The claim is stored first: rather never told than told by two."""
        name = f"{self._cluster}#told#{told.notice.kind}#{told.notice.key}"
        own = self._recalled(name, now)
        try:
            memory, is_due = self._claimed(name, own, told, now)
        except WriteConflict:
            return False
        except HoldfastError as error:
            _log.warning("a notice could not be remembered in the store; this process remembers it: %s", error)
            memory = own.seen_again(now.epoch_seconds)
            is_due = memory.is_due(told.patience_seconds)
            memory = replace(memory, told=memory.last) if is_due else memory
        self._own[name] = memory
        return is_due

    def _claimed(self, name: str, own: _Memory, told: Told, now: Instant) -> tuple[_Memory, bool]:
        known = self._store.get(STATE, Key(name)) or {}
        stored = _Memory.of(known, now.epoch_seconds)
        # What we told while the store was away counts.
        memory = replace(stored, told=max(stored.told, own.told)).seen_again(now.epoch_seconds)
        is_due = memory.is_due(told.patience_seconds)
        memory = replace(memory, told=memory.last) if is_due else memory
        update = set_all({**memory.stored(), "expiresAt": now.plus(_KEPT_SECONDS).epoch_seconds})
        last = attr("lastEpoch")
        unchanged: Condition = last.equals(known["lastEpoch"]) if "lastEpoch" in known else last.is_absent()
        self._store.update(STATE, Key(name), update, unchanged)
        return memory, is_due

    def _recalled(self, name: str, now: Instant) -> _Memory:
        """What this process knows of it. What is long over is forgotten: each error has a name of its own."""
        if len(self._own) >= _OWN_MOST:
            since = now.epoch_seconds - AGAIN_SECONDS
            self._own = {name: memory for name, memory in list(self._own.items()) if memory.last >= since}
        return _Memory.of(self._own.get(name, _Memory()).stored(), now.epoch_seconds)


def _of_step(step: Step, now: Instant) -> Told:
    title, is_urgent = _STEPS[step.kind]
    # A step about one machine may be tried at several ticks; the others are done once.
    about = str(getattr(step, "instance", "") or now.iso())
    return Told(Notice(step.kind, about, title, step.because, is_urgent=is_urgent))


def _of_stopped(reason: str) -> Told:
    return Told(Notice("stopped", "tick", "Ticks do not come to their end", reason, is_urgent=True), PATIENCE_SECONDS)


def _of_unknown(what: str, reading: Unknown) -> Told:
    notice = Notice("unknown", what, f"{what} cannot be seen", f"{reading.why}; nothing is scaled on a guess")
    return Told(notice, PATIENCE_SECONDS)


def _whole(item: Item, name: str) -> int:
    value = item.get(name, 0)
    return int(value) if isinstance(value, int) else 0
