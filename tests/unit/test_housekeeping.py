"""Expired items do not pile up in a file."""

import threading

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.housekeeping import BATCH_MOST, Housekeeping, remove_all_expired
from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.store import Key, Table
from holdfast.ports.store.tables import JOBS, LOGS
from tests.clocks import StillClock


def test_everything_that_has_expired_goes_however_much_it_is() -> None:
    clock = StillClock()
    store = memory_store(clock)
    past, future = clock.now().epoch_seconds - 1, clock.now().epoch_seconds + 60
    for number in range(2 * BATCH_MOST + 7):
        store.put(LOGS, {"pk": "c", "sk": str(number), "ttl": past})
    store.put(JOBS, {"PK": "1#1", "SK": "v", "ttl": future})
    assert remove_all_expired(store) == 2 * BATCH_MOST + 7
    assert remove_all_expired(store) == 0
    assert store.get(JOBS, Key("1#1", "v")) is not None


class FailsOnce:
    """A store that is away at first."""

    def __init__(self) -> None:
        self.asked = 0
        self.came_back = threading.Event()

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        self.asked += 1
        if self.asked == 1:
            raise StoreUnavailable("away")
        self.came_back.set()
        return 0


def test_a_store_that_is_away_is_tried_again_and_stopping_is_prompt() -> None:
    store = FailsOnce()
    with Housekeeping(store, every_seconds=0.01):  # type: ignore[arg-type]
        assert store.came_back.wait(60)
    assert store.asked > 1
