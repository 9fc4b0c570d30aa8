"""UTC instants, to the millisecond.

One type for every point in time: no naive datetimes, no floats, no local time zones. Stored epoch attributes are whole
seconds and GitHub's times are ISO-8601 with Z; this type converts to both.
"""

import re
from datetime import UTC, datetime, timedelta
from functools import lru_cache
from typing import Self

from msgspec import Struct

from holdfast.kernel.text import cut

_EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
_UTC_EPOCH = _EPOCH.replace(tzinfo=None)  # for formatting only: isoformat() would append the zone
# Strict on purpose: fromisoformat accepts dates without a time, week dates, and times without a zone.
_ISO = re.compile(r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(\.\d{1,9})?(Z|[+-]\d{2}:\d{2})", re.ASCII)
# Instants that can be formatted in UTC with a four-digit year.
_WRITABLE_MS = range(-30_610_224_000_000, 253_402_300_800_000)


class Instant(Struct, frozen=True, order=True):
    """A point in time, as whole milliseconds since 1970 UTC.

    A struct, not a dataclass: instants are created and compared very often, and a frozen dataclass is several times
    slower.
    """

    epoch_ms: int

    @classmethod
    def from_epoch_seconds(cls, seconds: int) -> Self:
        return cls(seconds * 1000)

    @classmethod
    def from_iso(cls, text: str) -> Self:
        """Parse ISO-8601 with a zone, truncated to milliseconds. Raises ValueError with the reason."""
        if not _ISO.fullmatch(text):
            raise ValueError(f"{cut(text)!r} is not an ISO-8601 time with a zone; for example 2026-01-15T10:00:01Z")
        moment = datetime.fromisoformat(text)
        found = cls((moment - _EPOCH) // timedelta(milliseconds=1))
        if found.epoch_ms not in _WRITABLE_MS:
            raise ValueError(f"{text!r} is not in the years 1000 to 9999")
        return found

    @property
    def epoch_seconds(self) -> int:
        """Whole seconds, rounded down, as in the stored …Epoch attributes."""
        return self.epoch_ms // 1000

    def iso(self) -> str:
        """``2026-01-15T10:00:01.123Z``: always three digits, so that text order is time order."""
        return _iso(self.epoch_ms)

    def iso_seconds(self) -> str:
        """``2026-01-15T10:00:01Z``: GitHub's format."""
        return f"{self.iso()[:19]}Z"

    def date(self) -> str:
        """``2026-01-15``, in UTC."""
        return self.iso()[:10]

    def plus(self, seconds: float) -> Self:
        return type(self)(self.epoch_ms + round(seconds * 1000))

    def seconds_since(self, earlier: "Instant") -> float:
        """Negative if `earlier` is in fact later."""
        return (self.epoch_ms - earlier.epoch_ms) / 1000

    def __str__(self) -> str:
        return self.iso()


@lru_cache(maxsize=256)
def _iso(epoch_ms: int) -> str:
    """Cached: the same instant is often formatted several times."""
    return (_UTC_EPOCH + timedelta(milliseconds=epoch_ms)).isoformat(timespec="milliseconds") + "Z"
