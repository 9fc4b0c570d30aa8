"""Changes to nodes, each under the fence.

Every change writes our fence into an annotation and expects the one that was read; a process whose lease has passed
on finds a higher one and stops. Where there is none yet, the node's version is what is expected instead.
"""

from typing import Final

from holdfast.cluster.ledger import LeaseLost
from holdfast.cluster.seen import ACTION_ANNOTATION, FENCE_ANNOTATION, PREFIX, SPOT_ANNOTATION, UNVERIFIED_TAINT
from holdfast.kernel.ids import ActionId
from holdfast.ports.kube import Kube, Node, NodeChange

# The node was cordoned already, by somebody else: giving up a drain must not open it.
FOREIGN_CORDON_ANNOTATION = f"{PREFIX}/found-cordoned"
FENCE_DIGITS_MOST: Final = 12  # one more with each lease: more would take thousands of years


def is_cordoned_by_others(node: Node) -> bool:
    """By a person or another program: nothing of ours says that we did it, or that we found it so."""
    ours = ACTION_ANNOTATION in node.annotations or SPOT_ANNOTATION in node.annotations
    return node.is_unschedulable and (not ours or FOREIGN_CORDON_ANNOTATION in node.annotations)


def fence_of(node: Node) -> int:
    """The fence that a node bears; 0 for none, and for what nobody can have written."""
    text = node.annotations.get(FENCE_ANNOTATION)
    if text is None:
        return 0
    return int(text) if text.isascii() and text.isdigit() and len(text) <= FENCE_DIGITS_MOST else 0


class NodeHand:
    """Acts on nodes for one holder of the lease."""

    def __init__(self, kube: Kube, fence: int) -> None:
        self._kube = kube
        self._fence = fence

    def accept(self, node: Node) -> None:
        """Take a node that joined into service."""
        # No action is named on it: that would be taken for the one that closed the node, when somebody does.
        self._change(node, remove_taint=UNVERIFIED_TAINT, annotations={})

    def close_unaccepted(self, node: Node, action: ActionId) -> bool:
        """Cordon a node that was never accepted; False if it was, after all."""
        now = self._kube.node(node.name)
        if now is None or now.uid != node.uid:
            return True
        if not any(taint.key == UNVERIFIED_TAINT for taint in now.taints):
            return False
        # By its version, not by its fence: the taint that was just read must still be there.
        annotations = {ACTION_ANNOTATION: action, FENCE_ANNOTATION: str(self._fence_over(now))}
        change = NodeChange(unschedulable=True, annotations=annotations, expected_version=now.resource_version)
        self._kube.change_node(now, change)
        return True

    def close(self, node: Node, action: ActionId, *, is_found_closed_by_it: bool = False) -> None:
        """Cordon a node that is to leave. An older autoscaler leaves no mark: then the action is taken at its word."""
        is_foreign = is_cordoned_by_others(node) and not is_found_closed_by_it
        annotations = {ACTION_ANNOTATION: action, FOREIGN_CORDON_ANNOTATION: "true" if is_foreign else None}
        self._change(node, unschedulable=True, annotations=annotations)

    def stamp(self, node: Node, action: ActionId) -> bool:
        """Put our fence on a node that this action closed; False if it is no longer closed."""
        now = self._kube.node(node.name)
        if now is None or not now.is_unschedulable or now.annotations.get(ACTION_ANNOTATION) != action:
            return False
        if now.annotations.get(FENCE_ANNOTATION) != str(self._fence):
            self._change(now, annotations={})
        return True

    def open_again(self, node: Node) -> None:
        """Undo our cordon; one that somebody else or a spot interruption made stays."""
        keeps_closed = FOREIGN_CORDON_ANNOTATION in node.annotations or SPOT_ANNOTATION in node.annotations
        annotations: dict[str, str | None] = {ACTION_ANNOTATION: None}
        if SPOT_ANNOTATION not in node.annotations:  # else whoever opens it after spot must know that it stays closed
            annotations[FOREIGN_CORDON_ANNOTATION] = None
        expected_absent: dict[str, str | None] = {} if keeps_closed else {SPOT_ANNOTATION: None}
        self._change(
            node, unschedulable=None if keeps_closed else False, annotations=annotations, expected=expected_absent
        )

    def _change(
        self,
        node: Node,
        *,
        annotations: dict[str, str | None],
        unschedulable: bool | None = None,
        remove_taint: str | None = None,
        expected: dict[str, str | None] | None = None,
    ) -> None:
        fence = node.annotations.get(FENCE_ANNOTATION)
        change = NodeChange(
            unschedulable=unschedulable,
            annotations={**annotations, FENCE_ANNOTATION: str(self._fence_over(node))},
            remove_taint=remove_taint,
            expected={**(expected or {}), FENCE_ANNOTATION: fence},
        )
        self._kube.change_node(node, change)

    def _fence_over(self, node: Node) -> int:
        """Our fence, if it is not older than the node's."""
        theirs = fence_of(node)
        if theirs > self._fence:
            raise LeaseLost(
                f"node {node.name} bears fence {theirs}, and ours is {self._fence}: the lease is lost", None
            )
        return self._fence
