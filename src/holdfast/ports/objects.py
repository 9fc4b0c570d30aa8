"""Objects by key in one bucket, as in S3.

- A put is durable and visible to all readers when the call returns. A call that raises `Retryable` may or may not have
  been executed.
- A put whose condition does not hold changes nothing and returns False. After a retry, the reason may be the caller's
  own earlier put.
- Keys are listed in the order of their UTF-8 bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant

Rule = Mapping[str, Any]  # a rule of the bucket's lifecycle, in S3's format


class Archived(NeedsOperator):
    """The object is archived, and cannot be read until a person restores it."""


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object in a list."""

    key: str
    modified: Instant
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object with its content. `etag` changes with the content."""

    key: str
    body: bytes = field(repr=False)
    metadata: Mapping[str, str]
    etag: str
    modified: Instant


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Some entries. Unless `is_last`, continue after the key of the last one."""

    entries: Sequence[ObjectEntry]
    is_last: bool


class Objects(Protocol):
    def page(self, prefix: str, after: str = "", most: int = 1000) -> ObjectPage:
        """The next entries with this prefix, after a key. At most 1,000."""
        ...

    def get(self, key: str, most_bytes: int | None = None) -> StoredObject | None:
        """The object; if it is longer than `most_bytes`, only one byte more than that. May raise `Archived`."""
        ...

    def put(
        self,
        key: str,
        body: bytes,
        metadata: Mapping[str, str] | None = None,
        *,
        if_absent: bool = False,
        if_etag: str | None = None,
    ) -> bool:
        """Write the whole object. False: it exists already, or has another etag."""
        ...

    def delete(self, key: str) -> None:
        """Delete an object; a missing one is not an error."""
        ...

    def lifecycle(self) -> list[Rule]:
        """The bucket's lifecycle rules; empty if it has none."""
        ...

    def set_lifecycle(self, rules: Sequence[Rule]) -> None:
        """Replace all rules."""
        ...

    def close(self) -> None: ...


def every_entry(page_after: Callable[[str], ObjectPage], after: str = "") -> Iterator[ObjectEntry]:
    """The entries of all pages, read one page at a time."""
    while True:
        page = page_after(after)
        yield from page.entries
        if page.is_last or not page.entries:
            return
        after = page.entries[-1].key
