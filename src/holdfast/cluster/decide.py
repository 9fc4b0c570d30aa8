"""Decide: from what is seen, what to do next, and why, or why not. Pure.

An action under way is carried on before anything new is begun. Each rule's verdict is part of the plan, also when
nothing is done.
"""

from collections.abc import Sequence
from math import ceil

from holdfast.cluster import scale_down, scale_up
from holdfast.cluster.choices import Choices
from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.placement import targets
from holdfast.cluster.plan import Plan
from holdfast.cluster.policy import Policy, Rebalance, ScaleUpRule
from holdfast.cluster.rules import Rule, rule, unknown
from holdfast.cluster.seen import Seen, Worker
from holdfast.cluster.spot import SpotKind, notice_steps
from holdfast.cluster.state import Slot, Timers
from holdfast.cluster.steps import BeginScaleDown, BeginScaleUp, Repair, Step
from holdfast.cluster.sweep import sweep_steps
from holdfast.fleet.options import launch_options
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.readings import Unknown


def decide(seen: Seen, policy: Policy, choices: Choices) -> Plan:
    timers = next_timers(seen, policy)
    up_rules, down_rules = scale_up_rules(seen, policy, timers), scale_down_rules(seen, policy, timers)
    rules = (*up_rules, *down_rules)
    notices = (step for notice in seen.notices.values() for step in notice_steps(notice, seen, policy, choices.drain))
    steps = (*notices, *_steps(seen, policy, choices, up_rules, down_rules), *sweep_steps(seen, policy))
    return Plan(rules, steps, timers)


def _steps(
    seen: Seen, policy: Policy, choices: Choices, up_rules: Sequence[Rule], down_rules: Sequence[Rule]
) -> list[Step]:
    state = seen.state
    if state.up is not None:
        return list(scale_up.next_steps(state.up, seen, policy))
    if state.down is not None:
        return list(scale_down.next_steps(state.down, seen, policy, choices.drain))
    if state.is_flagged:
        return [Repair(attributes=("scalingInProgress",), because="the flag is set, and no action is under way")]
    if seen.is_paused:
        return []
    wanted, because = machines_wanted(seen, policy, up_rules)
    if wanted:
        slots = plan_slots(seen, choices, wanted)
        return [BeginScaleUp(slots=slots, because=because)] if slots else []
    if all(r.holds for r in down_rules):
        return _scale_down(seen, policy, choices)
    return []


# Going up


def machines_wanted(seen: Seen, policy: Policy, up_rules: Sequence[Rule]) -> tuple[int, str]:
    """How many machines to launch now, and why. Below the minimum, only a back-off holds it back."""
    missing = policy.min_workers - seen.expected
    if missing > 0 and seen.now >= seen.state.up_backoff_until:
        return min(missing, policy.max_batch_up), f"{seen.expected} workers, and the minimum is {policy.min_workers}"
    if not _go_up(up_rules, policy.scale_up_rule):
        return 0, ""
    pending = 0 if isinstance(seen.pending, Unknown) else seen.pending.value.count
    wanted = batch_size(pending, seen.expected, policy)
    return wanted, f"{pending} pods wait, and {seen.expected} workers are too few for them"


def batch_size(pending_pods: int, workers: int, policy: Policy) -> int:
    """The seed's sizing: a machine for every PODS_PER_NODE pods; at least one, at most MAX_BATCH_UP, never too many."""
    wanted = max(1, ceil(pending_pods / policy.pods_per_node))
    return max(0, min(wanted, policy.max_batch_up, policy.max_workers - workers))


def scale_up_rules(seen: Seen, policy: Policy, timers: Timers) -> tuple[Rule, ...]:
    state, workers = seen.state, seen.expected
    cooldown = seen.now.seconds_since(state.last_scale)
    waited = seen.now.seconds_since(timers.pending_since) if timers.pending_since else 0
    cpu_limit, pending_limit = f">= {policy.cpu_up:.2f}", ">= 1 pod"
    return (
        unknown("cpu_high", seen.cpu, cpu_limit)
        if isinstance(seen.cpu, Unknown)
        else rule("cpu_high", holds=seen.cpu.value >= policy.cpu_up, value=f"{seen.cpu.value:.2f}", limit=cpu_limit),
        unknown("pods_waiting", seen.pending, pending_limit)
        if isinstance(seen.pending, Unknown)
        else rule(
            "pods_waiting", holds=seen.pending.value.count > 0, value=seen.pending.value.count, limit=pending_limit
        ),
        rule(
            "waiting_long_enough",
            holds=timers.pending_since is not None and waited >= policy.pending_up_seconds,
            value=f"{waited:.0f} s",
            limit=f">= {policy.pending_up_seconds} s",
        ),
        rule(
            "cooldown_up_over",
            holds=cooldown >= policy.cooldown_up_seconds,
            value=f"{cooldown:.0f} s",
            limit=f">= {policy.cooldown_up_seconds} s",
        ),
        rule("below_maximum", holds=workers < policy.max_workers, value=workers, limit=f"< {policy.max_workers}"),
        rule("no_action_under_way", holds=not state.is_acting, value=_action_name(seen), limit="none"),
        rule(
            "not_backing_off",
            holds=seen.now >= state.up_backoff_until,
            value=f"{state.up_failures} failures",
            limit=f"until {state.up_backoff_until.iso_seconds()}" if state.up_failures else "none",
        ),
    )


def _go_up(rules: Sequence[Rule], how: ScaleUpRule) -> bool:
    by_name = {r.name: r.holds for r in rules}
    cpu = by_name.pop("cpu_high")
    pending = by_name.pop("pods_waiting") and by_name.pop("waiting_long_enough")
    by_name.pop("waiting_long_enough", None)
    pressure = (cpu and pending) if how is ScaleUpRule.ALL else (cpu or pending)
    return pressure and all(by_name.values())


def plan_slots(seen: Seen, choices: Choices, count: int) -> tuple[Slot, ...]:
    """One slot after the other, each into the zone that is emptiest once those before it are counted."""
    fill = seen.fill.copy()
    slots: list[Slot] = []
    for _ in range(count):
        options = launch_options(
            choices.instance_types, seen.subnets, fill, seen.failures, seen.now, spot=choices.use_spot
        )
        if not options:
            break
        best = options[0]
        fill[best.zone] += 1
        slots.append(Slot(best.subnet_id, best.zone, best.market, best.instance_type))
    return tuple(slots)


# Going down


def scale_down_rules(seen: Seen, policy: Policy, timers: Timers) -> tuple[Rule, ...]:
    workers = seen.expected
    idle = seen.now.seconds_since(timers.idle_since) if timers.idle_since else 0
    cooldown = seen.now.seconds_since(seen.state.last_scale)
    cpu_limit = f"< {policy.cpu_down:.2f}"
    return (
        unknown("cpu_low", seen.cpu, cpu_limit)
        if isinstance(seen.cpu, Unknown)
        else rule("cpu_low", holds=seen.cpu.value < policy.cpu_down, value=f"{seen.cpu.value:.2f}", limit=cpu_limit),
        unknown("nothing_waiting", seen.pending, "0 pods")
        if isinstance(seen.pending, Unknown)
        else rule(
            "nothing_waiting", holds=seen.pending.value.count == 0, value=seen.pending.value.count, limit="0 pods"
        ),
        rule(
            "idle_long_enough",
            holds=timers.idle_since is not None and idle >= policy.idle_down_seconds,
            value=f"{idle:.0f} s",
            limit=f">= {policy.idle_down_seconds} s",
        ),
        rule(
            "cooldown_down_over",
            holds=cooldown >= policy.cooldown_down_seconds,
            value=f"{cooldown:.0f} s",
            limit=f">= {policy.cooldown_down_seconds} s",
        ),
        rule("above_minimum", holds=workers > policy.min_workers, value=workers, limit=f"> {policy.min_workers}"),
        unknown("nodes_known", seen.kube, "a fresh list")
        if isinstance(seen.kube, Unknown)
        else rule("nodes_known", holds=True, value=f"{len(seen.kube.value.nodes)} nodes", limit="a fresh list"),
        rule("no_action_under_way", holds=not seen.state.is_acting, value=_action_name(seen), limit="none"),
    )


def _scale_down(seen: Seen, policy: Policy, choices: Choices) -> list[Step]:
    spare = len(seen.staying) - policy.min_workers
    chosen = targets(
        [worker for worker in seen.staying if worker.is_accepted],
        min(policy.max_batch_down, spare),
        lambda worker: _may_leave(seen, worker, choices.drain),
        _preferred(seen, policy),
    )
    if not chosen:
        return []
    because = f"the cluster has idled, and {seen.expected} workers are more than the minimum of {policy.min_workers}"
    return [BeginScaleDown(targets=chosen, because=because)]


def _preferred(seen: Seen, policy: Policy) -> frozenset[InstanceId]:
    """Those that EC2 hinted it may take soon."""
    if policy.rebalance is not Rebalance.PREFER:
        return frozenset()
    return frozenset(notice.instance for notice in seen.notices.values() if notice.kind is SpotKind.REBALANCE)


def _may_leave(seen: Seen, worker: Worker, rules: DrainRules) -> bool:
    """Not one that could not be drained lately, nor one that a pod forbids to drain now."""
    if worker.node is None or isinstance(seen.kube, Unknown):
        return False
    if seen.now < seen.undrainable.get(worker.id, seen.now):
        return False
    pods = (pod for pod in seen.kube.value.pods if pod.node == worker.node.name)
    return drain_view(pods, rules).blocked_by is None


# Time


def next_timers(seen: Seen, policy: Policy) -> Timers:
    """What the timers should be after this look. What is unknown leaves pods waiting, and ends idling."""
    return Timers(_pending_since(seen), _idle_since(seen, policy), len(seen.staying))


def _pending_since(seen: Seen) -> Instant | None:
    since = seen.state.timers.pending_since
    if isinstance(seen.pending, Unknown):
        return since
    if seen.pending.value.count == 0:
        return None
    # Whole seconds, as stored: a timer that is written and read back must not look changed.
    oldest = Instant.from_epoch_seconds(seen.now.plus(-seen.pending.value.oldest_seconds).epoch_seconds)
    return since or oldest


def _idle_since(seen: Seen, policy: Policy) -> Instant | None:
    if isinstance(seen.cpu, Unknown) or isinstance(seen.pending, Unknown):
        return None
    if seen.cpu.value >= policy.cpu_down or seen.pending.value.count > 0:
        return None
    return seen.state.timers.idle_since or Instant.from_epoch_seconds(seen.now.epoch_seconds)


def _action_name(seen: Seen) -> str:
    if seen.state.up is not None:
        return f"scale-up {seen.state.up.action}"
    return f"scale-down {seen.state.down.action}" if seen.state.down is not None else "none"
