"""The cluster's rules, each declared once with its group and wording, and their verdicts. Pure.

To add a rule, declare its kind, add it to `RULE_KINDS`, and return its verdict from `scale_up_rules` or
`scale_down_rules`: the action needs all of them.
"""

from enum import StrEnum
from typing import Final

from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import Seen
from holdfast.cluster.state import Timers
from holdfast.control.rules import Rule, RuleKind, rule, unknown
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.readings import Unknown


class RuleGroup(StrEnum):
    """What a rule is a condition of."""

    ADD = "add"
    REMOVE = "remove"
    OTHER = "other"


# To add workers
CPU_HIGH: Final = RuleKind("cpu_high", RuleGroup.ADD, "CPU is high", "CPU is not high")
PODS_WAITING: Final = RuleKind("pods_waiting", RuleGroup.ADD, "pods are pending", "no pods are pending")
WAITING_LONG_ENOUGH: Final = RuleKind(
    "waiting_long_enough",
    RuleGroup.ADD,
    "pods have been pending long enough",
    "pods have not been pending long enough",
)
COOLDOWN_UP_OVER: Final = RuleKind(
    "cooldown_up_over", RuleGroup.ADD, "the cooldown is over", "the cooldown is not over"
)
BELOW_MAXIMUM: Final = RuleKind("below_maximum", RuleGroup.ADD, "below maximum workers", "at maximum workers")
NO_ACTION_UP: Final = RuleKind(
    "no_action_under_way", RuleGroup.ADD, "no other action is under way", "an action is under way"
)
NOT_BACKING_OFF: Final = RuleKind(
    "not_backing_off", RuleGroup.ADD, "not backing off", "backing off after a failed scale-up"
)

# To remove workers
CPU_LOW: Final = RuleKind("cpu_low", RuleGroup.REMOVE, "CPU is low", "CPU is not low")
NOTHING_WAITING: Final = RuleKind("nothing_waiting", RuleGroup.REMOVE, "no pods are pending", "pods are pending")
IDLE_LONG_ENOUGH: Final = RuleKind(
    "idle_long_enough",
    RuleGroup.REMOVE,
    "the cluster has been idle long enough",
    "the cluster has not been idle long enough",
)
COOLDOWN_DOWN_OVER: Final = RuleKind(
    "cooldown_down_over", RuleGroup.REMOVE, "the cooldown is over", "the cooldown is not over"
)
ABOVE_MINIMUM: Final = RuleKind("above_minimum", RuleGroup.REMOVE, "above minimum workers", "at minimum workers")
NODES_KNOWN: Final = RuleKind("nodes_known", RuleGroup.REMOVE, "the nodes are known", "the nodes are unknown")
NO_ACTION_DOWN: Final = RuleKind(
    "no_action_under_way", RuleGroup.REMOVE, "no other action is under way", "an action is under way"
)

# Obstacles: reported when the rules above alone would have led to an action
NOT_PAUSED: Final = RuleKind("not_paused", RuleGroup.OTHER, "not paused", "paused")
SOMEWHERE_TO_LAUNCH: Final = RuleKind(
    "somewhere_to_launch", RuleGroup.OTHER, "a pool has capacity", "no pool has capacity"
)
EVERY_POD_FITS: Final = RuleKind(
    "every_pod_fits", RuleGroup.OTHER, "every pending pod fits on a machine", "a pod fits on no machine"
)
A_WORKER_MAY_LEAVE: Final = RuleKind("a_worker_may_leave", RuleGroup.OTHER, "a worker may leave", "no worker may leave")
NOT_READY_REPLACED: Final = RuleKind(
    "not_ready_replaced", RuleGroup.OTHER, "no node stays NotReady", "a node stays NotReady"
)

RULE_KINDS: Final = {
    kind.name: kind
    for kind in (
        CPU_HIGH,
        PODS_WAITING,
        WAITING_LONG_ENOUGH,
        COOLDOWN_UP_OVER,
        BELOW_MAXIMUM,
        NO_ACTION_UP,
        NOT_BACKING_OFF,
        CPU_LOW,
        NOTHING_WAITING,
        IDLE_LONG_ENOUGH,
        COOLDOWN_DOWN_OVER,
        ABOVE_MINIMUM,
        NODES_KNOWN,
        NOT_PAUSED,
        SOMEWHERE_TO_LAUNCH,
        EVERY_POD_FITS,
        A_WORKER_MAY_LEAVE,
        NOT_READY_REPLACED,
    )
}
# A rule that cannot hold while another one fails: reporting the other one is enough.
FOLLOWS: Final = {
    WAITING_LONG_ENOUGH.name: frozenset({PODS_WAITING.name}),
    IDLE_LONG_ENOUGH.name: frozenset({CPU_LOW.name, NOTHING_WAITING.name}),
}
# With SCALE_UP_RULE=any one of these is enough: CPU alone, or pods that have been pending long enough.
PRESSURE: Final = frozenset({CPU_HIGH.name, PODS_WAITING.name, WAITING_LONG_ENOUGH.name})


def scale_up_rules(seen: Seen, policy: Policy, timers: Timers) -> tuple[Rule, ...]:
    state, workers = seen.state, seen.most_expected
    cooldown = seen.now.seconds_since(state.last_scale)
    waited = _seconds_run(timers.pending_since, seen)
    cpu_limit, pending_limit = f">= {policy.cpu_up:.2f}", ">= 1 pod"
    return (
        unknown(CPU_HIGH, seen.cpu, cpu_limit)
        if isinstance(seen.cpu, Unknown)
        else rule(CPU_HIGH, holds=seen.cpu.value >= policy.cpu_up, value=f"{seen.cpu.value:.2f}", limit=cpu_limit),
        unknown(PODS_WAITING, seen.pending, pending_limit)
        if isinstance(seen.pending, Unknown)
        else rule(
            PODS_WAITING, holds=seen.pending.value.count > 0, value=seen.pending.value.count, limit=pending_limit
        ),
        rule(
            WAITING_LONG_ENOUGH,
            holds=timers.pending_since is not None and waited >= policy.pending_up_seconds,
            value=f"{waited:.0f} s",
            limit=f">= {policy.pending_up_seconds} s",
        ),
        rule(
            COOLDOWN_UP_OVER,
            holds=cooldown >= policy.cooldown_up_seconds,
            value=_cooldown(seen),
            limit=f">= {policy.cooldown_up_seconds} s",
        ),
        rule(BELOW_MAXIMUM, holds=workers < policy.max_workers, value=workers, limit=f"< {policy.max_workers}"),
        rule(NO_ACTION_UP, holds=not state.is_acting, value=_action_name(seen), limit="none"),
        rule(
            NOT_BACKING_OFF,
            holds=seen.now >= state.up_backoff_until,
            value=f"{state.up_failures} failures",
            limit=f"until {state.up_backoff_until.iso_seconds()}" if state.up_failures else "none",
        ),
    )


def scale_down_rules(seen: Seen, policy: Policy, timers: Timers) -> tuple[Rule, ...]:
    workers = seen.expected
    idle = _seconds_run(timers.idle_since, seen)
    cooldown = seen.now.seconds_since(seen.state.last_scale)
    cpu_limit = f"< {policy.cpu_down:.2f}"
    return (
        unknown(CPU_LOW, seen.cpu, cpu_limit)
        if isinstance(seen.cpu, Unknown)
        else rule(CPU_LOW, holds=seen.cpu.value < policy.cpu_down, value=f"{seen.cpu.value:.2f}", limit=cpu_limit),
        unknown(NOTHING_WAITING, seen.pending, "0 pods")
        if isinstance(seen.pending, Unknown)
        else rule(NOTHING_WAITING, holds=seen.pending.value.count == 0, value=seen.pending.value.count, limit="0 pods"),
        rule(
            IDLE_LONG_ENOUGH,
            holds=timers.idle_since is not None and idle >= policy.idle_down_seconds,
            value=f"{idle:.0f} s",
            limit=f">= {policy.idle_down_seconds} s",
        ),
        rule(
            COOLDOWN_DOWN_OVER,
            holds=cooldown >= policy.cooldown_down_seconds,
            value=_cooldown(seen),
            limit=f">= {policy.cooldown_down_seconds} s",
        ),
        rule(ABOVE_MINIMUM, holds=workers > policy.min_workers, value=workers, limit=f"> {policy.min_workers}"),
        unknown(NODES_KNOWN, seen.kube, "a fresh list")
        if isinstance(seen.kube, Unknown)
        else rule(NODES_KNOWN, holds=True, value=f"{len(seen.kube.value.nodes)} nodes", limit="a fresh list"),
        rule(NO_ACTION_DOWN, holds=not seen.state.is_acting, value=_action_name(seen), limit="none"),
    )


def impossible_pod_rules(seen: Seen) -> tuple[Rule, ...]:
    """Names the pods that no machine could hold. They neither start a scale-up nor block a scale-down."""
    if not seen.impossible:
        return ()
    value, lines = some(len(seen.impossible), "pod"), [str(pod) for pod in seen.impossible]
    return (rule(EVERY_POD_FITS, holds=False, value=value, limit="0 pods", details=lines),)


def _seconds_run(since: Instant | None, seen: Seen) -> float:
    """How long a timer has run. One that has just started was rounded up, and may begin within the next second."""
    return max(0.0, seen.now.seconds_since(since)) if since is not None else 0.0


def _cooldown(seen: Seen) -> str:
    last = seen.state.last_scale
    return f"{seen.now.seconds_since(last):.0f} s" if last.epoch_ms else "never scaled"


def _action_name(seen: Seen) -> str:
    if seen.state.up is not None:
        return f"scale-up {seen.state.up.action}"
    return f"scale-down {seen.state.down.action}" if seen.state.down is not None else "none"
