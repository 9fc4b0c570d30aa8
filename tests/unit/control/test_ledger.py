"""A fenced write: what counts as written, and when the lease is lost."""

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.cluster.state import ClusterState, cluster_ledger
from holdfast.control.ledger import LeaseLost, Ledger, Transition
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import ClusterId
from holdfast.ports.store import Item, attr
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.timeline import Timeline
from holdfast.simulator.world.world import DAWN

OURS, THEIRS = 4, 5
COUNT_ONCE = Transition("count", attr("workerCount").set_to(3), attr("workerCount").equals(2))


def with_item(**values: object) -> Ledger[ClusterState]:
    store = memory_store(Timeline(DAWN))
    item: Item = {"pk": "cluster", "workerCount": 2, "fence": OURS, **values}
    store.put(STATE, item)
    return cluster_ledger(store, ClusterId("cluster"))


def test_a_write_that_was_made_and_whose_response_was_lost_counts_as_written() -> None:
    ledger = with_item()
    first = ledger.write(COUNT_ONCE, OURS)
    assert ledger.write(COUNT_ONCE, OURS) == first


def test_the_same_change_by_another_lease_holder_is_not_our_write() -> None:
    """The lease is lost, however the item looks: the next step must not follow from our look."""
    ledger = with_item(workerCount=3, fence=THEIRS)
    with pytest.raises(LeaseLost):
        ledger.write(COUNT_ONCE, OURS)


def test_another_change_under_our_fence_is_a_conflict() -> None:
    ledger = with_item(workerCount=7)
    with pytest.raises(WriteConflict) as found:
        ledger.write(COUNT_ONCE, OURS)
    assert not isinstance(found.value, LeaseLost)
