"""Changes to nodes, each under the fence.

Every change writes our fence into an annotation, conditional on the value that was read. A process that has lost its
lease finds a higher one and stops.
"""

from typing import Final

from holdfast.cluster.seen import (
    ACTION_ANNOTATION,
    CONDEMNED_ANNOTATION,
    FENCE_ANNOTATION,
    INSTANCE_LABEL,
    MACHINE_ANNOTATION,
    PREFIX,
    SPOT_ANNOTATION,
    UNVERIFIED_TAINT,
)
from holdfast.control.ledger import LeaseLost
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.ports.kube import Kube, Node, NodeChange, NodeChanged

# Someone else had cordoned the node before us: aborting a drain must not uncordon it.
FOREIGN_CORDON_ANNOTATION = f"{PREFIX}/found-cordoned"
FENCE_DIGITS_MOST: Final = 12  # the fence grows by one per lease: more would take thousands of years


def is_cordoned_by_others(node: Node) -> bool:
    """Whether a person or another program cordoned it: it has no annotation of ours, or one that says so."""
    ours = ACTION_ANNOTATION in node.annotations or SPOT_ANNOTATION in node.annotations
    return node.is_unschedulable and (not ours or FOREIGN_CORDON_ANNOTATION in node.annotations)


def naming(instance: InstanceId, node: Node) -> dict[str, str | None]:
    """The annotation with the machine's id, for a node that joined without our label.

    Such a node is matched to its machine by its address, which says nothing any more when the machine is gone.
    """
    return {} if INSTANCE_LABEL in node.labels else {MACHINE_ANNOTATION: instance}


def fence_of(node: Node) -> int:
    """The fence in a node's annotation; 0 if there is none, or one that we cannot have written."""
    text = node.annotations.get(FENCE_ANNOTATION)
    if text is None:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) <= FENCE_DIGITS_MOST else 0


def is_same_for_us(before: Node, after: Node) -> bool:
    """Whether nothing changed that any of our changes depends on: only labels, status or annotations of others did."""
    return _what_counts(before) == _what_counts(after)


def _what_counts(node: Node) -> tuple[object, ...]:
    ours = {key: value for key, value in node.annotations.items() if key.startswith(f"{PREFIX}/")}
    return node.uid, node.is_ready, node.is_unschedulable, node.taints, ours


class FencedNodes:
    """Changes nodes for one lease holder."""

    def __init__(self, kube: Kube, fence: int) -> None:
        self._kube = kube
        self._fence = fence

    def accept(self, node: Node) -> Node:
        """Take a node into service. If it was condemned, that cordon is undone as well."""
        if CONDEMNED_ANNOTATION in node.annotations:
            return self.uncordon(node, remove_taint=UNVERIFIED_TAINT)
        # No action annotation: if someone cordoned the node later, that action would seem to have done it.
        return self._change(node, remove_taint=UNVERIFIED_TAINT, annotations={})

    def condemn(self, node: Node, action: ActionId) -> bool:
        """Cordon a node that was never accepted, to terminate its machine; False if it was accepted after all."""
        if not any(taint.key == UNVERIFIED_TAINT for taint in node.taints):
            return False
        annotations: dict[str, str | None] = {
            ACTION_ANNOTATION: action,
            CONDEMNED_ANNOTATION: "true",
            FENCE_ANNOTATION: str(self._fence_over(node)),
        }
        if is_cordoned_by_others(node):
            annotations[FOREIGN_CORDON_ANNOTATION] = "true"
        # Conditional on the version, not the fence: the taint that was just read must still be there.
        change = NodeChange(unschedulable=True, annotations=annotations, expected_version=node.resource_version)
        self._kube.change_node(node, change)
        return True

    def cordon(
        self, node: Node, instance: InstanceId, action: ActionId, *, was_cordoned_by_action: bool = False
    ) -> None:
        """Cordon the node of a machine that is leaving.

        `was_cordoned_by_action`: an older autoscaler's action, which cordons without an annotation, did it before us.
        """
        is_foreign = is_cordoned_by_others(node) and not was_cordoned_by_action
        foreign = "true" if is_foreign else None
        annotations = {ACTION_ANNOTATION: action, FOREIGN_CORDON_ANNOTATION: foreign, **naming(instance, node)}
        self._change(node, unschedulable=True, annotations=annotations)

    def stamp(self, node: Node, action: ActionId) -> bool:
        """Write our fence to a node that this action cordoned; False if it is no longer cordoned."""
        now = self._kube.node(node.name)
        if now is None or not now.is_unschedulable or now.annotations.get(ACTION_ANNOTATION) != action:
            return False
        if now.annotations.get(FENCE_ANNOTATION) != str(self._fence):
            self._change(now, annotations={})
        return True

    def uncordon(self, node: Node, *, remove_taint: str | None = None) -> Node:
        """Undo our cordon; one that someone else or a spot notice made stays."""
        keeps_closed = FOREIGN_CORDON_ANNOTATION in node.annotations or SPOT_ANNOTATION in node.annotations
        annotations: dict[str, str | None] = {ACTION_ANNOTATION: None}
        if CONDEMNED_ANNOTATION in node.annotations:
            annotations[CONDEMNED_ANNOTATION] = None
        if SPOT_ANNOTATION not in node.annotations:  # else the spot notice needs it when it undoes its own cordon
            annotations[FOREIGN_CORDON_ANNOTATION] = None
        expected_absent: dict[str, str | None] = {} if keeps_closed else {SPOT_ANNOTATION: None}
        return self._change(
            node,
            unschedulable=None if keeps_closed else False,
            annotations=annotations,
            remove_taint=remove_taint,
            expected=expected_absent,
        )

    def _change(
        self,
        node: Node,
        *,
        annotations: dict[str, str | None],
        unschedulable: bool | None = None,
        remove_taint: str | None = None,
        expected: dict[str, str | None] | None = None,
    ) -> Node:
        fence = node.annotations.get(FENCE_ANNOTATION)
        change = NodeChange(
            unschedulable=unschedulable,
            annotations={**annotations, FENCE_ANNOTATION: str(self._fence_over(node))},
            remove_taint=remove_taint,
            expected={**(expected or {}), FENCE_ANNOTATION: fence},
        )
        try:
            return self._kube.change_node(node, change)
        except NodeChanged as changed:
            # An absent fence is tested by the node's version, which others change as well, most of all while a node is
            # new. Once more, then, instead of at the next tick; a second conflict waits for that.
            if changed.node is None or not is_same_for_us(node, changed.node):
                raise
            return self._kube.change_node(changed.node, change)

    def _fence_over(self, node: Node) -> int:
        """Our fence, if it is not older than the node's."""
        theirs = fence_of(node)
        if theirs > self._fence:
            raise LeaseLost(f"node {node.name} has fence {theirs}, and ours is {self._fence}: the lease was lost", None)
        return self._fence
