"""What a person is to be told at once: EC2 refuses until somebody acts, or an action does not end."""

from collections.abc import Iterator

from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import Seen
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import MachineError
from holdfast.ports.notify import Notice


def refused_terminations(instance: InstanceId, error: MachineError) -> Iterator[Notice]:
    """A termination that EC2 refuses until a person acts; nothing where asking again may help."""
    ruling = ruling_on(error.code)
    if ruling.verdict is Ec2Verdict.OPERATOR:
        text = f"{instance} is to be terminated, and EC2 refuses: {error}; {ruling.remedy}"
        yield Notice("termination_refused", instance, "A machine cannot be terminated", text, is_urgent=True)


def refused_replacement(instance: InstanceId, error: MachineError) -> Notice:
    remedy = ruling_on(error.code).remedy
    text = f"there is no machine in the place of {instance}: {error}{f'; {remedy}' if remedy else ''}"
    return Notice("replacement_refused", instance, "A worker that leaves is not replaced", text, is_urgent=True)


def lasting_actions(seen: Seen, policy: Policy) -> Iterator[Notice]:
    """An action that has lasted longer than any should: its drains, its joins and its clean-up."""
    action = seen.state.up or seen.state.down
    longest = policy.join_timeout_seconds + policy.stuck_seconds
    if action is None or seen.seconds_since(action.started) < longest:
        return
    kind = "scale-up" if action is seen.state.up else "scale-down"
    text = (
        f"{kind} {action.action} is {action.phase} since {action.started.iso_seconds()}, more than {longest} s, and "
        "nothing else is begun before it ends; 'holdfast explain' shows what it waits for"
    )
    yield Notice("action_lasts", action.action, f"A {kind} does not end", text, is_urgent=True)
