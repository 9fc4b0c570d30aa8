"""The clusters under contract. A world is the cluster as kubelets, the scheduler and people change it."""

import time
from collections.abc import Callable, Mapping
from typing import Any, Final, Protocol

from holdfast.adapters.kube.calls import KubeCalls
from holdfast.adapters.kube.client import KubeApi
from holdfast.adapters.kube.config import ApiServerAddress, KubeAccess
from holdfast.adapters.kube.tokens import FixedToken
from holdfast.adapters.kube.transport import HttpTransport
from holdfast.adapters.system_clock import SystemClock
from holdfast.ports.kube import Kube, Pod, PodPhase, Taint
from tests.servers.kube_apiserver import RunningKube

NAMESPACES: Final = ("default", "kube-system")


class World(Protocol):
    """A cluster, empty at first. What is created here is visible at once to direct requests to the server."""

    @property
    def kube(self) -> Kube: ...

    def kube_with_pages_of(self, size: int) -> Kube:
        """The same cluster, listed in pages of that size, if it has pages at all."""
        ...

    def make_node(
        self,
        name: str,
        *,
        ip: str | None = None,
        is_ready: bool = True,
        labels: Mapping[str, str] | None = None,
        annotations: Mapping[str, str] | None = None,
        taints: tuple[Taint, ...] = (),
    ) -> None: ...

    def set_ready(self, node: str, *, is_ready: bool) -> None:
        """As its kubelet would report."""
        ...

    def annotate(self, node: str, key: str, value: str | None) -> None:
        """As another client would; None removes it."""
        ...

    def set_taints(self, node: str, *taints: Taint) -> None: ...

    def remove_node(self, name: str) -> None: ...

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
        """A pod with the label app=`app`, healthy when it runs. One that is pending without a node is unschedulable."""
        ...

    def remove_pod(self, name: str, namespace: str = "default") -> None:
        """At once, as when its kubelet has stopped it."""
        ...

    def make_budget(self, name: str, *, app: str, least_available: int, namespace: str = "default") -> None:
        """A disruption budget for the pods with that label, in force when this returns."""
        ...

    def make_secret(self, namespace: str, name: str) -> None: ...

    def has_secret(self, namespace: str, name: str) -> bool: ...


class RealWorld:
    """Implements `World` on an API server without kubelets: their reports are written here."""

    def __init__(self, server: RunningKube) -> None:
        self.server = server
        self._pages: list[KubeApi] = []
        self.kube: KubeApi = self.client()

    def client(self, *, token: str = "", page_size: int = 500) -> KubeApi:
        access = KubeAccess(
            ApiServerAddress.parsed(self.server.url, "test"),
            self.server.ca_pem,
            FixedToken(token or self.server.admin_token),
        )
        made = KubeApi(KubeCalls(HttpTransport(access), SystemClock()), page_size=page_size)
        self._pages.append(made)
        return made

    def kube_with_pages_of(self, size: int) -> Kube:
        return self.client(page_size=size)

    def close(self) -> None:
        for client in self._pages:
            client.close()

    def clear(self) -> None:
        self.server.call("DELETE", "/api/v1/nodes")
        for namespace in NAMESPACES:
            self.server.call("DELETE", f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets")
            self.server.call("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
            self.server.call("DELETE", f"/api/v1/namespaces/{namespace}/secrets")

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
        meta = {"name": name, "labels": labels, "annotations": annotations}
        self.server.call("POST", "/api/v1/nodes", {"metadata": meta, "spec": {"taints": _listed(taints)}})
        addresses = [{"type": "Hostname", "address": name}]
        if ip:
            addresses.append({"type": "InternalIP", "address": ip})
        self._report(f"/api/v1/nodes/{name}", {"addresses": addresses, "conditions": [_ready(is_ready=is_ready)]})

    def set_ready(self, node: str, *, is_ready: bool) -> None:
        self._report(f"/api/v1/nodes/{node}", {"conditions": [_ready(is_ready=is_ready)]})

    def annotate(self, node: str, key: str, value: str | None) -> None:
        self.server.call("PATCH", f"/api/v1/nodes/{node}", {"metadata": {"annotations": {key: value}}})

    def set_taints(self, node: str, *taints: Taint) -> None:
        self.server.call("PATCH", f"/api/v1/nodes/{node}", {"spec": {"taints": _listed(taints)}})

    def remove_node(self, name: str) -> None:
        self.server.call("DELETE", f"/api/v1/nodes/{name}")

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
        noted = dict(annotations or {})
        if is_mirror:
            noted["kubernetes.io/config.mirror"] = "hash"
        owner = {"apiVersion": "apps/v1", "kind": controller, "name": "owner", "uid": "1", "controller": True}
        pod = {
            "metadata": {
                "name": name,
                "labels": {"app": app},
                "annotations": noted,
                "ownerReferences": [owner] if controller else [],
            },
            "spec": {
                "containers": [{"name": "main", "image": "none"}],
                "nodeName": node,
                "priorityClassName": priority_class or None,
                "volumes": [{"name": "scratch", "emptyDir": {}}] if has_local_storage else [],
            },
        }
        self.server.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)
        no_place = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "lastTransitionTime": _now()}
        healthy = {"type": "Ready", "status": "True"}
        conditions = {PodPhase.PENDING: [] if node else [no_place], PodPhase.RUNNING: [healthy]}
        self._report(
            f"/api/v1/namespaces/{namespace}/pods/{name}", {"phase": phase, "conditions": conditions.get(phase, [])}
        )

    def remove_pod(self, name: str, namespace: str = "default") -> None:
        self.server.call("DELETE", f"/api/v1/namespaces/{namespace}/pods/{name}?gracePeriodSeconds=0")

    def make_budget(self, name: str, *, app: str, least_available: int, namespace: str = "default") -> None:
        path = f"/apis/policy/v1/namespaces/{namespace}/poddisruptionbudgets"
        spec = {"minAvailable": least_available, "selector": {"matchLabels": {"app": app}}}
        self.server.run_controllers()
        self.server.call("POST", path, {"metadata": {"name": name}, "spec": spec})
        until(lambda: self.server.call("GET", f"{path}/{name}")["status"].get("observedGeneration") == 1)

    def make_secret(self, namespace: str, name: str) -> None:
        self.server.call("POST", f"/api/v1/namespaces/{namespace}/secrets", {"metadata": {"name": name}})

    def has_secret(self, namespace: str, name: str) -> bool:
        return self.server.ask("GET", f"/api/v1/namespaces/{namespace}/secrets/{name}")[0] == 200

    def _report(self, path: str, status: Mapping[str, Any]) -> None:
        self.server.call("PATCH", f"{path}/status", {"status": status})


def until(holds: Callable[[], bool], limit_seconds: float = 60.0) -> None:
    """Poll until it holds. Without a pause: each request to the server takes time."""
    give_up_at = time.monotonic() + limit_seconds
    while not holds():
        assert time.monotonic() < give_up_at, f"did not happen within {limit_seconds:g} s"


def pod_named(pods: list[Pod], name: str) -> Pod:
    return next(pod for pod in pods if pod.name == name)


def _listed(taints: tuple[Taint, ...]) -> list[dict[str, str]]:
    return [{"key": taint.key, "value": taint.value, "effect": taint.effect} for taint in taints]


def _ready(*, is_ready: bool) -> dict[str, str]:
    return {"type": "Ready", "status": "True" if is_ready else "False", "lastTransitionTime": _now()}


def _now() -> str:
    return SystemClock().now().iso_seconds()
