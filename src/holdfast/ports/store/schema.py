"""Tables: their keys, indexes, and TTL.

Keys are text. DynamoDB would also accept numbers and bytes, but SQLite would order 38-digit numbers wrongly, and none
of our tables needs them: so every backend refuses them.
"""

from dataclasses import dataclass
from enum import StrEnum
from functools import cached_property
from typing import Final, NamedTuple

from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.ports.store.updates import Remove, SetIfAbsent, SetTo, Update
from holdfast.ports.store.values import Item, Value, shown

PARTITION_BYTES_MOST: Final = 2048
SORT_BYTES_MOST: Final = 1024
INCLUDED_MOST: Final = 20  # DynamoDB's limit for one index, which DynamoDB Local does not enforce


class Key(NamedTuple):
    """An item's key: its partition key, and its sort key if the table has one."""

    partition: str
    sort: str | None = None

    def __str__(self) -> str:
        return shown(self.partition) if self.sort is None else f"{shown(self.partition)}/{shown(self.sort)}"


class Projection(StrEnum):
    """Which attributes an index contains in addition to the keys."""

    ALL = "ALL"
    KEYS_ONLY = "KEYS_ONLY"
    INCLUDE = "INCLUDE"


@dataclass(frozen=True, slots=True)
class Index:
    """A secondary index. It is sparse: it contains only items that have all of its key attributes."""

    name: str
    partition: str
    sort: str | None = None
    projection: Projection = Projection.ALL
    included: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if bool(self.included) != (self.projection is Projection.INCLUDE):
            raise BadRequest(f"index {self.name}: the projection INCLUDE, and no other, has included attributes")
        if len(self.included) > INCLUDED_MOST:
            raise BadRequest(
                f"index {self.name}: {len(self.included)} included attributes; DynamoDB allows {INCLUDED_MOST}"
            )

    @property
    def key_attributes(self) -> tuple[str, ...]:
        return (self.partition,) if self.sort is None else (self.partition, self.sort)

    def holds(self, item: Item) -> bool:
        return all(name in item for name in self.key_attributes)


class Billing(StrEnum):
    """DynamoDB's billing: per request, or by provisioned capacity (cheaper above about a million jobs a month)."""

    ON_DEMAND = "on-demand"
    PROVISIONED = "provisioned"


@dataclass(frozen=True)
class Table:
    """A declared table. `name` is its default name, which the setting `setting` may change."""

    name: str
    setting: str
    purpose: str
    partition: str
    sort: str | None = None
    indexes: tuple[Index, ...] = ()
    ttl: str | None = None
    stream: bool = False
    point_in_time_recovery: bool = False
    read_units: int = 5  # if provisioned; auto scaling starts from here
    write_units: int = 5

    def __post_init__(self) -> None:
        for index in self.indexes:
            if index.projection is Projection.INCLUDE and self.ttl is not None and self.ttl not in index.included:
                raise BadRequest(
                    f"table {self.name}: index {index.name} must include {self.ttl}, so that reads skip expired items"
                )

    @cached_property
    def key_attributes(self) -> tuple[str, ...]:
        return (self.partition,) if self.sort is None else (self.partition, self.sort)

    @cached_property
    def index_key_attributes(self) -> tuple[str, ...]:
        """The distinct key attributes of all indexes, in order, without the table's own keys."""
        names = dict.fromkeys(name for index in self.indexes for name in index.key_attributes)
        return tuple(name for name in names if name not in self.key_attributes)

    def index(self, name: str) -> Index:
        for index in self.indexes:
            if index.name == name:
                return index
        known = ", ".join(index.name for index in self.indexes) or "none"
        raise BadRequest(f"table {self.name} has no index {name!r}; it has: {known}")

    def key_of(self, item: Item) -> Key:
        """The item's validated key."""
        for name in self.key_attributes:
            if name not in item:
                raise BadRequest(f"table {self.name}: an item without its key attribute {name!r}")
        return self.checked(Key(item[self.partition], None if self.sort is None else item[self.sort]))

    def checked(self, key: Key) -> Key:
        """The key, if it is valid for this table."""
        if (key.sort is None) != (self.sort is None):
            expected = "no sort key" if self.sort is None else f"a sort key ({self.sort})"
            raise BadRequest(f"table {self.name}: key {key}; expected {expected}")
        _check_key_part(self.name, self.partition, key.partition, PARTITION_BYTES_MOST)
        if self.sort is not None:
            _check_key_part(self.name, self.sort, key.sort, SORT_BYTES_MOST)
        return key

    def key_item(self, key: Key) -> Item:
        """An item with only its key, from which an update creates a missing item."""
        return (
            {self.partition: key.partition}
            if self.sort is None
            else {self.partition: key.partition, self.sort: key.sort}
        )

    def is_expired(self, item: Item, now: Instant) -> bool:
        """Whether the TTL attribute, in whole seconds since 1970, is past. Other types of values never expire."""
        expires = item.get(self.ttl) if self.ttl else None
        return type(expires) is int and expires <= now.epoch_seconds

    def check_index_keys(self, item: Item) -> None:
        for index in self.indexes:
            for name in index.key_attributes:
                if name in item:
                    most = PARTITION_BYTES_MOST if name == index.partition else SORT_BYTES_MOST
                    _check_key_part(f"{self.name}, index {index.name}", name, item[name], most)

    def check_update(self, update: Update) -> None:
        """Refuse an update that would change a key, or set an index key to something else than text."""
        if not update.changes:
            raise BadRequest(f"table {self.name}: an update without a change")
        for change in update.changes:
            name = change.path.name
            if name in self.key_attributes:
                raise BadRequest(f"table {self.name}: {change}: a key attribute cannot be changed")
            if name in self.index_key_attributes:
                if not change.path.is_attribute or not isinstance(change, SetTo | SetIfAbsent | Remove):
                    raise BadRequest(f"table {self.name}: {change}: an index key can only be set whole, or removed")
                if not isinstance(change, Remove):
                    self.check_index_keys({name: change.value})


def _check_key_part(where: str, name: str, value: Value, most_bytes: int) -> None:
    # Not isinstance(): a StrEnum would not be stored as text.
    if type(value) is str and value.isascii() and 0 < len(value) <= most_bytes:
        return  # the common case
    if type(value) is not str or not value:
        raise BadRequest(f"table {where}: {name} is {shown(value)}; expected text that is not empty")
    try:
        size = len(value) if value.isascii() else len(value.encode())
    except UnicodeEncodeError as error:
        raise BadRequest(f"table {where}: {name} has a lone surrogate (at {error.start})") from error
    if size > most_bytes:
        raise BadRequest(f"table {where}: {name} has {size} bytes; a key has at most {most_bytes}")
