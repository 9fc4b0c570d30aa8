"""Reading objects of the API server; and that no malformed object breaks a list."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kube.objects import UnreadableObject
from holdfast.adapters.kube.reader import node_reader, pod_reader
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, Pod, PodPhase, Resources, Taint

BORN = "2026-01-15T10:00:00Z"
LATER = "2026-01-15T10:05:00Z"


def read_node(**parts: Any) -> Node:
    meta = {"name": "n", "uid": "u", "resourceVersion": "5", "creationTimestamp": BORN, **parts.pop("metadata", {})}
    return node_reader().one(json.dumps({"metadata": meta, **parts}).encode())


def read_pod(**parts: Any) -> Pod:
    meta = {"name": "p", "namespace": "ns", "uid": "u", "creationTimestamp": BORN, **parts.pop("metadata", {})}
    return pod_reader().one(json.dumps({"metadata": meta, **parts}).encode())


def page_of(*items: Any, **meta: str) -> bytes:
    return json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "9", **meta}, "items": items}).encode()


# Nodes


def test_a_bare_node_is_unready_and_has_nothing() -> None:
    assert read_node() == Node("n", "u", "5", None, False, None, Instant.from_iso(BORN), False)


def test_a_node_is_ready_only_if_its_condition_is_true() -> None:
    for status, is_ready in (("True", True), ("False", False), ("Unknown", False), ("true", False)):
        condition = {"type": "Ready", "status": status, "lastTransitionTime": LATER}
        other = {"type": "MemoryPressure", "status": "True"}
        node = read_node(status={"conditions": [other, condition]})
        assert (node.is_ready, node.ready_changed) == (is_ready, Instant.from_iso(LATER))


def addresses(*pairs: tuple[str, str]) -> dict[str, Any]:
    return {"addresses": [{"type": kind, "address": address} for kind, address in pairs]}


@pytest.mark.parametrize(
    ("status", "ip"),
    [
        (addresses(("Hostname", "n"), ("ExternalIP", "3.3.3.3"), ("InternalIP", "10.0.0.1")), "10.0.0.1"),
        (addresses(("InternalIP", "fd00::1"), ("InternalIP", "10.0.0.1")), "10.0.0.1"),
        (addresses(("InternalIP", "fd00::1")), "fd00::1"),
        (addresses(("ExternalIP", "3.3.3.3")), None),
        ({"addresses": None}, None),
        ({}, None),
    ],
)
def test_the_address_of_a_node_is_its_internal_ipv4_address(status: dict[str, Any], ip: str | None) -> None:
    assert read_node(status=status).internal_ip == ip


def test_cordon_and_taints_of_a_node_are_read() -> None:
    taints = [
        {"key": "a", "effect": "NoSchedule"},
        {"key": "b", "value": "v", "effect": "NoExecute", "timeAdded": BORN},
    ]
    node = read_node(spec={"unschedulable": True, "taints": taints})
    assert node.is_unschedulable
    assert node.taints == (Taint("a", "", "NoSchedule"), Taint("b", "v", "NoExecute"))


# Pods


def test_a_bare_pod_has_nothing() -> None:
    assert read_pod() == Pod("ns", "p", "u", None, PodPhase.UNKNOWN, Instant.from_iso(BORN), requests=Resources(0, 0))


@pytest.mark.parametrize("phase", list(PodPhase))
def test_each_phase_is_read(phase: PodPhase) -> None:
    assert read_pod(status={"phase": phase.value}).phase is phase


def test_a_phase_of_a_later_kubernetes_is_unknown() -> None:
    assert read_pod(status={"phase": "Hibernating"}).phase is PodPhase.UNKNOWN


def scheduled(**condition: Any) -> dict[str, Any]:
    return {"phase": "Pending", "conditions": [{"type": "PodScheduled", "status": "False", **condition}]}


@pytest.mark.parametrize(
    ("status", "since"),
    [
        (scheduled(reason="Unschedulable", lastTransitionTime=LATER), LATER),
        (scheduled(reason="Unschedulable"), BORN),
        (scheduled(reason="SchedulingGated", lastTransitionTime=LATER), None),
        (scheduled(status="True", lastTransitionTime=LATER), None),
        ({"phase": "Pending", "conditions": []}, None),
    ],
    ids=["since then", "without a time: since it was made", "gated", "scheduled", "not yet looked at"],
)
def test_only_a_pod_without_room_is_unschedulable(status: dict[str, Any], since: str | None) -> None:
    assert read_pod(status=status).unschedulable_since == (Instant.from_iso(since) if since else None)


@pytest.mark.parametrize(
    ("volume", "is_local"),
    [
        ({"emptyDir": {}}, True),
        ({"emptyDir": {"sizeLimit": "1Gi"}}, True),
        ({"emptyDir": {"medium": "Memory"}}, False),
        ({"hostPath": {"path": "/data"}}, True),
        ({"persistentVolumeClaim": {"claimName": "c"}}, False),
        ({"configMap": {"name": "c"}}, False),
    ],
    ids=str,
)
def test_volumes_on_the_machines_disk_are_local(volume: dict[str, Any], is_local: bool) -> None:
    assert read_pod(spec={"volumes": [{"name": "first"}, volume]}).has_local_storage is is_local


def test_the_controller_is_the_owner_marked_as_controller() -> None:
    owners = [{"kind": "Node", "name": "n"}, {"kind": "ReplicaSet", "name": "r", "controller": True}]
    assert read_pod(metadata={"ownerReferences": owners}).controller == "ReplicaSet"
    assert read_pod(metadata={"ownerReferences": owners[:1]}).controller == ""


def test_mirror_pods_and_terminating_pods_are_recognised() -> None:
    pod = read_pod(metadata={"annotations": {"kubernetes.io/config.mirror": ""}, "deletionTimestamp": LATER})
    assert (pod.is_mirror, pod.is_deleting) == (True, True)


def test_only_relevant_annotations_are_kept() -> None:
    noted = {"wanted": "1", "huge": "x" * 1000, "kubernetes.io/config.mirror": "h"}
    raw = json.dumps({"metadata": {"name": "p", "uid": "u", "annotations": noted}}).encode()
    assert pod_reader().one(raw).annotations == noted
    few = pod_reader({"wanted"}).one(raw)
    assert (few.annotations, few.is_mirror) == ({"wanted": "1"}, True)
    assert pod_reader({"other"}).one(raw).annotations == {}


# Malformed objects


NAMED = {"name": "p", "uid": "u", "namespace": "ns"}


@pytest.mark.parametrize(
    "broken",
    [
        {"metadata": {**NAMED, "annotations": 5}},
        {"metadata": {**NAMED, "creationTimestamp": "yesterday"}},
        {"metadata": {**NAMED, "creationTimestamp": "2026-01-15T10:00:00"}},
        {"metadata": NAMED, "spec": []},
        {"metadata": NAMED, "spec": {"nodeName": 7}},
        {"metadata": NAMED, "status": {"conditions": [None]}},
    ],
    ids=str,
)
def test_a_malformed_pod_is_still_listed_by_name(broken: dict[str, Any]) -> None:
    """It may be running: a machine must not be terminated because we cannot read its pods."""
    good = {"metadata": {**NAMED, "name": "good"}, "spec": {"nodeName": "n"}}
    page = pod_reader().page(page_of(broken, good))
    assert [(str(pod), pod.uid, pod.node) for pod in page.items] == [("ns/p", "u", None), ("ns/good", "u", "n")]
    assert page.items[0].phase is PodPhase.UNKNOWN
    assert page.unreadable == 0


@pytest.mark.parametrize(
    "nameless",
    [{}, {"metadata": None}, {"metadata": {}}, {"metadata": {"name": "p"}}, {"metadata": {"name": 5}}, None, 7],
)
def test_objects_without_name_or_uid_are_left_out_and_counted(nameless: Any) -> None:
    page = pod_reader().page(page_of({"metadata": NAMED}, nameless))
    assert ([pod.name for pod in page.items], page.unreadable) == (["p"], 1)


def test_a_page_has_its_version_and_its_continue_token() -> None:
    page = pod_reader().page(page_of(**{"continue": "token", "remainingItemCount": "5"}))
    assert (page.items, page.version, page.more) == ([], "9", "token")
    assert pod_reader().page(b'{"metadata": {"resourceVersion": "3"}, "items": null}').more == ""


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=10,
)
FIELDS = ["name", "uid", "namespace", "annotations", "creationTimestamp", "ownerReferences", "labels"]
OBJECTS = st.fixed_dictionaries(
    {},
    optional={
        "metadata": JSON | st.dictionaries(st.sampled_from(FIELDS), JSON),
        "spec": JSON | st.dictionaries(st.sampled_from(["nodeName", "volumes", "taints", "unschedulable"]), JSON),
        "status": JSON | st.dictionaries(st.sampled_from(["phase", "conditions", "addresses"]), JSON),
    },
)


@given(st.lists(OBJECTS, max_size=4))
def test_no_malformed_object_breaks_a_page(items: list[Any]) -> None:
    body = page_of({"metadata": NAMED}, *items)
    for page in (pod_reader().page(body), node_reader().page(body)):
        assert len(page.items) + page.unreadable == len(items) + 1
        assert page.items[0].name == "p"


@pytest.mark.parametrize("body", [b"", b"<html>", b"[]", b'{"items": 5, "metadata": {}}', b'{"items": []}', b"\xff"])
def test_a_response_that_is_not_a_list_is_an_error(body: bytes) -> None:
    with pytest.raises(UnreadableObject):
        pod_reader().page(body)


# Events


def test_an_event_has_the_object_and_its_version() -> None:
    raw = {"metadata": {**NAMED, "resourceVersion": "12"}}
    event = pod_reader().event(json.dumps({"type": "ADDED", "object": raw}).encode())
    assert (event.kind, event.version) == ("ADDED", "12")
    assert event.found is not None
    assert event.found.name == "p"


def test_a_bookmark_has_a_version_only() -> None:
    raw = {"kind": "Pod", "metadata": {"resourceVersion": "40", "creationTimestamp": None}}
    event = pod_reader().event(json.dumps({"type": "BOOKMARK", "object": raw}).encode())
    assert (event.kind, event.found, event.version) == ("BOOKMARK", None, "40")


@pytest.mark.parametrize("line", [b"{", b"[]", b'{"type": "ADDED"}', b'{"type": "ADDED", "object": {"metadata": {}}}'])
def test_an_unreadable_event_is_reported_as_unreadable(line: bytes) -> None:
    with pytest.raises(UnreadableObject):
        pod_reader().event(line)
