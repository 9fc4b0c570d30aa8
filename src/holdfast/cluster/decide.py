"""Decide: from what is seen, what to do next, and why, or why not. Pure.

An action under way is carried on before anything new is begun. Each rule's verdict is part of the plan, also when
nothing is done.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Final

from holdfast.cluster import scale_down, scale_up
from holdfast.cluster.ahead import ahead_steps
from holdfast.cluster.choices import Choices
from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.legacy import clock_steps, left_steps
from holdfast.cluster.placement import leaving_order, targets
from holdfast.cluster.plan import Plan
from holdfast.cluster.policy import Policy, Rebalance, ScaleUpRule
from holdfast.cluster.rules import Rule, rule, unknown
from holdfast.cluster.seen import Seen, Worker
from holdfast.cluster.spot import SpotKind, notice_steps
from holdfast.cluster.state import Slot, Timers
from holdfast.cluster.steps import BeginScaleDown, BeginScaleUp, PlanReplacement, Step
from holdfast.cluster.sweep import lost_workers, not_ready_rules, orphans, sweep_steps
from holdfast.fleet.options import launch_options
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown

_NAMED_MOST: Final = 3


def decide(seen: Seen, policy: Policy, choices: Choices) -> Plan:
    timers = next_timers(seen, policy)
    up_rules, down_rules = scale_up_rules(seen, policy, timers), scale_down_rules(seen, policy, timers)
    notices = (step for notice in seen.notices.values() for step in notice_steps(notice, seen, policy, choices.drain))
    scaling, obstacles = _scaling(seen, policy, choices, up_rules, down_rules)
    lost = lost_workers(seen, policy)
    swept = sweep_steps(seen, policy, choices.drain, lost)
    steps = (*ahead_steps(seen), *notices, *clock_steps(seen), *scaling, *swept)
    rules = (*up_rules, *down_rules, *obstacles, *not_ready_rules(seen, policy, choices.drain, lost))
    return Plan(rules, tuple(_one_promise(steps)), timers)


def _one_promise(steps: Iterable[Step]) -> Iterator[Step]:
    """Of the steps that change how many machines there will be, only the first: the next is counted anew after it."""
    promised = False
    for step in steps:
        if isinstance(step, (PlanReplacement, BeginScaleUp, BeginScaleDown)):
            if promised:
                continue
            promised = True
        yield step


def _scaling(
    seen: Seen, policy: Policy, choices: Choices, up_rules: Sequence[Rule], down_rules: Sequence[Rule]
) -> tuple[list[Step], list[Rule]]:
    """The steps, and what stood in their way where the rules alone would have had it otherwise."""
    state = seen.state
    left = list(left_steps(seen))
    if left:
        return left, []
    if state.up is not None:
        return list(scale_up.next_steps(state.up, seen, policy)), []
    if state.down is not None:
        return list(scale_down.next_steps(state.down, seen, policy, choices.drain)), []
    if seen.is_paused:
        return [], [rule("not_paused", holds=False, value="paused", limit="not paused")]
    wanted, because = machines_wanted(seen, policy, up_rules)
    if wanted:
        slots = plan_slots(seen, choices, wanted)
        return ([BeginScaleUp(slots=slots, because=because)], []) if slots else ([], [_nowhere_to_launch(seen)])
    if all(r.holds for r in down_rules):
        return _scale_down(seen, policy, choices)
    return [], []


# Going up


def machines_wanted(seen: Seen, policy: Policy, up_rules: Sequence[Rule]) -> tuple[int, str]:
    """How many machines to launch now, and why. Below the minimum, only a back-off holds it back."""
    # What never came into service and belongs to nobody is no worker; but it runs, so it counts for the maximum.
    workers = seen.expected - len(orphans(seen, policy))
    missing = min(policy.min_workers - workers, policy.max_batch_up, policy.max_workers - seen.most_expected)
    if missing > 0 and seen.now >= seen.state.up_backoff_until:
        return missing, f"{workers} workers, and the minimum is {policy.min_workers}"
    if not _go_up(up_rules, policy.scale_up_rule):
        return 0, ""
    pending = 0 if isinstance(seen.pending, Unknown) else seen.pending.value.count
    wanted = batch_size(pending, seen.most_expected, policy)
    verb = "waits" if pending == 1 else "wait"
    return wanted, f"{some(pending, 'pod')} {verb} for a place beside {some(seen.expected, 'worker')}"


def batch_size(pending_pods: int, workers: int, policy: Policy) -> int:
    """The seed's sizing: a machine for every PODS_PER_NODE pods; at least one, at most MAX_BATCH_UP, never too many."""
    wanted = max(1, ceil(pending_pods / policy.pods_per_node))
    return max(0, min(wanted, policy.max_batch_up, policy.max_workers - workers))


def scale_up_rules(seen: Seen, policy: Policy, timers: Timers) -> tuple[Rule, ...]:
    state, workers = seen.state, seen.most_expected
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
            value=_cooldown(seen),
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


def _nowhere_to_launch(seen: Seen) -> Rule:
    tired = sorted(pool for pool, failure in seen.failures.items() if seen.now < failure.until)
    full = sorted(subnet.id for subnet in seen.subnets if subnet.free_addresses < 1)
    why = [f"no capacity in {', '.join(tired[:_NAMED_MOST])}"] if tired else []
    why += [f"no free address in {', '.join(full[:_NAMED_MOST])}"] if full else []
    return rule("somewhere_to_launch", holds=False, value="; ".join(why) or "no subnet", limit=">= 1 pool")


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
            value=_cooldown(seen),
            limit=f">= {policy.cooldown_down_seconds} s",
        ),
        rule("above_minimum", holds=workers > policy.min_workers, value=workers, limit=f"> {policy.min_workers}"),
        unknown("nodes_known", seen.kube, "a fresh list")
        if isinstance(seen.kube, Unknown)
        else rule("nodes_known", holds=True, value=f"{len(seen.kube.value.nodes)} nodes", limit="a fresh list"),
        rule("no_action_under_way", holds=not seen.state.is_acting, value=_action_name(seen), limit="none"),
    )


def _scale_down(seen: Seen, policy: Policy, choices: Choices) -> tuple[list[Step], list[Rule]]:
    # Those that carry pods only: machines that are still on their way, or NotReady, may never do so (again).
    in_service = [worker for worker in seen.staying if worker.is_accepted and worker.is_ready]
    spare = len(in_service) - policy.min_workers
    preferred = _preferred(seen, policy)
    chosen = targets(
        in_service,
        min(policy.max_batch_down, spare),
        lambda worker: _why_stays(seen, worker, choices.drain) is None,
        preferred,
    )
    if not chosen:
        return [], [_nobody_may_leave(seen, leaving_order(in_service, preferred), choices.drain, spare)]
    because = f"the cluster has idled, and {seen.expected} workers are more than the minimum of {policy.min_workers}"
    return [BeginScaleDown(targets=chosen, because=because)], []


def _nobody_may_leave(seen: Seen, order: Sequence[Worker], rules: DrainRules, spare: int) -> Rule:
    if spare < 1:
        why = "too few are in service yet"
    elif not order:
        why = "the newest stays, and so does the last one of each zone"
    else:
        reasons = ((worker.id, _why_stays(seen, worker, rules)) for worker in order)
        why = "; ".join([f"{name}: {reason}" for name, reason in reasons if reason][:_NAMED_MOST])
    return rule("a_worker_may_leave", holds=False, value=why, limit=">= 1 worker")


def _preferred(seen: Seen, policy: Policy) -> frozenset[InstanceId]:
    """Those that EC2 hinted it may take soon."""
    if policy.rebalance is not Rebalance.PREFER:
        return frozenset()
    return frozenset(notice.instance for notice in seen.notices.values() if notice.kind is SpotKind.REBALANCE)


def _why_stays(seen: Seen, worker: Worker, rules: DrainRules) -> str | None:
    """Why it cannot leave: it could not be drained lately, or a pod forbids it now. None if it can."""
    if worker.node is None or isinstance(seen.kube, Unknown):
        return "its node is not known"
    if seen.is_undrainable(worker.id):
        return "it could not be drained lately"
    return drain_view(seen.pods_of(worker), rules).blocked_by


# Time


def _cooldown(seen: Seen) -> str:
    last = seen.state.last_scale
    return f"{seen.now.seconds_since(last):.0f} s" if last.epoch_ms else "never scaled"


def next_timers(seen: Seen, policy: Policy) -> Timers:
    """What the timers should be after this look. What is unknown leaves pods waiting, and ends idling."""
    return Timers(_pending_since(seen), _idle_since(seen, policy), len(seen.staying))


def _pending_since(seen: Seen) -> Instant | None:
    since = _past(seen.state.timers.pending_since, seen.now)
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
    since = _past(seen.state.timers.idle_since, seen.now)
    return since or Instant.from_epoch_seconds(seen.now.epoch_seconds)


def _past(since: Instant | None, now: Instant) -> Instant | None:
    """A timer that began in the future was set by a clock that had jumped: it begins anew."""
    return since if since is not None and since <= now else None


def _action_name(seen: Seen) -> str:
    if seen.state.up is not None:
        return f"scale-up {seen.state.up.action}"
    return f"scale-down {seen.state.down.action}" if seen.state.down is not None else "none"
