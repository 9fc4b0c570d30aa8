"""The API server's objects, decoded into the port's.

The structs name only the fields that are used; msgspec skips the rest, which is most of a response. Every field may be
missing.
"""

from collections.abc import Container
from datetime import UTC, datetime, timedelta
from sys import intern
from typing import Annotated, Final

import msgspec

from holdfast.adapters.kube.quantities import Quantity, pod_requests, resources_of
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod, PodPhase, Taint

_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)
_MIRROR: Final = "kubernetes.io/config.mirror"
_PHASES: Final = {phase.value: phase for phase in PodPhase}
_NOTHING: Final[dict[str, str]] = {}  # shared, and never modified

_Time = Annotated[datetime, msgspec.Meta(tz=True)] | None


class Struct(msgspec.Struct, rename="camel", gc=False):
    """Unknown fields are ignored. There are no cycles, so the garbage collector need not track these."""


class _Owner(Struct):
    kind: str = ""
    controller: bool | None = None


class _Meta(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""
    creation_timestamp: _Time = None
    deletion_timestamp: _Time = None
    annotations: dict[str, str] | None = None


class PodMeta(_Meta):
    owner_references: list[_Owner] | None = None


class NodeMeta(_Meta):
    labels: dict[str, str] | None = None


class _Condition(Struct):
    type: str = ""
    status: str = ""
    reason: str | None = None
    last_transition_time: _Time = None


class _Taint(Struct):
    key: str = ""
    value: str | None = None
    effect: str = ""


class _NodeSpec(Struct):
    unschedulable: bool | None = None
    taints: list[_Taint] | None = None


class _Address(Struct):
    type: str = ""
    address: str = ""


class _NodeStatus(Struct):
    conditions: list[_Condition] | None = None
    addresses: list[_Address] | None = None
    allocatable: dict[str, Quantity] | None = None


class WireNode(Struct):
    metadata: NodeMeta
    spec: _NodeSpec | None = None
    status: _NodeStatus | None = None


class _EmptyDir(Struct):
    medium: str | None = None


class _HostPath(Struct):
    """Only its presence matters."""


class _Volume(Struct):
    empty_dir: _EmptyDir | None = None
    host_path: _HostPath | None = None


class _PodSpec(Struct):
    node_name: str | None = None
    priority_class_name: str | None = None
    volumes: list[_Volume] | None = None
    containers: msgspec.Raw = msgspec.Raw()
    init_containers: msgspec.Raw = msgspec.Raw()
    overhead: msgspec.Raw = msgspec.Raw()
    resources: msgspec.Raw = msgspec.Raw()


class _PodStatus(Struct):
    phase: str | None = None
    conditions: list[_Condition] | None = None


class WirePod(Struct):
    metadata: PodMeta
    spec: _PodSpec | None = None
    status: _PodStatus | None = None


class UnreadableObject(Exception):
    """A response, or an object in it, that does not match the API."""


def node_from(wire: WireNode) -> Node:
    meta, spec, status = wire.metadata, wire.spec or _NodeSpec(), wire.status or _NodeStatus()
    if not meta.name or not meta.uid:
        raise UnreadableObject("a node without a name or uid")
    ready = _condition(status.conditions, "Ready")
    return Node(
        name=intern(meta.name),
        uid=meta.uid,
        resource_version=meta.resource_version,
        internal_ip=_internal_ip(status.addresses),
        is_ready=ready is not None and ready.status == "True",
        ready_changed=_instant(ready.last_transition_time) if ready and ready.last_transition_time else None,
        created=_instant(meta.creation_timestamp),
        is_unschedulable=bool(spec.unschedulable),
        labels=meta.labels or _NOTHING,
        annotations=meta.annotations or _NOTHING,
        taints=tuple(Taint(taint.key, taint.value or "", taint.effect) for taint in spec.taints or ()),
        # Without a status the object could not be read. One that lists nothing gives nothing, as for the scheduler.
        allocatable=None if wire.status is None else resources_of(wire.status.allocatable or {}),
    )


def pod_from(wire: WirePod, kept_annotations: Container[str] | None = None) -> Pod:
    meta, spec, status = wire.metadata, wire.spec or _PodSpec(), wire.status or _PodStatus()
    if not meta.name or not meta.uid:
        raise UnreadableObject("a pod without a name or uid")
    annotations = meta.annotations or _NOTHING
    created = _instant(meta.creation_timestamp)
    # Names shared by many pods are interned.
    return Pod(
        namespace=intern(meta.namespace),
        name=meta.name,
        uid=meta.uid,
        node=intern(spec.node_name) if spec.node_name else None,
        phase=_PHASES.get(status.phase or "", PodPhase.UNKNOWN),
        created=created,
        unschedulable_since=_unschedulable_since(status.conditions, created),
        priority_class=intern(spec.priority_class_name or ""),
        controller=_controller(meta.owner_references),
        is_mirror=_MIRROR in annotations,
        is_deleting=meta.deletion_timestamp is not None,
        has_local_storage=any(map(_is_local, spec.volumes or ())),
        annotations=_kept(annotations, kept_annotations),
        requests=None
        if spec.node_name
        else pod_requests(spec.containers, spec.init_containers, spec.overhead, spec.resources),
    )


def _instant(moment: datetime | None) -> Instant:
    # Every object has a creation time; one that cannot be read counts as old.
    return Instant((moment - _EPOCH) // _MILLISECOND) if moment else Instant(0)


def _condition(conditions: list[_Condition] | None, kind: str) -> _Condition | None:
    return next((condition for condition in conditions or () if condition.type == kind), None)


def _internal_ip(addresses: list[_Address] | None) -> str | None:
    """IPv4 before IPv6: EC2 reports the former, and a node may have both."""
    internal = [known.address for known in addresses or () if known.type == "InternalIP"]
    return next((ip for ip in internal if ":" not in ip), internal[0] if internal else None)


def _unschedulable_since(conditions: list[_Condition] | None, created: Instant) -> Instant | None:
    # Only this reason means lack of room: a gated pod, for example, waits for its gate.
    scheduled = _condition(conditions, "PodScheduled")
    if scheduled is None or scheduled.status != "False" or scheduled.reason != "Unschedulable":
        return None
    return _instant(scheduled.last_transition_time) if scheduled.last_transition_time else created


def _controller(owners: list[_Owner] | None) -> str:
    return next((intern(owner.kind) for owner in owners or () if owner.controller), "")


def _is_local(volume: _Volume) -> bool:
    """As in Cluster Autoscaler: data on the machine's disk. An emptyDir in memory is only scratch space."""
    return volume.host_path is not None or (volume.empty_dir is not None and volume.empty_dir.medium != "Memory")


def _kept(annotations: dict[str, str], kept: Container[str] | None) -> dict[str, str]:
    if kept is None or not annotations:
        return annotations
    return {key: value for key, value in annotations.items() if key in kept} or _NOTHING
