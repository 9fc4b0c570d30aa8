"""The sweeper removes leftovers, and nothing else."""

from msgspec.structs import replace

from holdfast.cluster.seen import ACTION_TAG, ATTEMPT_TAG, SEQUENCE_TAG, SLOT_TAG
from holdfast.ports.machines import LaunchOrder, Market
from holdfast.ports.store import Key, attr
from holdfast.ports.store.tables import STATE
from tests.simulation.harness import TAGS, Stage, StageMaker


def launch(stage: Stage, token: str, **tags: str) -> str:
    zone = stage.world.subnets[0].zone
    subnet = stage.world.subnets[0].id
    order = LaunchOrder(token, "lt-0abc:3", "t3.medium", Market.SPOT, subnet, zone, {**TAGS, **tags}, "user data")
    return stage.world.ec2.launch(order).id


def ids(stage: Stage) -> set[str]:
    return {machine.id for machine in stage.alive}


def test_a_machine_that_a_dead_process_launched_late_is_collected(stage_of: StageMaker) -> None:
    """Its action is over: its sequence number is not higher than the stored one."""
    stage = stage_of()
    stage.store.update(STATE, Key("cluster"), attr("actionSeq").set_to(7))
    tags = {ACTION_TAG: "old", SEQUENCE_TAG: "7", SLOT_TAG: "0", ATTEMPT_TAG: "0"}
    orphan = launch(stage, "zombie", **tags)
    stage.tick()
    assert orphan in ids(stage), "it may still be joining"
    stage.tick_until(lambda: orphan not in ids(stage), most=20)
    assert len(stage.alive) == 2


def test_a_machine_of_an_action_newer_than_the_state_that_was_read_is_left_alone(stage_of: StageMaker) -> None:
    """However long a process pauses after reading the state, its successor's machines are not orphans."""
    stage = stage_of()
    tags = {ACTION_TAG: "next", SEQUENCE_TAG: "1", SLOT_TAG: "0", ATTEMPT_TAG: "0"}
    machine = launch(stage, "successor", **tags)
    for _ in range(30):
        stage.tick()
    assert machine in ids(stage)


def test_an_accepted_worker_is_never_collected(stage_of: StageMaker) -> None:
    """Not even one whose tags name an action that is over; without the taint it may run pods."""
    stage = stage_of()
    stage.store.update(STATE, Key("cluster"), attr("actionSeq").set_to(9))
    tags = {ACTION_TAG: "old", SEQUENCE_TAG: "7", SLOT_TAG: "0", ATTEMPT_TAG: "0"}
    worker = stage.world.add_worker("eu-west-1b", {**TAGS, **tags})
    ticked = [stage.tick() for _ in range(20)]
    assert worker.id in ids(stage)
    assert "collect_machine" not in [step.kind for one in ticked if one is not None for step in one.done]


def test_nothing_is_collected_while_kubernetes_does_not_answer(stage_of: StageMaker) -> None:
    stage = stage_of()
    stage.store.update(STATE, Key("cluster"), attr("actionSeq").set_to(7))
    orphan = launch(stage, "zombie", **{ACTION_TAG: "old", SEQUENCE_TAG: "7"})
    stage.world.k3s.is_away = True
    stage.world.prometheus.is_away = True
    assert None not in [stage.tick() for _ in range(30)], "each tick observes and decides"
    assert orphan in ids(stage)


def test_the_node_of_a_terminated_machine_is_removed_with_its_secret(stage_of: StageMaker) -> None:
    """K3s would keep it for ever, and refuse another node of that name."""
    stage = stage_of(workers=4)
    victim = stage.alive[0]
    secret = ("kube-system", f"{victim.id}.node-password.k3s")
    assert secret in stage.world.k3s.secrets
    stage.tick()
    stage.world.ec2.terminate(victim.id)
    stage.tick_until(lambda: stage.world.k3s.node(victim.id) is None)
    assert secret not in stage.world.k3s.secrets
    assert len(stage.world.k3s.nodes()) == 3


def test_a_node_that_is_not_ours_is_never_removed(stage_of: StageMaker) -> None:
    """The servers of the cluster are not on our machines, and may be NotReady too."""
    stage = stage_of()
    stage.world.k3s.join("server-1", "none", "10.9.9.9", {})  # type: ignore[arg-type]
    server = stage.world.k3s.node("server-1")
    assert server is not None
    stage.world.k3s.put(replace(server, is_ready=False))
    for _ in range(20):
        stage.tick()
    assert stage.world.k3s.node("server-1") is not None
