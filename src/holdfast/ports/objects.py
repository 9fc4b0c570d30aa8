"""Objects by key, as S3 keeps them. One bucket.

- A put is durable when the call returns, and whoever reads afterwards sees it. A call that raises `Retryable` may or
  may not have taken place.
- A put with a condition that does not hold changes nothing and says so. Since a lost answer may be followed by a second
  try, a caller may meet its own earlier put as the reason.
- Keys are listed in the order of their UTF-8 bytes.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant

Rule = Mapping[str, Any]  # a rule of the bucket's lifecycle, in S3's own words


class Archived(NeedsOperator):
    """The object is there, and cannot be read before somebody restores it."""


@dataclass(frozen=True, slots=True)
class ObjectEntry:
    """An object as a list names it."""

    key: str
    modified: Instant
    size_bytes: int = 0


@dataclass(frozen=True, slots=True)
class StoredObject:
    """An object with its content. `etag` changes whenever the content does."""

    key: str
    body: bytes = field(repr=False)
    metadata: Mapping[str, str]
    etag: str
    modified: Instant


@dataclass(frozen=True, slots=True)
class ObjectPage:
    """Some entries. `is_last`: nothing follows them now; otherwise go on after the last one's key."""

    entries: Sequence[ObjectEntry]
    is_last: bool


class Objects(Protocol):
    def page(self, prefix: str, after: str = "", most: int = 1000) -> ObjectPage:
        """The next entries whose keys begin with the prefix, after a key. At most 1,000."""
        ...

    def get(self, key: str, most_bytes: int | None = None) -> StoredObject | None:
        """The object; of one that is longer, `most_bytes` and one more. `Archived`: it must be restored first."""
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
        """Write the whole object. False: there was one already, or another than the etag says."""
        ...

    def delete(self, key: str) -> None:
        """Remove an object; an absent one is no error."""
        ...

    def lifecycle(self) -> list[Rule]:
        """The rules of the bucket; none if it has no lifecycle."""
        ...

    def set_lifecycle(self, rules: Sequence[Rule]) -> None:
        """Put these rules in the place of all that there are."""
        ...

    def close(self) -> None: ...


def every_entry(page_after: Callable[[str], ObjectPage], after: str = "") -> Iterator[ObjectEntry]:
    """The entries of all pages, which are asked for one at a time."""
    while True:
        page = page_after(after)
        yield from page.entries
        if page.is_last or not page.entries:
            return
        after = page.entries[-1].key
