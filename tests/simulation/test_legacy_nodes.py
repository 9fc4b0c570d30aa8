"""Nodes that joined with an older autoscaler's bootstrap: named by their addresses, without our label and taint.

They are matched to their machines by address. When a machine is gone, only what the cordon wrote on its node says whose
it was, and the node is removed as ours are.
"""

from msgspec.structs import replace

from holdfast.cluster.policy import Policy, ZonesKept
from holdfast.cluster.seen import MACHINE_ANNOTATION
from holdfast.cluster.spot.notice import SpotKind, store_notice
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from tests.simulation.harness import TAGS, Stage
from tests.simulation.hooks import before


def old_style(stage: Stage, zone: str = "eu-west-1a") -> tuple[InstanceId, Node]:
    machine = stage.world.add_worker(zone, TAGS)
    name = f"ip-{machine.private_ip}"
    stage.world.k3s.unregister(machine.id)
    stage.world.k3s.join(name, machine.id, machine.private_ip or "", {})
    return machine.id, node_named(stage, name)


def node_named(stage: Stage, name: str) -> Node:
    node = stage.world.k3s.node(name)
    assert node is not None
    return node


def busy() -> Stage:
    """Neither idle nor short of workers."""
    stage = Stage()
    stage.world.k3s.run(Workload("web", 10))
    return stage


def test_after_a_scale_down_the_node_is_removed_with_its_secret() -> None:
    stage = Stage(workers=0, policy=Policy(zones_kept=ZonesKept.PREFER))
    nodes = [old_style(stage, zone)[1] for zone in ZONES]
    stage.tick_until(lambda: len(stage.alive) == 2, most=40)
    stage.tick_until(lambda: len(stage.world.k3s.nodes()) == 2, most=20)
    (left,) = [node for node in nodes if stage.world.k3s.node(node.name) is None]
    assert ("kube-system", f"{left.name}.node-password.k3s") not in stage.world.k3s.secrets
    assert all(node.is_ready for node in stage.world.k3s.nodes())


def test_after_a_spot_interruption_the_node_is_removed() -> None:
    stage = busy()
    machine, node = old_style(stage)
    stage.tick()
    assert store_notice(stage.store, stage.name, machine, SpotKind.INTERRUPTION, stage.clock.now())
    stage.tick(seconds=5)
    stage.world.ec2.break_down(machine)
    stage.tick_until(lambda: stage.world.k3s.node(node.name) is None, most=20)


def test_a_node_that_no_cordon_named_stays() -> None:
    """Nothing proves whose it was: it may be a server of the cluster."""
    stage = busy()
    machine, node = old_style(stage)
    stage.tick()
    stage.world.ec2.break_down(machine)
    for _ in range(90):
        stage.tick()
    assert not node_named(stage, node.name).is_ready


def test_a_node_whose_address_is_that_of_a_running_machine_stays() -> None:
    """Another machine got the address and so the name, and its agent took over the Node object with its annotations."""
    stage = busy()
    gone, left = old_style(stage)
    _, node = old_style(stage)
    for each in (left, node):
        stage.world.k3s.put(replace(each, is_ready=False, annotations={MACHINE_ANNOTATION: gone}))
    stage.world.ec2.break_down(gone)
    stage.tick_until(lambda: stage.world.k3s.node(left.name) is None, most=20)
    assert stage.world.k3s.node(node.name) is not None


def test_a_node_that_registers_under_the_name_of_one_that_is_being_removed_stays() -> None:
    stage = busy()
    machine, node = old_style(stage)
    stage.world.k3s.put(replace(node, annotations={MACHINE_ANNOTATION: machine}))
    stage.world.ec2.break_down(machine)
    stage.clock.sleep(120)
    assert not node_named(stage, node.name).is_ready

    def register() -> None:
        stage.world.k3s.forget(node.name)
        stage.world.k3s.put(replace(node, uid="another", is_ready=False))

    stage.tick(gate=before("node", register, times=1))
    assert node_named(stage, node.name).uid == "another"
