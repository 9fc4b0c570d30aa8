"""The Kubernetes API, as far as the port needs it.

Lists are read page by page, and only what the port promises is kept: a few hundred bytes for an object of ten thousand.
"""

import logging
from collections.abc import Container
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

import msgspec

from holdfast.adapters.kube.calls import KubeCalls, KubeRefusal, translated
from holdfast.adapters.kube.config import KubeAccess
from holdfast.adapters.kube.objects import UnreadableObject, WireNode, WirePod
from holdfast.adapters.kube.patches import patch_of, unmet
from holdfast.adapters.kube.reader import ObjectReader, node_reader, pod_reader
from holdfast.adapters.kube.transport import HttpTransport, Request, Stream, path_of
from holdfast.kernel.errors import BadRequest
from holdfast.ports.clock import Clock
from holdfast.ports.kube import Evicted, Eviction, KubeUnavailable, Node, NodeChange, NodeChanged, Pod

_log = logging.getLogger(__name__)

PAGE_SIZE: Final = 500
_RESTARTS: Final = 3
_NOT_FINISHED: Final = "status.phase!=Succeeded,status.phase!=Failed"
_JSON_PATCH: Final = "application/json-patch+json"

W = TypeVar("W")
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class Resource(Generic[W, T]):
    """A collection that is listed and watched."""

    name: str
    reader: ObjectReader[W, T]
    selector: str = ""

    def request(self, verb: str, **query: str) -> Request:
        if self.selector:
            query["fieldSelector"] = self.selector
        return Request(verb, self.name, f"/api/v1/{self.name}", query=query)


@dataclass(frozen=True, slots=True)
class Listing(Generic[T]):
    """All objects at one version, from which a watch can continue."""

    items: list[T]
    unreadable: int
    version: str


class KubeApi:
    """Implements `holdfast.ports.kube.Kube`."""

    def __init__(
        self, calls: KubeCalls, *, page_size: int = PAGE_SIZE, kept_annotations: Container[str] | None = None
    ) -> None:
        """Only a pod's annotations in `kept_annotations` are kept; all if it is None."""
        self._calls = calls
        self._page_size = page_size
        self.all_nodes: Resource[WireNode, Node] = Resource("nodes", node_reader())
        self.all_pods: Resource[WirePod, Pod] = Resource("pods", pod_reader(kept_annotations), _NOT_FINISHED)

    def nodes(self) -> list[Node]:
        return self.listing(self.all_nodes).items

    def node(self, name: str) -> Node | None:
        answer = self._calls.read(_on_node("get", name), expected=[404])
        return None if answer.status == 404 else self._node(answer.body)

    def pods(self) -> list[Pod]:
        return self.listing(self.all_pods).items

    def pods_on(self, node: str) -> list[Pod]:
        there = Resource("pods", self.all_pods.reader, f"spec.nodeName={node}")
        found = self.listing(there)
        if found.unreadable:
            # This list decides whether a machine may be terminated: an unreadable pod may still be working.
            raise KubeUnavailable(f"pods on {node}: {found.unreadable} have no name or uid; the list is not used")
        return found.items

    def change_node(self, node: Node, change: NodeChange) -> Node:
        # A patch cannot test for absence, so check what the caller saw here.
        if any(value is None and key in node.annotations for key, value in change.expected.items()):
            raise self._changed(node, change)
        body = msgspec.json.encode(patch_of(node, change))
        answer = self._calls.change(
            _on_node("patch", node.name, body=body, content_type=_JSON_PATCH), expected=[404, 409, 422]
        )
        if answer.status < 300:
            return self._node(answer.body)
        refusal = KubeRefusal.read(answer.status, answer.body)
        if refusal.causes:  # a failed test has no causes; a validation error names the field
            raise BadRequest(f"node {node.name}: {refusal}; nothing was changed")
        raise self._changed(node, change)

    def evict(self, pod: Pod) -> Evicted:
        request = _eviction(pod)
        answer = self._calls.change(request, expected=[403, 404, 409, 429, 500])
        if answer.status < 300:
            return Evicted(Eviction.ACCEPTED)
        if answer.status == 404:
            return Evicted(Eviction.GONE)
        refusal = KubeRefusal.read(answer.status, answer.body)
        if answer.status == 409:
            return self._after_conflict(pod, refusal)
        if answer.status == 429 or _is_blocked(refusal):
            wait = f"; retry after {answer.retry_after_seconds:g} s" if answer.retry_after_seconds else ""
            return Evicted(Eviction.BLOCKED, f"{refusal}{wait}")
        raise translated(request, refusal)

    def delete_node(self, node: Node) -> None:
        body = msgspec.json.encode({"preconditions": {"uid": node.uid}})
        # 409: another node has this name now, and is kept.
        self._calls.change(_on_node("delete", node.name, body=body), expected=[404, 409])

    def delete_secret(self, namespace: str, name: str) -> None:
        path = path_of("api", "v1", "namespaces", namespace, "secrets", name)
        self._calls.change(Request("delete", "secrets", path, f"{namespace}/{name}"), expected=[404])

    def listing(self, resource: Resource[W, T]) -> Listing[T]:
        """All pages of one version. If the server has dropped that version, read again from the first page."""
        for _ in range(_RESTARTS):
            try:
                return self._pages(resource)
            except _Expired:
                _log.info("list %s: its version has expired on the server; starting over", resource.name)
        raise KubeUnavailable(f"Kubernetes, list {resource.name}: expired {_RESTARTS} times between two pages")

    def watch(self, resource: Resource[W, T], version: str, seconds: int) -> Stream:
        """Events since `version`, for this many seconds. Status 410: the server has dropped that version."""
        request = resource.request(
            "watch", watch="1", resourceVersion=version, allowWatchBookmarks="true", timeoutSeconds=str(seconds)
        )
        # The server ends the watch in time; if nothing arrives for longer, the connection is dead.
        return self._calls.open(request, idle_seconds=seconds + 10, expected=[410])

    def close(self) -> None:
        self._calls.close()

    def _pages(self, resource: Resource[W, T]) -> Listing[T]:
        items: list[T] = []
        unreadable, more = 0, ""
        while True:
            query = {"limit": str(self._page_size)}
            if more:
                query["continue"] = more
            answer = self._calls.read(resource.request("list", **query), expected=[410])
            if answer.status == 410:
                raise _Expired
            try:
                page = resource.reader.page(answer.body)
            except UnreadableObject as error:
                raise KubeUnavailable(f"Kubernetes, list {resource.name}: {error}") from error
            items += page.items
            unreadable += page.unreadable
            more = page.more
            if not more:
                break
        if unreadable:
            _log.warning("list %s: skipped %d objects without a name or uid", resource.name, unreadable)
        return Listing(items, unreadable, page.version)

    def _node(self, body: bytes) -> Node:
        try:
            return self.all_nodes.reader.one(body)
        except UnreadableObject as error:
            raise KubeUnavailable(f"Kubernetes, get nodes: {error}") from error

    def _changed(self, seen: Node, change: NodeChange) -> NodeChanged:
        now = self.node(seen.name)
        why = "is gone" if now is None else unmet(seen, now, change) or "was changed in the meantime"
        return NodeChanged(f"node {seen.name} {why}; nothing was changed", now)

    def _after_conflict(self, pod: Pod, refusal: KubeRefusal) -> Evicted:
        """Either another pod has this name by now, or this one changes faster than the server can evict it."""
        path = path_of("api", "v1", "namespaces", pod.namespace, "pods", pod.name)
        answer = self._calls.read(Request("get", "pods", path, str(pod)), expected=[404])
        try:
            if answer.status == 404 or self.all_pods.reader.one(answer.body).uid != pod.uid:
                return Evicted(Eviction.GONE)
        except UnreadableObject as error:
            raise KubeUnavailable(f"Kubernetes, get pods {pod}: {error}") from error
        return Evicted(Eviction.BLOCKED, str(refusal))


def kube_api(access: KubeAccess, clock: Clock, *, kept_annotations: Container[str] | None = None) -> KubeApi:
    """A client with this access to the API server."""
    return KubeApi(KubeCalls(HttpTransport(access), clock), kept_annotations=kept_annotations)


class _Expired(Exception):
    """The version of a list has expired on the server."""


def _on_node(verb: str, name: str, **more: Any) -> Request:
    return Request(verb, "nodes", path_of("api", "v1", "nodes", name), name, **more)


def _eviction(pod: Pod) -> Request:
    body = {
        "apiVersion": "policy/v1",
        "kind": "Eviction",
        "metadata": {"namespace": pod.namespace, "name": pod.name},
        "deleteOptions": {"preconditions": {"uid": pod.uid}},
    }
    path = path_of("api", "v1", "namespaces", pod.namespace, "pods", pod.name, "eviction")
    return Request("create", "pods/eviction", path, str(pod), body=msgspec.json.encode(body))


def _is_blocked(refusal: KubeRefusal) -> bool:
    """Refusals with another status that mean the same as a 429."""
    if refusal.code == 500:
        # The server does not evict a pod covered by two budgets. kubectl gives up at once; we retry until the drain's
        # own limit, so that the budgets can be fixed.
        return "more than one PodDisruptionBudget" in refusal.message
    # Nothing is evicted from a namespace that is being deleted: the pod will be deleted with it.
    return refusal.code == 403 and refusal.has_cause("NamespaceTerminating")
