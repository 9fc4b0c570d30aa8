"""Ranges of the sort key."""

from typing import Self

from msgspec import Struct

from holdfast.kernel.errors import BadRequest
from holdfast.ports.store.schema import SORT_BYTES_MOST
from holdfast.ports.store.values import checked_text, shown


class SortRange(Struct, frozen=True):
    """Sort keys from `low` to `high`, or with a `prefix`. None: no bound on that side.

    DynamoDB allows one of =, <, <=, >, >=, between (inclusive) and begins_with; so an exclusive bound excludes another
    bound.
    """

    low: str | None = None
    high: str | None = None
    prefix: str | None = None
    low_included: bool = True
    high_included: bool = True

    @classmethod
    def exactly(cls, key: str) -> Self:
        return cls(low=key, high=key)

    @classmethod
    def between(cls, low: str, high: str) -> Self:
        """Both ends are inclusive."""
        return cls(low=low, high=high)

    @classmethod
    def before(cls, high: str) -> Self:
        return cls(high=high, high_included=False)

    @classmethod
    def up_to(cls, high: str) -> Self:
        return cls(high=high)

    @classmethod
    def after(cls, low: str) -> Self:
        return cls(low=low, low_included=False)

    @classmethod
    def at_or_after(cls, low: str) -> Self:
        return cls(low=low)

    @classmethod
    def begins_with(cls, prefix: str) -> Self:
        return cls(prefix=prefix)

    def __post_init__(self) -> None:
        bounds = [bound for bound in (self.low, self.high, self.prefix) if bound is not None]
        for bound in bounds:
            if type(bound) is not str or not bound or len(checked_text(bound).encode()) > SORT_BYTES_MOST:
                raise BadRequest(f"sort range: {shown(bound)} is not a valid sort key")
        if self.prefix is not None and len(bounds) > 1:
            raise BadRequest("sort range: a prefix cannot be combined with another bound")
        if len(bounds) == 2 and not (self.low_included and self.high_included):
            raise BadRequest("sort range: two bounds must both be inclusive")
        if self.low is not None and self.high is not None and self.low > self.high:
            raise BadRequest(f"sort range: {self.low!r} comes after {self.high!r}; expected the lower bound first")
        if not bounds:
            raise BadRequest("sort range: no bounds; leave the range out")

    def holds(self, key: str) -> bool:
        if self.prefix is not None:
            return key.startswith(self.prefix)
        if self.low is not None and (key < self.low or (key == self.low and not self.low_included)):
            return False
        return self.high is None or key < self.high or (key == self.high and self.high_included)
