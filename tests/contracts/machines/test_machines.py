"""EC2's promises, as Holdfast relies on them: tokens, capacity, what is listed when, ends."""

import pytest
from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import LaunchOrder, MachineError, MachineState, Market
from tests.contracts.machines.conftest import Yard

ORDER = LaunchOrder(
    token="token-1",
    template="lt-0abc:3",
    instance_type="t3.medium",
    market=Market.SPOT,
    subnet_id="subnet-eu-west-1a",
    zone="eu-west-1a",
    tags={"Cluster": "k3s", "Role": "worker", "holdfast.dev/action": "<&\"'é>"},
    user_data="#!/bin/sh\necho 'ü'\n",
)


def test_a_machine_is_launched_as_ordered_and_listed_after_a_while(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    assert (machine.instance_type, machine.market, machine.zone) == ("t3.medium", Market.SPOT, "eu-west-1a")
    assert machine.tags == ORDER.tags
    assert machine.launched == yard.world.timeline.now()
    yard.world.timeline.sleep(10)
    (listed,) = yard.machines.tagged({"Cluster": "k3s", "Role": "worker"})
    assert listed == machine
    assert yard.machines.tagged({"Cluster": "other"}) == []
    yard.world.timeline.sleep(60)
    assert yard.machines.found([machine.id])[0].state is MachineState.RUNNING
    assert yard.ec2.launches[0][0] == ORDER, "the order arrived as it was given, to the last character"


def test_the_same_order_under_the_same_token_is_the_same_machine(yard: Yard) -> None:
    first = yard.machines.launch(ORDER)
    assert yard.machines.launch(ORDER).id == first.id
    assert len(yard.ec2.all_machines()) == 1


@pytest.mark.parametrize(
    "other", [{"instance_type": "t3.large"}, {"market": Market.ON_DEMAND}, {"user_data": "x"}, {"tags": {"a": "b"}}]
)
def test_another_order_under_the_same_token_is_refused(yard: Yard, other: dict[str, object]) -> None:
    yard.machines.launch(ORDER)
    with pytest.raises(MachineError) as refused:
        yard.machines.launch(replace(ORDER, **other))
    assert refused.value.code == "IdempotentParameterMismatch"
    assert len(yard.ec2.all_machines()) == 1


def test_the_same_token_in_another_zone_launches_again(yard: Yard) -> None:
    """So a token must be bound to its zone: falling back elsewhere needs another one."""
    yard.machines.launch(ORDER)
    yard.machines.launch(replace(ORDER, subnet_id="subnet-eu-west-1b", zone="eu-west-1b"))
    assert len(yard.ec2.all_machines()) == 2


def test_a_token_whose_machine_is_gone_says_so(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    yard.machines.terminate(machine.id)
    with pytest.raises(MachineError) as refused:
        yard.machines.launch(ORDER)
    assert refused.value.code == "IdempotentInstanceTerminated"


def test_missing_capacity_is_told_and_pins_the_token(yard: Yard) -> None:
    yard.ec2.run_out("t3.medium", "eu-west-1a", Market.SPOT)
    with pytest.raises(MachineError) as refused:
        yard.machines.launch(ORDER)
    assert refused.value.code == "InsufficientInstanceCapacity"
    with pytest.raises(MachineError) as mismatch:
        yard.machines.launch(replace(ORDER, market=Market.ON_DEMAND))
    assert mismatch.value.code == "IdempotentParameterMismatch"
    assert yard.machines.launch(replace(ORDER, market=Market.ON_DEMAND, token="token-2")).market is Market.ON_DEMAND


def test_terminating_twice_is_no_error_and_a_machine_stays_listed_on_its_way_out(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    yard.machines.terminate(machine.id)
    yard.machines.terminate(machine.id)
    assert yard.machines.found([machine.id])[0].is_gone
    yard.world.timeline.sleep(120)
    assert yard.machines.found([machine.id])[0].state is MachineState.TERMINATED
    yard.world.timeline.sleep(4000)
    assert yard.machines.found([machine.id]) == []


def test_an_unknown_machine_cannot_be_terminated_and_is_left_out_of_lists(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    nobody = InstanceId("i-0123456789abcdef0")
    with pytest.raises(MachineError) as refused:
        yard.machines.terminate(nobody)
    assert refused.value.code == "InvalidInstanceID.NotFound"
    assert [found.id for found in yard.machines.found([nobody, machine.id])] == [machine.id]


def test_a_machine_may_be_unknown_right_after_its_launch(yard: Yard) -> None:
    """DescribeInstances is eventually consistent: a list that misses a machine proves nothing."""
    missed = 0
    for number in range(20):
        machine = yard.machines.launch(replace(ORDER, token=f"token-{number}"))
        missed += not yard.machines.found([machine.id])
    assert missed > 0


def test_subnets_tell_their_zone_and_free_addresses(yard: Yard) -> None:
    yard.machines.launch(ORDER)
    (subnet,) = yard.machines.subnets(["subnet-eu-west-1a"])
    assert (subnet.zone, subnet.free_addresses) == ("eu-west-1a", 199)


def test_long_lists_come_whole(yard: Yard) -> None:
    for number in range(30):
        yard.machines.launch(replace(ORDER, token=f"token-{number}"))
    yard.world.timeline.sleep(30)
    assert len(yard.machines.tagged({"Cluster": "k3s"})) == 30
