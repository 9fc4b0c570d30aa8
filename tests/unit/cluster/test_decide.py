"""Every rule of seeds 003 and 004, one by one: when it holds, when it fails, and when it is unknown."""

from collections.abc import Iterator

import pytest
from msgspec.structs import replace

from holdfast.cluster.decide import batch_size, decide
from holdfast.cluster.plan import ClusterPlan
from holdfast.cluster.policy import Policy, ScaleUpRule
from holdfast.cluster.seen import KubeView, Seen
from holdfast.cluster.spot.notice import SpotKind, SpotNotice, SpotPhase
from holdfast.cluster.state import Timers
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Pod, PodPhase
from holdfast.ports.machines import Subnet
from holdfast.ports.readings import Known
from holdfast.ports.signals import PendingPods
from tests.unit.cluster.looks import AWAY, BUSY, CHOICES, IDLE, NOW, POLICY, machine, node, seen


def kinds(plan: ClusterPlan) -> list[str]:
    return [step.kind for step in plan.steps]


def decided(look: Seen, **policy: object) -> list[str]:
    return kinds(decide(look, Policy(**policy), CHOICES))  # type: ignore[arg-type]


def verdict(look: Seen, name: str) -> str:
    return next(str(rule.verdict) for rule in decide(look, POLICY, CHOICES).rules if rule.name == name)


def test_when_all_of_the_seeds_conditions_hold_it_scales_up() -> None:
    plan = decide(BUSY, POLICY, CHOICES)
    assert kinds(plan) == ["begin_scale_up"]
    assert "25 pods pending" in plan.steps[0].because


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
def test_if_one_condition_fails_it_does_not_scale_up_and_says_which(look: Seen, rule: str) -> None:
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
def test_exactly_at_the_limit_it_scales_up(look: Seen, exactly: str) -> None:
    assert decided(look) == ["begin_scale_up"], exactly


def test_either_condition_is_enough_with_the_setting_for_it() -> None:
    calm = replace(BUSY, cpu=Known(0.1, NOW))
    assert decided(calm) == []
    assert decided(calm, scale_up_rule=ScaleUpRule.ANY) == ["begin_scale_up"]
    assert decided(replace(calm, cpu=AWAY), scale_up_rule=ScaleUpRule.ANY) == ["begin_scale_up"]


@pytest.mark.parametrize(
    ("pending", "workers", "size"),
    [(1, 2, 1), (10, 2, 1), (11, 2, 2), (35, 2, 2), (1000, 2, 2), (35, 9, 1), (35, 10, 0), (0, 2, 1)],
)
def test_the_batch_is_sized_as_the_seed_says(pending: int, workers: int, size: int) -> None:
    """A machine for every ten pods, at least one, at most two, never more than ten in total."""
    assert batch_size(pending, workers, POLICY) == size


def test_when_all_preconditions_hold_it_scales_down() -> None:
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
def test_if_one_precondition_fails_it_does_not_scale_down_and_says_which(look: Seen, rule: str) -> None:
    assert decided(look) == []
    assert verdict(look, rule) == "no"


@pytest.mark.parametrize("what", ["cpu", "pending", "kube"])
def test_an_unknown_reading_never_scales_down_and_says_so(what: str) -> None:
    look = replace(IDLE, **{what: AWAY})
    assert decided(look) == []
    names = {"cpu": "cpu_low", "pending": "nothing_waiting", "kube": "nodes_known"}
    assert verdict(look, names[what]) == "unknown"
    rule = next(r for r in decide(look, POLICY, CHOICES).rules if r.name == names[what])
    assert rule.value == "does not answer"


def test_unknown_cpu_or_pods_do_not_scale_up() -> None:
    assert decided(replace(BUSY, cpu=AWAY)) == []
    assert decided(replace(BUSY, pending=AWAY)) == []


def test_an_unknown_reading_resets_the_idle_timer_and_keeps_the_pending_timer() -> None:
    timers = decide(replace(IDLE, cpu=AWAY), POLICY, CHOICES).timers
    assert timers.idle_since is None
    kept = decide(replace(BUSY, pending=AWAY), POLICY, CHOICES).timers
    assert kept.pending_since == BUSY.state.timers.pending_since


# Timers are stored in whole seconds. The condition began at this fraction of one.


@pytest.mark.parametrize("began_ms", [0, 1, 250, 500, 999])
@pytest.mark.parametrize(
    ("look", "limit_seconds", "step"),
    [
        (replace(BUSY, pending=Known(PendingPods(25, 0.0), NOW)), 180, "begin_scale_up"),
        (IDLE, 600, "begin_scale_down"),
    ],
    ids=["pending", "idle"],
)
def test_a_limit_is_never_reached_early_and_less_than_a_second_late(
    look: Seen, limit_seconds: int, step: str, began_ms: int
) -> None:
    began = Instant(NOW.epoch_ms + began_ms)
    first = decide(with_state(replace(look, now=began), timers=Timers()), POLICY, CHOICES)
    assert step not in kinds(first)
    assert "0 s" in {rule.value for rule in first.rules}

    def steps_after(seconds: float) -> list[str]:
        return decided(with_state(replace(look, now=began.plus(seconds)), timers=first.timers))

    assert step not in steps_after(limit_seconds - 0.001)
    assert step in steps_after(limit_seconds + 0.999)


def test_a_timer_that_was_rounded_up_goes_on_at_once() -> None:
    """Its start is up to a second ahead. Further ahead, a clock had jumped, and it starts over."""
    began = Instant(NOW.epoch_ms + 1)
    first = decide(
        with_state(replace(BUSY, now=began, pending=Known(PendingPods(25, 0.0), NOW)), timers=Timers()), POLICY, CHOICES
    )
    assert first.timers.pending_since == NOW.plus(1)
    away = with_state(replace(BUSY, now=began, pending=AWAY), timers=first.timers)
    assert decide(away, POLICY, CHOICES).timers.pending_since == NOW.plus(1)
    jumped = with_state(replace(BUSY, now=NOW, pending=AWAY), timers=Timers(NOW.plus(1)))
    assert decide(jumped, POLICY, CHOICES).timers.pending_since is None


@pytest.mark.parametrize("workers", [0, 1])
def test_below_the_minimum_it_launches_whatever_the_readings(workers: int) -> None:
    look = replace(seen(workers, cpu=0.0, pending=0), cpu=AWAY, pending=AWAY)
    assert decided(look) == ["begin_scale_up"]
    assert decided(with_state(look, up_backoff_until=NOW.plus(1))) == []


def test_while_paused_nothing_new_starts() -> None:
    assert decided(replace(BUSY, is_paused=True)) == []
    assert decided(replace(IDLE, is_paused=True)) == []


def test_a_flag_without_an_action_is_repaired() -> None:
    assert decided(with_state(BUSY, is_flagged=True)) == ["repair"]


def test_an_observation_with_nothing_to_do_needs_no_lease() -> None:
    calm = seen(3, cpu=0.5, pending=0)
    calm = with_state(calm, timers=Timers(None, None, 3))
    plan = decide(calm, POLICY, CHOICES)
    assert plan.is_quiet(calm)


def test_the_plan_shows_every_rule_and_step_as_data() -> None:
    plan = decide(BUSY, POLICY, CHOICES)
    assert {"name", "group", "verdict", "value", "limit"} == set(plan.rules[0].shown())
    step = plan.steps[0].shown()
    assert len(plan.steps) == 1
    assert step["kind"] == "begin_scale_up"
    assert step["slots"][0] == {"s": "subnet-b", "z": "b", "m": "spot", "t": "t3.medium", "k": 0}


# Obstacles: the rules hold, and still nothing can be done


def obstacle(look: Seen, name: str) -> str:
    plan = decide(look, POLICY, CHOICES)
    assert plan.steps == ()
    (found,) = [rule for rule in plan.rules if rule.name == name]
    assert not found.holds
    return "; ".join(found.details) or found.value


def pod_on(number: int, **more: object) -> Pod:
    name = f"i-{number:08x}"
    return Pod("default", f"pod-{number}", f"uid-{number}", name, PodPhase.RUNNING, NOW, **more)  # type: ignore[arg-type]


def test_a_pause_is_given_as_a_reason() -> None:
    assert obstacle(replace(BUSY, is_paused=True), "not_paused") == "paused"


POOLS = [f"t3.medium|{zone}|{market}" for zone in "abc" for market in ("spot", "on-demand")]
NO_POOL = {pool: PoolFailure(1, NOW.plus(60)) for pool in POOLS}


def test_with_no_capacity_anywhere_it_says_where() -> None:
    reason = obstacle(replace(BUSY, failures=NO_POOL), "somewhere_to_launch")
    assert reason.startswith("no capacity in t3.medium|a|on-demand, t3.medium|a|spot")


def leaving(look: Seen) -> Seen:
    """EC2 gave notice to the first worker, whose node is cordoned and empty."""
    notice = SpotNotice(machine(0).id, SpotKind.INTERRUPTION, SpotPhase.DRAINED, NOW.plus(-30))
    return replace(look, notices={notice.instance: notice})


def test_a_replacement_that_no_pool_has_is_not_planned_and_the_reason_is_told_once() -> None:
    """Planning it would take the lease at every tick, and be logged as done."""
    plan = decide(replace(leaving(BUSY), failures=NO_POOL), POLICY, CHOICES)
    assert kinds(plan) == ["terminate_interrupted"]
    (found,) = [rule for rule in plan.rules if rule.name == "somewhere_to_launch"]
    assert found.value.startswith("no capacity in t3.medium|a|on-demand")
    assert found.details == ("the replacement of i-00000000 waits for it",)


def test_with_one_pool_left_a_replacement_is_planned() -> None:
    one_left = {pool: failure for pool, failure in NO_POOL.items() if pool != POOLS[0]}
    plan = decide(replace(leaving(BUSY), failures=one_left), POLICY, CHOICES)
    assert kinds(plan) == ["terminate_interrupted", "plan_replacement"]
    assert "somewhere_to_launch" not in {rule.name for rule in plan.rules}


def test_a_replacement_that_waits_for_a_pool_delays_no_scale_down() -> None:
    assert "begin_scale_down" in decided(replace(leaving(IDLE), failures=NO_POOL))


def test_with_no_free_address_it_says_where() -> None:
    full = tuple(Subnet(subnet.id, subnet.zone, 0) for subnet in BUSY.subnets)
    assert obstacle(replace(BUSY, subnets=full), "somewhere_to_launch") == (
        "no free address in subnet-a, subnet-b, subnet-c"
    )


def test_with_one_worker_left_in_each_zone_it_says_so() -> None:
    reason = obstacle(seen(3, cpu=0.1, pending=0), "a_worker_may_leave")
    assert reason.count("it is the last worker in ") == 3
    assert reason.count("it is the newest worker") == 1


def test_a_pod_that_keeps_its_node_is_named() -> None:
    view = KubeView(tuple(node(n) for n in range(6)), tuple(pod_on(n, controller="") for n in range(6)))
    reason = obstacle(replace(IDLE, kube=Known(view, NOW)), "a_worker_may_leave")
    assert reason.startswith("i-00000000: pod default/pod-0: it has no controller to recreate it; ")


class CountedPods(tuple[Pod, ...]):
    """Pods that count how often they are iterated over."""

    rounds = 0

    def __iter__(self) -> Iterator[Pod]:
        type(self).rounds += 1
        return super().__iter__()


def test_all_pods_are_iterated_as_often_for_many_workers_as_for_few() -> None:
    """When no worker may leave, each one is checked: by its own pods, not by all pods."""
    rounds = []
    for count in (6, 60):
        idle = seen(count, cpu=0.1, pending=0)
        pods = CountedPods(pod_on(n, controller="") for n in range(count))
        CountedPods.rounds = 0
        view = KubeView(tuple(node(n) for n in range(count)), pods)
        assert obstacle(replace(idle, kube=Known(view, NOW)), "a_worker_may_leave").startswith("i-00000000: ")
        rounds.append(CountedPods.rounds)
    assert rounds[0] == rounds[1]


def test_a_cluster_that_never_scaled_does_not_show_an_age_of_decades() -> None:
    rules = {rule.name: rule.value for rule in decide(BUSY, POLICY, CHOICES).rules}
    assert (rules["cooldown_up_over"], rules["cooldown_down_over"]) == ("never scaled", "never scaled")
