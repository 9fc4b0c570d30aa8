"""EC2's guarantees that Holdfast relies on: tokens, capacity, lists, terminations."""

import pytest
from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import ACCEPTED_TAG, LaunchOrder, MachineError, MachineState, Market, StateReason
from holdfast.simulator.world.ec2 import NO_DISK_KEY
from tests.contracts.machines.yard import Yard

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
    assert yard.ec2.launches[0][0] == ORDER, "the order arrived unchanged, to the last character"


def test_the_same_order_with_the_same_token_is_the_same_machine(yard: Yard) -> None:
    first = yard.machines.launch(ORDER)
    assert yard.machines.launch(ORDER).id == first.id
    assert len(yard.ec2.all_machines()) == 1


@pytest.mark.parametrize(
    "other", [{"instance_type": "t3.large"}, {"market": Market.ON_DEMAND}, {"user_data": "x"}, {"tags": {"a": "b"}}]
)
def test_another_order_with_the_same_token_is_refused(yard: Yard, other: dict[str, object]) -> None:
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


def test_missing_capacity_is_an_error_and_binds_the_token_to_its_order(yard: Yard) -> None:
    yard.ec2.run_out("t3.medium", "eu-west-1a", Market.SPOT)
    with pytest.raises(MachineError) as refused:
        yard.machines.launch(ORDER)
    assert refused.value.code == "InsufficientInstanceCapacity"
    with pytest.raises(MachineError) as mismatch:
        yard.machines.launch(replace(ORDER, market=Market.ON_DEMAND))
    assert mismatch.value.code == "IdempotentParameterMismatch"
    assert yard.machines.launch(replace(ORDER, market=Market.ON_DEMAND, token="token-2")).market is Market.ON_DEMAND


def test_terminating_twice_is_no_error_and_a_terminating_machine_stays_listed(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    yard.machines.terminate(machine.id)
    yard.machines.terminate(machine.id)
    assert yard.machines.found([machine.id])[0].is_gone
    yard.world.timeline.sleep(120)
    assert yard.machines.found([machine.id])[0].state is MachineState.TERMINATED
    yard.world.timeline.sleep(4000)
    assert yard.machines.found([machine.id]) == []


def test_a_machine_that_ended_has_the_reason_and_a_running_one_has_none(yard: Yard) -> None:
    """EC2 accepts a launch before it attaches the disks: only the state reason tells that their key is unusable."""
    ended, broken, reclaimed = (yard.machines.launch(replace(ORDER, token=f"token-{number}")) for number in range(3))
    yard.world.timeline.sleep(60)
    assert {machine.state_reason for machine in yard.machines.tagged({"Cluster": "k3s"})} == {None}
    yard.machines.terminate(ended.id)
    yard.ec2.break_down(broken.id, NO_DISK_KEY)
    yard.ec2.interrupt(reclaimed.id)
    yard.world.timeline.sleep(300)
    reasons = {machine.id: machine.state_reason for machine in yard.machines.tagged({"Cluster": "k3s"})}
    assert reasons == {
        ended.id: StateReason("Client.UserInitiatedShutdown", "User initiated shutdown"),
        broken.id: StateReason("Client.InternalError", "Client error on launch"),
        reclaimed.id: StateReason("Server.SpotInstanceTermination", "Spot instance termination"),
    }


def test_an_unknown_machine_cannot_be_terminated_and_is_left_out_of_lists(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    unknown = InstanceId("i-0123456789abcdef0")
    with pytest.raises(MachineError) as refused:
        yard.machines.terminate(unknown)
    assert refused.value.code == "InvalidInstanceID.NotFound"
    assert [found.id for found in yard.machines.found([unknown, machine.id])] == [machine.id]


def test_a_machine_may_be_missing_in_lists_right_after_its_launch(yard: Yard) -> None:
    """DescribeInstances is eventually consistent: a list that misses a machine proves nothing."""
    missed = 0
    for number in range(20):
        machine = yard.machines.launch(replace(ORDER, token=f"token-{number}"))
        missed += not yard.machines.found([machine.id])
    assert missed > 0


def test_a_machine_is_marked_as_accepted_beside_its_other_tags(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    yard.machines.mark_accepted(machine.id, "action-<&>-1")
    (found,) = yard.machines.tagged({"Cluster": "k3s"})
    assert found.tags == {**ORDER.tags, ACCEPTED_TAG: "action-<&>-1"}


def test_a_machine_may_be_marked_again(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    yard.machines.mark_accepted(machine.id, "action-1")
    yard.machines.mark_accepted(machine.id, "action-2")
    assert yard.machines.found([machine.id])[0].tags == {**ORDER.tags, ACCEPTED_TAG: "action-2"}


def test_a_marked_machine_is_still_the_one_of_its_token(yard: Yard) -> None:
    """The order of a token is what was ordered, not what the machine has become."""
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    yard.machines.mark_accepted(machine.id, "action-1")
    assert yard.machines.launch(ORDER).id == machine.id


def test_an_unknown_machine_cannot_be_marked(yard: Yard) -> None:
    with pytest.raises(MachineError) as refused:
        yard.machines.mark_accepted(InstanceId("i-0123456789abcdef0"), "action-1")
    assert refused.value.code == "InvalidInstanceID.NotFound"


def test_a_refused_mark_says_so_and_changes_nothing(yard: Yard) -> None:
    machine = yard.machines.launch(ORDER)
    yard.world.timeline.sleep(30)
    yard.ec2.is_tagging_refused = True
    with pytest.raises(MachineError) as refused:
        yard.machines.mark_accepted(machine.id, "action-1")
    assert refused.value.code == "UnauthorizedOperation"
    assert yard.machines.found([machine.id])[0].tags == ORDER.tags


def test_subnets_have_their_zone_and_free_addresses(yard: Yard) -> None:
    yard.machines.launch(ORDER)
    (subnet,) = yard.machines.subnets(["subnet-eu-west-1a"])
    assert (subnet.zone, subnet.free_addresses) == ("eu-west-1a", 199)


def test_long_lists_are_complete(yard: Yard) -> None:
    for number in range(30):
        yard.machines.launch(replace(ORDER, token=f"token-{number}"))
    yard.world.timeline.sleep(30)
    assert len(yard.machines.tagged({"Cluster": "k3s"})) == 30
