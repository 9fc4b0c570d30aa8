"""The simulated cluster under the same contract as a real one."""

import random
from collections.abc import Mapping

from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Kube, Node, Pod, PodPhase, Taint
from holdfast.simulator.world.k3s import DisruptionBudget, SimulatedK3s
from holdfast.simulator.world.timeline import Timeline
from holdfast.simulator.world.world import DAWN


class SimulatedWorld:
    """Implements `tests.support.kube_worlds.World`."""

    def __init__(self) -> None:
        self._timeline = Timeline(DAWN)
        self._k3s = SimulatedK3s(self._timeline, random.Random(1))

    @property
    def kube(self) -> Kube:
        return self._k3s

    def kube_with_pages_of(self, size: int) -> Kube:
        del size  # a list in memory has no pages
        return self._k3s

    def make_node(
        self,
        name: str,
        *,
        ip: str | None = None,
        is_ready: bool = True,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
    ) -> None:
        self._k3s.join(name, InstanceId(name), ip or "", labels or {}, taints)
        self._put(name, internal_ip=ip, is_ready=is_ready, annotations=dict(annotations or {}))

    def set_ready(self, node: str, *, is_ready: bool) -> None:
        self._put(node, is_ready=is_ready)

    def annotate(self, node: str, key: str, value: str | None) -> None:
        annotations = {**self._node(node).annotations, key: value}
        self._put(node, annotations={name: text for name, text in annotations.items() if text is not None})

    def set_taints(self, node: str, *taints: Taint) -> None:
        self._put(node, taints=taints)

    def remove_node(self, name: str) -> None:
        self._k3s.delete_node(self._node(name))

    def make_pod(
        self,
        name: str,
        *,
        namespace: str = "default",
        node: str | None = None,
        phase: PodPhase = PodPhase.RUNNING,
        app: str = "",
        controller: str = "",
        priority_class: str = "",
        annotations: Mapping[str, str] | None = None,
        is_mirror: bool = False,
        has_local_storage: bool = False,
    ) -> None:
        now = self._timeline.now()
        waits = phase is PodPhase.PENDING and node is None
        pod = Pod(
            namespace=namespace,
            name=name,
            uid=self._k3s.new_uid(),
            node=node,
            phase=phase,
            created=now,
            unschedulable_since=now if waits else None,
            priority_class=priority_class,
            controller=controller,
            is_mirror=is_mirror,
            has_local_storage=has_local_storage,
            annotations=dict(annotations or {}),
        )
        self._k3s.put_pod(pod, app)

    def remove_pod(self, name: str, namespace: str = "default") -> None:
        for pod in self._k3s.pods():
            if (pod.namespace, pod.name) == (namespace, name):
                self._k3s.remove_pod(pod.uid)

    def make_budget(self, name: str, *, app: str, least_available: int, namespace: str = "default") -> None:
        self._k3s.put_budget(name, DisruptionBudget(namespace, app, least_available))

    def make_secret(self, namespace: str, name: str) -> None:
        self._k3s.secrets.add((namespace, name))

    def has_secret(self, namespace: str, name: str) -> bool:
        return (namespace, name) in self._k3s.secrets

    def _node(self, name: str) -> Node:
        found = self._k3s.node(name)
        assert found is not None
        return found

    def _put(self, name: str, **changes: object) -> None:
        self._k3s.put(replace(self._node(name), **changes))
