"""The sweeper: what belongs to nobody any more is cleared away. Pure.

A machine is judged by the number of its action, never by "not mine": one whose number is higher than the number that
was read was launched by a successor, and is none of our business, however long we paused. And only one that was never
taken into service goes: it has no node, or its node still bears the start-up taint, so no pod can be on it.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import (
    ACTION_TAG,
    ATTEMPT_TAG,
    INSTANCE_LABEL,
    SEQUENCE_TAG,
    SLOT_TAG,
    Seen,
    Worker,
    tag_number,
)
from holdfast.cluster.spot import ACTION_PREFIX
from holdfast.cluster.steps import CollectMachine, RemoveNode, Step
from holdfast.ports.kube import Node
from holdfast.ports.machines import MachineState
from holdfast.ports.readings import Unknown

NODE_DEAD_SECONDS: Final = 300  # a machine that is not listed is not taken for dead before


def sweep_steps(seen: Seen, policy: Policy) -> Iterator[Step]:
    if isinstance(seen.kube, Unknown):
        return  # a machine without a node cannot be told from one whose node was not seen
    for worker in seen.workers:
        if is_orphan(seen, worker, policy):
            yield CollectMachine(instance=worker.id, because="no action owns it, and it never came into service")
    for node in seen.kube.value.nodes:
        if is_left_over(seen, node):
            yield RemoveNode(node=node.name, because="its machine is gone")


def is_orphan(seen: Seen, worker: Worker, policy: Policy) -> bool:
    machine = worker.machine
    action = machine.tags.get(ACTION_TAG, "")
    if worker.is_accepted:
        return False
    if seen.now.seconds_since(machine.launched) < policy.join_timeout_seconds:
        return False
    if action.startswith(ACTION_PREFIX):
        # A replacement: its notice decides, while there is one.
        return action.removeprefix(ACTION_PREFIX) not in seen.notices
    # Without a number it was launched before there were any, by an older autoscaler or by hand.
    if tag_number(machine.tags.get(SEQUENCE_TAG, "0")) > seen.state.action_seq:
        return False
    up = seen.state.up
    if up is None:
        return True
    if not up.slots:  # of an older autoscaler: its machines are those that it recorded, or has yet to
        return machine.id not in up.instances and machine.launched < up.started
    return action != up.action or _is_superseded(seen, worker)


def _is_superseded(seen: Seen, worker: Worker) -> bool:
    """Of the current action, but of an attempt that was given up."""
    up, tags = seen.state.up, worker.machine.tags
    number = tag_number(tags.get(SLOT_TAG))
    if up is None or not 0 <= number < len(up.slots):
        return False
    return tag_number(tags.get(ATTEMPT_TAG)) < up.slots[number].attempt


def is_left_over(seen: Seen, node: Node) -> bool:
    """A node of ours that is not Ready, and whose machine has ended, or has not been listed for long."""
    instance = node.labels.get(INSTANCE_LABEL)
    if instance is None or node.is_ready:
        return False
    listed = next((machine for machine in seen.machines if machine.id == instance), None)
    if listed is not None:
        return listed.state is MachineState.TERMINATED
    return node.ready_changed is not None and seen.now.seconds_since(node.ready_changed) >= NODE_DEAD_SECONDS
