"""The sweeper: terminate orphaned machines, remove stale nodes and cordons, replace NotReady nodes. Pure.

A machine is an orphan by its action's number, never by "not mine": a number higher than the stored one means that a
later lease holder launched it, and it is left alone, however long this process was paused. Only a machine that never
came into service is terminated: it has no node, or its node still has the start-up taint, it bears no tag of an
acceptance, and no pod is bound to it.

A Node can be registered anew while its pods run (`kubectl delete node`, a restored snapshot): then it has the start-up
taint again. The tag on its machine outlives it, and so do its pods: either shows that the machine was in service, and
its node is accepted again.

A node that stays NotReady is replaced: one at a time, and only while most others are Ready. If many are NotReady at
once, the network or the API server is broken, and replacing machines would empty the cluster.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.nodes import is_cordoned_by_others
from holdfast.cluster.policy import Policy
from holdfast.cluster.rules import NOT_READY_REPLACED
from holdfast.cluster.seen import (
    ACTION_ANNOTATION,
    ACTION_TAG,
    ATTEMPT_TAG,
    SEQUENCE_TAG,
    SLOT_TAG,
    Seen,
    Worker,
    machine_named_on,
    tag_number,
)
from holdfast.cluster.spot.notice import ACTION_PREFIX, SpotKind, mark_time
from holdfast.cluster.steps import (
    AcceptAgain,
    ClusterStep,
    CollectMachine,
    DeletePasswords,
    MarkAccepted,
    OpenLeftClosed,
    OpenLeftMarked,
    RemoveNode,
    ReplaceNotReady,
)
from holdfast.cluster.sweeping.passwords import left_passwords
from holdfast.control.action_ids import action_begun
from holdfast.control.rules import Rule, rule
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.kube import Node
from holdfast.ports.machines import MachineState
from holdfast.ports.readings import Unknown

LEFT_CLOSED_SECONDS: Final = 3600  # after its action began
MARKED_MOST: Final = 10  # in one tick: each is a call to EC2


def sweep_steps(seen: Seen, policy: Policy, rules: DrainRules, lost: Sequence[Worker]) -> Iterator[ClusterStep]:
    if isinstance(seen.kube, Unknown):
        return  # without Kubernetes it is unknown which machines have a node
    # One at a time, and only if Kubernetes knows most of our machines. If it knows few, it was restored from an old
    # backup or belongs to another cluster, and the sweeper would terminate all of them.
    unused = orphans(seen, policy)
    accepted = sum(1 for worker in seen.workers if worker.is_accepted)
    if unused and accepted >= len(unused):
        instance = unused[0].id
        yield CollectMachine(instance=instance, because="no action owns it and it never came into service")
    yield from _marking(seen)
    for node in seen.kube.value.nodes:
        if is_left_over(seen, node):
            yield RemoveNode(node=node.name, because="its machine is gone")
    ended = left_passwords(seen)
    if ended:
        yield DeletePasswords(nodes=ended, because=f"{some(len(ended), 'machine')} ended without a node")
    for worker in seen.workers:
        if is_left_closed(seen, worker):
            yield OpenLeftClosed(instance=worker.id, because="the action that cordoned it ended long ago")
        elif is_left_marked(seen, worker):
            yield OpenLeftMarked(instance=worker.id, because="it was cordoned for a notice that is closed")
    yield from _replacing(seen, rules, lost)


def orphans(seen: Seen, policy: Policy) -> list[Worker]:
    """Machines that no action owns and that never came into service; none while Kubernetes is unknown."""
    if isinstance(seen.kube, Unknown):
        return []
    return [worker for worker in seen.workers if is_orphan(seen, worker, policy)]


def is_orphan(seen: Seen, worker: Worker, policy: Policy) -> bool:
    if worker.is_ambiguous or seen.is_kept(worker):
        return False
    machine = worker.machine
    action = machine.tags.get(ACTION_TAG, "")
    if seen.now.seconds_since(machine.launched) < policy.join_timeout_seconds:
        return False
    if action.startswith(ACTION_PREFIX):
        # A replacement: while its notice is open, the notice decides.
        return action.removeprefix(ACTION_PREFIX) not in seen.notices
    # A machine without a number was launched by an older autoscaler or by hand. Its node may have an address that we do
    # not know, so it may be in use although it seems to have no node.
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
    """Whether the machine belongs to an earlier attempt of the current action."""
    up, tags = seen.state.up, worker.machine.tags
    number = tag_number(tags.get(SLOT_TAG))
    if up is None or not 0 <= number < len(up.slots):
        return False
    return tag_number(tags.get(ATTEMPT_TAG)) < up.slots[number].attempt


# Workers in service whose nodes or machines do not say so


def accept_again_steps(seen: Seen) -> Iterator[ClusterStep]:
    """Before any scaling: a worker in service that takes no pods is room that seems to be missing."""
    for worker in seen.workers:
        if worker.is_ready and not worker.is_accepted and seen.is_kept(worker) and not _is_spoken_for(seen, worker):
            reason = "it was in service" if worker.was_accepted else "it has pods"
            yield AcceptAgain(instance=worker.id, because=f"{reason}, and its Node was registered anew")


def _is_spoken_for(seen: Seen, worker: Worker) -> bool:
    """Whether an action or a notice decides what becomes of the worker."""
    notice = seen.notices.get(worker.id)
    joining = (other.slot for other in seen.notices.values() if not other.replacement.is_settled)
    return (
        worker.id in seen.state.named
        or (notice is not None and notice.is_leaving)
        or any(slot is not None and slot.instance == worker.id for slot in joining)
    )


def _marking(seen: Seen) -> Iterator[ClusterStep]:
    """Tag machines that were accepted without it, a few in each tick, and none while EC2 refuses."""
    # During an action its steps come first. And a machine that an older autoscaler's action names may have none of our
    # tags, so that our role may not tag it.
    if seen.are_marks_refused or seen.state.is_acting:
        return
    unmarked = [
        worker
        for worker in seen.workers
        if worker.is_accepted and not worker.is_marked and worker.machine.state is MachineState.RUNNING
    ]
    for worker in unmarked[: max(0, MARKED_MOST - seen.marks_written)]:
        yield MarkAccepted(instance=worker.id, because="it is in service, and its machine does not say so")


# Leftovers


def is_left_over(seen: Seen, node: Node) -> bool:
    """Whether the node is ours and not Ready, and its machine is terminated or has not been listed for a while.

    Not by its address: that of a machine which is gone may be another's by now.
    """
    instance = machine_named_on(node)
    if instance is None or node.is_ready or seen.is_of_a_worker(node):
        return False
    listed = next((machine for machine in seen.machines if machine.id == instance), None)
    if listed is not None:
        return listed.state is MachineState.TERMINATED
    return node.ready_changed is not None and seen.is_dead(node)


def is_left_closed(seen: Seen, worker: Worker) -> bool:
    """Cordoned by an action of ours that an older autoscaler ended without removing the cordon.

    Not at once: the node of a machine that was just terminated looks the same until EC2 reports it.
    """
    node, state = worker.node, seen.state
    if node is None or not node.is_unschedulable or not worker.is_accepted or worker.id in seen.notices:
        return False
    action = node.annotations.get(ACTION_ANNOTATION, "")
    current = {state.up.action if state.up else "", state.down.action if state.down else ""}
    begun = action_begun(action, state.fence)
    return action not in current and begun is not None and seen.now.seconds_since(begun) >= LEFT_CLOSED_SECONDS


def is_left_marked(seen: Seen, worker: Worker) -> bool:
    """Cordoned for a notice that is not open: a slow process cordoned it, and crashed before it could undo that.

    Not at once: a machine that was drained and terminated may be listed as running for a while.
    """
    mark = worker.spot_mark
    is_over = mark is not None and worker.id not in seen.notices
    return is_over and seen.seconds_since(mark_time(mark or "")) >= LEFT_CLOSED_SECONDS


# Nodes that stay NotReady


def not_ready_rules(seen: Seen, policy: Policy, drain: DrainRules, lost: Sequence[Worker]) -> Iterator[Rule]:
    """Whether a node that stays NotReady is replaced now, and if not, why not. No rule without such a node."""
    if not lost:
        return
    problem = _problem(seen, drain, lost)
    value = problem or f"{lost[0].id} has been NotReady since {not_ready_since(lost[0]).iso_seconds()}"
    limit = f"NotReady < {policy.not_ready_seconds} s"
    yield rule(NOT_READY_REPLACED, holds=problem is None, value=value, limit=limit)


def _replacing(seen: Seen, drain: DrainRules, lost: Sequence[Worker]) -> Iterator[ClusterStep]:
    if lost and _problem(seen, drain, lost) is None:
        because = f"its node has been NotReady for {seen.now.seconds_since(not_ready_since(lost[0])):.0f} s"
        yield ReplaceNotReady(instance=lost[0].id, because=because)


def not_ready_workers(seen: Seen, policy: Policy) -> list[Worker]:
    """The workers in service whose nodes have been NotReady for too long, the longest first.

    Workers that are leaving anyway are left out, and so are those that a person has cordoned or stopped.
    """
    if isinstance(seen.kube, Unknown) or not policy.not_ready_seconds:
        return []
    targets = seen.state.down.targets if seen.state.down else ()
    found = [
        worker
        for worker in seen.workers
        if not worker.is_ready
        and worker.node is not None
        and worker.was_accepted
        and worker.machine.state is MachineState.RUNNING
        and worker.id not in seen.notices
        and worker.id not in targets
        and seen.now.seconds_since(not_ready_since(worker)) >= policy.not_ready_seconds
        and not (worker.node is not None and is_cordoned_by_others(worker.node))
    ]
    return sorted(found, key=lambda worker: (not_ready_since(worker), worker.id))


def not_ready_since(worker: Worker) -> Instant:
    """When the node became NotReady, or was created if that is unknown."""
    node = worker.node
    return worker.machine.launched if node is None else node.ready_changed or node.created


def _problem(seen: Seen, drain: DrainRules, lost: Sequence[Worker]) -> str | None:
    """Why no worker may be replaced now."""
    serving = [worker for worker in seen.workers if worker.node is not None and worker.was_accepted]
    failing = sum(1 for worker in serving if not worker.is_ready)
    if failing == len(serving) or failing > max(1, len(serving) // 3):
        return f"{failing} of {len(serving)} nodes are NotReady: the network is probably at fault, not the machines"
    if any(notice.kind is SpotKind.NOT_READY for notice in seen.notices.values()):
        return "another node is being replaced"
    if seen.is_paused:
        return "paused"
    if seen.is_undrainable(lost[0].id):
        return f"a recent attempt to replace {lost[0].id} failed"
    blocked = drain_view(seen.pods_of(lost[0]), drain).blocked_by
    return f"{lost[0].id} must not be drained: {blocked}" if blocked else None
