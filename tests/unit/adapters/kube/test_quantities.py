"""Quantities, and what a pod requests in total. What cannot be read is unknown, never zero."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.kube.quantities import Quantity, cpu_millis, memory_bytes
from holdfast.adapters.kube.reader import node_reader, pod_reader
from holdfast.ports.kube import Node, Pod, Resources

MIB = 1024**2


@pytest.mark.parametrize(
    ("text", "millis"),
    [
        ("64", 64_000),
        ("64000m", 64_000),
        ("1e3", 1_000_000),
        ("1E3", 1_000_000),
        ("0.5", 500),
        (".5", 500),
        ("+2", 2_000),
        ("2.", 2_000),
        ("1m", 1),
        ("100u", 1),
        ("1n", 1),
        ("1.5k", 1_500_000),
        ("0", 0),
        (3, 3_000),
        (0.5, 500),
        ("1e-3", 1),
        ("1e99", 2**63 - 1),
        ("1E", 2**63 - 1),
    ],
)
def test_cpu_is_read_in_every_notation(text: Quantity, millis: int) -> None:
    assert cpu_millis(text) == millis


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("128Gi", 128 * 1024 * MIB),
        ("1Ki", 1024),
        ("1k", 1000),
        ("1.5Mi", 3 * MIB // 2),
        ("129e6", 129_000_000),
        ("1E", 10**18),
        ("1Ei", 2**60),
        ("128974848000m", 128_974_848),
        ("8Ei", 2**63 - 1),
        ("1m", 1),
    ],
)
def test_memory_is_read_in_every_notation(text: str, number: int) -> None:
    assert memory_bytes(text) == number


@pytest.mark.parametrize(
    "text",
    [
        "",
        ".",
        "-1",
        "1e",
        "e3",
        "1 Gi",
        "1gi",
        "1KI",
        "0x10",
        "NaN",
        "inf",
        "\u0661",
        "1" * 19,
        "1e100",
        "1\n",
        "9" * 99,
        "1_0",
        "1,5",
        "--1",
        "1e+-3",
    ],
)
def test_what_is_no_quantity_is_unknown(text: str) -> None:
    assert cpu_millis(text) is None
    assert memory_bytes(text) is None


@given(st.text(max_size=80))
def test_no_text_is_too_much(text: str) -> None:
    for value in (cpu_millis(text), memory_bytes(text)):
        assert value is None or 0 <= value < 2**63


def container(cpu: object = None, memory: object = None, **more: object) -> dict[str, Any]:
    asked = {name: value for name, value in (("cpu", cpu), ("memory", memory)) if value is not None}
    return {"name": "c", "image": "i", "resources": {"requests": asked, "limits": {"cpu": "99"}}, **more}


def read(**spec: object) -> Pod:
    meta = {"name": "p", "namespace": "default", "uid": "u"}
    return pod_reader().one(json.dumps({"metadata": meta, "spec": spec, "status": {"phase": "Pending"}}).encode())


SIDECAR = container("1", "100Mi", restartPolicy="Always")


@pytest.mark.parametrize(
    ("spec", "cpu", "mib"),
    [
        ({"containers": [container("500m", "64Mi"), container("1", "64Mi")]}, 1_500, 128),
        ({"containers": [container("500m"), {"name": "plain"}]}, 500, 0),
        ({"containers": [container("1", "64Mi")], "initContainers": [container("4", "32Mi")]}, 4_000, 64),
        ({"containers": [container("3")], "initContainers": [container("2"), container("2")]}, 3_000, 0),
        ({"containers": [container("1", "64Mi")], "initContainers": [SIDECAR]}, 2_000, 164),
        # An init container runs beside the sidecars that were started before it, and not beside later ones.
        ({"containers": [container("1")], "initContainers": [SIDECAR, container("4", "10Mi")]}, 5_000, 110),
        ({"containers": [container("1")], "initContainers": [container("4", "10Mi"), SIDECAR]}, 4_000, 100),
        ({"containers": [container("1")], "overhead": {"cpu": "250m", "memory": "120Mi"}}, 1_250, 120),
        # Resources of the whole pod come instead of the containers'.
        ({"containers": [container("1", "9Mi")], "resources": {"requests": {"cpu": "6"}}}, 6_000, 9),
        ({"containers": None, "initContainers": None, "overhead": None, "resources": None}, 0, 0),
        ({}, 0, 0),
    ],
)
def test_a_pods_requests_are_those_of_the_scheduler(spec: dict[str, Any], cpu: int, mib: int) -> None:
    assert read(**spec).requests == Resources(cpu, mib * MIB)


def test_an_unreadable_quantity_makes_only_its_resource_unknown() -> None:
    assert read(containers=[container("lots", "64Mi"), container("1", "64Mi")]).requests == Resources(None, 128 * MIB)
    assert read(containers=[container("1")], overhead={"cpu": "?"}).requests == Resources(None, 0)
    assert read(containers=[container("1")], initContainers=[container("?")]).requests == Resources(None, 0)


@pytest.mark.parametrize("containers", ["text", [1], [{"resources": []}], [{"resources": {"requests": {"cpu": {}}}}]])
def test_a_malformed_container_leaves_the_requests_unknown_and_the_pod_readable(containers: object) -> None:
    found = read(containers=containers, priorityClassName="high")
    assert found.requests is None
    assert found.priority_class == "high"


def test_the_requests_of_a_pod_that_has_a_node_are_not_read() -> None:
    assert read(containers=[container("1")], nodeName="node-1").requests is None


def node(status: object) -> Node:
    body = {"metadata": {"name": "n", "uid": "u"}, **({} if status is None else {"status": status})}
    return node_reader().one(json.dumps(body).encode())


def test_a_nodes_allocatable_is_read_and_unknown_without_a_status() -> None:
    assert node({"allocatable": {"cpu": "1930m", "memory": "3388360Ki", "pods": "17"}}).allocatable == Resources(
        1_930, 3_388_360 * 1024
    )
    assert node({}).allocatable == Resources(0, 0)
    assert node({"allocatable": {"cpu": "?"}}).allocatable == Resources(None, 0)
    assert node(None).allocatable is None
