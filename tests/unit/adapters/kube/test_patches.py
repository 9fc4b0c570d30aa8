"""A change of a node as a JSON patch."""

from msgspec.structs import replace

from holdfast.adapters.kube.patches import patch_of, pointer, unmet
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node, NodeChange, Taint

FENCE = "holdfast.dev/fence"
FENCE_PATH = "/metadata/annotations/holdfast.dev~1fence"
BARE = Node("n", "u", "41", None, True, None, Instant(0), False)
FENCED = replace(BARE, annotations={FENCE: "5"})
UID = {"op": "test", "path": "/metadata/uid", "value": "u"}
VERSION = {"op": "test", "path": "/metadata/resourceVersion", "value": "41"}


def test_a_json_pointer_is_escaped() -> None:
    assert pointer("metadata", "annotations", "a/b~c/~1") == "/metadata/annotations/a~1b~0c~1~01"


def test_a_cordon_tests_the_fence_then_writes_it_then_makes_the_node_unschedulable() -> None:
    change = NodeChange(unschedulable=True, annotations={FENCE: "6"}, expected={FENCE: "5"})
    assert patch_of(FENCED, change) == [
        UID,
        {"op": "test", "path": FENCE_PATH, "value": "5"},
        {"op": "add", "path": FENCE_PATH, "value": "6"},
        {"op": "add", "path": "/spec/unschedulable", "value": True},
    ]


def test_absence_is_tested_by_the_version() -> None:
    change = NodeChange(annotations={FENCE: "1"}, expected={FENCE: None})
    first = replace(BARE, annotations={"other": "x"})
    assert patch_of(first, change) == [UID, VERSION, {"op": "add", "path": FENCE_PATH, "value": "1"}]


def test_the_first_annotation_creates_the_map_and_does_not_overwrite_one() -> None:
    assert patch_of(BARE, NodeChange(annotations={FENCE: "1"})) == [
        UID,
        VERSION,
        {"op": "add", "path": "/metadata/annotations", "value": {}},
        {"op": "add", "path": FENCE_PATH, "value": "1"},
    ]


def test_an_expected_version_is_the_one_that_is_tested() -> None:
    change = NodeChange(unschedulable=False, expected={FENCE: None}, expected_version="40")
    assert patch_of(BARE, change) == [
        UID,
        {**VERSION, "value": "40"},
        {"op": "add", "path": "/spec/unschedulable", "value": False},
    ]


def test_an_annotation_is_removed_whether_it_exists_or_not() -> None:
    assert patch_of(FENCED, NodeChange(annotations={FENCE: None})) == [
        UID,
        {"op": "add", "path": FENCE_PATH, "value": ""},
        {"op": "remove", "path": FENCE_PATH},
    ]


def test_taints_are_removed_from_the_last_to_the_first_each_tested() -> None:
    mine, other = Taint("mine", "v", "NoSchedule"), Taint("other", "", "NoSchedule")
    node = replace(FENCED, taints=(mine, other, replace(mine, effect="NoExecute")))
    assert patch_of(node, NodeChange(remove_taint="mine")) == [
        UID,
        {"op": "test", "path": "/spec/taints/2/key", "value": "mine"},
        {"op": "test", "path": "/spec/taints/2/effect", "value": "NoExecute"},
        {"op": "remove", "path": "/spec/taints/2"},
        {"op": "test", "path": "/spec/taints/0/key", "value": "mine"},
        {"op": "test", "path": "/spec/taints/0/effect", "value": "NoSchedule"},
        {"op": "remove", "path": "/spec/taints/0"},
    ]


def test_an_unexpected_value_is_a_conflict() -> None:
    change = NodeChange(expected={FENCE: "5"}, expected_version="41")
    assert unmet(FENCED, FENCED, change) is None
    assert unmet(FENCED, replace(FENCED, uid="v"), change) == "is another node of the same name"
    assert unmet(FENCED, BARE, change) == "has no annotation holdfast.dev/fence, expected holdfast.dev/fence='5'"
    assert unmet(FENCED, replace(FENCED, resource_version="42"), change) == "is at version 42, expected 41"
