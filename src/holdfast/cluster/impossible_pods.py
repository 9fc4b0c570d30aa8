"""Pods that no machine could hold: they request more CPU or memory than any configured type, or any node, has.

Another machine would not help such a pod, so it does not count as pending: it would otherwise drive the cluster to its
maximum and block every scale-down. It is compared with all that a machine has, though a node keeps a part for itself:
a pod is never called impossible if it could fit. Selectors, taints, volumes and other resources are not compared.
"""

from collections.abc import Iterable, Sequence
from typing import Final

from msgspec import Struct

from holdfast.fleet.instance_types import InstanceType, instance_type
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.kube import Node, Pod, Resources
from holdfast.ports.readings import Known, Reading, Unknown
from holdfast.ports.signals import PendingPods

_NAME_MOST: Final = 200
_GIB: Final = 1024**3


class ImpossiblePod(Struct, frozen=True):
    uid: str
    name: str
    why: str

    def __str__(self) -> str:
        return f"{self.name}: {self.why}"


def unschedulable_pods(pods: Iterable[Pod]) -> list[Pod]:
    return [pod for pod in pods if pod.unschedulable_since and pod.node is None]


def impossible_pods(pods: Iterable[Pod], nodes: Sequence[Node], types: Sequence[str]) -> tuple[ImpossiblePod, ...]:
    """The unschedulable pods that neither a machine of these types nor a node could hold, by name.

    With a type that is not in the table nothing is known about what can be launched, and no pod is impossible.
    """
    known = [found for found in map(instance_type, types) if found is not None]
    if not known or len(known) < len(types):
        return ()
    found = [_judged(pod, nodes, known) for pod in unschedulable_pods(pods)]
    return tuple(sorted((pod for pod in found if pod is not None), key=lambda pod: (pod.name, pod.uid)))


def _judged(pod: Pod, nodes: Sequence[Node], types: Sequence[InstanceType]) -> ImpossiblePod | None:
    asked = pod.requests
    if asked is None or any(each.capacity.could_hold(asked) for each in types):
        return None
    if any(node.allocatable is None or node.allocatable.could_hold(asked) for node in nodes):
        return None
    return ImpossiblePod(pod.uid, cut(str(pod), _NAME_MOST), _why(asked, types))


def _why(asked: Resources, types: Sequence[InstanceType]) -> str:
    cpu, memory = asked.cpu_millis or 0, asked.memory_bytes or 0
    most_cpu = max(types, key=lambda each: each.vcpus)
    most_memory = max(types, key=lambda each: each.memory_mib)
    if cpu > most_cpu.vcpus * 1000:
        return f"asks {_cpu_words(cpu)}; the largest type, {most_cpu.name}, has {most_cpu.vcpus}"
    if memory > most_memory.memory_mib * 1024**2:
        has = _memory_words(most_memory.memory_mib * 1024**2)
        return f"asks {_memory_words(memory)}; the largest type, {most_memory.name}, has {has}"
    return f"asks {_cpu_words(cpu)} and {_memory_words(memory)}; no type has both"


def _cpu_words(millis: int) -> str:
    return f"{millis / 1000:g} CPU"


def _memory_words(number: int) -> str:
    return f"{number / _GIB:.4g} GiB"


def pending_pods(
    reading: Reading[PendingPods], pods: Reading[tuple[Pod, ...]], impossible: Sequence[ImpossiblePod], now: Instant
) -> Reading[PendingPods]:
    """The pending pods that another machine could help.

    Prometheus counts; if it has no answer, Kubernetes does. Prometheus cannot tell which pods are impossible. So while
    there are any, its count is limited to the other unschedulable pods that Kubernetes lists, and their age is used.
    """
    if isinstance(pods, Unknown) or (not impossible and not isinstance(reading, Unknown)):
        return reading
    left_out = {pod.uid for pod in impossible}
    since = [pod.unschedulable_since for pod in unschedulable_pods(pods.value) if pod.uid not in left_out]
    oldest = max((now.seconds_since(moment) for moment in since if moment is not None), default=0.0)
    if isinstance(reading, Unknown):
        return Known(PendingPods(len(since), max(0.0, oldest)), pods.at)
    count = min(reading.value.count, len(since))
    return Known(PendingPods(count, max(0.0, oldest) if count else 0.0), reading.at)
