"""Until the next change, the passing of time alone decides nothing; each named moment decides something."""

import random
from collections import Counter
from functools import cache
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.cluster.decide import decide
from holdfast.cluster.policy import Choices, Policy, Rebalance, ScaleUpRule
from holdfast.cluster.seen import (
    ACTION_ANNOTATION,
    ACTION_TAG,
    ATTEMPT_TAG,
    INSTANCE_LABEL,
    SEQUENCE_TAG,
    SLOT_TAG,
    SPOT_ANNOTATION,
    UNVERIFIED_TAINT,
    KubeView,
    Seen,
)
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotNotice, SpotPhase
from holdfast.cluster.state import NEVER, ClusterState, DownPhase, ScaleDown, ScaleUp, Timers, UpPhase
from holdfast.cluster.wake_up import SOONEST_SECONDS, Change, Why, next_change
from holdfast.fleet.options import PoolFailure
from holdfast.fleet.slots import Slot
from holdfast.kernel.ids import ActionId, ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod, PodPhase, Taint
from holdfast.ports.machines import Machine, MachineState, Market, Subnet
from holdfast.ports.readings import Known, Unknown
from holdfast.ports.signals import PendingPods

NOW = Instant.from_iso("2026-01-15T10:00:00.250Z")
CHOICES = Choices(("t3.medium",))
AWAY = Unknown("does not answer")
SEEDS = 3200
ZONES = "abc"
OWNER = "tick"


class Draw:
    """Looks at clusters in every state, with ages near the limits; the seed decides."""

    def __init__(self, seed: int) -> None:
        self._chance = random.Random(seed)
        self._oddity = self.one_of(0.1, 0.4, 1.0)  # in a calm cluster other limits come first than in a troubled one
        self.policy = Policy(
            pending_up_seconds=self.one_of(20, 180),
            idle_down_seconds=self.one_of(60, 600),
            cooldown_up_seconds=self.one_of(30, 300),
            cooldown_down_seconds=self.one_of(30, 600),
            min_workers=self.one_of(0, 2, 4),
            max_workers=self.one_of(3, 10),
            join_timeout_seconds=self.one_of(240, 600),
            drain_seconds=self.one_of(120, 300),
            stuck_seconds=self.one_of(300, 900),
            not_ready_seconds=self.one_of(0, 240, 900),
            scale_up_rule=self.one_of(*ScaleUpRule),
            rebalance=self.one_of(*Rebalance),
        )

    def one_of(self, *values: Any) -> Any:
        return self._chance.choice(values)

    def likely(self, chance: float) -> bool:
        return self._chance.random() < chance

    def oddly(self, chance: float) -> bool:
        return self.likely(chance * self._oddity)

    def ago(self, limit_seconds: float) -> Instant:
        """Often a little less than the limit, whole seconds, as they are stored."""
        ages = (self._chance.uniform(0, limit_seconds), limit_seconds - self._chance.uniform(0, 30), limit_seconds + 50)
        return Instant.from_epoch_seconds(NOW.plus(-self.one_of(*ages)).epoch_seconds)

    def seen(self) -> Seen:
        ids = [InstanceId(f"i-{number:08x}") for number in range(self.one_of(0, 1, 2, 4, 6, 8))]
        machines = tuple(self._machine(name, number) for number, name in enumerate(ids))
        nodes = [self._node(machine) for machine in machines if not self.oddly(0.15)]
        nodes += [self._ghost()] if self.oddly(0.2) else []
        pods = tuple(self._pod(node) for node in nodes if self.likely(0.4))
        pending = self.one_of(Known(PendingPods(0, 0), NOW), Known(PendingPods(15, 30), NOW), AWAY)
        look = Seen(
            cluster=ClusterId("cluster"),
            now=NOW,
            state=self._state(ids),
            machines=machines,
            kube=AWAY if self.oddly(0.15) else Known(KubeView(tuple(nodes), pods), NOW),
            cpu=self.one_of(Known(0.9, NOW), Known(0.1, NOW), AWAY),
            pending=pending,
            subnets=tuple(Subnet(f"subnet-{zone}", zone, 100) for zone in ZONES),
            notices=self._notices(ids),
            failures=self._failures(),
            undrainable={name: self._failure() for name in ids if self.likely(0.3)},
            is_paused=self.oddly(0.1),
            marks_refused=self._failure() if self.oddly(0.2) else None,  # last, so that the rest is drawn as before
        )
        # As a tick leaves it: with the timers stored that follow from the look.
        timers = decide(look, self.policy, CHOICES).timers
        return replace(look, state=replace(look.state, timers=timers))

    def _failure(self) -> PoolFailure:
        return PoolFailure(1, NOW.plus(self._chance.uniform(-100, 200)))

    def _failures(self) -> dict[str, PoolFailure]:
        share = self.one_of(0.0, 0.3, 1.0)
        pools = [f"t3.medium|{zone}|{market}" for zone in ZONES for market in ("spot", "on-demand")]
        return {pool: self._failure() for pool in pools if self.likely(share)}

    def _machine(self, name: InstanceId, number: int) -> Machine:
        zone = ZONES[number % 3]
        tags = {SEQUENCE_TAG: str(self.one_of(3, 5, 6)), ACTION_TAG: f"1700000000-2-{OWNER}"}
        tags |= {SLOT_TAG: "0", ATTEMPT_TAG: "0"}
        age_limit = self.one_of(self.policy.join_timeout_seconds, 3600, 86_400)
        return Machine(
            id=name,
            state=MachineState.TERMINATED if self.oddly(0.05) else MachineState.RUNNING,
            zone=zone,
            subnet_id=f"subnet-{zone}",
            instance_type="t3.medium",
            market=Market.SPOT,
            private_ip=f"10.0.0.{number}",
            launched=self.ago(age_limit),
            tags=tags if self.oddly(0.6) else {},
        )

    def _node(self, machine: Machine) -> Node:
        annotations: dict[str, str] = {}
        if self.oddly(0.15):
            annotations[ACTION_ANNOTATION] = f"{self.ago(3600).epoch_seconds}-3-{OWNER}"
        if self.oddly(0.15):
            annotations[SPOT_ANNOTATION] = f"{machine.id}@{self.ago(3600).epoch_seconds}"
        return Node(
            name=machine.id,
            uid=machine.id,
            resource_version="1",
            internal_ip=machine.private_ip or "",
            is_ready=not self.oddly(0.2),
            ready_changed=self.ago(self.one_of(300, self.policy.not_ready_seconds or 240)),
            created=machine.launched,
            is_unschedulable=self.oddly(0.3),
            labels={INSTANCE_LABEL: machine.id},
            annotations=annotations,
            taints=(Taint(UNVERIFIED_TAINT, "x", "NoSchedule"),) if self.oddly(0.15) else (),
        )

    def _ghost(self) -> Node:
        """A node whose machine EC2 does not list."""
        labels = {INSTANCE_LABEL: "i-gone"}
        return Node("i-gone", "u", "1", "10.0.9.9", self.likely(0.3), self.ago(300), NOW, False, labels)

    def _pod(self, node: Node) -> Pod:
        controller = self.one_of("ReplicaSet", "DaemonSet", "")
        return Pod("default", f"on-{node.name}", node.name, node.name, PodPhase.RUNNING, NOW, controller=controller)

    def _state(self, ids: list[InstanceId]) -> ClusterState:
        policy = self.policy
        up, down = None, None
        if self.likely(0.2):
            up = self._up(ids)
        elif ids and self.likely(0.2):
            down = self._down(ids)
        backoff = NOW.plus(self._chance.uniform(-100, 600)) if self.likely(0.3) else NEVER
        cooldown = self.one_of(policy.cooldown_up_seconds, policy.cooldown_down_seconds)
        return ClusterState(
            fence=7,
            action_seq=5,
            is_flagged=bool(up or down),
            last_scale=self.ago(cooldown) if self.likely(0.6) else NEVER,
            timers=Timers(
                self.ago(policy.pending_up_seconds) if self.likely(0.7) else None,
                self.ago(policy.idle_down_seconds) if self.likely(0.7) else None,
                len(ids),
            ),
            up=up,
            down=down,
            up_failures=0 if backoff == NEVER else 2,
            up_backoff_until=Instant.from_epoch_seconds(backoff.epoch_seconds),
        )

    def _up(self, ids: list[InstanceId]) -> ScaleUp:
        phase = self.one_of(UpPhase.VERIFYING, UpPhase.VERIFYING, UpPhase.LAUNCHING, UpPhase.CLEANUP)
        named = tuple(ids[-2:])
        slots = tuple(self._slot(name) for name in named)
        is_planned = phase is UpPhase.LAUNCHING or self.likely(0.6)
        since = self.ago(self.one_of(300, self.policy.join_timeout_seconds))
        return ScaleUp(
            action=ActionId(f"{since.epoch_seconds}-6-{OWNER}"),
            started=since,
            requested=len(named) + self.one_of(0, 1),
            instances=named,
            phase=phase,
            slots=slots if is_planned else (),
            template="",
            phase_since=self.one_of(None, since),
        )

    def _slot(self, instance: InstanceId | None) -> Slot:
        return Slot("subnet-a", "a", Market.SPOT, "t3.medium", instance=instance)

    def _down(self, ids: list[InstanceId]) -> ScaleDown:
        phase = self.one_of(DownPhase.DRAINING, DownPhase.DRAINING, DownPhase.ABORTING)
        return ScaleDown(
            action=ActionId(f"1700000000-3-{OWNER}"),
            started=self.ago(self.policy.stuck_seconds),
            phase=phase,
            targets=(ids[0],),
            completed=(),
            committed=frozenset(),
            drain_started=self.one_of(None, self.ago(self.policy.drain_seconds)),
        )

    def _notices(self, ids: list[InstanceId]) -> dict[InstanceId, SpotNotice]:
        return {name: self._notice(name) for name in ids if self.oddly(0.12)}

    def _notice(self, name: InstanceId) -> SpotNotice:
        phase = self.one_of(SpotPhase.NOTICED, SpotPhase.CORDONED, SpotPhase.DRAINED, SpotPhase.EXPIRED)
        limits = {SpotPhase.NOTICED: 3600, SpotPhase.CORDONED: 110}
        replacement = self.one_of(*Replacement, Replacement.OPEN, Replacement.OPEN)
        has_slot = replacement not in (Replacement.OPEN, Replacement.GIVEN_UP)
        launched = self.ago(self.policy.join_timeout_seconds)
        return SpotNotice(
            instance=name,
            kind=self.one_of(*SpotKind),
            phase=phase,
            noticed=self.ago(limits.get(phase, self.policy.stuck_seconds)),
            replacement=replacement,
            slot=self._slot(InstanceId("i-00000007")) if has_slot else None,
            planned=launched,
            launched=launched,
            cordoned=self.ago(self.policy.stuck_seconds),
        )


def decided(look: Seen, policy: Policy, at: Instant) -> tuple[object, object]:
    """What is decided at that moment, without the words."""
    plan = decide(replace(look, now=at), policy, CHOICES)
    steps = [{name: value for name, value in step.shown().items() if name != "because"} for step in plan.steps]
    return [(rule.name, rule.verdict) for rule in plan.rules], steps


def changed(look: Seen, policy: Policy) -> Change | None:
    return next_change(look, policy, decide(look, policy, CHOICES))


@pytest.mark.parametrize("part", range(8))
def test_no_verdict_and_no_step_changes_before_the_next_change(part: int) -> None:
    for seed in range(part, SEEDS, 8):
        draw = Draw(seed)
        look, policy = draw.seen(), draw.policy
        change = changed(look, policy)
        last = NOW.plus(86_400) if change is None else change.at.plus(-0.001)
        now = decided(look, policy, NOW)
        for share in (1.0, 0.5, 0.1):
            moment = NOW.plus(last.seconds_since(NOW) * share)
            assert decided(look, policy, moment) == now, f"seed {seed}: {moment} differs from {NOW}, before {change}"


@cache
def changes_with_an_effect() -> Counter[Why]:
    found: Counter[Why] = Counter()
    for seed in range(SEEDS):
        draw = Draw(seed)
        look, policy = draw.seen(), draw.policy
        change = changed(look, policy)
        if change is not None and decided(look, policy, change.at) != decided(look, policy, NOW):
            found[change.why] += 1
    return found


@pytest.mark.parametrize("why", list(Why))
def test_each_named_moment_changes_what_is_decided(why: Why) -> None:
    assert changes_with_an_effect()[why] > 0


def test_the_next_change_lies_ahead() -> None:
    """A moment that has passed is never waited for again, so that nothing keeps a process awake."""
    for seed in range(0, SEEDS, 4):
        draw = Draw(seed)
        change = changed(draw.seen(), draw.policy)
        assert change is None or change.at > NOW


@pytest.mark.parametrize(("ahead", "seconds"), [(-500, SOONEST_SECONDS), (0, SOONEST_SECONDS), (0.2, 1), (7.5, 7.5)])
def test_the_sleep_is_never_shorter_than_a_second(ahead: float, seconds: float) -> None:
    assert Change(NOW.plus(ahead), Why.ORPHAN).seconds_from(NOW) == seconds


def test_a_change_says_when_and_why() -> None:
    change = Change(Instant.from_iso("2026-01-15T12:03:04Z"), Why.PENDING_LONG_ENOUGH)
    assert str(change) == "next look at 2026-01-15T12:03:04Z: pods will have been pending long enough"
