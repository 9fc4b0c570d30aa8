"""A store on a full disk still reads: readiness must not depend on reads alone."""

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.adapters.timed_store import timed_store
from holdfast.entrypoints.server import probe_store
from holdfast.kernel.errors import StoreUnavailable, WriteConflict
from holdfast.ports.store import Condition, Item, Key, Meter, Store, Table, Update, Written, attr
from holdfast.ports.store.forwarding import ForwardingStore
from holdfast.ports.store.tables import STATE
from tests.clocks import StillClock


class FullDisk(ForwardingStore):
    """Writes fail while `is_full`."""

    is_full = False

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        self._check()
        super().put(table, item, condition)

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        self._check()
        return super().update(table, key, update, condition)

    def metered(self, meter: Meter) -> Store:
        return self._store.metered(meter)

    def _check(self) -> None:
        if self.is_full:
            raise StoreUnavailable("database or disk is full")


def test_a_full_disk_is_not_ready_until_a_write_succeeds() -> None:
    clock = StillClock()
    disk = FullDisk(memory_store(clock))
    store = timed_store(disk, clock, lambda *_: None)
    probe_store(store)
    assert disk.get(STATE, Key("readyz")) is None, "a healthy store is only read"
    disk.is_full = True
    with pytest.raises(StoreUnavailable):
        store.put(STATE, {"pk": "webhook"})
    for _ in range(2):
        with pytest.raises(StoreUnavailable, match="disk is full"):
            probe_store(store)
    disk.is_full = False
    probe_store(store)
    assert not store.is_write_failing


def test_a_refused_condition_is_no_failure_of_the_store() -> None:
    clock = StillClock()
    store = timed_store(memory_store(clock), clock, lambda *_: None)
    store.put(STATE, {"pk": "a"})
    with pytest.raises(WriteConflict):
        store.put(STATE, {"pk": "a"}, attr("pk").is_absent())
    assert not store.is_write_failing
