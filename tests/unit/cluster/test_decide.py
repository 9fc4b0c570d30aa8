"""Every rule of seeds 003 and 004, one by one: what holds, what does not, and what is not known."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.cluster.choices import Choices
from holdfast.cluster.decide import batch_size, decide
from holdfast.cluster.plan import Plan
from holdfast.cluster.policy import Policy, ScaleUpRule
from holdfast.cluster.seen import INSTANCE_LABEL, KubeView, Seen
from holdfast.cluster.state import ClusterState, Timers
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod, PodPhase
from holdfast.ports.machines import Machine, MachineState, Market, Subnet
from holdfast.ports.readings import Known, Unknown
from holdfast.ports.signals import PendingPods

NOW = Instant.from_iso("2026-01-15T10:00:00Z")
POLICY = Policy()
CHOICES = Choices(("t3.medium",))
AWAY = Unknown("does not answer")


def machine(number: int) -> Machine:
    zone = "abc"[number % 3]
    return Machine(
        id=InstanceId(f"i-{number:08x}"),
        state=MachineState.RUNNING,
        zone=zone,
        subnet_id=f"subnet-{zone}",
        instance_type="t3.medium",
        market=Market.SPOT,
        private_ip=f"10.0.0.{number}",
        launched=NOW.plus(-86_400 + number),
    )


def node(number: int) -> Node:
    name = f"i-{number:08x}"
    return Node(name, name, "1", f"10.0.0.{number}", True, NOW, NOW, False, {INSTANCE_LABEL: name})


def seen(
    workers: int = 4, *, cpu: float = 0.9, pending: int = 25, waited: int = 600, state: ClusterState | None = None
) -> Seen:
    view = KubeView(tuple(node(n) for n in range(workers)), ())
    return Seen(
        cluster=ClusterId("cluster"),
        now=NOW,
        state=state or ClusterState(timers=Timers(NOW.plus(-waited) if pending else None, NOW.plus(-waited), workers)),
        machines=tuple(machine(n) for n in range(workers)),
        kube=Known(view, NOW),
        cpu=Known(cpu, NOW),
        pending=Known(PendingPods(pending, waited), NOW),
        subnets=tuple(Subnet(f"subnet-{zone}", zone, 100) for zone in "abc"),
    )


BUSY = seen()
IDLE = seen(6, cpu=0.1, pending=0)


def kinds(plan: Plan) -> list[str]:
    return [step.kind for step in plan.steps]


def decided(look: Seen, **policy: object) -> list[str]:
    return kinds(decide(look, Policy(**policy), CHOICES))  # type: ignore[arg-type]


def verdict(look: Seen, name: str) -> str:
    return next(str(rule.verdict) for rule in decide(look, POLICY, CHOICES).rules if rule.name == name)


def test_when_all_of_the_seeds_conditions_hold_it_goes_up() -> None:
    plan = decide(BUSY, POLICY, CHOICES)
    assert kinds(plan) == ["begin_scale_up"]
    assert "25 pods wait" in plan.steps[0].because


def with_state(look: Seen, **changes: object) -> Seen:
    return replace(look, state=replace(look.state, **changes))


@pytest.mark.parametrize(
    ("look", "rule"),
    [
        (replace(BUSY, cpu=Known(0.69, NOW)), "cpu_high"),
        (seen(pending=0), "pods_waiting"),
        (seen(waited=179), "waiting_long_enough"),
        (with_state(BUSY, last_scale=NOW.plus(-299)), "cooldown_up_over"),
        (seen(10), "below_maximum"),
        (with_state(BUSY, up_failures=1, up_backoff_until=NOW.plus(1)), "not_backing_off"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_if_one_condition_fails_it_does_not_go_up_and_says_which(look: Seen, rule: str) -> None:
    assert decided(look) == []
    assert verdict(look, rule) == "no"
    others = [r for r in decide(look, POLICY, CHOICES).rules[:7] if r.name != rule and not r.holds]
    assert [r.name for r in others] in ([], ["waiting_long_enough"])


@pytest.mark.parametrize(
    ("look", "exactly"),
    [
        (replace(BUSY, cpu=Known(0.70, NOW)), "CPU at the limit"),
        (seen(waited=180), "waited just long enough"),
        (with_state(BUSY, last_scale=NOW.plus(-300)), "cooldown just over"),
        (seen(9), "one below the maximum"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_at_the_very_limit_it_goes_up(look: Seen, exactly: str) -> None:
    assert decided(look) == ["begin_scale_up"], exactly


def test_either_is_enough_if_the_operator_says_so() -> None:
    calm = replace(BUSY, cpu=Known(0.1, NOW))
    assert decided(calm) == []
    assert decided(calm, scale_up_rule=ScaleUpRule.ANY) == ["begin_scale_up"]
    assert decided(replace(calm, cpu=AWAY), scale_up_rule=ScaleUpRule.ANY) == ["begin_scale_up"]


@pytest.mark.parametrize(
    ("pending", "workers", "size"),
    [(1, 2, 1), (10, 2, 1), (11, 2, 2), (35, 2, 2), (1000, 2, 2), (35, 9, 1), (35, 10, 0), (0, 2, 1)],
)
def test_the_batch_is_sized_as_the_seed_says(pending: int, workers: int, size: int) -> None:
    """A machine for every ten pods, at least one, at most two, never past ten."""
    assert batch_size(pending, workers, POLICY) == size


def test_when_all_preconditions_hold_it_goes_down() -> None:
    assert decided(IDLE) == ["begin_scale_down"]


@pytest.mark.parametrize(
    ("look", "rule"),
    [
        (replace(IDLE, cpu=Known(0.30, NOW)), "cpu_low"),
        (replace(IDLE, pending=Known(PendingPods(1, 5), NOW)), "nothing_waiting"),
        (with_state(IDLE, timers=Timers(None, NOW.plus(-599), 6)), "idle_long_enough"),
        (with_state(IDLE, last_scale=NOW.plus(-599)), "cooldown_down_over"),
        (seen(2, cpu=0.1, pending=0), "above_minimum"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_if_one_precondition_fails_it_does_not_go_down_and_says_which(look: Seen, rule: str) -> None:
    assert decided(look) == []
    assert verdict(look, rule) == "no"


@pytest.mark.parametrize("what", ["cpu", "pending", "kube"])
def test_what_is_unknown_never_scales_down_and_says_so(what: str) -> None:
    look = replace(IDLE, **{what: AWAY})
    assert decided(look) == []
    names = {"cpu": "cpu_low", "pending": "nothing_waiting", "kube": "nodes_known"}
    assert verdict(look, names[what]) == "unknown"
    rule = next(r for r in decide(look, POLICY, CHOICES).rules if r.name == names[what])
    assert rule.value == "does not answer"


def test_unknown_cpu_or_pods_do_not_scale_up_either() -> None:
    assert decided(replace(BUSY, cpu=AWAY)) == []
    assert decided(replace(BUSY, pending=AWAY)) == []


def test_an_unknown_reading_ends_the_idling_and_keeps_the_waiting() -> None:
    timers = decide(replace(IDLE, cpu=AWAY), POLICY, CHOICES).timers
    assert timers.idle_since is None
    kept = decide(replace(BUSY, pending=AWAY), POLICY, CHOICES).timers
    assert kept.pending_since == BUSY.state.timers.pending_since


@pytest.mark.parametrize("workers", [0, 1])
def test_below_the_minimum_it_launches_whatever_is_known(workers: int) -> None:
    look = replace(seen(workers, cpu=0.0, pending=0), cpu=AWAY, pending=AWAY)
    assert decided(look) == ["begin_scale_up"]
    assert decided(with_state(look, up_backoff_until=NOW.plus(1))) == []


def test_while_paused_nothing_new_is_begun() -> None:
    assert decided(replace(BUSY, is_paused=True)) == []
    assert decided(replace(IDLE, is_paused=True)) == []


def test_a_flag_without_an_action_is_repaired() -> None:
    assert decided(with_state(BUSY, is_flagged=True)) == ["repair"]


def test_a_quiet_look_needs_no_lease() -> None:
    calm = seen(3, cpu=0.5, pending=0)
    calm = with_state(calm, timers=Timers(None, None, 3))
    plan = decide(calm, POLICY, CHOICES)
    assert plan.is_quiet(calm)


def test_the_plan_shows_every_rule_and_step_as_data() -> None:
    shown = decide(BUSY, POLICY, CHOICES).shown()
    assert {"name", "verdict", "value", "limit"} == set(shown["rules"][0])
    (step,) = shown["steps"]
    assert step["kind"] == "begin_scale_up"
    assert step["slots"][0] == {"s": "subnet-b", "z": "b", "m": "spot", "t": "t3.medium", "k": 0}


# Where the rules would have had it otherwise


def obstacle(look: Seen, name: str) -> str:
    plan = decide(look, POLICY, CHOICES)
    assert plan.steps == ()
    (found,) = [rule for rule in plan.rules if rule.name == name]
    assert not found.holds
    return found.value


def pod_on(number: int, **more: object) -> Pod:
    name = f"i-{number:08x}"
    return Pod("default", f"pod-{number}", f"uid-{number}", name, PodPhase.RUNNING, NOW, **more)  # type: ignore[arg-type]


def test_a_pause_is_told_as_a_reason() -> None:
    assert obstacle(replace(BUSY, is_paused=True), "not_paused") == "paused"


def test_with_no_capacity_anywhere_it_says_where() -> None:
    pools = [f"t3.medium|{zone}|{market}" for zone in "abc" for market in ("spot", "on-demand")]
    failures = {pool: PoolFailure(1, NOW.plus(60)) for pool in pools}
    told = obstacle(replace(BUSY, failures=failures), "somewhere_to_launch")
    assert told.startswith("no capacity in t3.medium|a|on-demand, t3.medium|a|spot")


def test_with_no_free_address_it_says_where() -> None:
    full = tuple(Subnet(subnet.id, subnet.zone, 0) for subnet in BUSY.subnets)
    assert obstacle(replace(BUSY, subnets=full), "somewhere_to_launch") == (
        "no free address in subnet-a, subnet-b, subnet-c"
    )


def test_with_one_worker_left_in_each_zone_it_says_so() -> None:
    assert obstacle(seen(3, cpu=0.1, pending=0), "a_worker_may_leave") == (
        "the newest stays, and so does the last one of each zone"
    )


def test_a_pod_that_forbids_it_is_named() -> None:
    view = KubeView(tuple(node(n) for n in range(6)), tuple(pod_on(n, controller="") for n in range(6)))
    told = obstacle(replace(IDLE, kube=Known(view, NOW)), "a_worker_may_leave")
    assert told.startswith("i-00000000: default/pod-0: nothing would make it again elsewhere; ")


class CountedPods(tuple[Pod, ...]):
    """Pods that know how often somebody has gone through all of them."""

    rounds = 0

    def __iter__(self) -> Iterator[Pod]:
        type(self).rounds += 1
        return super().__iter__()


def test_the_pods_are_gone_through_as_often_for_many_workers_as_for_few() -> None:
    """With none that may leave, each worker is asked about: by its own pods, not by all there are."""
    rounds = []
    for count in (6, 60):
        idle = seen(count, cpu=0.1, pending=0)
        pods = CountedPods(pod_on(n, controller="") for n in range(count))
        CountedPods.rounds = 0
        view = KubeView(tuple(node(n) for n in range(count)), pods)
        assert obstacle(replace(idle, kube=Known(view, NOW)), "a_worker_may_leave").startswith("i-00000000: ")
        rounds.append(CountedPods.rounds)
    assert rounds[0] == rounds[1]


def test_what_was_never_scaled_is_not_an_age_of_decades() -> None:
    rules = {rule.name: rule.value for rule in decide(BUSY, POLICY, CHOICES).rules}
    assert (rules["cooldown_up_over"], rules["cooldown_down_over"]) == ("never scaled", "never scaled")
