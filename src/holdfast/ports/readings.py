"""A measured value, or the reason why it is unknown. Unknown never reads as zero."""

from typing import Generic, TypeAlias, TypeVar

from msgspec import Struct

from holdfast.kernel.instants import Instant

T = TypeVar("T")


class Known(Struct, Generic[T], frozen=True):
    """A measured value, and its time."""

    value: T
    at: Instant


class Unknown(Struct, frozen=True):
    """No value: missing, stale or unreachable. `why` is for people, on one line."""

    why: str

    def __str__(self) -> str:
        return f"unknown: {self.why}"


Reading: TypeAlias = Known[T] | Unknown
