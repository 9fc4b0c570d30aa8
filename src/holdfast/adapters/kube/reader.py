"""Answers of the API server, read one by one: an object, a page of a list, a line of a watch.

One bad object never spoils a list. An object in which something is not of its type is still told by its name, with
everything else unknown: a pod that we cannot read keeps its machine all the same. Only one without a name or uid is
left out and counted, since nobody could refer to it anyway.
"""

from collections.abc import Callable, Container, Iterable
from dataclasses import dataclass
from typing import Final, Generic, TypeVar

import msgspec

from holdfast.adapters.kube.objects import (
    NodeMeta,
    PodMeta,
    Struct,
    Unreadable,
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
class Page(Generic[T]):
    items: list[T]
    unreadable: int
    version: str
    more: str  # the token for the next page; "" on the last


@dataclass(frozen=True, slots=True)
class Event(Generic[T]):
    """One line of a watch. A bookmark tells a version only; an error has a Status, as JSON, in `error`."""

    kind: str
    found: T | None = None
    version: str = ""
    error: bytes = b""


class Reader(Generic[W, T]):
    """Reads answers about one kind of object."""

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

    def page(self, body: bytes) -> Page[T]:
        try:
            page = self._page.decode(body)
        except msgspec.MsgspecError:
            return self._page_one_by_one(body)
        return _page(page.metadata, self._made, page.items or ())

    def event(self, line: bytes) -> Event[T]:
        try:
            event = _EVENT.decode(line)
            if event.type == "ERROR":
                return Event(event.type, error=bytes(event.object))
            version = _VERSIONED.decode(event.object).metadata.resource_version
        except msgspec.MsgspecError as error:
            raise Unreadable(f"a line of a watch: {error}") from error
        if event.type == "BOOKMARK":
            return Event(event.type, version=version)
        return Event(event.type, self.one(event.object), version)

    def _page_one_by_one(self, body: bytes) -> Page[T]:
        """Something in it is not of its type: find out in which object, and keep the others."""
        try:
            page = _RAW_PAGE.decode(body)
        except msgspec.MsgspecError as error:
            raise Unreadable(f"a page of a list: {error}") from error
        return _page(page.metadata, self.one, page.items or ())

    def _by_name(self, body: bytes | msgspec.Raw) -> T:
        try:
            return self._made(self._nameplate(_IDENTIFIED.decode(body).metadata))
        except msgspec.MsgspecError as error:
            raise Unreadable(f"an object: {error}") from error


def node_reader() -> Reader[WireNode, Node]:
    def nameplate(known: _Identity) -> WireNode:
        return WireNode(NodeMeta(known.name, known.namespace, known.uid, known.resource_version))

    return Reader(WireNode, _Page[WireNode], nameplate, node_from)


def pod_reader(kept_annotations: Container[str] | None = None) -> Reader[WirePod, Pod]:
    """With `kept_annotations`, pods remember only these: some have kilobytes of others."""

    def nameplate(known: _Identity) -> WirePod:
        return WirePod(PodMeta(known.name, known.namespace, known.uid, known.resource_version))

    return Reader(WirePod, _Page[WirePod], nameplate, lambda wire: pod_from(wire, kept_annotations))


V = TypeVar("V")


def _page(meta: _Version, made: Callable[[V], T], items: Iterable[V]) -> Page[T]:
    kept: list[T] = []
    unreadable = 0
    for item in items:
        try:
            kept.append(made(item))
        except Unreadable:
            unreadable += 1
    return Page(kept, unreadable, meta.resource_version, meta.continue_ or "")
