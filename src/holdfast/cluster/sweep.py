"""The sweeper: what belongs to nobody any more is cleared away. Pure.

A machine is judged by the number of its action, never by "not mine": one whose number is higher than the number that
was read was launched by a successor, and is none of our business, however long we paused. And only one that was never
taken into service goes: it has no node, or its node still bears the start-up taint, so no pod can be on it.

A node that stays NotReady is replaced: one at a time, and only while most others are Ready. Where many are NotReady at
once it is the network or the API server that is broken, and replacing machines would empty the cluster.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.cluster.action_names import action_begun
from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.nodes import is_cordoned_by_others
from holdfast.cluster.policy import Policy
from holdfast.cluster.rules import Rule, rule
from holdfast.cluster.seen import (
    ACTION_ANNOTATION,
    ACTION_TAG,
    ATTEMPT_TAG,
    INSTANCE_LABEL,
    SEQUENCE_TAG,
    SLOT_TAG,
    Seen,
    Worker,
    tag_number,
)
from holdfast.cluster.spot import ACTION_PREFIX, SpotKind, marked
from holdfast.cluster.steps import CollectMachine, OpenLeftClosed, OpenLeftMarked, RemoveNode, ReplaceNotReady, Step
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.ports.machines import MachineState
from holdfast.ports.readings import Unknown

NODE_DEAD_SECONDS: Final = 300  # a machine that is not listed is not taken for dead before
LEFT_CLOSED_SECONDS: Final = 3600  # after its action began


def sweep_steps(seen: Seen, policy: Policy, rules: DrainRules, lost: Sequence[Worker]) -> Iterator[Step]:
    if isinstance(seen.kube, Unknown):
        return  # a machine without a node cannot be told from one whose node was not seen
    # One at a time, and only where Kubernetes knows most of our machines: one that knows hardly any was restored from
    # an old copy, or is another cluster's, and would have us terminate them all.
    unused = orphans(seen, policy)
    accepted = sum(1 for worker in seen.workers if worker.is_accepted)
    if unused and accepted >= len(unused):
        instance = unused[0].id
        yield CollectMachine(instance=instance, because="no action owns it, and it never came into service")
    for node in seen.kube.value.nodes:
        if is_left_over(seen, node):
            yield RemoveNode(node=node.name, because="its machine is gone")
    for worker in seen.workers:
        if is_left_closed(seen, worker):
            yield OpenLeftClosed(instance=worker.id, because="the action that closed it is long over")
        elif is_left_marked(seen, worker):
            yield OpenLeftMarked(instance=worker.id, because="it was closed for a notice that is over")
    yield from _replacing(seen, rules, lost)


def orphans(seen: Seen, policy: Policy) -> list[Worker]:
    """Machines that belong to nobody; none while Kubernetes cannot be seen, since any might be."""
    if isinstance(seen.kube, Unknown):
        return []
    return [worker for worker in seen.workers if is_orphan(seen, worker, policy)]


def is_orphan(seen: Seen, worker: Worker, policy: Policy) -> bool:
    if worker.is_accepted or worker.is_ambiguous:
        return False
    machine = worker.machine
    action = machine.tags.get(ACTION_TAG, "")
    if seen.now.seconds_since(machine.launched) < policy.join_timeout_seconds:
        return False
    if action.startswith(ACTION_PREFIX):
        # A replacement: its notice decides, while there is one.
        return action.removeprefix(ACTION_PREFIX) not in seen.notices
    # Without a number it was launched by an older autoscaler or by hand: its node may bear an address that we do not
    # know, so that it has none does not say that nobody uses it.
    if not 0 <= tag_number(machine.tags.get(SEQUENCE_TAG)) <= seen.state.action_seq:
        return False
    up = seen.state.up
    if machine.id in seen.state.named:
        return False  # recorded: its action decides
    if up is None:
        return True
    if not up.slots and not action:  # an older autoscaler's action may yet adopt it
        return machine.launched < up.started
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


def is_left_closed(seen: Seen, worker: Worker) -> bool:
    """Cordoned by an action of ours that is not under way: an older autoscaler ended it, and knew nothing of cordons.

    Not at once: the node of a machine that was just terminated looks the same until EC2 tells of it.
    """
    node, state = worker.node, seen.state
    if node is None or not node.is_unschedulable or not worker.is_accepted or worker.id in seen.notices:
        return False
    action = node.annotations.get(ACTION_ANNOTATION, "")
    current = {state.up.action if state.up else "", state.down.action if state.down else ""}
    begun = action_begun(action, state.fence)
    return action not in current and begun is not None and seen.now.seconds_since(begun) >= LEFT_CLOSED_SECONDS


def is_left_marked(seen: Seen, worker: Worker) -> bool:
    """Closed for a notice that is not under way: who closed it was late, and died before it could undo that.

    Not at once, as above: a machine that was drained and terminated may be listed as running for a while.
    """
    mark = worker.spot_mark
    is_over = mark is not None and worker.id not in seen.notices
    return is_over and seen.seconds_since(marked(mark or "")) >= LEFT_CLOSED_SECONDS


# Nodes that stay NotReady


def not_ready_rules(seen: Seen, policy: Policy, drain: DrainRules, lost: Sequence[Worker]) -> Iterator[Rule]:
    """Whether a node that stays NotReady is replaced now, and if not, why not. No such node: no rule."""
    if not lost:
        return
    problem = _problem(seen, drain, lost)
    value = problem or f"{lost[0].id} has been NotReady since {_since(lost[0]).iso_seconds()}"
    limit = f"NotReady < {policy.not_ready_seconds} s"
    yield rule("not_ready_replaced", holds=problem is None, value=value, limit=limit)


def _replacing(seen: Seen, drain: DrainRules, lost: Sequence[Worker]) -> Iterator[Step]:
    if lost and _problem(seen, drain, lost) is None:
        because = f"its node has been NotReady for {seen.now.seconds_since(_since(lost[0])):.0f} s"
        yield ReplaceNotReady(instance=lost[0].id, because=because)


def lost_workers(seen: Seen, policy: Policy) -> list[Worker]:
    """The workers in service whose nodes have been NotReady for too long, the longest first.

    Not those that are leaving anyway, and not those that a person has cordoned or stopped: somebody is at work there.
    """
    if isinstance(seen.kube, Unknown) or not policy.not_ready_seconds:
        return []
    targets = seen.state.down.targets if seen.state.down else ()
    found = [
        worker
        for worker in seen.workers
        if not worker.is_ready
        and worker.is_accepted
        and worker.machine.state is MachineState.RUNNING
        and worker.id not in seen.notices
        and worker.id not in targets
        and seen.now.seconds_since(_since(worker)) >= policy.not_ready_seconds
        and not (worker.node is not None and is_cordoned_by_others(worker.node))
    ]
    return sorted(found, key=lambda worker: (_since(worker), worker.id))


def _since(worker: Worker) -> Instant:
    """When it turned NotReady; where that is not told, when it was made."""
    node = worker.node
    return worker.machine.launched if node is None else node.ready_changed or node.created


def _problem(seen: Seen, drain: DrainRules, lost: Sequence[Worker]) -> str | None:
    """Why none may be replaced now."""
    serving = [worker for worker in seen.workers if worker.is_accepted]
    failing = sum(1 for worker in serving if not worker.is_ready)
    if failing == len(serving) or failing > max(1, len(serving) // 3):
        return f"{failing} of {len(serving)} nodes are NotReady: rather a broken network than so many broken machines"
    if any(notice.kind is SpotKind.NOT_READY for notice in seen.notices.values()):
        return "another one is being replaced"
    if seen.is_paused:
        return "paused"
    if seen.is_undrainable(lost[0].id):
        return f"{lost[0].id} was tried not long ago, in vain"
    blocked = drain_view(seen.pods_of(lost[0]), drain).blocked_by
    return f"{lost[0].id} must not be drained: {blocked}" if blocked else None
