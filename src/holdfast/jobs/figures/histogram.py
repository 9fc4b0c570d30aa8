"""Durations of many jobs as a histogram that can be merged.

Values below 64 have a bucket each. Above, each power of two has 32 buckets of equal width, and a bucket stands for its
middle: at most 1/64 (1.6 %) from the true value. All of it is arithmetic on integers, the same on any machine.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Self

ERROR_MOST: Final = 1 / 64
_EXACT_BITS: Final = 6
_PER_POWER: Final = 32


def bucket_of(value: int) -> int:
    shift = max(0, value.bit_length() - _EXACT_BITS)
    return shift * _PER_POWER + (value >> shift)


def middle_of(bucket: int) -> int:
    """The value that stands for the bucket."""
    if bucket < 2 * _PER_POWER:
        return bucket
    shift = bucket // _PER_POWER - 1
    return ((bucket - shift * _PER_POWER) << shift) + (1 << shift) // 2


@dataclass(slots=True)
class Histogram:
    """How many values fell into each bucket, and the smallest and the largest value."""

    counts: dict[int, int] = field(default_factory=dict)
    low: int = 0
    high: int = 0

    def add(self, value: int) -> None:
        self.merge(Histogram({bucket_of(value): 1}, value, value))

    def merge(self, other: "Histogram") -> None:
        if not other.counts:
            return
        self.low = min(self.low, other.low) if self.counts else other.low
        self.high = max(self.high, other.high)
        for bucket, count in other.counts.items():
            self.counts[bucket] = self.counts.get(bucket, 0) + count

    @property
    def total(self) -> int:
        return sum(self.counts.values())

    def percentile(self, percent: int) -> int | None:
        """The smallest value that at least `percent` percent of the values do not exceed, to within `ERROR_MOST`."""
        if not self.counts:
            return None
        left = max(1, -(-percent * self.total // 100))
        for bucket, count in sorted(self.counts.items()):
            left -= count
            if left <= 0:
                return min(max(middle_of(bucket), self.low), self.high)
        raise AssertionError("the counts add up to the total")

    def encoded(self) -> list[int]:
        return [self.low, self.high, *_flat(self.counts)] if self.counts else []

    @classmethod
    def decoded(cls, numbers: Sequence[int]) -> Self:
        if not numbers:
            return cls()
        return cls(dict(zip(numbers[2::2], numbers[3::2], strict=True)), numbers[0], numbers[1])


def _flat(counts: Mapping[int, int]) -> Iterator[int]:
    for bucket, count in sorted(counts.items()):
        yield bucket
        yield count
