"""EC2's shapes: launching, finding and terminating machines."""

import base64
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import count
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.aws.ec2 import Ec2Machines, ec2_client
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import LaunchOrder, MachineError, MachineState, Market

NUMBERS = count(1)
GONE = InstanceId("i-0123456789abcdef0")


@dataclass(frozen=True)
class Account:
    """A network with two zones, and a launch template with two versions."""

    template: str
    subnets: list[str]


@pytest.fixture(scope="module")
def account(raw: Any) -> Account:
    ec2 = raw("ec2")
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=f"eu-west-1{zone}")
        for number, zone in enumerate("ab")
    ]
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    data = {"ImageId": image, "InstanceType": "m5.large"}
    template = ec2.create_launch_template(LaunchTemplateName="workers", LaunchTemplateData=data)
    name = template["LaunchTemplate"]["LaunchTemplateId"]
    ec2.create_launch_template_version(LaunchTemplateId=name, LaunchTemplateData=data)
    return Account(name, [subnet["Subnet"]["SubnetId"] for subnet in subnets])


@pytest.fixture(scope="module")
def machines(aws: dict[str, Any]) -> Iterator[Ec2Machines]:
    machines = Ec2Machines(ec2_client(**aws))
    yield machines
    machines.close()


@pytest.fixture
def order(account: Account) -> LaunchOrder:
    """An order with its own cluster, so that no test sees another's machines."""
    number = next(NUMBERS)
    return LaunchOrder(
        token=f"token-{number}",
        template=f"{account.template}:2",
        instance_type="t3.medium",
        market=Market.SPOT,
        subnet_id=account.subnets[0],
        zone="eu-west-1a",
        tags={"Cluster": f"cluster-{number}", "holdfast.dev/action": "1768471201-7-ab12", "holdfast.dev/slot": "0"},
        user_data="#!/bin/sh\necho grüße\n",
    )


def test_a_machine_is_launched_as_ordered(machines: Ec2Machines, order: LaunchOrder, raw: Any) -> None:
    launched = machines.launch(order)
    assert launched.state is MachineState.PENDING
    assert (launched.zone, launched.subnet_id) == ("eu-west-1a", order.subnet_id)
    assert (launched.instance_type, launched.market) == ("t3.medium", Market.SPOT)
    assert launched.tags.items() >= order.tags.items()
    assert launched.private_ip is not None

    shown = raw("ec2").describe_instances(InstanceIds=[launched.id])["Reservations"][0]["Instances"][0]
    assert shown["ClientToken"] == order.token
    assert shown["MetadataOptions"]["HttpTokens"] == "required"
    assert shown["MetadataOptions"]["HttpPutResponseHopLimit"] == 1
    attribute = raw("ec2").describe_instance_attribute(InstanceId=launched.id, Attribute="userData")
    assert base64.b64decode(attribute["UserData"]["Value"]).decode() == order.user_data


def test_the_disks_have_the_tags_too(machines: Ec2Machines, order: LaunchOrder, raw: Any) -> None:
    machines.launch(order)
    wanted = [{"Name": "tag:Cluster", "Values": [order.tags["Cluster"]]}]
    assert len(raw("ec2").describe_volumes(Filters=wanted)["Volumes"]) == 1


def test_on_demand_and_spot_are_distinguished(machines: Ec2Machines, order: LaunchOrder) -> None:
    assert machines.launch(replace(order, market=Market.ON_DEMAND)).market is Market.ON_DEMAND


def test_machines_are_found_by_all_their_tags(machines: Ec2Machines, order: LaunchOrder) -> None:
    first = machines.launch(order)
    second = machines.launch(replace(order, tags={**order.tags, "holdfast.dev/slot": "1"}))
    cluster = {"Cluster": order.tags["Cluster"]}
    assert {machine.id for machine in machines.tagged(cluster)} == {first.id, second.id}
    assert [machine.id for machine in machines.tagged({**cluster, "holdfast.dev/slot": "1"})] == [second.id]
    assert machines.tagged({"Cluster": "cluster-*"}) == []


def test_all_pages_of_a_list_are_read(machines: Ec2Machines, order: LaunchOrder, monkeypatch: Any) -> None:
    monkeypatch.setattr("holdfast.adapters.aws.ec2.PAGE_MOST", 5)  # as few as EC2 allows
    launched = {machines.launch(order).id for _ in range(12)}
    assert {machine.id for machine in machines.tagged({"Cluster": order.tags["Cluster"]})} == launched


def test_machines_are_found_by_id_and_unknown_ids_are_left_out(machines: Ec2Machines, order: LaunchOrder) -> None:
    launched = machines.launch(order)
    assert [machine.id for machine in machines.found([GONE, launched.id])] == [launched.id]
    assert machines.found([GONE]) == []


def test_terminating_a_machine_twice_is_harmless(machines: Ec2Machines, order: LaunchOrder) -> None:
    launched = machines.launch(order)
    machines.terminate(launched.id)
    machines.terminate(launched.id)
    found = machines.found([launched.id])
    assert [machine.is_gone for machine in found] == [True]
    assert [machine.id for machine in machines.tagged({"Cluster": order.tags["Cluster"]})] == [launched.id]


def test_an_order_with_a_missing_resource_needs_an_operator(machines: Ec2Machines, order: LaunchOrder) -> None:
    with pytest.raises(MachineError) as error:
        machines.launch(replace(order, subnet_id="subnet-0123456789abcdef0"))
    assert ruling_on(error.value.code).verdict is Ec2Verdict.OPERATOR


def test_an_unknown_machine_cannot_be_terminated(machines: Ec2Machines) -> None:
    with pytest.raises(MachineError) as error:
        machines.terminate(GONE)
    assert ruling_on(error.value.code).verdict is Ec2Verdict.UNKNOWN_MACHINE


def test_subnets_have_their_zone_and_free_addresses(machines: Ec2Machines, account: Account) -> None:
    subnets = {subnet.id: subnet for subnet in machines.subnets(account.subnets)}
    assert [subnets[name].zone for name in account.subnets] == ["eu-west-1a", "eu-west-1b"]
    assert subnets[account.subnets[1]].free_addresses == 251
    with pytest.raises(MachineError, match=r"InvalidSubnetID\.NotFound"):
        machines.subnets(["subnet-0123456789abcdef0"])
