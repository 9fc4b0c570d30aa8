"""Which machines were in service, and which nodes are accepted again: as a pure decision."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.drain import DrainRules
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import (
    ACTION_TAG,
    CONDEMNED_ANNOTATION,
    INSTANCE_LABEL,
    SEQUENCE_TAG,
    UNVERIFIED_TAINT,
    KubeView,
    Seen,
)
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotNotice, SpotPhase
from holdfast.cluster.state import ClusterState, DownPhase, ScaleDown, ScaleUp, UpPhase
from holdfast.cluster.steps import MarkAccepted
from holdfast.cluster.sweeping.sweep import accept_again_steps, orphans, sweep_steps
from holdfast.fleet.options import PoolFailure
from holdfast.fleet.slots import Slot
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod, PodPhase, Taint
from holdfast.ports.machines import ACCEPTED_TAG, Machine, MachineState, Market
from holdfast.ports.readings import Known
from holdfast.ports.signals import PendingPods

NOW = Instant.from_iso("2026-01-15T10:00:00Z")
NAME = InstanceId("i-1")
TAINT = Taint(UNVERIFIED_TAINT, "true", "NoSchedule")
MACHINE = Machine(
    id=NAME,
    state=MachineState.RUNNING,
    zone="a",
    subnet_id="subnet-a",
    instance_type="t3.medium",
    market=Market.SPOT,
    private_ip="10.0.0.1",
    launched=NOW.plus(-86_400),
    tags={ACTION_TAG: "old", SEQUENCE_TAG: "3"},
)
MARKED = replace(MACHINE, tags={**MACHINE.tags, ACCEPTED_TAG: "old"})
NODE = Node(NAME, "uid-2", "1", "10.0.0.1", True, NOW, NOW, False, {INSTANCE_LABEL: NAME}, {}, (TAINT,))
POD = Pod("default", "web-1", "uid-pod", NAME, PodPhase.RUNNING, NOW, controller="ReplicaSet")


def seen(
    machine: Machine, node: Node | None = NODE, *pods: Pod, state: ClusterState | None = None, **more: object
) -> Seen:
    return Seen(
        cluster=ClusterId("cluster"),
        now=NOW,
        state=state or ClusterState(action_seq=5),
        machines=(machine,),
        kube=Known(KubeView((node,) if node else (), pods), NOW),
        cpu=Known(0.5, NOW),
        pending=Known(PendingPods(0, 0), NOW),
        **more,  # type: ignore[arg-type]
    )


def accepted(look: Seen) -> list[InstanceId]:
    return [step.instance for step in accept_again_steps(look)]  # type: ignore[union-attr]


def collected(look: Seen) -> list[InstanceId]:
    return [worker.id for worker in orphans(look, Policy())]


@pytest.mark.parametrize(
    ("look", "is_orphan", "is_accepted"),
    [
        (seen(MACHINE), True, False),
        (seen(MARKED), False, True),
        (seen(MARKED, None), False, False),
        (seen(MACHINE, None), True, False),
        (seen(MACHINE, NODE, POD), False, True),
        (seen(MACHINE, None, POD), False, False),
        (seen(MACHINE, NODE, replace(POD, controller="DaemonSet")), True, False),
        (seen(MACHINE, NODE, replace(POD, is_mirror=True)), True, False),
        (seen(MACHINE, NODE, replace(POD, is_deleting=True)), False, True),
        (seen(MARKED, replace(NODE, is_ready=False)), False, False),
        (seen(MARKED, replace(NODE, annotations={CONDEMNED_ANNOTATION: "true"})), True, False),
        (seen(MARKED, replace(NODE, annotations={CONDEMNED_ANNOTATION: "true"}), POD), False, True),
        (seen(MARKED, replace(NODE, taints=())), False, False),
    ],
    ids=[
        "never in service",
        "tagged",
        "tagged, without a node",
        "without a node",
        "with a pod",
        "with a pod that outlived the node",
        "with a DaemonSet's pod",
        "with a mirror pod",
        "with a pod that is leaving",
        "tagged, NotReady",
        "tagged after it was condemned",
        "condemned, with a pod",
        "in service",
    ],
)
def test_a_tag_or_a_pod_shows_that_a_machine_was_in_service(look: Seen, is_orphan: bool, is_accepted: bool) -> None:
    assert collected(look) == ([NAME] if is_orphan else [])
    assert accepted(look) == ([NAME] if is_accepted else [])


UP = ScaleUp(ActionId("up"), NOW, 1, (NAME,), UpPhase.VERIFYING, (), "lt-1:1")
DOWN = ScaleDown(ActionId("down"), NOW, DownPhase.DRAINING, (NAME,), (), frozenset(), None)
SLOT = Slot("subnet-a", "a", Market.SPOT, "t3.medium", 0, NAME)
LEAVING = SpotNotice(NAME, SpotKind.INTERRUPTION, SpotPhase.CORDONED, NOW)
HINT = SpotNotice(NAME, SpotKind.REBALANCE, SpotPhase.NOTICED, NOW)
OTHER = InstanceId("i-2")
REPLACED = SpotNotice(OTHER, SpotKind.INTERRUPTION, SpotPhase.EXPIRED, NOW, Replacement.LAUNCHED, SLOT)


@pytest.mark.parametrize(
    ("look", "is_accepted"),
    [
        (seen(MARKED, state=ClusterState(action_seq=5, is_flagged=True, up=UP)), False),
        (seen(MARKED, state=ClusterState(action_seq=5, is_flagged=True, down=DOWN)), False),
        (seen(MARKED, notices={NAME: LEAVING}), False),
        (seen(MARKED, notices={NAME: HINT}), True),
        (seen(MARKED, notices={OTHER: REPLACED}), False),
        (seen(MARKED, notices={OTHER: replace(REPLACED, replacement=Replacement.ACCEPTED)}), True),
    ],
    ids=["joins", "is drained", "is interrupted", "has a hint", "replaces another", "has replaced another"],
)
def test_an_action_or_a_notice_decides_about_its_own_machine(look: Seen, is_accepted: bool) -> None:
    """A node that leaves must not take pods again, and one that joins is accepted by its action."""
    assert accepted(look) == ([NAME] if is_accepted else [])


IN_SERVICE = replace(NODE, taints=())
REFUSED = PoolFailure(1, NOW.plus(60))


@pytest.mark.parametrize(
    ("look", "is_tagged"),
    [
        (seen(MACHINE, IN_SERVICE), True),
        (seen(MARKED, IN_SERVICE), False),
        (seen(MACHINE), False),
        (seen(replace(MACHINE, state=MachineState.STOPPED), IN_SERVICE), False),
        (seen(MACHINE, IN_SERVICE, state=ClusterState(action_seq=5, is_flagged=True, down=DOWN)), False),
        (seen(MACHINE, IN_SERVICE, marks_refused=REFUSED), False),
        (seen(MACHINE, IN_SERVICE, marks_refused=replace(REFUSED, until=NOW)), True),
    ],
    ids=["in service", "tagged", "tainted", "stopped by a person", "during an action", "refused", "refused earlier"],
)
def test_a_worker_in_service_without_the_tag_gets_it(look: Seen, is_tagged: bool) -> None:
    """Not during an action: a machine that an older autoscaler's action names may have none of our tags."""
    steps = sweep_steps(look, Policy(), DrainRules(), ())
    assert [step.instance for step in steps if isinstance(step, MarkAccepted)] == ([NAME] if is_tagged else [])
