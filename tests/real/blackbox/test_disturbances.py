"""Killed processes, several of them at once, lost answers, outages, and the state of an older autoscaler."""

import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest

from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import LaunchOrder, Market
from tests.servers.processes import RunningServer
from tests.support.black_box import Stage, StageMaker, suspended
from tests.support.ec2_front import SUBNETS

pytestmark = [pytest.mark.real, pytest.mark.slow]

KILLS = 20
CHANGES = frozenset({"RunInstances", "TerminateInstances", "CreateTags"})


def runs_pods(stage: Stage, count: int) -> bool:
    return sum(1 for pod in stage.pods("Running") if "deletionTimestamp" not in pod["metadata"]) == count


def kill_at_a_call(stage: Stage, run: RunningServer, chance: random.Random) -> None:
    """Before EC2 has carried it out, or before its answer arrives. A call that changes something attracts it."""
    most, is_before, dead = chance.randint(2, 10), chance.random() < 0.5, threading.Event()
    seen: list[str] = []

    def strike(action: str) -> None:
        seen.append(action)
        if not dead.is_set() and (len(seen) >= most or action in CHANGES):
            dead.set()
            os.kill(run.process.pid, signal.SIGKILL)

    setattr(stage.front, "before" if is_before else "after", strike)
    stage.until(lambda: run.process.poll() is not None, "the kill")
    stage.front.before = stage.front.after = lambda _: None
    stage.kill(run)


def test_twenty_kills_leak_and_double_nothing(stage_with: StageMaker) -> None:
    """Ten on the way up to three machines, ten on the way down to one; after each ten, one process is left alone."""
    stage, chance = stage_with(), random.Random(20)
    stage.deploy("web", 6)
    for _ in range(KILLS // 2):
        kill_at_a_call(stage, stage.run(is_awaited=False), chance)
    run = stage.run()
    stage.until(lambda: runs_pods(stage, 6), "every pod runs")
    stage.until_settled(3)
    stage.kill(run)
    stage.scale("web", 2)
    stage.servers.metrics.load = 0.1
    for _ in range(KILLS // 2):
        kill_at_a_call(stage, stage.run(is_awaited=False), chance)
    stage.run()
    stage.until_settled(1)
    stage.until(lambda: runs_pods(stage, 2), "every pod runs")


def test_two_daemons_beside_lambda_launch_and_remove_each_machine_once(stage_with: StageMaker) -> None:
    stage = stage_with()
    for _ in range(2):
        stage.run()
    stage.lambda_function("tick")
    stage.deploy("web", 6)
    stage.until(lambda: runs_pods(stage, 6), "every pod runs")
    stage.until_settled(3)
    assert stage.front.launches() == 3
    stage.servers.metrics.load = 0.1
    stage.scale("web", 2)
    stage.until_settled(1)
    stage.until(lambda: runs_pods(stage, 2), "every pod runs")
    assert stage.front.launches() == 3


def test_lost_answers_of_ec2_launch_and_leak_nothing_more(stage_with: StageMaker) -> None:
    """The first two answers to each call that changes something are lost, though EC2 carried it out."""
    stage = stage_with()
    lost: list[str] = []

    def loses(action: str) -> bool:
        lost.append(action)
        return action in CHANGES and lost.count(action) <= 2

    stage.front.loses_answer = loses
    stage.run()
    stage.deploy("web", 4)
    stage.until(lambda: runs_pods(stage, 4), "every pod runs")
    stage.until_settled(2)
    stage.servers.metrics.load = 0.1
    stage.scale("web", 1)
    stage.until_settled(1)
    assert stage.front.launches() == 2
    assert lost.count("RunInstances") >= 2
    assert lost.count("TerminateInstances") >= 1


@contextmanager
def ec2_away(stage: Stage) -> Iterator[None]:
    stage.front.is_away = True
    yield
    stage.front.is_away = False


@contextmanager
def kube_away(stage: Stage) -> Iterator[None]:
    stage.servers.kube.stop_api()
    try:
        yield
    finally:
        stage.servers.kube.start_api()


@contextmanager
def prometheus_away(stage: Stage) -> Iterator[None]:
    with suspended(stage.servers.prometheus):
        yield


@contextmanager
def dynamodb_away(stage: Stage) -> Iterator[None]:
    with suspended(stage.servers.dynamodb):
        yield


@pytest.mark.parametrize("outage", [ec2_away, kube_away, prometheus_away, dynamodb_away])
def test_an_outage_in_the_middle_of_an_action_delays_it_and_no_more(
    stage_with: StageMaker, outage: Callable[[Stage], AbstractContextManager[None]]
) -> None:
    """It begins when a machine has been launched and has not been accepted; the process lives through it.

    The maximum is the two machines that are needed: the scheduler itself may need half a minute after an outage of the
    API server, and pods that wait for it would be a reason for a third.
    """
    stage = stage_with(MAX_WORKERS="2")
    run = stage.run()
    stage.until_settled(1)
    stage.deploy("web", 4)
    stage.until(lambda: stage.front.launches() == 2, "a second machine is launched")
    with outage(stage):
        before, calls = len(run.log.read_text()), len(stage.front.calls)

        def is_noticed() -> bool:
            """A tick has failed, or one that began during the outage has ended: the next one looks at EC2."""
            looks = [call for call in stage.front.calls[calls:] if call.action == "DescribeInstances"]
            return "WARNING" in run.log.read_text()[before:] or len(looks) >= 2

        stage.until(is_noticed, "a tick during the outage")
    stage.until(lambda: runs_pods(stage, 4), "every pod runs")
    stage.until_settled(2)
    assert stage.front.launches() == 2
    assert run.process.poll() is None


def test_an_older_autoscalers_scale_up_is_taken_over_and_its_machines_serve(stage_with: StageMaker) -> None:
    """Its item is the seed's; its machines have its tags only, and joined without our label and taint."""
    stage = stage_with(CLUSTER_ID="cluster", MACHINE_TAGS="Cluster=k3s,Role=worker")
    tags = {"Cluster": "k3s", "Role": "worker"}
    orders = [
        LaunchOrder(f"old-{subnet.id}", "lt-0abc:2", "t3.medium", Market.SPOT, subnet.id, subnet.zone, tags, "")
        for subnet in SUBNETS
    ]
    with stage.front.lock:
        old: list[InstanceId] = [stage.front.ec2.add(order).id for order in orders]
    now = int(time.time())
    stage.put_state(
        {
            "pk": "cluster",
            "scalingInProgress": True,
            "lastScaleEpoch": now - 3600,
            "scaleUpActionId": f"{now}-req-xyz",
            "scaleUpStartedEpoch": now,
            "scaleUpRequested": 2,
            "scaleUpInstanceIds": old,
            "workerCount": 0,
        }
    )
    stage.run()
    stage.until_settled(2)
    assert {machine.id for machine in stage.front.machines()} == set(old)
    stage.deploy("web", 4)
    stage.until(lambda: runs_pods(stage, 4), "every pod runs")
    stage.scale("web", 2)
    stage.servers.metrics.load = 0.1
    stage.until_settled(1)
    stage.until(lambda: runs_pods(stage, 2), "every pod runs")
    assert stage.front.launches() == 2
