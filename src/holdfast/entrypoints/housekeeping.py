"""What a long-running process does beside its work: it removes expired items, where the store does not do so itself."""

import logging
import threading
from typing import Final

from holdfast.kernel.errors import HoldfastError
from holdfast.ports.store import Store
from holdfast.ports.store.tables import TABLES

EVERY_SECONDS: Final = 600.0
BATCH_MOST: Final = 500  # a write of so many rows holds up the others for milliseconds, not seconds

_log = logging.getLogger(__name__)


class Housekeeping:
    """A thread that removes what has expired, now and then, until it is told to stop."""

    def __init__(self, store: Store, every_seconds: float = EVERY_SECONDS) -> None:
        self._store = store
        self._every_seconds = every_seconds
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, name="housekeeping", daemon=True)

    def __enter__(self) -> "Housekeeping":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()
        self._thread.join()

    def _run(self) -> None:
        while True:
            try:
                removed = remove_all_expired(self._store, self._is_over)
                _log.debug("removed %d expired items", removed)
            except HoldfastError as error:
                _log.warning("expired items could not be removed: %s; tried again later", error)
            if self._is_over.wait(self._every_seconds):
                return


def remove_all_expired(store: Store, is_over: threading.Event | None = None) -> int:
    """Batch by batch, so that others get their turn in between. How many went."""
    total = 0
    for table in TABLES:
        while not (is_over and is_over.is_set()):
            removed = store.remove_expired(table, most=BATCH_MOST)
            total += removed
            if removed < BATCH_MOST:
                break
    return total
