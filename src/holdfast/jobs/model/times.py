"""When GitHub sent a delivery, read from its id.

The ids seen so far are UUIDs of version 1, which hold the time of their creation. GitHub does not document that, so it
is a hint: for an id of another version, or with an impossible time, the payload's own times are used.
"""

import re
from functools import lru_cache
from typing import Final

from holdfast.kernel.instants import Instant

# Three pieces of its time, the lowest first, the third after the version; then the usual variant.
_UUID_1: Final = re.compile(
    "([0-9a-f]{8})-([0-9a-f]{4})-1([0-9a-f]{3})-[89ab][0-9a-f]{3}-[0-9a-f]{12}", re.IGNORECASE | re.ASCII
)
_GREGORIAN_TO_UNIX_MS: Final = 12_219_292_800_000  # UUIDs count from October 1582
# No job is older than GitHub. Within these bounds a year has four digits, so times sort as text.
_FIRST: Final = Instant.from_iso("2000-01-01T00:00:00Z")
_LAST: Final = Instant.from_iso("2500-01-01T00:00:00Z")
_TEXT_MOST: Final = 40
_EARLY_MS: Final = 60_000  # GitHub's own clocks differ a little
# What is sent is at most this far ahead of our clock, and no right clock is before this was written.
_AHEAD_SECONDS_MOST: Final = 366 * 86_400
_WRITTEN: Final = Instant.from_iso("2026-01-01T00:00:00Z")
_LATE_MS: Final = 60 * 86_400_000  # an approval may wait 30 days, a job queue for one and run for five


@lru_cache(maxsize=1024)
def made_at(delivery_id: str) -> Instant | None:
    """The time in a UUID of version 1; None for any other text. Cached: used twice for each delivery."""
    found = _UUID_1.fullmatch(delivery_id)
    if found is None:
        return None
    low, middle, high = found.groups()
    return Instant(int(high + middle + low, 16) // 10_000 - _GREGORIAN_TO_UNIX_MS)


def sent_at(delivery_id: str, created: Instant, latest_in_payload: Instant) -> Instant:
    """When the delivery was sent. Computed from the delivery alone, so a repeated one has the same time."""
    made = made_at(delivery_id)
    if made is None or not created.epoch_ms - _EARLY_MS <= made.epoch_ms <= created.epoch_ms + _LATE_MS:
        return latest_in_payload
    return made


def is_too_old(
    delivery_id: str,
    now: Instant,
    most_seconds: float,
    latest_in_payload: Instant | None = None,
    wait_seconds: float = 0,
) -> bool:
    """Whether the delivery was sent so long ago that GitHub would not redeliver it: then it is a replay.

    `wait_seconds`: how long after the latest time in the payload its event may have happened.
    """
    made = made_at(delivery_id)
    if made is not None and now.seconds_since(made) > most_seconds:
        return True
    return latest_in_payload is not None and now.seconds_since(latest_in_payload) > most_seconds + wait_seconds


def not_before(now: Instant, sent: Instant | None) -> Instant:
    """When something arrived: by our clock, but not before it was sent.

    With a clock that is years behind, an item would otherwise be stored as expired already. A time in the far future is
    not believed: an item would never expire.
    """
    if sent is None:
        return now
    return max(now, min(sent, max(now, _WRITTEN).plus(_AHEAD_SECONDS_MOST)))


def seconds_text(text: str | None) -> str | None:
    """A time from GitHub in the form in which it is stored; None as for `parsed`."""
    return None if text is None or len(text) > _TEXT_MOST else _seconds_text(text)


def parsed(text: str | None) -> Instant | None:
    """A time from GitHub; None if it is missing or invalid."""
    return None if text is None or len(text) > _TEXT_MOST else _parsed(text)


@lru_cache(maxsize=4096)
def _parsed(text: str) -> Instant | None:
    """Cached: a job's events have the same few times."""
    try:
        found = Instant.from_iso(text)
    except (ValueError, OverflowError):
        return None
    return found if _FIRST <= found <= _LAST else None


@lru_cache(maxsize=4096)
def _seconds_text(text: str) -> str | None:
    found = _parsed(text)
    return None if found is None else found.iso_seconds()
