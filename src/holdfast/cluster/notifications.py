"""The cluster's notifications to operators: important steps, unknown readings, and EC2's refusals."""

from collections.abc import Iterator
from typing import Any

from holdfast.cluster.plan import TickResult
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import Seen
from holdfast.control.notifications import PATIENCE_SECONDS, Announcement, announcement_of_step
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import MachineError
from holdfast.ports.notify import Notification
from holdfast.ports.readings import Reading, Unknown


def announcements_of(result: TickResult) -> list[Announcement]:
    """The announcements that follow from a tick."""
    done = [announcement_of_step(step, result.seen.now) for step in result.done]
    readings: dict[str, Reading[Any]] = {
        "CPU use": result.seen.cpu,
        "pending pods": result.seen.pending,
        "Kubernetes": result.seen.kube,
    }
    unknown = [_of_unknown(what, reading) for what, reading in readings.items() if isinstance(reading, Unknown)]
    is_stuck = result.stopped and "lease held by" not in result.stopped
    stuck = [_of_stopped(result.stopped)] if result.stopped and is_stuck else []
    return [found for found in done if found] + [Announcement(n) for n in result.notifications] + unknown + stuck


def announcement_of_queue_error(error: HoldfastError) -> Announcement:
    """EC2's events cannot be read, so spot interruptions go unnoticed."""
    text = f"{error}; until it is fixed, EC2 may reclaim a spot machine without a drain"
    notice = Notification("events_unread", "queue", "EC2 events cannot be read", text, is_urgent=True)
    return Announcement(notice, 0 if isinstance(error, NeedsOperator) else PATIENCE_SECONDS)


def announcement_of_no_dead_letters(queue: str) -> Announcement:
    text = (
        f"{queue} has no dead-letter queue: an event that cannot be handled is redelivered until it expires and is "
        "lost; give it a RedrivePolicy, as docs/cluster.md shows"
    )
    return Announcement(Notification("no_dead_letters", "queue", "The event queue has no dead-letter queue", text))


def _of_stopped(reason: str) -> Announcement:
    notification = Notification("stopped", "tick", "Ticks are cut short", reason, is_urgent=True)
    return Announcement(notification, PATIENCE_SECONDS)


def _of_unknown(what: str, reading: Unknown) -> Announcement:
    text = f"{reading.why}; no scaling decision is based on it until it is known again"
    return Announcement(Notification("unknown", what, f"{what}: unknown", text), PATIENCE_SECONDS)


def refused_terminations(instance: InstanceId, error: MachineError) -> Iterator[Notification]:
    """A termination that EC2 refuses until a person acts; nothing if a retry may help."""
    ruling = ruling_on(error.code)
    if ruling.verdict is Ec2Verdict.OPERATOR:
        text = f"EC2 refuses to terminate {instance}: {error}; {ruling.remedy}"
        yield Notification("termination_refused", instance, "A machine cannot be terminated", text, is_urgent=True)


def refused_replacement(instance: InstanceId, error: MachineError) -> Notification:
    remedy = ruling_on(error.code).remedy
    text = f"{instance} could not be replaced: {error}{f'; {remedy}' if remedy else ''}"
    return Notification("replacement_refused", instance, "A leaving worker is not replaced", text, is_urgent=True)


def lasting_actions(seen: Seen, policy: Policy) -> Iterator[Notification]:
    """The action under way, if it takes longer than joining, draining and cleaning up ever should."""
    action = seen.state.up or seen.state.down
    longest = policy.join_timeout_seconds + policy.stuck_seconds
    if action is None or seen.seconds_since(action.started) < longest:
        return
    kind = "scale-up" if action is seen.state.up else "scale-down"
    text = (
        f"{kind} {action.action}, in phase {action.phase}, began at {action.started.iso_seconds()}, more than "
        f"{longest} s ago, and blocks every other action; 'holdfast explain' shows what it waits for"
    )
    yield Notification("action_lasts", action.action, f"A {kind} is stuck", text, is_urgent=True)
