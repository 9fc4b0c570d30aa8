"""A new node changes all the time: its kubelet, controllers and drivers write to it. Our changes bear with that.

A change that expects no fence on the node is tested by the node's version, which every other change moves.
"""

from collections.abc import Callable

import pytest
from msgspec.structs import replace

from holdfast.cluster.nodes import FencedNodes
from holdfast.cluster.seen import CONDEMNED_ANNOTATION, FENCE_ANNOTATION, UNVERIFIED_TAINT
from holdfast.ports.kube import Node, NodeChanged, Taint
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import Stage
from tests.simulation.hooks import before


def joined(stage: Stage) -> list[Node]:
    """Two new nodes, which the next tick accepts."""
    stage.world.k3s.run(Workload("web", 35))
    stage.tick_until(lambda: stage.state.up is not None)
    stage.clock.sleep(120)
    new = unaccepted(stage)
    assert len(new) == 2
    return new


def unaccepted(stage: Stage) -> list[Node]:
    return [node for node in stage.world.k3s.nodes() if any(taint.key == UNVERIFIED_TAINT for taint in node.taints)]


def labelled(node: Node) -> Node:
    return replace(node, labels={**node.labels, "topology.kubernetes.io/zone": "eu-west-1a"})


def annotated(node: Node) -> Node:
    return replace(node, annotations={**node.annotations, "flannel.alpha.coreos.com/public-ip": "10.0.0.1"})


@pytest.mark.parametrize("changed", [labelled, annotated])
def test_a_node_that_somebody_labels_meanwhile_is_accepted_in_the_same_tick(changed: Callable[[Node], Node]) -> None:
    stage = Stage()
    names = [node.name for node in joined(stage)]

    def meddle() -> None:
        for node in unaccepted(stage):
            stage.world.k3s.put(changed(node))

    stage.tick(seconds=1, gate=before("change_node", meddle, times=1))
    assert not unaccepted(stage)
    assert all(changed(node) == node for node in stage.world.k3s.nodes() if node.name in names)


def test_a_node_that_changes_at_every_call_waits_for_the_next_tick() -> None:
    """One repetition: a tick does a bounded amount of work."""
    stage = Stage()
    joined(stage)
    count = [0]

    def meddle() -> None:
        count[0] += 1
        for node in unaccepted(stage):
            stage.world.k3s.put(replace(node, labels={**node.labels, "count": str(count[0])}))

    stage.tick(seconds=1, gate=before("change_node", meddle))
    assert count == [2]
    assert len(unaccepted(stage)) == 2
    stage.tick(seconds=5)
    assert not unaccepted(stage)


def condemned(node: Node) -> Node:
    """As a later lease holder does it, which has given the machine up."""
    return replace(node, is_unschedulable=True, annotations={FENCE_ANNOTATION: "99", CONDEMNED_ANNOTATION: "true"})


def cordoned(node: Node) -> Node:
    """By a person."""
    return replace(node, is_unschedulable=True)


def not_ready(node: Node) -> Node:
    return replace(node, is_ready=False)


def tainted(node: Node) -> Node:
    """By a driver that has to prepare it first."""
    return replace(node, taints=(*node.taints, Taint("ebs.csi.aws.com/agent-not-ready", "", "NoExecute")))


def another(node: Node) -> Node:
    return replace(node, uid="another")


@pytest.mark.parametrize("changed", [condemned, cordoned, not_ready, tainted, another])
def test_a_change_that_matters_to_us_is_looked_at_again_first(changed: Callable[[Node], Node]) -> None:
    stage = Stage()
    read = joined(stage)[0]
    stage.world.k3s.put(changed(read))
    with pytest.raises(NodeChanged):
        FencedNodes(stage.world.k3s, 50).accept(read)
    now = stage.world.k3s.node(read.name)
    assert now == replace(changed(read), resource_version=now.resource_version if now else "")
