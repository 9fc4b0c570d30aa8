"""The cluster's past, as far as its log is kept: the ticks before a moment, and the events of a day."""

from collections import deque
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.decision_log import KEPT_DAYS, DecisionLog, Entry
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.kernel.text import cut
from holdfast.ports.store import Store
from holdfast.views.cluster_history import HOURS_MOST, ClusterEvent, ClusterHistory, Moment, moment_of, recent_events
from holdfast.views.decisions import DecisionEntry, decision_of
from holdfast.views.rule_groups import GroupedRules, reasons_for_no_action, rule_groups

Params = Mapping[str, str]

TICKS_MOST: Final = 60
EVENTS_MOST: Final = 200
_WORDS_MOST: Final = 200
_SKIP_DIGITS_MOST: Final = 6
_DAY_SECONDS: Final = 86_400


class GroupedDecision(DecisionEntry, frozen=True, kw_only=True):
    """A decision with its rules in groups; `why_nothing`: in one line, why it did nothing."""

    groups: list[GroupedRules]
    why_nothing: str


class DecisionList(Shape, frozen=True, kw_only=True):
    """Ticks up to `until`, newest first; `acted`: only those that did something. `earlier`: where to continue."""

    now: Time
    until: Time
    acted: bool
    items: list[GroupedDecision]
    earlier: Time | None


class EventList(Shape, frozen=True, kw_only=True):
    """The events of a `day`, or of the last 24 hours, that contain all words of `q`."""

    now: Time
    q: str
    day: str | None
    items: list[ClusterEvent]
    found: Count
    skip: Count
    day_before: str | None
    day_after: str | None
    first_day: str


@dataclass(frozen=True)
class PastDecisions:
    """`history` holds the last day; older entries are read from the log, at most one day per request."""

    store: Store
    cluster: ClusterId
    history: ClusterHistory
    one_suffices: bool = False  # of SCALE_UP_RULE

    @property
    def _log(self) -> DecisionLog:
        return cluster_log(self.store, self.cluster)

    def decisions(self, params: Params, now: Instant) -> DecisionList:
        """With `acted`, only ticks of the day before `until` that did something."""
        oldest = now.plus(-KEPT_DAYS * _DAY_SECONDS)
        until = max(oldest, min(_moment(params, "until") or now, now))
        if params.get("acted", "") not in ("", "yes"):
            raise BadRequest(f"acted {cut(params['acted'])!r}: expected yes")
        acted = params.get("acted") == "yes"
        found = self._acting(until, now) if acted else self._log.newest_entries(until, TICKS_MOST)
        if len(found) == TICKS_MOST:
            earlier = found[-1].at.plus(-0.001)
        else:  # no more on that day, or none at all
            earlier = until.plus(-_DAY_SECONDS) if acted else oldest
        return DecisionList(
            now=now.iso(),
            until=until.iso(),
            acted=acted,
            items=[self._grouped(decision_of(entry)) for entry in found],
            earlier=earlier.iso() if earlier > oldest else None,
        )

    def _grouped(self, decision: DecisionEntry) -> GroupedDecision:
        groups = rule_groups(decision.rules, one_suffices=self.one_suffices)
        return GroupedDecision(**structs.asdict(decision), groups=groups, why_nothing=reasons_for_no_action(groups))

    def _acting(self, until: Instant, now: Instant) -> list[Entry]:
        since = until.plus(-_DAY_SECONDS)
        found: deque[Entry] = deque(maxlen=TICKS_MOST)
        if until == now:
            moments = self.history.since(since, now)
            acted = [moment.at for moment in moments if moment.steps][-TICKS_MOST:]
            found.extend(entry for at in acted for entry in self._log.entries(at, at) if entry.steps)
        else:
            found.extend(entry for entry in self._log.entries(since, until) if entry.steps)
        return list(reversed(found))

    def events(self, params: Params, now: Instant) -> EventList:
        """The events of a `day` (UTC), or of the last 24 hours; with `q`, those that contain all its words."""
        oldest = now.plus(-KEPT_DAYS * _DAY_SECONDS)
        day, skip = _day(params, oldest, now), _skip(params)
        query = params.get("q", "").strip()[:_WORDS_MOST]
        words = query.lower().split()
        found = recent_events(self._moments(day, now), None)
        shown = [event for event in found if all(word in _text(event) for word in words)]
        start = day or now
        before = start.plus(-_DAY_SECONDS)
        return EventList(
            now=now.iso(),
            q=query,
            day=day.date() if day else None,
            items=shown[skip : skip + EVENTS_MOST],
            found=len(shown),
            skip=skip,
            day_before=before.date() if before.date() >= oldest.date() else None,
            day_after=start.plus(_DAY_SECONDS).date() if day and day.date() < now.date() else None,
            first_day=oldest.date(),
        )

    def _moments(self, day: Instant | None, now: Instant) -> list[Moment]:
        if day is None:
            return self.history.since(now.plus(-HOURS_MOST * 3600), now)
        end = day.plus(_DAY_SECONDS - 0.001)
        return [moment_of(entry) for entry in self._log.entries(day, end)]


def _text(event: ClusterEvent) -> str:
    """What `q` searches: a step's name as in the log and as on the page, and the text."""
    return f"{event.kind} {event.kind.replace('_', ' ')} {event.text}".lower()


def _moment(params: Params, name: str) -> Instant | None:
    try:
        return Instant.from_iso(params[name]) if params.get(name) else None
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from error


def _day(params: Params, oldest: Instant, now: Instant) -> Instant | None:
    text = params.get("day", "")
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


def _skip(params: Params) -> int:
    text = params.get("skip", "0")
    if not (text.isascii() and text.isdigit() and len(text) <= _SKIP_DIGITS_MOST):
        raise BadRequest(f"skip {cut(text)!r}: expected a number")
    return int(text)
