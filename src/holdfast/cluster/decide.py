"""Decide what to do next from what a tick observed, with the reasons. Pure.

An action under way is resumed before a new one begins. The plan has every rule's verdict, even when there is nothing
to do.
"""

from collections.abc import Iterable, Iterator, Sequence
from math import ceil
from typing import Final

from holdfast.cluster import rules
from holdfast.cluster.plan import ClusterPlan
from holdfast.cluster.policy import Choices, Policy, Rebalance, ScaleUpRule
from holdfast.cluster.scaling import scale_down, scale_up
from holdfast.cluster.scaling.placement import targets
from holdfast.cluster.scaling.protections import in_service, newest_of, own_protections, protections
from holdfast.cluster.seen import Seen
from holdfast.cluster.spot.notice import SpotKind
from holdfast.cluster.spot.workflow import notice_steps
from holdfast.cluster.state import Timers
from holdfast.cluster.steps import BeginScaleDown, BeginScaleUp, ClusterStep, PlanReplacement
from holdfast.cluster.sweeping.legacy import future_time_steps, leftover_steps
from holdfast.cluster.sweeping.lost_state import raise_counters_steps
from holdfast.cluster.sweeping.sweep import accept_again_steps, not_ready_rules, not_ready_workers, orphans, sweep_steps
from holdfast.control.rules import Rule, rule
from holdfast.fleet.options import launch_options
from holdfast.fleet.slots import Slot
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown

_NAMED_MOST: Final = 3


def decide(seen: Seen, policy: Policy, choices: Choices) -> ClusterPlan:
    timers = next_timers(seen, policy)
    up_rules, down_rules = rules.scale_up_rules(seen, policy, timers), rules.scale_down_rules(seen, policy, timers)
    notices = [step for notice in seen.notices.values() for step in notice_steps(notice, seen, policy, choices.drain)]
    replacing, without_room = _replacements(seen, choices, notices)
    scaling, obstacles = _scaling(seen, policy, choices, up_rules, down_rules)
    lost = not_ready_workers(seen, policy)
    swept = sweep_steps(seen, policy, choices.drain, lost)
    repairs = (*future_time_steps(seen), *accept_again_steps(seen))
    steps = (*raise_counters_steps(seen), *replacing, *repairs, *scaling, *swept)
    impossible = rules.impossible_pod_rules(seen)
    lasting = not_ready_rules(seen, policy, choices.drain, lost)
    # Without a pool, a scale-up and a replacement have the same obstacle: it is told once, with who waits.
    told = {obstacle.name: obstacle for obstacle in (*obstacles, *without_room)}
    verdicts = (*up_rules, *down_rules, *told.values(), *impossible, *lasting)
    return ClusterPlan(verdicts, tuple(_one_change_of_size(steps)), timers)


def _replacements(seen: Seen, choices: Choices, notices: Sequence[ClusterStep]) -> tuple[list[ClusterStep], list[Rule]]:
    """The steps without replacements that no pool has a machine for, and the rule that names those."""
    waiting = [step.instance for step in notices if isinstance(step, PlanReplacement)]
    if not waiting or plan_slots(seen, choices, 1):
        return list(notices), []
    details = [f"the replacement of {instance} waits for it" for instance in waiting]
    possible: list[ClusterStep] = [step for step in notices if not isinstance(step, PlanReplacement)]
    return possible, [_nowhere_to_launch(seen, details)]


def _one_change_of_size(steps: Iterable[ClusterStep]) -> Iterator[ClusterStep]:
    """Keep only the first step that changes the number of machines: the next one depends on its result."""
    is_changed = False
    for step in steps:
        if isinstance(step, (PlanReplacement, BeginScaleUp, BeginScaleDown)):
            if is_changed:
                continue
            is_changed = True
        yield step


def _scaling(
    seen: Seen, policy: Policy, choices: Choices, up_rules: Sequence[Rule], down_rules: Sequence[Rule]
) -> tuple[list[ClusterStep], list[Rule]]:
    """The steps, and the obstacles to an action that the rules alone would have allowed."""
    state = seen.state
    left = list(leftover_steps(seen))
    if left:
        return left, []
    if state.up is not None:
        return list(scale_up.next_steps(state.up, seen, policy)), []
    if state.down is not None:
        return list(scale_down.next_steps(state.down, seen, policy, choices.drain)), []
    if seen.is_paused:
        return [], [rule(rules.NOT_PAUSED, holds=False, value="paused", limit="not paused")]
    wanted, because = machines_wanted(seen, policy, up_rules)
    if wanted:
        slots = plan_slots(seen, choices, wanted)
        return ([BeginScaleUp(slots=slots, because=because)], []) if slots else ([], [_nowhere_to_launch(seen)])
    if all(r.holds for r in down_rules):
        return _scale_down(seen, policy, choices)
    return [], []


# Scale-up


def machines_wanted(seen: Seen, policy: Policy, up_rules: Sequence[Rule]) -> tuple[int, str]:
    """How many machines to launch now, and why. Below the minimum, only a back-off delays the launch."""
    # An orphan never came into service, so it is not a worker. But it runs, so it counts toward the maximum.
    workers = seen.expected - len(orphans(seen, policy))
    missing = min(policy.min_workers - workers, policy.max_batch_up, policy.max_workers - seen.most_expected)
    if missing > 0 and seen.now >= seen.state.up_backoff_until:
        return missing, f"{some(workers, 'worker')}, below the minimum of {policy.min_workers}"
    if not _go_up(up_rules, policy.scale_up_rule):
        return 0, ""
    pending = 0 if isinstance(seen.pending, Unknown) else seen.pending.value.count
    wanted = batch_size(pending, seen.most_expected, policy)
    return wanted, f"{some(pending, 'pod')} pending with {some(seen.expected, 'worker')}"


def batch_size(pending_pods: int, workers: int, policy: Policy) -> int:
    """The seed's sizing: one machine per PODS_PER_NODE pods, from 1 to MAX_BATCH_UP, and never above MAX_WORKERS."""
    wanted = max(1, ceil(pending_pods / policy.pods_per_node))
    return max(0, min(wanted, policy.max_batch_up, policy.max_workers - workers))


def _go_up(up_rules: Sequence[Rule], how: ScaleUpRule) -> bool:
    held = {rule.name for rule in up_rules if rule.holds}
    cpu = rules.CPU_HIGH.name in held
    pending = {rules.PODS_WAITING.name, rules.WAITING_LONG_ENOUGH.name} <= held
    pressure = (cpu and pending) if how is ScaleUpRule.ALL else (cpu or pending)
    return pressure and all(rule.holds for rule in up_rules if rule.name not in rules.PRESSURE)


def plan_slots(seen: Seen, choices: Choices, count: int) -> tuple[Slot, ...]:
    """Put each slot into the emptiest zone, counting the slots before it."""
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
        slots.append(Slot.of(best))
    return tuple(slots)


def _nowhere_to_launch(seen: Seen, details: Sequence[str] = ()) -> Rule:
    failing = sorted(pool for pool, failure in seen.failures.items() if seen.now < failure.until)
    full = sorted(subnet.id for subnet in seen.subnets if subnet.free_addresses < 1)
    why = [f"no capacity in {', '.join(failing[:_NAMED_MOST])}"] if failing else []
    why += [f"no free address in {', '.join(full[:_NAMED_MOST])}"] if full else []
    value = "; ".join(why) or "no subnet"
    return rule(rules.SOMEWHERE_TO_LAUNCH, holds=False, value=value, limit=">= 1 pool", details=details)


# Scale-down


def _scale_down(seen: Seen, policy: Policy, choices: Choices) -> tuple[list[ClusterStep], list[Rule]]:
    serving = in_service(seen)
    newest, serving_ids = newest_of(serving), {worker.id for worker in serving}
    spare = len(serving) - policy.min_workers
    chosen = targets(
        serving,
        min(policy.max_batch_down, spare),
        lambda worker: not own_protections(seen, worker, newest, policy, choices.drain),
        policy.zones_kept,
        _preferred(seen, policy),
        [worker for worker in seen.staying if worker.id not in serving_ids],
    )
    if not chosen:
        return [], [_no_worker_may_leave(seen, policy, choices)]
    because = f"the cluster is idle with {seen.expected} workers, above the minimum of {policy.min_workers}"
    return [BeginScaleDown(targets=chosen, because=because)], []


def _no_worker_may_leave(seen: Seen, policy: Policy, choices: Choices) -> Rule:
    held = protections(seen, policy, choices.drain)
    return rule(
        rules.A_WORKER_MAY_LEAVE,
        holds=False,
        value=f"0 of {some(len(held), 'worker')}",
        limit=">= 1 worker",
        details=[str(worker) for worker in held],
    )


def _preferred(seen: Seen, policy: Policy) -> frozenset[InstanceId]:
    """The workers that EC2 may reclaim soon, according to its rebalance recommendations."""
    if policy.rebalance is not Rebalance.PREFER:
        return frozenset()
    return frozenset(notice.instance for notice in seen.notices.values() if notice.kind is SpotKind.REBALANCE)


# Time


def next_timers(seen: Seen, policy: Policy) -> Timers:
    """The timers after this look. An unknown reading keeps the pending timer running, and resets the idle timer."""
    return Timers(_pending_since(seen), _idle_since(seen, policy), seen.counted)


def _pending_since(seen: Seen) -> Instant | None:
    since = _past(seen.state.timers.pending_since, seen.now)
    if isinstance(seen.pending, Unknown):
        return since
    if seen.pending.value.count == 0:
        return None
    # Without Kubernetes the oldest pod may be one that no machine could hold: a short outage must not launch for it.
    waited = 0.0 if isinstance(seen.kube, Unknown) else seen.pending.value.oldest_seconds
    return since or _timer_from(seen.now.plus(-waited))


def _idle_since(seen: Seen, policy: Policy) -> Instant | None:
    if isinstance(seen.cpu, Unknown) or isinstance(seen.pending, Unknown):
        return None
    if seen.cpu.value >= policy.cpu_down or seen.pending.value.count > 0:
        return None
    return _past(seen.state.timers.idle_since, seen.now) or _timer_from(seen.now)


def _timer_from(moment: Instant) -> Instant:
    """Whole seconds, as stored: a timer that is written and read back must not look changed.

    Rounded up: a limit is never reached early.
    """
    return Instant.from_epoch_seconds(ceil(moment.epoch_ms / 1000))


def _past(since: Instant | None, now: Instant) -> Instant | None:
    """None if `since` is in the future, by more than it was rounded: a clock had jumped, and the timer starts over."""
    return since if since is not None and since < now.plus(1) else None
