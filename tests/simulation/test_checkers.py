"""Each checker can fail, and fails alone on the violation that it is there for."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod, PodPhase, Taint
from holdfast.ports.machines import LaunchOrder, Machine, MachineState, Market
from holdfast.simulator.checkers import EVERY, JOBS
from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.facts import Facts
from holdfast.simulator.proof.faults import FaultKind
from holdfast.simulator.proof.github.plans import GitHubPlan
from holdfast.simulator.proof.numbers import Numbers
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.proof.run import Run
from holdfast.simulator.proof.story import Story
from holdfast.simulator.proof.swarm import Setup
from holdfast.simulator.world import tag_names

ZONE, OTHER_ZONE = "eu-west-1a", "eu-west-1b"
START = Instant.from_iso("2026-01-15T08:00:00Z")


class Scene:
    """A world made of events: three workers in service, in two zones, and nothing under way."""

    def __init__(self, numbers: Numbers | None = None) -> None:
        self.now = START
        self.pods: dict[str, list[Pod]] = {}
        self.cpu = 0.5
        self.secrets: set[tuple[str, str]] = set()
        facts = Facts(
            numbers or Numbers(),
            lambda: self.now,
            lambda node: self.pods.get(node or "", []),
            cpu=lambda: self.cpu,
            zones=lambda: (ZONE, OTHER_ZONE),
            secrets=lambda: self.secrets,
        )
        self.recorder = EffectRecorder(facts, Story(), EVERY)
        self.facts = facts
        self.one, self.two = Process("tick-1", 1, START), Process("tick-2", 2, START)
        self.notices: dict[str, dict[str, Any]] = {}
        for number, zone in enumerate((ZONE, ZONE, OTHER_ZONE)):
            self.in_service(f"i-{number}", zone)
        self.item: dict[str, Any] = {"pk": "cluster"}
        self.take_lease(self.one)

    @property
    def broken(self) -> set[str]:
        return {violation.invariant for violation, _ in self.recorder.violations}

    def write(self, by: Process, remove: tuple[str, ...] = (), **values: Any) -> None:
        new = {name: value for name, value in {**self.item, **values}.items() if name not in remove}
        old, self.item = self.item, new
        self.recorder.state_written(by, "cluster", "cluster", old, new)

    def take_lease(self, by: Process) -> None:
        until = self.now.epoch_seconds + 90
        self.write(by, lockOwner=by.name, lockUntilEpoch=until, fence=self.item.get("fence", 0) + 1)

    def note(self, by: Process, instance: str, **values: Any) -> None:
        old = self.notices.get(instance, {})
        self.notices[instance] = new = {**old, **values}
        self.recorder.state_written(by, f"spot#{instance}", "cluster", old, new)

    def begin_up(self, by: Process, slots: int = 1, action: str = "up-1", **more: Any) -> None:
        zones = (OTHER_ZONE, ZONE)  # the second zone has fewer
        plan = [{"s": "s", "z": zones[n % 2], "m": "spot", "t": "t3.medium", "k": 0} for n in range(slots)]
        values: dict[str, Any] = {
            "scalingInProgress": True,
            "scaleUpActionId": action,
            "scaleUpStartedEpoch": self.now.epoch_seconds,
            "scaleUpRequested": slots,
            "scaleUpInstanceIds": [],
            "scaleUpPhase": "LAUNCHING",
            "scaleUpPlan": plan,
        }
        self.write(by, **{**values, **more})

    def begin_down(self, by: Process, *targets: str, action: str = "down-1", **more: Any) -> None:
        values: dict[str, Any] = {
            "scalingInProgress": True,
            "scaleDownActionId": action,
            "scaleDownStartedEpoch": self.now.epoch_seconds,
            "scaleDownPhase": "DRAINING",
            "scaleDownTargetInstanceIds": list(targets),
            "scaleDownCompletedInstanceIds": [],
        }
        self.write(by, **{**values, **more})

    def launch(
        self, by: Process, instance: str, slot: tuple[str, int, int] | None, under: str = "once", **order: Any
    ) -> None:
        tags = {"Cluster": "k3s"}
        if slot is not None:
            tags |= {tag_names.ACTION: slot[0], tag_names.SLOT: str(slot[1]), tag_names.ATTEMPT: str(slot[2])}
        wanted = LaunchOrder(under, "lt", "t3.medium", Market.SPOT, "s", order.get("zone", ZONE), tags, "")
        if "user_data" in order:
            wanted = replace(wanted, user_data=order["user_data"])
        self.recorder.launched(by, wanted, self.machine(instance, wanted.zone, tags))

    def machine(self, instance: str, zone: str, tags: dict[str, str]) -> Machine:
        state = MachineState.RUNNING
        return Machine(InstanceId(instance), state, zone, "s", "t3.medium", Market.SPOT, "10.0.0.1", self.now, tags)

    def in_service(self, instance: str, zone: str) -> None:
        machine = self.machine(instance, zone, {"Cluster": "k3s"})
        order = LaunchOrder(f"early-{instance}", "lt", "t3.medium", Market.SPOT, "s", zone, {"Cluster": "k3s"}, "")
        self.facts.launched(order, machine)
        self.facts.node_changed(None, self.node(instance))

    def node(self, instance: str, **more: Any) -> Node:
        node = Node(instance, "uid", "1", "10.0.0.1", True, None, self.now, False, {tag_names.INSTANCE: instance})
        return replace(node, **more)

    def change(self, by: Process | None, instance: str, **more: Any) -> None:
        old = self.facts.nodes.get(InstanceId(instance))
        self.recorder.acting = by
        self.recorder.node_changed(old, replace(old or self.node(instance), **more))
        self.recorder.acting = None

    def join(self, instance: str) -> None:
        self.recorder.node_changed(None, self.node(instance, taints=(Taint(tag_names.TAINT, "", "NoSchedule"),)))

    def close(self, by: Process, instance: str) -> None:
        self.change(by, instance, is_unschedulable=True, annotations={tag_names.FENCE: "1", tag_names.ACTION: "down-1"})

    def terminate(self, by: Process, instance: str) -> None:
        self.facts.machines[InstanceId(instance)].gone = self.now
        self.recorder.terminated(by, InstanceId(instance))

    def pod(self, node: str, **more: Any) -> Pod:
        pod = Pod("default", "web-1", "u1", node, PodPhase.RUNNING, self.now, controller="ReplicaSet")
        self.pods[node] = [replace(pod, **more)]
        return self.pods[node][0]

    def commit(self, by: Process, instance: str) -> None:
        self.write(by, scaleDownCommitted=frozenset({instance}))

    def heal(self, seconds: int = 7200) -> None:
        self.recorder.world_healed()
        for _ in range(seconds // 60):
            self.now = self.now.plus(60)
            self.recorder.minute_passed()
        self.recorder.healed()

    def take_lease_again(self) -> None:
        self.write(self.one, lockOwner="", lockUntilEpoch=0)
        self.take_lease(self.one)

    def end_down(self, by: Process, *, aborted: bool) -> None:
        down = tuple(name for name in self.item if name.startswith("scaleDown"))
        if aborted:
            self.write(by, scaleDownPhase="ABORTING")
        last = {} if aborted else {"lastScaleEpoch": self.now.epoch_seconds}
        self.write(by, remove=down, scalingInProgress=False, **last)

    def pass_by(self, seconds: float) -> None:
        """Time passes, and the first process looks again."""
        self.now = self.one.looked = self.now.plus(seconds)


BREAKS: dict[str, Callable[[Scene], None]] = {}


def breaks(checker: str) -> Callable[[Callable[[Scene], None]], Callable[[Scene], None]]:
    def registered(scene: Callable[[Scene], None]) -> Callable[[Scene], None]:
        BREAKS[checker] = scene
        return scene

    return registered


@breaks("FenceMonotone")
def _(scene: Scene) -> None:
    scene.write(scene.one, lockOwner="", lockUntilEpoch=0)
    scene.write(scene.two, lockOwner="tick-2", fence=3)


@breaks("FencedWrite")
def _(scene: Scene) -> None:
    scene.write(scene.one, lockOwner="", lockUntilEpoch=0)
    scene.take_lease(scene.two)
    scene.write(scene.one, workerCount=3)


@breaks("LeaseShort")
def _(scene: Scene) -> None:
    scene.write(scene.one, lockUntilEpoch=scene.now.epoch_seconds + 600)


@breaks("LeaseKept")
def _(scene: Scene) -> None:
    scene.take_lease(scene.two)


@breaks("OneAction")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.begin_up(scene.one, action="up-2")


@breaks("FlagMatches")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one, scalingInProgress=False)


@breaks("CooldownExact")
def _(scene: Scene) -> None:
    scene.write(scene.one, lastScaleEpoch=scene.now.epoch_seconds)


@breaks("BackoffKept")
def _(scene: Scene) -> None:
    scene.write(scene.one, upBackoffUntilEpoch=scene.now.epoch_seconds + 60)
    scene.begin_up(scene.one)


@breaks("LegacyReadable")
def _(scene: Scene) -> None:
    scene.write(scene.one, workerCount="3")


@breaks("EndsWell")
def _(scene: Scene) -> None:
    scene.write(scene.one, lockOwner="", lockUntilEpoch=0)
    scene.recorder.ended(scene.one, KeyError("i-1"))


@breaks("IntentFirst")
def _(scene: Scene) -> None:
    scene.launch(scene.one, "i-9", ("up-1", 0, 0))


@breaks("TokenOnce")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.launch(scene.one, "i-9", ("up-1", 0, 0))
    scene.launch(scene.one, "i-9", ("up-1", 0, 0), user_data="other")


@breaks("AmbiguousRepeats")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.write(scene.one, scaleUpPlan=[{**scene.item["scaleUpPlan"][0], "k": 1}])


@breaks("SlotOne")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    accept_two(scene, "up-1")


def accept_two(scene: Scene, action: str) -> None:
    """Two attempts at one slot, the second after the first machine was gone; both nodes are accepted."""
    for attempt, instance in enumerate(("i-8", "i-9")):
        scene.facts.planned.add((action, 0, attempt))
        scene.launch(scene.one, instance, (action, 0, attempt), under=instance)
        scene.facts.machines[InstanceId(instance)].gone = scene.now
    for instance in ("i-8", "i-9"):
        scene.join(instance)
        scene.change(scene.one, instance, taints=())


@breaks("PreparedFirst")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.launch(scene.one, "i-9", ("up-1", 0, 0))
    scene.join("i-9")
    (other,) = tag_names.START_UP_TAINTS
    scene.change(scene.one, "i-9", taints=(Taint(other, "true", "NoSchedule"),))


@breaks("StrangersKept")
def _(scene: Scene) -> None:
    scene.facts.strangers.add(InstanceId("i-stranger"))
    scene.note(scene.one, "i-stranger", kind="interruption", phase="NOTICED", noticeEpoch=scene.now.epoch_seconds)


@breaks("OneRun")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.facts.planned.add(("up-1", 0, 1))
    scene.launch(scene.one, "i-8", ("up-1", 0, 0), under="a")
    scene.launch(scene.one, "i-9", ("up-1", 0, 1), under="b")


@breaks("AdoptedRight")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.write(scene.one, scaleUpPlan=[{**scene.item["scaleUpPlan"][0], "i": "i-1"}])


@breaks("CleanBeforeClear")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.launch(scene.one, "i-9", ("up-1", 0, 0))
    scene.write(scene.one, scaleUpInstanceIds=["i-9"], scaleUpPhase="CLEANUP")
    up = tuple(name for name in scene.item if name.startswith("scaleUp"))
    until = scene.now.epoch_seconds + 60
    scene.write(scene.one, remove=up, scalingInProgress=False, upFailures=1, upBackoffUntilEpoch=until)


@breaks("MaxKept")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one, slots=8)


@breaks("MaxRunning")
def _(scene: Scene) -> None:
    """Each launch keeps to a stored plan, but the plans together are too many."""
    for number in range(8):
        scene.facts.planned.add(("up-1", number, 0))
        scene.launch(scene.one, f"i-{number + 10}", ("up-1", number, 0), under=f"{number}")


@breaks("ZonesEven")
def _(scene: Scene) -> None:
    scene.pass_by(200)
    scene.take_lease_again()
    scene.begin_up(scene.one, scaleUpPlan=[{"s": "s", "z": ZONE, "m": "spot", "t": "t3.medium", "k": 0}])


@breaks("AcceptedKept")
def _(scene: Scene) -> None:
    scene.terminate(scene.one, "i-1")


@breaks("CollectorSafe")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.launch(scene.one, "i-9", ("up-1", 0, 0))
    scene.terminate(scene.two, "i-9")


@breaks("SafeTerminate")
def _(scene: Scene) -> None:
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    scene.commit(scene.one, "i-1")
    scene.pod("i-1")
    scene.terminate(scene.one, "i-1")


@breaks("CommitIrrevocable")
def _(scene: Scene) -> None:
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    scene.commit(scene.one, "i-1")
    scene.change(scene.one, "i-1", is_unschedulable=False)


@breaks("MinKept")
def _(scene: Scene) -> None:
    scene.facts.machines[InstanceId("i-2")].zone = ZONE
    scene.facts.machines[InstanceId("i-0")].gone = scene.now.plus(-1)
    scene.begin_down(scene.one, "i-1")
    scene.commit(scene.one, "i-1")


@breaks("AzKept")
def _(scene: Scene) -> None:
    scene.begin_down(scene.one, "i-2")
    scene.commit(scene.one, "i-2")


@breaks("PlanFirst")
def _(scene: Scene) -> None:
    scene.close(scene.one, "i-1")


@breaks("CriticalStops")
def _(scene: Scene) -> None:
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    scene.recorder.evicted(scene.one, scene.pod("i-1", priority_class="system-node-critical"), "accepted")


@breaks("NoLeakedCordon")
def _(scene: Scene) -> None:
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    scene.end_down(scene.one, aborted=True)


@breaks("PersonsCordonKept")
def _(scene: Scene) -> None:
    scene.change(None, "i-1", is_unschedulable=True)
    scene.begin_down(scene.one, "i-1")
    scene.change(scene.one, "i-1", is_unschedulable=False)


@breaks("SpotOnce")
def _(scene: Scene) -> None:
    scene.note(scene.one, "i-1", kind="interruption", phase="NOTICED", noticeEpoch=scene.now.epoch_seconds)
    accept_two(scene, "spot:i-1")


@breaks("SpotIndependent")
def _(scene: Scene) -> None:
    handler = Process("event-1", 7, scene.now, "i-1")
    scene.note(handler, "i-1", kind="interruption", phase="NOTICED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.now.plus(10)
    scene.recorder.ended(handler, None)


@breaks("RebalanceMild")
def _(scene: Scene) -> None:
    scene.note(scene.one, "i-1", kind="rebalance", phase="DRAINED", noticeEpoch=scene.now.epoch_seconds)
    scene.terminate(scene.one, "i-1")


@breaks("PauseKept")
def _(scene: Scene) -> None:
    scene.recorder.state_written(scene.two, "cluster#pause", "cluster", {}, {"paused": True})
    scene.now = scene.one.looked = scene.now.plus(10)
    scene.begin_up(scene.one)


@breaks("NoLostInstance")
def _(scene: Scene) -> None:
    scene.facts.planned.add(("up-0", 0, 0))
    scene.launch(scene.one, "i-9", ("up-0", 0, 0))
    scene.heal()


@breaks("AcceptedServes")
def _(scene: Scene) -> None:
    scene.change(None, "i-1", taints=(Taint(tag_names.TAINT, "true", "NoSchedule"),))
    scene.heal()


@breaks("NoStuckAction")
def _(scene: Scene) -> None:
    scene.begin_up(scene.one)
    scene.heal()


@breaks("NoStuckNotice")
def _(scene: Scene) -> None:
    scene.note(scene.one, "i-1", kind="interruption", phase="EXPIRED", noticeEpoch=scene.now.epoch_seconds)
    scene.facts.machines[InstanceId("i-1")].gone = scene.now
    scene.heal()


@breaks("Converges")
def _(scene: Scene) -> None:
    scene.pods[""] = [replace(scene.pod("i-1"), node=None)]
    scene.heal()


@breaks("IdleLeaves")
def _(scene: Scene) -> None:
    scene.cpu = 0.1
    scene.heal()


@breaks("NoLeakedSecret")
def _(scene: Scene) -> None:
    scene.secrets.add(("kube-system", "i-1.node-password.k3s"))
    scene.change(None, "i-1", is_ready=False)
    scene.recorder.acting = scene.one
    scene.recorder.node_changed(scene.facts.nodes[InstanceId("i-1")], None)


def test_every_checker_has_a_scene_in_which_it_fails() -> None:
    """The checkers of GitHub's jobs have their scenes in test_job_checkers."""
    assert set(BREAKS) == {checker.name for checker in EVERY if checker not in JOBS}


@pytest.mark.parametrize("name", BREAKS)
def test_a_checker_alone_fails_on_the_violation_it_is_there_for(name: str) -> None:
    scene = Scene()
    assert scene.broken == set()
    BREAKS[name](scene)
    assert scene.broken == {name}


@pytest.mark.parametrize("is_registered", [True, False])
def test_pods_on_a_machine_that_never_came_into_service_are_pods_as_well(is_registered: bool) -> None:
    """Its Node may have been registered anew, or deleted: what the program takes the machine for does not matter."""
    scene = Scene()
    scene.facts.planned.add(("up-0", 0, 0))
    scene.launch(scene.one, "i-9", ("up-0", 0, 0))
    if is_registered:
        scene.join("i-9")
    scene.pod("i-9")
    scene.terminate(scene.one, "i-9")
    assert scene.broken == {"SafeTerminate"}


def test_a_correct_scale_up_violates_nothing() -> None:
    scene = Scene()
    scene.begin_up(scene.one)
    scene.launch(scene.one, "i-9", ("up-1", 0, 0))
    plan = [{**scene.item["scaleUpPlan"][0], "i": "i-9"}]
    scene.write(scene.one, scaleUpPlan=plan, scaleUpInstanceIds=["i-9"], scaleUpPhase="VERIFYING")
    scene.join("i-9")
    scene.change(scene.one, "i-9", taints=())
    up = tuple(name for name in scene.item if name.startswith("scaleUp"))
    scene.write(scene.one, remove=up, scalingInProgress=False, lastScaleEpoch=scene.now.epoch_seconds, workerCount=4)
    scene.write(scene.one, lockOwner="", lockUntilEpoch=0)
    scene.recorder.ended(scene.one, None)
    scene.heal()
    assert scene.broken == set()


def test_a_correct_scale_down_violates_nothing() -> None:
    scene = Scene()
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    scene.recorder.evicted(scene.one, scene.pod("i-1"), "accepted")
    scene.pods.clear()
    scene.commit(scene.one, "i-1")
    scene.terminate(scene.one, "i-1")
    scene.write(scene.one, remove=("scaleDownCommitted",), scaleDownCompletedInstanceIds=["i-1"])
    down = tuple(name for name in scene.item if name.startswith("scaleDown"))
    scene.write(scene.one, remove=down, scalingInProgress=False, lastScaleEpoch=scene.now.epoch_seconds)
    scene.write(scene.one, lockOwner="", lockUntilEpoch=0, workerCount=2)
    scene.recorder.ended(scene.one, None)
    scene.heal()
    assert scene.broken == set()


def test_each_checker_has_a_name_and_a_description() -> None:
    assert len({checker.name for checker in EVERY}) == len(EVERY) >= 30
    assert all(checker.name == checker.__name__ and len(checker.says) > 20 for checker in EVERY)


def test_the_page_lists_every_checker_with_its_description() -> None:
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text(encoding="utf-8")
    assert [checker.name for checker in EVERY if f"| {checker.name} | {checker.says} |" not in page] == []


@pytest.mark.parametrize(
    ("drawn", "silent"),
    [
        (FaultKind.SPOT_STORM, set()),
        (FaultKind.PAUSE, {"MaxRunning", "ZonesEven", "OneRun"}),
        (FaultKind.STALE_READ, {"ZonesEven"}),
    ],
)
def test_a_checker_is_silent_only_in_seeds_with_a_fault_that_excuses_too_much(
    drawn: FaultKind, silent: set[str]
) -> None:
    run = Run(HoldfastProgram(), Setup(1, rates={drawn: 0.1}, github=GitHubPlan()))
    assert {checker.name for checker in EVERY} - {checker.name for checker in run.recorder.checkers} == silent


@pytest.mark.parametrize("looked_after", [False, True])
def test_an_eviction_in_flight_when_its_node_is_uncordoned_is_no_violation(looked_after: bool) -> None:
    scene = Scene()
    scene.note(scene.one, "i-1", kind="interruption", phase="CORDONED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.now.plus(10)
    scene.note(scene.two, "i-1", phase="CLOSED")
    scene.now = scene.now.plus(10)
    if looked_after:
        scene.one.looked = scene.now
    scene.recorder.evicted(scene.one, scene.pod("i-1"), "accepted")
    assert scene.broken == ({"PlanFirst"} if looked_after else set())


@pytest.mark.parametrize("leaving", [("i-0", "i-1"), ("i-0",)])
def test_a_leaving_machine_counts_as_leaving_whichever_list_of_machines_was_read(leaving: tuple[str, ...]) -> None:
    """A zone's last machine may go if no other zone has one that stays."""
    scene = Scene(Numbers(min_workers=0))
    for instance in leaving:
        scene.note(scene.one, instance, kind="interruption", phase="CORDONED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.one.looked = scene.now.plus(10)
    scene.one.saw_old_list = True
    scene.begin_down(scene.one, "i-2")
    scene.commit(scene.one, "i-2")
    assert scene.broken == (set() if len(leaving) == 2 else {"AzKept"})


@pytest.mark.parametrize(("leaving", "broken"), [("i-2", {"AzKept"}), ("i-1", set())])
def test_if_zones_are_preferred_one_is_emptied_only_when_no_other_has_several(leaving: str, broken: set[str]) -> None:
    """i-0 and i-1 are in one zone, i-2 is alone in another."""
    scene = Scene(Numbers(min_workers=0, zones_kept="prefer"))
    scene.begin_down(scene.one, leaving)
    scene.close(scene.one, leaving)
    scene.commit(scene.one, leaving)
    assert scene.broken == broken


def test_if_zones_are_preferred_the_last_machines_may_leave_their_zones() -> None:
    scene = Scene(Numbers(min_workers=0, zones_kept="prefer"))
    scene.facts.machines[InstanceId("i-0")].gone = scene.now.plus(-1)
    scene.begin_down(scene.one, "i-2")
    scene.commit(scene.one, "i-2")
    assert scene.broken == set()


@pytest.mark.parametrize("by_another", [False, True])
def test_a_node_that_another_process_uncordons_is_no_violation_by_the_handler(by_another: bool) -> None:
    scene = Scene()
    handler = Process("event-1", 7, scene.now, "i-1")
    scene.note(handler, "i-1", kind="interruption", phase="EXPIRED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.now.plus(1)
    scene.note(scene.two if by_another else handler, "i-1", phase="OPENING")
    scene.note(scene.two if by_another else handler, "i-1", phase="CLOSED", stays=True)
    scene.now = scene.now.plus(1)
    scene.recorder.ended(handler, None)
    assert scene.broken == (set() if by_another else {"SpotIndependent"})


# What was said once does not count for ever


def noted(scene: Scene, phase: str, **more: Any) -> None:
    scene.note(scene.one, "i-1", kind="interruption", phase=phase, noticeEpoch=scene.now.epoch_seconds, **more)


def test_a_machine_that_only_a_closed_notice_names_is_lost() -> None:
    scene = Scene()
    plan = {"s": "s", "z": ZONE, "m": "spot", "t": "t3.medium", "k": 0}
    noted(scene, "NOTICED", plan=plan, replacement="PLANNED")
    scene.launch(scene.one, "i-9", ("spot:i-1", 0, 0))
    noted(scene, "CLOSED", plan={**plan, "i": "i-9"}, replacement="GIVEN_UP")
    scene.heal()
    assert scene.broken == {"NoLostInstance"}


def test_a_machine_that_an_action_without_an_end_records_is_lost_as_well() -> None:
    scene = Scene()
    scene.begin_up(scene.one)
    scene.launch(scene.one, "i-9", ("up-1", 0, 0))
    scene.write(scene.one, scaleUpInstanceIds=["i-9"], scaleUpPhase="VERIFYING")
    scene.heal()
    assert scene.broken == {"NoLostInstance", "NoStuckAction"}


@pytest.mark.parametrize("is_over", [False, True])
def test_a_notice_names_a_machine_for_termination_only_while_it_is_open(is_over: bool) -> None:
    scene = Scene()
    noted(scene, "CLOSED" if is_over else "DRAINED")
    scene.facts.interrupted.add(InstanceId("i-1"))
    scene.terminate(scene.one, "i-1")
    assert scene.broken == ({"AcceptedKept"} if is_over else set())


@pytest.mark.parametrize(
    ("phase", "found"), [("NOTICED", {"IntentFirst"}), ("EXPIRED", {"IntentFirst"}), ("DRAINED", set())]
)
def test_a_machine_of_a_notice_is_terminated_only_after_it_is_stored_as_drained(phase: str, found: set[str]) -> None:
    scene = Scene()
    noted(scene, phase)
    scene.facts.interrupted.add(InstanceId("i-1"))
    scene.terminate(scene.one, "i-1")
    assert scene.broken == found


@pytest.mark.parametrize("looked_after", [False, True])
def test_a_target_of_an_aborted_scale_down_is_a_target_no_more(looked_after: bool) -> None:
    """A process that looked before may still be about to cordon it."""
    scene = Scene()
    scene.begin_down(scene.one, "i-1")
    scene.now = scene.now.plus(10)
    scene.end_down(scene.one, aborted=True)
    scene.now = scene.now.plus(10)
    if looked_after:
        scene.one.looked = scene.now
    scene.close(scene.one, "i-1")
    assert scene.broken == ({"PlanFirst"} if looked_after else set())


def test_a_target_of_an_aborted_scale_down_is_not_terminated() -> None:
    scene = Scene()
    scene.begin_down(scene.one, "i-1")
    scene.end_down(scene.one, aborted=True)
    scene.terminate(scene.one, "i-1")
    assert scene.broken == {"AcceptedKept"}


@pytest.mark.parametrize("is_hint_over", [False, True])
def test_a_closed_hint_lets_no_node_be_cordoned(is_hint_over: bool) -> None:
    scene = Scene()
    more = {"kind": "rebalance", "noticeEpoch": scene.now.epoch_seconds, "replacement": "ACCEPTED"}
    scene.note(scene.one, "i-1", phase="NOTICED", **more)
    scene.pass_by(10)
    if is_hint_over:
        scene.note(scene.one, "i-1", phase="CLOSED")
        scene.pass_by(10)
    scene.close(scene.one, "i-1")
    assert scene.broken == ({"PlanFirst"} if is_hint_over else set())


# Values


@pytest.mark.parametrize("seconds", [-100, 0, 100])
def test_the_cooldown_begins_at_the_moment_of_completion_and_at_no_other(seconds: int) -> None:
    scene = Scene()
    scene.begin_down(scene.one, "i-1")
    scene.facts.machines[InstanceId("i-1")].gone = scene.now
    scene.write(scene.one, scaleDownCompletedInstanceIds=["i-1"])
    scene.pass_by(300)
    scene.take_lease_again()
    down = tuple(name for name in scene.item if name.startswith("scaleDown"))
    last = scene.now.epoch_seconds + seconds
    scene.write(scene.one, remove=down, scalingInProgress=False, lastScaleEpoch=last)
    assert scene.broken == ({"CooldownExact"} if seconds else set())


@pytest.mark.parametrize("seconds", [-100, 0, 100])
def test_an_action_stores_the_moment_at_which_it_begins(seconds: int) -> None:
    scene = Scene()
    scene.begin_up(scene.one, scaleUpStartedEpoch=scene.now.epoch_seconds + seconds)
    assert scene.broken == ({"CooldownExact"} if seconds else set())


# Limits count on, whatever else is under way


def test_pods_that_stay_pending_are_seen_while_action_after_action_fails() -> None:
    """Each fails in time, and none brings a machine: a livelock."""
    scene = Scene(Numbers(cooldown_up_seconds=60, pending_up_seconds=60))
    scene.pods[""] = [replace(scene.pod("i-1"), node=None)]
    scene.recorder.world_healed()
    for number in range(50):
        scene.pass_by(60)
        scene.take_lease_again()
        scene.begin_up(scene.one, action=f"up-{number}")
        scene.recorder.minute_passed()
        up = tuple(name for name in scene.item if name.startswith("scaleUp"))
        until = scene.now.epoch_seconds + 60
        scene.write(scene.one, remove=up, scalingInProgress=False, upFailures=number + 1, upBackoffUntilEpoch=until)
    assert scene.broken == {"Converges"}


def test_pending_pods_are_patiently_waited_for_while_machines_come_into_service() -> None:
    scene = Scene()
    scene.pods[""] = [replace(scene.pod("i-1"), node=None)]
    scene.recorder.world_healed()
    for number in range(6):
        for _ in range(8):
            scene.pass_by(60)
            scene.recorder.minute_passed()
        scene.in_service(f"i-{number + 20}", ZONE)
    assert scene.broken == set()


@pytest.mark.parametrize("problem", ["workerCount", "scalingInProgress", "minimum"])
def test_each_stored_count_is_compared(problem: str) -> None:
    scene = Scene(Numbers(min_workers=4 if problem == "minimum" else 2))
    if problem != "minimum":
        values: dict[str, Any] = {problem: 7 if problem == "workerCount" else True}
        scene.write(scene.one, **values)
    scene.heal()
    assert scene.broken == {"Converges"} | ({"FlagMatches"} if problem == "scalingInProgress" else set())


# What excuses


@pytest.mark.parametrize("excuse", ["nothing", "interrupted", "not ready", "late", "clock"])
def test_what_a_launch_beyond_the_maximum_is_excused_by(excuse: str) -> None:
    scene = Scene(Numbers(max_workers=3))
    scene.facts.planned.add(("up-1", 0, 0))
    if excuse == "interrupted":
        scene.facts.interrupted.add(InstanceId("i-1"))
    if excuse == "not ready":
        scene.change(None, "i-1", is_ready=False)
    scene.one.offset_seconds = 1800 if excuse == "clock" else 0
    scene.launch(scene.two if excuse == "late" else scene.one, "i-9", ("up-1", 0, 0))
    assert scene.broken == ({"MaxRunning"} if excuse == "nothing" else set())


@pytest.mark.parametrize("excuse", ["nothing", "refused", "old list"])
def test_what_a_plan_in_a_fuller_zone_is_excused_by(excuse: str) -> None:
    scene = Scene()
    scene.pass_by(200)
    scene.take_lease_again()
    scene.one.saw_old_list = excuse == "old list"
    if excuse == "refused":
        scene.facts.refused_in[OTHER_ZONE] = scene.now
    plan = [{"s": "s", "z": ZONE, "m": "spot", "t": "t3.medium", "k": 0}]
    scene.begin_up(scene.one, scaleUpPlan=plan)
    assert scene.broken == ({"ZonesEven"} if excuse == "nothing" else set())


@pytest.mark.parametrize(("refused", "minutes"), [((ZONE,), 20), ((ZONE, OTHER_ZONE), 20 + 61)])
def test_a_notice_may_wait_for_a_pool_only_as_long_as_every_zone_is_left_out(
    refused: tuple[str, ...], minutes: int
) -> None:
    """Found by seed 30607, in which the only zone had no capacity until the world healed."""
    scene = Scene()
    scene.facts.refused_in.update(dict.fromkeys(refused, scene.now))
    noted(scene, "EXPIRED")
    scene.facts.machines[InstanceId("i-1")].gone = scene.now
    scene.recorder.world_healed()
    for minute in range(minutes + 1):
        assert scene.broken == set(), minute
        scene.now = scene.now.plus(60)
        scene.recorder.minute_passed()
    assert scene.broken == {"NoStuckNotice"}


@pytest.mark.parametrize("excuse", ["busy", "paused", "pending", "critical", "budget", "at minimum", "last of zone"])
def test_what_an_idle_cluster_is_excused_by(excuse: str) -> None:
    scene = Scene(Numbers(min_workers=3 if excuse == "at minimum" else 0))
    scene.cpu = 0.5 if excuse == "busy" else 0.1
    if excuse == "paused":
        scene.facts.paused = scene.now
    if excuse == "last of zone":
        scene.facts.machines[InstanceId("i-1")].gone = scene.now
    if excuse in ("critical", "budget"):
        for number in range(3):
            scene.pod(f"i-{number}", priority_class="system-node-critical" if excuse == "critical" else None)
    scene.facts.has_budget = lambda _: excuse == "budget"
    if excuse == "pending":
        scene.facts.progressed = scene.now.plus(7200)
        scene.pods[""] = [replace(scene.pod("i-1"), node=None)]
    scene.heal()
    assert scene.broken == set()


def test_a_cordon_that_nobody_owns_is_seen_after_seventy_minutes() -> None:
    """Made by a process that slept while its action was aborted."""
    scene = Scene()
    scene.begin_down(scene.one, "i-1")
    scene.now = scene.now.plus(10)
    scene.end_down(scene.one, aborted=True)
    scene.close(scene.one, "i-1")
    scene.heal(4200)
    assert scene.broken == set()
    scene.heal()
    assert scene.broken == {"NoLeakedCordon"}


def test_a_person_may_undo_a_persons_cordon_and_then_it_is_ours_to_undo() -> None:
    scene = Scene()
    scene.change(None, "i-1", is_unschedulable=True)
    scene.change(None, "i-1", is_unschedulable=False)
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    scene.change(scene.one, "i-1", is_unschedulable=False, annotations={})
    assert scene.broken == set()


@pytest.mark.parametrize(("slot", "broken"), [(("up-1", 0, 0), {"NoLeakedSecret"}), (None, set())])
def test_a_password_that_outlives_a_machine_of_an_action_is_seen(
    slot: tuple[str, int, int] | None, broken: set[str]
) -> None:
    scene = Scene()
    scene.secrets.add(("kube-system", "i-1.node-password.k3s"))
    machine = scene.facts.machines[InstanceId("i-1")]
    machine.slot, machine.gone = slot, scene.now
    scene.heal()
    assert scene.broken == broken
