"""Draining a node: which pods are asked to leave, which are left alone, and which forbid it.

Strict, as the seed says: a pod that must not be moved stops the drain of its node, before the node is cordoned where
that can be known. Only the eviction API is used, never a plain delete.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from holdfast.ports.kube import Pod

CRITICAL_CLASSES: Final = frozenset({"system-node-critical", "system-cluster-critical"})
# An annotation, and the value that says: leave this pod where it is.
DO_NOT_EVICT: Final = {
    "holdfast.dev/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


@dataclass(frozen=True, slots=True)
class DrainRules:
    """What an operator allows to be evicted beside what is plainly safe.

    Local storage is what a pod's own spec shows: an emptyDir on disk, or a hostPath. A volume claim is not looked
    behind: that it is bound to a volume of one node (K3s' local-path makes such) is known only to who may list volumes,
    and the role that we ship does not allow that. Such a pod cannot run elsewhere; annotate it as not to be evicted.
    """

    evict_local_storage: bool = True  # its data is lost with the pod, as it would be at any restart
    evict_unmanaged: bool = False  # nobody would make it again


@dataclass(frozen=True, slots=True)
class DrainView:
    """A node's pods, sorted by what a drain does with them."""

    to_evict: tuple[Pod, ...]
    leaving: tuple[Pod, ...]
    blocked_by: str | None

    @property
    def is_drained(self) -> bool:
        """Nothing is left but what a drain ignores."""
        return not self.to_evict and not self.leaving and self.blocked_by is None

    @property
    def is_left_to_die(self) -> bool:
        """What is left is on its way out: all there is to wait for, where a kubelet still answers."""
        return not self.to_evict and self.blocked_by is None


def drain_view(pods: Iterable[Pod], rules: DrainRules) -> DrainView:
    to_evict: list[Pod] = []
    leaving: list[Pod] = []
    blocked_by: str | None = None
    for pod in pods:
        if is_ignored(pod):
            continue
        reason = reason_to_stay(pod, rules)
        if pod.is_deleting:
            leaving.append(pod)
        elif reason is None:
            to_evict.append(pod)
        else:
            blocked_by = blocked_by or f"{pod}: {reason}"
    return DrainView(tuple(to_evict), tuple(leaving), blocked_by)


def is_ignored(pod: Pod) -> bool:
    """A DaemonSet would make its pod again at once; a mirror pod is the kubelet's own; a finished one holds nothing."""
    return pod.controller == "DaemonSet" or pod.is_mirror or pod.is_finished


def reason_to_stay(pod: Pod, rules: DrainRules) -> str | None:
    """Why the pod must not be evicted; None if it may be."""
    if pod.priority_class in CRITICAL_CLASSES:
        return f"its priority class is {pod.priority_class}"
    if pod.namespace == "kube-system":
        return "it belongs to kube-system, and to no DaemonSet"
    for annotation, value in DO_NOT_EVICT.items():
        if pod.annotations.get(annotation) == value:
            return f"it is annotated {annotation}={value}"
    if not pod.controller and not rules.evict_unmanaged:
        return "nothing would make it again elsewhere"
    if pod.has_local_storage and not rules.evict_local_storage:
        return "it keeps data on this node"
    return None
