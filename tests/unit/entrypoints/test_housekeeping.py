"""Expired items do not accumulate in a file."""

import threading
from collections.abc import Sequence

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.control.clock_check import WrongClock, check_expiry
from holdfast.entrypoints.daemon import EXPIRY_BATCH_MOST, Housekeeping, remove_all_expired
from holdfast.entrypoints.wiring.world import OpenWorld
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError, Subnet
from holdfast.ports.store import Key, Table
from holdfast.ports.store.tables import JOBS, LOGS
from tests.clocks import StillClock


def test_all_expired_items_are_removed_however_many() -> None:
    clock = StillClock()
    store = memory_store(clock)
    past, future = clock.now().epoch_seconds - 1, clock.now().epoch_seconds + 60
    for number in range(2 * EXPIRY_BATCH_MOST + 7):
        store.put(LOGS, {"pk": "c", "sk": str(number), "ttl": past})
    store.put(JOBS, {"PK": "1#1", "SK": "v", "ttl": future})
    assert remove_all_expired(store) == 2 * EXPIRY_BATCH_MOST + 7
    assert remove_all_expired(store) == 0
    assert store.get(JOBS, Key("1#1", "v")) is not None


class FailsOnce:
    """A store that is unavailable at first."""

    def __init__(self) -> None:
        self.asked = 0
        self.failed = threading.Event()
        self.came_back = threading.Event()

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        self.asked += 1
        if self.asked == 1:
            self.failed.set()
            raise StoreUnavailable("away")
        self.came_back.set()
        return 0


def test_an_unavailable_store_is_retried() -> None:
    store = FailsOnce()
    with Housekeeping(store, lambda: None, every_seconds=0.01):  # type: ignore[arg-type]
        assert store.came_back.wait(60)
    assert store.asked > 1


def test_stopping_does_not_wait_for_the_next_round() -> None:
    store = FailsOnce()
    housekeeping = Housekeeping(store, lambda: None, every_seconds=3600)  # type: ignore[arg-type]
    housekeeping.__enter__()
    assert store.failed.wait(60)
    stopping = threading.Thread(target=housekeeping.__exit__, daemon=True)
    stopping.start()
    stopping.join(60)
    assert not stopping.is_alive()
    assert store.asked == 1


DAY = 86_400


def test_a_clock_that_jumps_far_ahead_removes_nothing_unless_ec2_confirms_it() -> None:
    clock = StillClock()
    store = memory_store(clock)
    right = clock.now()
    check_expiry(store, right, None, "EC2")
    clock.advance(100 * DAY)
    with pytest.raises(WrongClock, match="last removed 100 days ago"):
        check_expiry(store, clock.now(), None, "EC2")
    with pytest.raises(WrongClock, match="8640000 s ahead of EC2's"):
        check_expiry(store, clock.now(), right, "EC2")
    check_expiry(store, right.plus(6 * DAY), None, "EC2")
    check_expiry(store, clock.now(), clock.now(), "EC2")
    check_expiry(store, clock.now().plus(DAY), None, "EC2")  # the confirmed time counts from now on


def test_a_refused_removal_removes_nothing() -> None:
    refused = threading.Event()

    def refuse() -> None:
        if refused.is_set():
            raise WrongClock("still wrong")
        refused.set()
        raise WrongClock("wrong")

    store = FailsOnce()
    with Housekeeping(store, refuse, every_seconds=0.01):  # type: ignore[arg-type]
        assert refused.wait(60)
    assert store.asked == 0


class SilentEc2:
    """Its time is known after the first request, as in a process that runs no ticks."""

    def __init__(self, *, is_away: bool) -> None:
        self.is_away = is_away
        self.requests = 0

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]:
        self.requests += 1
        if self.is_away:
            raise MachineError("ConnectTimeoutError", "away")
        return []

    def server_time(self) -> Instant | None:
        return None if self.is_away or not self.requests else StillClock().now()


def test_a_process_that_runs_no_ticks_asks_ec2_for_its_time_once() -> None:
    """Otherwise a store that stood still for more than a week would be left with its expired items for ever."""
    ec2 = SilentEc2(is_away=False)
    world = OpenWorld(StillClock(), ec2, None, None, ["subnet-a"], "", "", None)  # type: ignore[arg-type]
    assert world.ec2_time() == world.ec2_time() == StillClock().now()
    assert ec2.requests == 1
    away = OpenWorld(StillClock(), SilentEc2(is_away=True), None, None, ["subnet-a"], "", "", None)  # type: ignore[arg-type]
    assert away.ec2_time() is None
