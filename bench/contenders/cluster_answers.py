"""What an API server answers about a large cluster: pages of nodes and pods, as long as those of real clusters.

A page is generated at its first request, and kept: 1 GB for 5,000 nodes, so that later rounds do not wait for it.
"""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cache
from itertools import islice
from typing import Any, Final

from bench.contenders.cluster_objects import node, pod

PODS_PER_NODE: Final = 30
VERSION: Final = "48151623"

_HOLE: Final = "<{}>"


@dataclass(frozen=True, slots=True)
class Host:
    """A machine that became a node."""

    instance: str
    address: str
    zone: str


class Answers:
    """The lists of one cluster: a node for each host, and on each of them so many pods."""

    def __init__(self, hosts: Sequence[Host], pods_each: int = PODS_PER_NODE) -> None:
        self._hosts = hosts
        self._pods_each = pods_each
        self._node = _template(node())
        # Some DaemonSets, some pods with volumes, some with a sidecar, for the rest plain Deployments.
        plain, with_sidecar = pod("ReplicaSet", 1), pod("ReplicaSet", 2)
        kinds = (pod("DaemonSet", 1), pod("StatefulSet", 3), *[with_sidecar] * 4, *[plain] * 4)
        self._pods = [_template(kind) for kind in kinds]

    @cache  # noqa: B019 -- there is one of these, and it lives as long as its process
    def page(self, resource: str, start: int, size: int) -> bytes:
        """The page of `nodes` or `pods` that begins with this object; the token for the next is its number."""
        total = len(self._hosts) * (self._pods_each if resource == "pods" else 1)
        objects = b",".join(islice(self._objects(resource, start), size))
        more = str(start + size) if start + size < total else ""
        kind = "PodList" if resource == "pods" else "NodeList"
        head = {"kind": kind, "apiVersion": "v1", "metadata": {"resourceVersion": VERSION, "continue": more}}
        return b'%b,"items":[%b]}\n' % (json.dumps(head).encode().removesuffix(b"}"), objects)

    def _objects(self, resource: str, start: int) -> Iterator[bytes]:
        if resource == "nodes":
            return (self._node_of(host, number) for number, host in enumerate(self._hosts[start:], start))
        return (self._pod_number(number) for number in range(start, len(self._hosts) * self._pods_each))

    def _node_of(self, host: Host, number: int) -> bytes:
        holes = {"name": host.instance, "ip": host.address, "zone": host.zone, "uid": _uid("4a7d", number)}
        return self._node % {name.encode(): text.encode() for name, text in holes.items()}

    def _pod_number(self, number: int) -> bytes:
        # Lists are ordered by name, so that those of one node are far apart.
        host = self._hosts[number % len(self._hosts)]
        kind = self._pods[number // len(self._hosts) % len(self._pods)]
        holes = {"name": f"checkout-api-{number:06d}", "node": host.instance, "ip": host.address}
        holes |= {"namespace": f"team-{number % 40:02d}", "uid": _uid("9c1e", number)}
        return kind % {name.encode(): text.encode() for name, text in holes.items()}


def _template(shape: dict[str, Any]) -> bytes:
    """Its JSON, in which each <hole> is filled by name."""
    text = json.dumps(shape, separators=(",", ":")).replace("%", "%%")
    for name in ("name", "namespace", "uid", "node", "ip", "zone"):
        text = text.replace(_HOLE.format(name), f"%({name})b")
    return text.encode()


def _uid(kind: str, number: int) -> str:
    return f"{number:08x}-{kind}-4e8b-9d52-{number * 2654435761 % 2**48:012x}"
