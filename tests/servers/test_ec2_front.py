"""The judge of black-box tests sees what it is there to see."""

from typing import Any
from urllib.parse import urlencode

import pytest

from holdfast.cluster.seen import ACTION_TAG, SLOT_TAG
from tests.servers.scripted_http import Asked, Reset
from tests.support.ec2_front import SUBNETS, Ec2Front


class Pods:
    """An API server whose nodes all have these pods."""

    def __init__(self) -> None:
        self.names: list[str] = []

    def ask(self, _method: str, _path: str) -> tuple[int, Any]:
        return 200, {"items": [{"metadata": {"name": name}} for name in self.names]}


@pytest.fixture
def pods() -> Pods:
    return Pods()


@pytest.fixture
def front(pods: Pods) -> Ec2Front:
    return Ec2Front(pods, most_workers=2)  # type: ignore[arg-type]  # it only asks for pods


def call(front: Ec2Front, action: str, **parameters: str) -> None:
    body = urlencode({"Action": action, **parameters}).encode()
    assert front.answer(Asked("POST", "/", {}, body)).status == 200


def launch(front: Ec2Front, token: str, slot: str) -> str:
    tags = {ACTION_TAG: "a", SLOT_TAG: slot}
    listed: dict[str, str] = {}
    for number, (name, value) in enumerate(tags.items(), start=1):
        listed |= {f"TagSpecification.1.Tag.{number}.Key": name, f"TagSpecification.1.Tag.{number}.Value": value}
    order = {"MinCount": "1", "MaxCount": "1", "SubnetId": SUBNETS[0].id, "InstanceType": "t3.medium"}
    call(front, "RunInstances", ClientToken=token, **order, **listed, **{"TagSpecification.1.ResourceType": "instance"})
    return str(front.ec2.launches[-1][1])


def test_one_machine_for_each_slot_is_right(front: Ec2Front) -> None:
    launch(front, "t1", "0")
    launch(front, "t2", "1")
    launch(front, "t2", "1")  # the same token launches nothing
    assert (front.violations, front.launches()) == ([], 2)


def test_two_machines_of_one_slot_are_seen(front: Ec2Front) -> None:
    launch(front, "t1", "0")
    launch(front, "t2", "0")
    assert "two machines of one slot" in front.violations[0]


def test_more_machines_than_the_maximum_are_seen(front: Ec2Front) -> None:
    for slot in "012":
        launch(front, f"t{slot}", slot)
    assert "more than the maximum of 2" in front.violations[0]


@pytest.mark.parametrize(
    ("names", "is_interrupted", "found"), [([], False, 0), (["web"], False, 1), (["web"], True, 0)]
)
def test_a_termination_with_pods_is_seen_unless_ec2_takes_the_machine(
    front: Ec2Front, pods: Pods, names: list[str], is_interrupted: bool, found: int
) -> None:
    machine = launch(front, "t1", "0")
    front.ec2._visible_from[front.ec2.launches[-1][1]] = front.timeline.now()  # a call can name it at once
    pods.names = names
    if is_interrupted:
        front.interrupted.add(machine)
    call(front, "TerminateInstances", **{"InstanceId.1": machine})
    assert len(front.violations) == found


def test_a_lost_answer_is_lost_after_the_launch(front: Ec2Front) -> None:
    front.loses_answer = lambda action: action == "RunInstances"
    with pytest.raises(Reset):
        launch(front, "t1", "0")
    assert front.launches() == 1
