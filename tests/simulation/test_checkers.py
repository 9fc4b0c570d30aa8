"""Each checker can fail, and on what it is there for it alone does."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod, PodPhase, Taint
from holdfast.ports.machines import LaunchOrder, Machine, MachineState, Market
from holdfast.simulator import marks
from holdfast.simulator.checkers import EVERY, JOBS
from holdfast.simulator.checkers.liveness import Converges
from holdfast.simulator.facts import Facts
from holdfast.simulator.numbers import Numbers
from holdfast.simulator.process import Process
from holdfast.simulator.story import Story
from holdfast.simulator.watch import Watch

ZONE, OTHER_ZONE = "eu-west-1a", "eu-west-1b"
START = Instant.from_iso("2026-01-15T08:00:00Z")


class Scene:
    """A world made of events: three workers in service, in two zones, and nothing under way."""

    def __init__(self, numbers: Numbers | None = None) -> None:
        self.now = START
        self.pods: dict[str, list[Pod]] = {}
        facts = Facts(numbers or Numbers(), lambda: self.now, lambda node: self.pods.get(node or "", []))
        self.watch = Watch(facts, Story(), EVERY)
        self.facts = facts
        self.one, self.two = Process("tick-1", 1, START), Process("tick-2", 2, START)
        self.notices: dict[str, dict[str, Any]] = {}
        for number, zone in enumerate((ZONE, ZONE, OTHER_ZONE)):
            self.in_service(f"i-{number}", zone)
        self.item: dict[str, Any] = {"pk": "cluster"}
        self.take_lease(self.one)

    @property
    def broken(self) -> set[str]:
        return {violation.invariant for violation, _ in self.watch.violations}

    def write(self, by: Process, remove: tuple[str, ...] = (), **values: Any) -> None:
        new = {name: value for name, value in {**self.item, **values}.items() if name not in remove}
        old, self.item = self.item, new
        self.watch.wrote(by, "cluster", "cluster", old, new)

    def take_lease(self, by: Process) -> None:
        until = self.now.epoch_seconds + 90
        self.write(by, lockOwner=by.name, lockUntilEpoch=until, fence=self.item.get("fence", 0) + 1)

    def note(self, by: Process, instance: str, **values: Any) -> None:
        old = self.notices.get(instance, {})
        self.notices[instance] = new = {**old, **values}
        self.watch.wrote(by, f"spot#{instance}", "cluster", old, new)

    def begin_up(self, by: Process, slots: int = 1, action: str = "up-1", **more: Any) -> None:
        plan = [{"s": "s", "z": ZONE, "m": "spot", "t": "t3.medium", "k": 0} for _ in range(slots)]
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
            tags |= {marks.ACTION: slot[0], marks.SLOT: str(slot[1]), marks.ATTEMPT: str(slot[2])}
        wanted = LaunchOrder(under, "lt", "t3.medium", Market.SPOT, "s", order.get("zone", ZONE), tags, "")
        if "user_data" in order:
            wanted = replace(wanted, user_data=order["user_data"])
        self.watch.launched(by, wanted, self.machine(instance, wanted.zone, tags))

    def machine(self, instance: str, zone: str, tags: dict[str, str]) -> Machine:
        state = MachineState.RUNNING
        return Machine(InstanceId(instance), state, zone, "s", "t3.medium", Market.SPOT, "10.0.0.1", self.now, tags)

    def in_service(self, instance: str, zone: str) -> None:
        machine = self.machine(instance, zone, {"Cluster": "k3s"})
        order = LaunchOrder(f"early-{instance}", "lt", "t3.medium", Market.SPOT, "s", zone, {"Cluster": "k3s"}, "")
        self.facts.launched(order, machine)
        self.facts.node_changed(None, self.node(instance))

    def node(self, instance: str, **more: Any) -> Node:
        node = Node(instance, "uid", "1", "10.0.0.1", True, None, self.now, False, {marks.INSTANCE: instance})
        return replace(node, **more)

    def change(self, by: Process | None, instance: str, **more: Any) -> None:
        old = self.facts.nodes.get(InstanceId(instance))
        self.watch.acting = by
        self.watch.node_changed(old, replace(old or self.node(instance), **more))
        self.watch.acting = None

    def join(self, instance: str) -> None:
        self.watch.node_changed(None, self.node(instance, taints=(Taint(marks.TAINT, "", "NoSchedule"),)))

    def close(self, by: Process, instance: str) -> None:
        self.change(by, instance, is_unschedulable=True, annotations={marks.FENCE: "1", marks.ACTION: "down-1"})

    def terminate(self, by: Process, instance: str) -> None:
        self.facts.machines[InstanceId(instance)].gone = self.now
        self.watch.terminated(by, InstanceId(instance))

    def pod(self, node: str, **more: Any) -> Pod:
        pod = Pod("default", "web-1", "u1", node, PodPhase.RUNNING, self.now, controller="ReplicaSet")
        self.pods[node] = [replace(pod, **more)]
        return self.pods[node][0]

    def commit(self, by: Process, instance: str) -> None:
        self.write(by, scaleDownCommitted=frozenset({instance}))

    def heal(self, seconds: float = 7200) -> None:
        self.now = self.now.plus(seconds)
        self.watch.healed()


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
    scene.watch.ended(scene.one, KeyError("i-1"))


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
    scene.watch.evicted(scene.one, scene.pod("i-1", priority_class="system-node-critical"), "accepted")


@breaks("NoLeakedCordon")
def _(scene: Scene) -> None:
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    down = tuple(name for name in scene.item if name.startswith("scaleDown"))
    scene.write(scene.one, scaleDownPhase="ABORTING")
    scene.write(scene.one, remove=down, scalingInProgress=False)
    scene.heal()


@breaks("SpotOnce")
def _(scene: Scene) -> None:
    scene.note(scene.one, "i-1", kind="interruption", phase="NOTICED", noticeEpoch=scene.now.epoch_seconds)
    accept_two(scene, "spot:i-1")


@breaks("SpotIndependent")
def _(scene: Scene) -> None:
    handler = Process("event-1", 7, scene.now, "i-1")
    scene.note(handler, "i-1", kind="interruption", phase="NOTICED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.now.plus(10)
    scene.watch.ended(handler, None)


@breaks("RebalanceMild")
def _(scene: Scene) -> None:
    scene.note(scene.one, "i-1", kind="rebalance", phase="NOTICED", noticeEpoch=scene.now.epoch_seconds)
    scene.terminate(scene.one, "i-1")


@breaks("PauseKept")
def _(scene: Scene) -> None:
    scene.watch.wrote(scene.two, "cluster#pause", "cluster", {}, {"paused": True})
    scene.now = scene.one.looked = scene.now.plus(10)
    scene.begin_up(scene.one)


@breaks("NoLostInstance")
def _(scene: Scene) -> None:
    scene.facts.planned.add(("up-0", 0, 0))
    scene.launch(scene.one, "i-9", ("up-0", 0, 0))
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
    converges = next(checker for checker in scene.watch.checkers if isinstance(checker, Converges))
    since = scene.now
    converges.waiting = lambda: [since]
    scene.heal()


def test_every_checker_has_a_scene_in_which_it_fails() -> None:
    """Those of GitHub's jobs have theirs in test_job_checkers."""
    assert set(BREAKS) == {checker.name for checker in EVERY if checker not in JOBS}


@pytest.mark.parametrize("name", BREAKS)
def test_a_checker_fails_on_what_it_is_there_for_and_the_others_do_not(name: str) -> None:
    scene = Scene()
    assert scene.broken == set()
    BREAKS[name](scene)
    assert scene.broken == {name}


def test_a_scale_up_that_is_done_right_breaks_nothing() -> None:
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
    scene.watch.ended(scene.one, None)
    scene.heal()
    assert scene.broken == set()


def test_a_scale_down_that_is_done_right_breaks_nothing() -> None:
    scene = Scene()
    scene.begin_down(scene.one, "i-1")
    scene.close(scene.one, "i-1")
    scene.watch.evicted(scene.one, scene.pod("i-1"), "accepted")
    scene.pods.clear()
    scene.commit(scene.one, "i-1")
    scene.terminate(scene.one, "i-1")
    scene.write(scene.one, remove=("scaleDownCommitted",), scaleDownCompletedInstanceIds=["i-1"])
    down = tuple(name for name in scene.item if name.startswith("scaleDown"))
    scene.write(scene.one, remove=down, scalingInProgress=False, lastScaleEpoch=scene.now.epoch_seconds)
    scene.write(scene.one, lockOwner="", lockUntilEpoch=0, workerCount=2)
    scene.watch.ended(scene.one, None)
    scene.heal()
    assert scene.broken == set()


def test_each_checker_has_a_name_and_a_sentence() -> None:
    assert len({checker.name for checker in EVERY}) == len(EVERY) >= 30
    assert all(checker.name == checker.__name__ and len(checker.says) > 20 for checker in EVERY)


def test_the_page_names_every_checker_with_its_sentence() -> None:
    page = (Path(__file__).parents[2] / "docs" / "proof.md").read_text(encoding="utf-8")
    assert [checker.name for checker in EVERY if f"| {checker.name} | {checker.says} |" not in page] == []


@pytest.mark.parametrize("looked_after", [False, True])
def test_an_eviction_that_was_on_its_way_when_its_node_was_opened_is_no_plan_broken(looked_after: bool) -> None:
    scene = Scene()
    scene.note(scene.one, "i-1", kind="interruption", phase="CORDONED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.now.plus(10)
    scene.note(scene.two, "i-1", phase="CLOSED")
    scene.now = scene.now.plus(10)
    if looked_after:
        scene.one.looked = scene.now
    scene.watch.evicted(scene.one, scene.pod("i-1"), "accepted")
    assert scene.broken == ({"PlanFirst"} if looked_after else set())


@pytest.mark.parametrize("leaving", [("i-0", "i-1"), ("i-0",)])
def test_what_leaves_is_known_to_leave_whatever_list_of_machines_was_read(leaving: tuple[str, ...]) -> None:
    """A zone's last machine may go where no other zone has one that stays."""
    scene = Scene(Numbers(min_workers=0))
    for instance in leaving:
        scene.note(scene.one, instance, kind="interruption", phase="CORDONED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.one.looked = scene.now.plus(10)
    scene.one.saw_old_list = True
    scene.begin_down(scene.one, "i-2")
    scene.commit(scene.one, "i-2")
    assert scene.broken == (set() if len(leaving) == 2 else {"AzKept"})


@pytest.mark.parametrize("by_another", [False, True])
def test_a_node_that_another_process_opens_is_not_held_against_the_handler(by_another: bool) -> None:
    scene = Scene()
    handler = Process("event-1", 7, scene.now, "i-1")
    scene.note(handler, "i-1", kind="interruption", phase="EXPIRED", noticeEpoch=scene.now.epoch_seconds)
    scene.now = scene.now.plus(1)
    scene.note(scene.two if by_another else handler, "i-1", phase="OPENING")
    scene.note(scene.two if by_another else handler, "i-1", phase="CLOSED", stays=True)
    scene.now = scene.now.plus(1)
    scene.watch.ended(handler, None)
    assert scene.broken == (set() if by_another else {"SpotIndependent"})
