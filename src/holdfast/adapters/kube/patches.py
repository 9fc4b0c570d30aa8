"""A change of a node as a JSON patch: first the tests, then the changes. Pure.

The server applies a patch completely or not at all, and starts again if the node changes in between. So the tests hold
at the moment of the change, without a lock or a loop here.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from holdfast.ports.kube import Node, NodeChange

Operation: TypeAlias = dict[str, Any]


def patch_of(node: Node, change: NodeChange) -> list[Operation]:
    """The operations, for a node as it was read."""
    return [*_tests(node, change), *_annotating(node, change), *_changing_spec(node, change)]


def unmet(seen: Node, now: Node, change: NodeChange) -> str | None:
    """The first of the change's expectations that the node does not meet `now`; None if it meets them all."""
    if now.uid != seen.uid:
        return "is another node of the same name"
    for key, expected in change.expected.items():
        if (found := now.annotations.get(key)) != expected:
            return f"has {_annotation_text(key, found)}, expected {_annotation_text(key, expected)}"
    if change.expected_version is not None and now.resource_version != change.expected_version:
        return f"is at version {now.resource_version}, expected {change.expected_version}"
    return None


def pointer(*names: str) -> str:
    """A JSON pointer. Names of annotations usually contain a slash."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def _annotation(key: str) -> str:
    return pointer("metadata", "annotations", key)


def _tests(node: Node, change: NodeChange) -> Iterator[Operation]:
    # The name may belong to another machine by now: EC2 reuses private addresses, and so host names.
    yield _test("/metadata/uid", node.uid)
    if change.expected_version is not None:
        yield _test("/metadata/resourceVersion", change.expected_version)
    elif _rests_on_absence(node, change):
        yield _test("/metadata/resourceVersion", node.resource_version)
    for key, value in change.expected.items():
        if value is not None:
            yield _test(_annotation(key), value)


def _rests_on_absence(node: Node, change: NodeChange) -> bool:
    """A patch cannot test that something is absent, but it can test that nothing changed since we saw it absent."""
    makes_the_map = bool(change.annotations) and not node.annotations
    return makes_the_map or None in change.expected.values()


def _annotating(node: Node, change: NodeChange) -> Iterator[Operation]:
    if not change.annotations:
        return
    if not node.annotations:
        yield {"op": "add", "path": "/metadata/annotations", "value": {}}
    for key, value in change.annotations.items():
        # Add before removing: `remove` alone fails if there is nothing to remove.
        yield {"op": "add", "path": _annotation(key), "value": value or ""}
        if value is None:
            yield {"op": "remove", "path": _annotation(key)}


def _changing_spec(node: Node, change: NodeChange) -> Iterator[Operation]:
    if change.unschedulable is not None:
        yield {"op": "add", "path": "/spec/unschedulable", "value": change.unschedulable}
    if change.remove_taint is None:
        return
    # From the last to the first, so that earlier positions stay valid. Each is tested: other clients may add and remove
    # taints in the meantime.
    for position, taint in reversed(list(enumerate(node.taints))):
        if taint.key == change.remove_taint:
            place = f"/spec/taints/{position}"
            yield _test(f"{place}/key", taint.key)
            yield _test(f"{place}/effect", taint.effect)
            yield {"op": "remove", "path": place}


def _test(path: str, value: str) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _annotation_text(key: str, value: str | None) -> str:
    return f"no annotation {key}" if value is None else f"{key}={value!r}"
