"""A change of a node as a JSON patch: first what must still hold, then what to change. Pure.

The server applies a patch whole or not at all, and again from the start if the node changed while it did. So a test in
the patch holds at the very moment of the change, without a lock and without a loop here.
"""

from collections.abc import Iterator
from typing import Any, TypeAlias

from holdfast.ports.kube import Node, NodeChange

Operation: TypeAlias = dict[str, Any]


def patch_of(node: Node, change: NodeChange) -> list[Operation]:
    """The operations, for a node as it was read."""
    return [*_tests(node, change), *_annotating(node, change), *_changing_spec(node, change)]


def unmet(seen: Node, now: Node, change: NodeChange) -> str | None:
    """Which of the change's expectations the node does not meet `now`; None if it meets them all."""
    if now.uid != seen.uid:
        return "is another node of the same name"
    for key, expected in change.expected.items():
        if (found := now.annotations.get(key)) != expected:
            return f"has {_told(key, found)}, expected {_told(key, expected)}"
    if change.expected_version is not None and now.resource_version != change.expected_version:
        return f"is at version {now.resource_version}, expected {change.expected_version}"
    return None


def pointer(*names: str) -> str:
    """A JSON pointer. Names of annotations hold a slash nearly always."""
    return "".join("/" + name.replace("~", "~0").replace("/", "~1") for name in names)


def _annotation(key: str) -> str:
    return pointer("metadata", "annotations", key)


def _tests(node: Node, change: NodeChange) -> Iterator[Operation]:
    # The name alone could be another machine's by now: EC2 gives private addresses, and so host names, again.
    yield _test("/metadata/uid", node.uid)
    if change.expected_version is not None:
        yield _test("/metadata/resourceVersion", change.expected_version)
    elif _rests_on_absence(node, change):
        yield _test("/metadata/resourceVersion", node.resource_version)
    for key, value in change.expected.items():
        if value is not None:
            yield _test(_annotation(key), value)


def _rests_on_absence(node: Node, change: NodeChange) -> bool:
    """A patch cannot test that something is absent. That nothing changed since we saw it absent, it can."""
    makes_the_map = bool(change.annotations) and not node.annotations
    return makes_the_map or None in change.expected.values()


def _annotating(node: Node, change: NodeChange) -> Iterator[Operation]:
    if not change.annotations:
        return
    if not node.annotations:
        yield {"op": "add", "path": "/metadata/annotations", "value": {}}
    for key, value in change.annotations.items():
        # Set first, also what is to go: `remove` alone fails where there is nothing to remove.
        yield {"op": "add", "path": _annotation(key), "value": value or ""}
        if value is None:
            yield {"op": "remove", "path": _annotation(key)}


def _changing_spec(node: Node, change: NodeChange) -> Iterator[Operation]:
    if change.unschedulable is not None:
        yield {"op": "add", "path": "/spec/unschedulable", "value": change.unschedulable}
    if change.remove_taint is None:
        return
    # From the last to the first, so that the positions still to come stay right. Each is tested for being what was read
    # there: others may add and remove taints meanwhile.
    for position, taint in reversed(list(enumerate(node.taints))):
        if taint.key == change.remove_taint:
            place = f"/spec/taints/{position}"
            yield _test(f"{place}/key", taint.key)
            yield _test(f"{place}/effect", taint.effect)
            yield {"op": "remove", "path": place}


def _test(path: str, value: str) -> Operation:
    return {"op": "test", "path": path, "value": value}


def _told(key: str, value: str | None) -> str:
    return f"no annotation {key}" if value is None else f"{key}={value!r}"
