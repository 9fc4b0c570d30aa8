"""The decision log: what each tick saw, every rule's verdict, what was done, and why it stopped.

One item per tick in LOGS_TABLE, by day, and one per pause and resume. No decision depends on it, so a lost entry loses
only an explanation. Failed ticks share one item per error and five minutes, so that a cluster that is unreachable for a
day does not fill the table.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from holdfast.control.lease import LeaseHeld
from holdfast.control.rules import Rule
from holdfast.control.steps import Step
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Item, Key, Query, SortRange, Store, attr, every_item, set_all
from holdfast.ports.store.tables import LOGS
from holdfast.ports.store.values import ITEM_BYTES_MOST, is_larger

KEPT_DAYS: Final = 30
REPORTS_MOST: Final = 100
_FAILURES_MS: Final = 300_000
FAILURE_KIND: Final = "no-tick"
TICK_KIND: Final = "tick"
PAUSED_KIND: Final = "paused"
RESUMED_KIND: Final = "resumed"
SWITCH_KINDS: Final = (PAUSED_KIND, RESUMED_KIND)
_DAY_MS: Final = 86_400_000
_STANDING_BY: Final = f"#{LeaseHeld.__name__}"  # another process acts: no failure

Summary = dict[str, Any]  # the few numbers that explain what a tick saw


@dataclass(frozen=True, slots=True)
class TickRecord:
    """A tick, for the log. `seen` is what its rules saw, before its steps."""

    at: Instant
    owner: str
    seen: Summary
    rules: Sequence[Rule]
    steps: Sequence[Step]
    stopped: str | None
    reports: Sequence[str]


@dataclass(frozen=True, slots=True)
class Entry:
    """An entry of the log: a tick, failed ticks, a pause or a resume. The latter explain themselves in `stopped`."""

    at: Instant
    key: str  # its sort key
    kind: str
    seen: Summary | None  # None if the tick could not observe anything
    rules: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    stopped: str | None
    reports: list[str] = field(default_factory=list)
    ticks: int = 1  # how many failed ticks share this entry

    def shown(self) -> dict[str, Any]:
        return {
            "at": self.at.iso(),
            "kind": self.kind,
            "seen": self.seen,
            "rules": self.rules,
            "steps": self.steps,
            "stopped": self.stopped,
            "told": self.reports,
            "ticks": self.ticks,
        }


def _as_stored(seen: Mapping[str, Any] | None) -> Summary | None:
    return dict(seen) if seen else None


@dataclass(frozen=True, slots=True)
class DecisionLog:
    """The log of one control loop. `read_summary` reads a stored summary."""

    store: Store
    scope: ClusterId
    read_summary: Callable[[Mapping[str, Any] | None], Summary | None] = _as_stored

    def record(self, tick: TickRecord) -> None:
        self.store.put(LOGS, self.item_of(tick))

    def item_of(self, tick: TickRecord) -> Item:
        item = self._item(tick.at, f"{TICK_KIND}#{tick.owner}") | {
            "seen": {name: _exact(value) for name, value in tick.seen.items()},
            "rules": [rule.shown() for rule in tick.rules],
            "steps": [step.shown() for step in tick.steps],
        }
        if tick.stopped:
            item["stopped"] = tick.stopped[:1000]
        if tick.reports:
            item["told"] = list(tick.reports[:REPORTS_MOST])
        if tick.steps and is_larger({"steps": item["steps"]}, ITEM_BYTES_MOST // 4):
            # A tick that evicts thousands of pods: kinds and reasons are enough.
            item["steps"] = [{"kind": step.kind, "because": step.because} for step in tick.steps][:500]
        return item

    def record_failure(self, error: HoldfastError, now: Instant) -> None:
        """Record that a tick failed, or stood by because another process was acting."""
        since_ms = now.epoch_ms // _FAILURES_MS * _FAILURES_MS
        key = Key(f"{self.scope}#{now.date()}", f"{since_ms:013d}#{FAILURE_KIND}#{type(error).__name__}")
        values = {"at": now.iso(), "stopped": cut(str(error), 1000), "ttl": _expiry(now)}
        self.store.update(LOGS, key, set_all(values) + attr("ticks").plus(1))

    def record_switch(self, kind: str, words: str, now: Instant) -> None:
        """Record a pause or a resume."""
        self.store.put(LOGS, self._item(now, f"{kind}#switch") | {"stopped": cut(words, 1000)})

    def _item(self, at: Instant, name: str) -> Item:
        return {
            "pk": f"{self.scope}#{at.date()}",
            "sk": f"{at.epoch_ms:013d}#{name}",
            "at": at.iso(),
            "ttl": _expiry(at),
        }

    def entries(self, since: Instant, until: Instant, after: str | None = None) -> Iterator[Entry]:
        """The entries between two moments, the oldest first, read day by day.

        `after` is the key of an entry: only later ones follow. Goes back no further than entries are kept.
        """
        since = max(since, until.plus(-KEPT_DAYS * 86_400))
        # Failures are stored under the start of their five minutes.
        low = f"{since.epoch_ms // _FAILURES_MS * _FAILURES_MS:013d}" if after is None else f"{after} "
        day = Instant(int(low[:13]) // _DAY_MS * _DAY_MS)
        high = f"{until.epoch_ms:013d}~"
        while day <= until and low <= high:
            span = SortRange.between(max(low, f"{day.epoch_ms:013d}"), high)
            for item in every_item(self.store, Query(LOGS, f"{self.scope}#{day.date()}", span)):
                entry = self._entry(item)
                if entry.at >= since:
                    yield entry
            day = day.plus(86_400)

    def newest_entries(self, until: Instant, most: int) -> list[Entry]:
        """The last entries up to a moment, the newest first. Reads little more than it returns."""
        found: list[Entry] = []
        for days in range(KEPT_DAYS + 1):
            day = until.plus(-days * 86_400)
            span = SortRange.up_to(f"{until.epoch_ms:013d}~")
            query = Query(LOGS, f"{self.scope}#{day.date()}", span, reverse=True, limit=most)
            for item in every_item(self.store, query):
                found.append(self._entry(item))
                if len(found) == most:
                    return found
        return found

    def last_tick(self, now: Instant) -> Entry | None:
        """The newest tick of today or yesterday, ignoring failed ones."""
        return self.last_ticks(now)[0]

    def last_ticks(self, now: Instant) -> tuple[Entry | None, Entry | None]:
        """The newest tick of today or yesterday, and failed ticks after it, if any. Usually reads one short page."""
        tick: Entry | None = None
        failed: list[Entry] = []
        for day in (now, now.plus(-86_400)):
            query = Query(LOGS, f"{self.scope}#{day.date()}", reverse=True, limit=10)
            for item in every_item(self.store, query):
                entry = self._entry(item)
                # Failures are stored under the start of their five minutes: some after the tick come behind it here.
                if tick is not None and int(entry.key[:13]) < tick.at.epoch_ms - _FAILURES_MS:
                    break
                if entry.kind == TICK_KIND:
                    tick = tick or entry
                elif entry.kind == FAILURE_KIND and not entry.key.endswith(_STANDING_BY):
                    failed.append(entry)
            if tick is not None:
                break
        later = [entry for entry in failed if tick is None or entry.at > tick.at]
        return tick, max(later, key=lambda entry: entry.at, default=None)

    def _entry(self, item: Item) -> Entry:
        return Entry(
            at=Instant.from_iso(item["at"]),
            key=str(item["sk"]),
            kind=str(item["sk"]).split("#")[1],
            seen=self.read_summary(item.get("seen")),
            rules=item.get("rules", []),
            steps=item.get("steps", []),
            stopped=item.get("stopped"),
            reports=item.get("told", []),
            ticks=item.get("ticks", 1),
        )


def _expiry(at: Instant) -> int:
    return at.plus(KEPT_DAYS * 86_400).epoch_seconds


def _exact(value: Any) -> Any:
    """As the store holds it: fractions as decimals."""
    return Decimal(str(value)) if isinstance(value, float) else value
