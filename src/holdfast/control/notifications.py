"""Notify operators of what ticks did and what they could not see, without repeating it every minute.

Notifying is best effort, and nothing depends on it. What was sent is remembered in the store, so that neither the next
tick nor another process repeats it. While the store is unavailable each process remembers for itself: a duplicate is
better than no notification.
"""

import logging
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Final
from zlib import crc32

from holdfast.control.lease import LeaseHeld
from holdfast.control.steps import MachineStep, Step
from holdfast.kernel.errors import HoldfastError, NeedsOperator, WriteConflict
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.notify import Notification, Notifier
from holdfast.ports.store import Condition, Item, Key, Store, attr, set_all
from holdfast.ports.store.tables import STATE

AGAIN_SECONDS: Final = 4 * 3600  # a lasting problem is repeated after this
PATIENCE_SECONDS: Final = 600  # a problem that may resolve without an operator is sent after this
_KEPT_SECONDS: Final = 86_400
_NEVER_SECONDS: Final = 10**9
_OWN_MOST: Final = 1000

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Announcement:
    """A notification, and how long its cause must last before it is sent."""

    notification: Notification
    patience_seconds: int = 0


def announcement_of_step(step: Step, now: Instant) -> Announcement | None:
    """The announcement of a step that was done; None for steps without a title."""
    if step.title is None:
        return None
    about = step.instance if isinstance(step, MachineStep) else now.iso()
    return Announcement(Notification(step.kind, about, step.title, step.because, is_urgent=step.is_urgent))


def announcement_of_error(error: HoldfastError) -> Announcement:
    """The announcement of a tick that failed."""
    if isinstance(error, LeaseHeld):
        return Announcement(Notification("standing_by", "lease", "Another process acts", str(error)), _NEVER_SECONDS)
    needs_operator = isinstance(error, NeedsOperator)
    title = "Holdfast needs an operator" if needs_operator else "Ticks fail"
    # The message is part of the key: another error of the same class is a separate problem.
    key = f"{crc32(f'{type(error).__name__}: {str(error)[:60]}'.encode()):08x}"
    notification = Notification("tick_failed", key, title, str(error), is_urgent=True)
    return Announcement(notification, 0 if needs_operator else PATIENCE_SECONDS)


@dataclass(frozen=True, slots=True)
class _Remembered:
    """When a problem began, was last seen and was last sent; 0 for never."""

    first: int = 0
    last: int = 0
    sent: int = 0

    @classmethod
    def of(cls, item: Item, seconds: int) -> "_Remembered":
        """As stored. A time in the future was written by a clock that had jumped, and is ignored."""
        known = (_whole(item, name) for name in ("firstEpoch", "lastEpoch", "toldEpoch"))
        return cls(*(value if value <= seconds + PATIENCE_SECONDS else 0 for value in known))

    def stored(self) -> dict[str, int]:
        return {"firstEpoch": self.first, "lastEpoch": self.last, "toldEpoch": self.sent}

    def is_due(self, patience_seconds: int) -> bool:
        """Whether to send it now, at the moment when it was last seen."""
        return self.last - self.first >= patience_seconds and self.last - self.sent >= AGAIN_SECONDS

    def seen_again(self, seconds: int) -> "_Remembered":
        continues = self.last > 0 and seconds - self.last <= PATIENCE_SECONDS
        return replace(self, first=min(self.first or seconds, seconds) if continues else seconds, last=seconds)


class NotificationSender:
    """Sends announcements that are due and were not sent yet."""

    def __init__(self, store: Store, cluster: ClusterId, notifiers: Sequence[Notifier]) -> None:
        self._store = store
        self._cluster = cluster
        self._notifiers = notifiers
        # The same as in the store, for when it is unavailable: notifications must not depend on it.
        self._own: dict[str, _Remembered] = {}

    def send(self, announcements: Sequence[Announcement], now: Instant) -> None:
        for announcement in announcements if self._notifiers else ():
            if self._is_due(announcement, now):
                self._notify(announcement.notification)

    def _notify(self, notification: Notification) -> None:
        for notifier in self._notifiers:
            try:
                notifier.notify(notification)
            except HoldfastError as error:
                _log.warning("notification %s not sent: %s", notification.kind, error)

    def _is_due(self, announcement: Announcement, now: Instant) -> bool:
        """Whether this process must send it now. The claim is stored first, so that two processes never both send."""
        name = f"{self._cluster}#told#{announcement.notification.kind}#{announcement.notification.key}"
        own = self._recalled(name, now)
        try:
            memory, is_due = self._claimed(name, own, announcement, now)
        except WriteConflict:
            return False
        except HoldfastError as error:
            _log.warning("could not store that a notification was sent; only this process remembers it: %s", error)
            memory = own.seen_again(now.epoch_seconds)
            is_due = memory.is_due(announcement.patience_seconds)
            memory = replace(memory, sent=memory.last) if is_due else memory
        self._own[name] = memory
        return is_due

    def _claimed(
        self, name: str, own: _Remembered, announcement: Announcement, now: Instant
    ) -> tuple[_Remembered, bool]:
        known = self._store.get(STATE, Key(name)) or {}
        stored = _Remembered.of(known, now.epoch_seconds)
        # What this process sent while the store was unavailable counts as well.
        memory = replace(stored, sent=max(stored.sent, own.sent)).seen_again(now.epoch_seconds)
        is_due = memory.is_due(announcement.patience_seconds)
        memory = replace(memory, sent=memory.last) if is_due else memory
        update = set_all({**memory.stored(), "expiresAt": now.plus(_KEPT_SECONDS).epoch_seconds})
        last = attr("lastEpoch")
        unchanged: Condition = last.equals(known["lastEpoch"]) if "lastEpoch" in known else last.is_absent()
        self._store.update(STATE, Key(name), update, unchanged)
        return memory, is_due

    def _recalled(self, name: str, now: Instant) -> _Remembered:
        """What this process remembers of it. Old entries are dropped, because every new error adds one."""
        if len(self._own) >= _OWN_MOST:
            since = now.epoch_seconds - AGAIN_SECONDS
            self._own = {name: memory for name, memory in list(self._own.items()) if memory.last >= since}
        return _Remembered.of(self._own.get(name, _Remembered()).stored(), now.epoch_seconds)


def _whole(item: Item, name: str) -> int:
    value = item.get(name, 0)
    return int(value) if isinstance(value, int) else 0
