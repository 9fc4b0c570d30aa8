"""Sessions that were signed out. Their cookies are signed and unexpired, and must not work any more.

Each is stored until its cookie would have expired, so that every process with the same tables refuses it, also after a
restart. A process reads that at most every ten seconds for each session; what was signed out in the process itself, it
remembers. While the store is unavailable, other sessions continue: operators need the console most then.
"""

import logging
import threading
from typing import Final, TypeVar

from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Key, Store
from holdfast.ports.store.tables import STATE

LOOK_SECONDS: Final = 10
REMEMBERED_MOST: Final = 10_000
V = TypeVar("V")
_log = logging.getLogger(__name__)


class SignedOut:
    """Without a store, only this process knows. `clock` is the store's. The methods may be called from any thread."""

    def __init__(self, store: Store | None = None, clock: Clock | None = None, kept_seconds: int = 0) -> None:
        self._store = store
        self._clock = clock
        self._kept_seconds = kept_seconds
        self._lock = threading.Lock()
        self._ended: dict[str, None] = {}
        self._looked: dict[str, Instant] = {}  # sessions that were not signed out, and when that was read

    def end(self, session: str) -> None:
        with self._lock:
            _remember(self._ended, session, None)
        if self._store is None or self._clock is None:
            return
        until = self._clock.now().epoch_seconds + self._kept_seconds
        try:
            self._store.put(STATE, {"pk": session_key(session).partition, "expiresAt": until})
        except HoldfastError as error:
            _log.warning("a session was signed out only in this process, until it restarts: %s", error)

    def is_known(self, session: str, now: Instant) -> bool:
        """Whether `is_ended` answers without the store."""
        looked = self._looked.get(session)
        is_fresh = looked is not None and 0 <= now.seconds_since(looked) < LOOK_SECONDS
        return self._store is None or session in self._ended or is_fresh

    def is_ended(self, session: str, now: Instant) -> bool:
        if self._store is None or self.is_known(session, now):
            return session in self._ended
        try:
            found = self._store.get(STATE, session_key(session), consistent=False)
        except HoldfastError:
            return False
        with self._lock:
            if found is None:
                _remember(self._looked, session, now)
            else:
                _remember(self._ended, session, None)
        return found is not None


def session_key(session: str) -> Key:
    return Key(joined_key("console", "signed-out", session))


def _remember(memory: dict[str, V], session: str, value: V) -> None:
    """Keep the newest. An older one that was signed out is read from the store again."""
    memory.pop(session, None)
    if len(memory) >= REMEMBERED_MOST:
        del memory[next(iter(memory))]
    memory[session] = value
