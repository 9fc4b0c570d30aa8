"""Decodes the API server's responses: an object, a page of a list, a line of a watch.

One bad object never spoils a list. An object with a field of the wrong type is kept by name, with everything else
unknown: even an unreadable pod keeps its machine. Only an object without a name or uid is skipped and counted.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from holdfast.adapters.kube.objects import (
    NodeMeta,
    PodMeta,
    Struct,
    UnreadableObject,
    WireNode,
    WirePod,
    node_from,
    pod_from,
)
from holdfast.kernel import typed_json
from holdfast.ports.kube import Node, Pod


class _Version(Struct):
    resource_version: str = ""
    continue_: str | None = msgspec.field(default=None, name="continue")


class _Versioned(Struct):
    metadata: _Version


class _Identity(Struct):
    name: str = ""
    namespace: str = ""
    uid: str = ""
    resource_version: str = ""


class _Identified(Struct):
    metadata: _Identity


W = TypeVar("W")
T = TypeVar("T")


class _Page(Struct, Generic[W]):
    metadata: _Version
    items: list[W] | None = None


class _Event(Struct):
    type: str
    object: msgspec.Raw


_RAW_PAGE: Final = typed_json.decoder(_Page[msgspec.Raw])
_EVENT: Final = typed_json.decoder(_Event)
_VERSIONED: Final = typed_json.decoder(_Versioned)
_IDENTIFIED: Final = typed_json.decoder(_Identified)


@dataclass(frozen=True, slots=True)
class ObjectListPage(Generic[T]):
    items: list[T]
    unreadable: int
    version: str
    more: str  # the token for the next page; "" on the last


@dataclass(frozen=True, slots=True)
class WatchEvent(Generic[T]):
    """One line of a watch. A bookmark has only a version; an error has a Status, as JSON, in `error`."""

    kind: str
    found: T | None = None
    version: str = ""
    error: bytes = b""


class ObjectReader(Generic[W, T]):
    """Decodes objects of one kind."""

    def __init__(
        self, wire: type[W], page: type[_Page[W]], nameplate: Callable[[_Identity], W], made: Callable[[W], T]
    ) -> None:
        self._one: msgspec.json.Decoder[W] = typed_json.decoder(wire)
        self._page: msgspec.json.Decoder[_Page[W]] = typed_json.decoder(page)
        self._nameplate = nameplate
        self._made = made

    def one(self, body: bytes | msgspec.Raw) -> T:
        try:
            return self._made(self._one.decode(body))
        except msgspec.MsgspecError:
            return self._by_name(body)

    def page(self, body: bytes) -> ObjectListPage[T]:
        try:
            page = self._page.decode(body)
        except msgspec.MsgspecError:
            return self._page_one_by_one(body)
        return _page(page.metadata, self._made, page.items or ())

    def event(self, line: bytes) -> WatchEvent[T]:
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                return WatchEvent(event.type, error=bytes(event.object))
            version = _VERSIONED.decode(event.object).metadata.resource_version
        except msgspec.MsgspecError as error:
            raise UnreadableObject(f"a line of a watch: {error}") from error
        if event.type == "BOOKMARK":
            return WatchEvent(event.type, version=version)
        return WatchEvent(event.type, self.one(event.object), version)

    def _page_one_by_one(self, body: bytes) -> ObjectListPage[T]:
        """A field has the wrong type: decode each object separately, and keep the good ones."""
        try:
            page = _RAW_PAGE.decode(body)
        except msgspec.MsgspecError as error:
            raise UnreadableObject(f"a page of a list: {error}") from error
        return _page(page.metadata, self.one, page.items or ())

    def _by_name(self, body: bytes | msgspec.Raw) -> T:
        try:
            return self._made(self._nameplate(_IDENTIFIED.decode(body).metadata))
        except msgspec.MsgspecError as error:
            raise UnreadableObject(f"an object: {error}") from error


def node_reader() -> ObjectReader[WireNode, Node]:
    def nameplate(known: _Identity) -> WireNode:
        return WireNode(NodeMeta(known.name, known.namespace, known.uid, known.resource_version))

    return ObjectReader(WireNode, _Page[WireNode], nameplate, node_from)


def pod_reader(kept_annotations: Container[str] | None = None) -> ObjectReader[WirePod, Pod]:
    """With `kept_annotations`, other annotations are dropped: some pods have kilobytes of them."""

    def nameplate(known: _Identity) -> WirePod:
        return WirePod(PodMeta(known.name, known.namespace, known.uid, known.resource_version))

    return ObjectReader(WirePod, _Page[WirePod], nameplate, lambda wire: pod_from(wire, kept_annotations))


V = TypeVar("V")


def _page(meta: _Version, made: Callable[[V], T], items: Iterable[V]) -> ObjectListPage[T]:
    kept: list[T] = []
    unreadable = 0
    for item in items:
        try:
            kept.append(made(item))
        except UnreadableObject:
            unreadable += 1
    return ObjectListPage(kept, unreadable, meta.resource_version, meta.continue_ or "")
