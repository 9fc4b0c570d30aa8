"""The cluster's past, as far as its log is kept: its ticks before a moment, and what happened on a day, by words."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cluster.log import KEPT_DAYS, Entry, entries, newest_entries
from holdfast.entrypoints.happening import rule_groups, why_nothing
from holdfast.entrypoints.history import HOURS_MOST, ClusterHistory, Moment, latest, moment_of
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Store

Data = dict[str, Any]
Given = Mapping[str, str]

TICKS_MOST: Final = 60
EVENTS_MOST: Final = 200
_WORDS_MOST: Final = 200
_SKIP_DIGITS_MOST: Final = 6
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True)
class LookingBack:
    """The last day is known to `history`; what is older is read from the log, a day at most for each question."""

    store: Store
    cluster: ClusterId
    history: ClusterHistory
    one_suffices: bool = False  # of SCALE_UP_RULE

    def decisions(self, given: Given, now: Instant) -> Data:
        """The ticks before a moment, the newest first; `acted`: only those that did something, of the day before it."""
        oldest = now.plus(-KEPT_DAYS * _DAY_SECONDS)
        until = max(oldest, min(_moment(given, "until") or now, now))
        acted = given.get("acted") == "yes"
        found = self._acting(until, now) if acted else newest_entries(self.store, self.cluster, until, TICKS_MOST)
        if len(found) == TICKS_MOST:
            earlier = found[-1].at.plus(-0.001)
        else:  # the day had no more; of all ticks there are none before these
            earlier = until.plus(-_DAY_SECONDS) if acted else oldest
        return {
            "now": now.iso(),
            "until": until.iso(),
            "acted": acted,
            "items": [self._tick(entry) for entry in found],
            "earlier": earlier.iso() if earlier > oldest else None,
        }

    def _tick(self, entry: Entry) -> Data:
        groups = rule_groups(entry.rules, one_suffices=self.one_suffices)
        return {**entry.shown(), "groups": groups, "why_nothing": why_nothing(groups)}

    def _acting(self, until: Instant, now: Instant) -> list[Entry]:
        since = until.plus(-_DAY_SECONDS)
        found: deque[Entry] = deque(maxlen=TICKS_MOST)
        if until == now:
            moments = self.history.since(since, now)
            acted = [moment.at for moment in moments if moment.steps][-TICKS_MOST:]
            found.extend(entry for at in acted for entry in entries(self.store, self.cluster, at, at) if entry.steps)
        else:
            found.extend(entry for entry in entries(self.store, self.cluster, since, until) if entry.steps)
        return list(reversed(found))

    def events(self, given: Given, now: Instant) -> Data:
        """What happened on a `day` (UTC), or in the last 24 hours; `q`: only what has all these words in it."""
        oldest = now.plus(-KEPT_DAYS * _DAY_SECONDS)
        day, skip = _day(given, oldest, now), _skip(given)
        asked = given.get("q", "").strip()[:_WORDS_MOST]
        words = asked.lower().split()
        found = latest(self._moments(day, now), None)
        shown = [event for event in found if all(word in _text(event) for word in words)]
        start = day or now
        before = start.plus(-_DAY_SECONDS)
        return {
            "now": now.iso(),
            "q": asked,
            "day": day.date() if day else None,
            "items": shown[skip : skip + EVENTS_MOST],
            "found": len(shown),
            "skip": skip,
            "day_before": before.date() if before.date() >= oldest.date() else None,
            "day_after": start.plus(_DAY_SECONDS).date() if day and day.date() < now.date() else None,
            "first_day": oldest.date(),
        }

    def _moments(self, day: Instant | None, now: Instant) -> list[Moment]:
        if day is None:
            return self.history.since(now.plus(-HOURS_MOST * 3600), now)
        end = day.plus(_DAY_SECONDS - 0.001)
        return [moment_of(entry) for entry in entries(self.store, self.cluster, day, end)]


def _text(event: Mapping[str, str]) -> str:
    """As it is read: a step by its name in the log, and by that on the page."""
    return f"{event['kind']} {event['kind'].replace('_', ' ')} {event['text']}".lower()


def _moment(given: Given, name: str) -> Instant | None:
    try:
        return Instant.from_iso(given[name]) if given.get(name) else None
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from error


def _day(given: Given, oldest: Instant, now: Instant) -> Instant | None:
    text = given.get("day", "")
    if not text:
        return None
    first, last = oldest.date(), now.date()
    try:
        day = Instant.from_iso(f"{text}T00:00:00Z")
    except ValueError as error:
        raise BadRequest(f"day {cut(text)!r}: expected a day such as {last}") from error
    if not first <= day.date() <= last:
        raise BadRequest(f"day {text}: the log is kept from {first} to {last}")
    return day


def _skip(given: Given) -> int:
    text = given.get("skip", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _SKIP_DIGITS_MOST):
        raise BadRequest(f"skip {cut(text)!r}: expected a number")
    return int(text)


def only(given: Given, *known: str) -> None:
    """Nothing that is asked is ignored."""
    unknown = sorted(set(given) - set(known))
    if unknown:
        expected = f"; there are {', '.join(known)}" if known else "; there is nothing"
        raise BadRequest(f"{cut(unknown[0])!r} is not asked for here{expected}")
