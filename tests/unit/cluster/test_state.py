"""The cluster's item: the seeds' own examples are read, and inconsistent items are refused."""

from contextlib import suppress
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.state import ClusterState, DownPhase, Timers, UpPhase, read_state
from holdfast.control.stored_attributes import StateDamaged
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market

IDLE = {
    "pk": "cluster",
    "scalingInProgress": False,
    "lastScaleEpoch": 1730000000,
    "pendingSinceEpoch": 0,
    "idleSinceEpoch": 1730000100,
    "workerCount": 2,
}
SCALING_UP = {
    "pk": "cluster",
    "scalingInProgress": True,
    "lastScaleEpoch": 1730000000,
    "scaleUpActionId": "1730000300-req-xyz",
    "scaleUpStartedEpoch": 1730000300,
    "scaleUpRequested": 2,
    "scaleUpInstanceIds": ["i-aaa", "i-bbb"],
}
SCALING_DOWN = {
    "pk": "cluster",
    "scalingInProgress": True,
    "scaleDownActionId": "1730000300-req-xyz",
    "scaleDownStartedEpoch": 1730000300,
    "scaleDownPhase": "DRAINING",
    "scaleDownTargetInstanceIds": ["i-aaa", "i-bbb"],
    "scaleDownCompletedInstanceIds": ["i-aaa"],
}


def test_an_absent_item_is_a_cluster_that_has_never_scaled() -> None:
    assert read_state(None) == ClusterState()


def test_the_seeds_idle_item_is_read() -> None:
    state = read_state(IDLE)
    assert not state.is_acting
    assert state.last_scale == Instant.from_epoch_seconds(1730000000)
    assert state.timers == Timers(None, Instant.from_epoch_seconds(1730000100), 2)
    assert state.timers.stored() == {"pendingSinceEpoch": 0, "idleSinceEpoch": 1730000100, "workerCount": 2}


def test_the_seeds_scale_up_without_a_plan_is_waiting_for_its_machines_to_join() -> None:
    up = read_state(SCALING_UP).up
    assert up is not None
    assert up.phase is UpPhase.VERIFYING
    assert up.instances == ("i-aaa", "i-bbb")
    assert up.slots == ()


def test_the_seeds_scale_down_continues_with_the_remaining_targets() -> None:
    down = read_state(SCALING_DOWN).down
    assert down is not None
    assert down.phase is DownPhase.DRAINING
    assert down.open_targets == ("i-bbb",)


def test_our_own_plan_is_read_slot_by_slot() -> None:
    plan = [
        {"s": "subnet-1", "z": "eu-west-1a", "m": "spot", "t": "t3.medium", "k": 0, "i": "i-aaa"},
        {"s": "subnet-2", "z": "eu-west-1b", "m": "od", "t": "t3.large", "k": 3, "x": "no capacity"},
    ]
    ours = {**SCALING_UP, "fence": 3, "scaleUpActionId": "1730000300-3-tick"}
    up = read_state({**ours, "scaleUpPlan": plan, "scaleUpPhase": "LAUNCHING"}).up
    assert up is not None
    assert [slot.stored() for slot in up.slots] == plan
    assert [slot.market for slot in up.slots] == [Market.SPOT, Market.ON_DEMAND]
    assert [slot.is_open for slot in up.slots] == [False, False]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("fence", -1),
        ("fence", "7"),
        ("fence", True),
        ("scalingInProgress", "true"),
        ("scalingInProgress", 1),
        ("lastScaleEpoch", None),
        ("scaleUpPhase", "DANCING"),
        ("scaleUpInstanceIds", "i-aaa"),
        ("scaleUpInstanceIds", [1]),
        ("scaleUpPlan", ["x"]),
        ("scaleUpPlan", [{"m": "free"}]),
    ],
)
def test_an_impossible_item_stops_everything(name: str, value: object) -> None:
    """A guess might terminate a machine, so there is no guess, and the message names the attribute."""
    with pytest.raises(StateDamaged, match=name if name != "scaleUpPlan" else "scaleUpPlan|m"):
        read_state({**SCALING_UP, name: value})


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("scaleDownPhase", "WAITING"),
        ("scaleDownCompletedInstanceIds", ["i-zzz"]),
        ("scaleDownCommitted", frozenset({"i-zzz"})),
        ("scaleDownCommitted", ["i-aaa"]),
    ],
)
def test_a_scale_down_that_contradicts_itself_stops_everything(name: str, value: object) -> None:
    with pytest.raises(StateDamaged):
        read_state({**SCALING_DOWN, name: value})


attribute_names = st.sampled_from(
    [*SCALING_UP, *SCALING_DOWN, "fence", "scaleUpPlan", "scaleDownCommitted", "upFailures"]
)
values: st.SearchStrategy[Any] = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 5), st.text(max_size=5), st.lists(st.text(max_size=3), max_size=3)
)


@given(st.dictionaries(attribute_names, values))
def test_whatever_is_stored_is_read_or_refused_and_never_crashes(item: dict[str, Any]) -> None:
    with suppress(StateDamaged):
        assert isinstance(read_state(item), ClusterState)
