"""Draining a node: which pods are evicted, which are ignored, and which block the drain.

Strict, as in the seed: a pod that must not be evicted blocks the drain, if possible before the node is cordoned. Only
the eviction API is used, never a plain delete.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.ports.kube import Pod

_PODS_NAMED: Final = 3
CRITICAL_CLASSES: Final = frozenset({"system-node-critical", "system-cluster-critical"})
# Annotations, and the values that forbid evicting the pod.
DO_NOT_EVICT: Final = {
    "holdfast.dev/do-not-evict": "true",
    "cluster-autoscaler.kubernetes.io/safe-to-evict": "false",
    "karpenter.sh/do-not-disrupt": "true",
}


@dataclass(frozen=True, slots=True)
class DrainRules:
    """Which pods an operator allows to be evicted, beyond those that are always safe to evict.

    Local storage means an emptyDir on disk or a hostPath in the pod's own spec. Volume claims are not resolved: whether
    a claim is bound to a volume of one node (as with K3s' local-path) is visible only with permission to list volumes,
    which our role does not have. Such a pod cannot run elsewhere; annotate it with holdfast.dev/do-not-evict.
    """

    evict_local_storage: bool = True  # the data is lost with the pod, as in any restart
    evict_unmanaged: bool = False  # without a controller the pod is not recreated


@dataclass(frozen=True, slots=True)
class DrainView:
    """A node's pods, sorted by what a drain does with them."""

    to_evict: tuple[Pod, ...]
    leaving: tuple[Pod, ...]
    blocked_by: str | None  # the first pod that must not be evicted, and why
    blocked: int = 0  # how many such pods there are

    @property
    def is_drained(self) -> bool:
        """Only ignored pods are left."""
        return not self.to_evict and not self.leaving and self.blocked_by is None

    @property
    def is_left_to_die(self) -> bool:
        """Only ignored and terminating pods are left. A kubelet that does not respond never finishes those."""
        return not self.to_evict and self.blocked_by is None


def staying_words(instance: str, reasons: Mapping[str, str]) -> Iterator[str]:
    """Pods whose eviction was refused, by pod: one sentence for each reason."""
    for reason in dict.fromkeys(reasons.values()):
        pods = [pod for pod, why in reasons.items() if why == reason]
        more = f" and {len(pods) - _PODS_NAMED} more" if len(pods) > _PODS_NAMED else ""
        who = f"pods {', '.join(pods[:_PODS_NAMED])}{more} stay" if len(pods) > 1 else f"pod {pods[0]} stays"
        yield f"{who} on {instance} for now: {reason}"


def drain_view(pods: Iterable[Pod], rules: DrainRules) -> DrainView:
    to_evict: list[Pod] = []
    leaving: list[Pod] = []
    blocked_by: str | None = None
    blocked = 0
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
            blocked += 1
    return DrainView(tuple(to_evict), tuple(leaving), blocked_by, blocked)


def is_ignored(pod: Pod) -> bool:
    """A DaemonSet recreates its pod at once, a mirror pod is the kubelet's own, and a finished pod runs nothing."""
    return pod.controller == "DaemonSet" or pod.is_mirror or pod.is_finished


def has_work(pods: Iterable[Pod]) -> bool:
    """Whether a drain would have to evict, or wait for, one of the pods."""
    return any(not is_ignored(pod) for pod in pods)


def reason_to_stay(pod: Pod, rules: DrainRules) -> str | None:
    """Why the pod must not be evicted; None if it may be."""
    if pod.priority_class in CRITICAL_CLASSES:
        return f"its priority class is {pod.priority_class}"
    if pod.namespace == "kube-system":
        return "it is in kube-system and not part of a DaemonSet"
    for annotation, value in DO_NOT_EVICT.items():
        if pod.annotations.get(annotation) == value:
            return f"it is annotated {annotation}={value}"
    if not pod.controller and not rules.evict_unmanaged:
        return "it has no controller to recreate it"
    if pod.has_local_storage and not rules.evict_local_storage:
        return "it has data on this node"
    return None
