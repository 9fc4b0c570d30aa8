"""What was measured, or why it was not. "Unknown" is a value: it never reads as zero."""

from dataclasses import dataclass
from typing import Generic, TypeAlias, TypeVar

from holdfast.kernel.instants import Instant

T = TypeVar("T")


@dataclass(frozen=True)
class Known(Generic[T]):
    """A measured value, and when it was true."""

    value: T
    at: Instant


@dataclass(frozen=True)
class Unknown:
    """No value: missing, stale or unreachable. `why` is for people, on one line."""

    why: str

    def __str__(self) -> str:
        return f"unknown: {self.why}"


Reading: TypeAlias = Known[T] | Unknown
