"""The decision log: what each tick saw, what each rule said, what was done, and why not more.

One item a tick in LOGS_TABLE, by day, and one for each time that somebody paused or resumed. It tells the truth of one
process about one tick; nothing is decided by it, so a lost entry loses an explanation and nothing else. Ticks that
stood by or could not look share an item for each reason and five minutes: a cluster that cannot be reached for a day
must not fill the table.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.cluster import glance
from holdfast.cluster.glance import Glance, glance_of
from holdfast.cluster.plan import Ticked
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Item, Key, Query, SortRange, Store, attr, every_item, set_all
from holdfast.ports.store.tables import LOGS
from holdfast.ports.store.values import ITEM_BYTES_MOST, is_larger

KEPT_DAYS: Final = 30
TOLD_MOST: Final = 100
_FAILURES_MS: Final = 300_000
FAILURE_KIND: Final = "no-tick"
TICK_KIND: Final = "tick"
PAUSED_KIND: Final = "paused"
RESUMED_KIND: Final = "resumed"
SWITCH_KINDS: Final = (PAUSED_KIND, RESUMED_KIND)
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One tick, as it was logged; or that there was none, or that somebody paused or resumed (`stopped` says it)."""

    at: Instant
    key: str  # its place in the log
    kind: str
    seen: Glance | None  # as the rules saw it, before anything was done; None, if it could not look
    rules: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    stopped: str | None
    told: list[str] = field(default_factory=list)
    ticks: int = 1  # how many ticks it stands for

    def shown(self) -> dict[str, Any]:
        return {
            "at": self.at.iso(),
            "kind": self.kind,
            "seen": self.seen,
            "rules": self.rules,
            "steps": self.steps,
            "stopped": self.stopped,
            "told": self.told,
            "ticks": self.ticks,
        }


def log_item(cluster: ClusterId, ticked: Ticked, owner: str) -> Item:
    now = ticked.looked.now
    item: Item = {
        "pk": f"{cluster}#{now.date()}",
        "sk": f"{now.epoch_ms:013d}#{TICK_KIND}#{owner}",
        "at": now.iso(),
        "seen": glance.stored(glance_of(ticked.looked)),
        "rules": [rule.shown() for rule in ticked.plan.rules],
        "steps": [step.shown() for step in ticked.done],
        "ttl": now.plus(KEPT_DAYS * 86_400).epoch_seconds,
    }
    if ticked.stopped:
        item["stopped"] = ticked.stopped[:1000]
    if ticked.told:
        item["told"] = list(ticked.told[:TOLD_MOST])
    if ticked.done and is_larger({"steps": item["steps"]}, ITEM_BYTES_MOST // 4):
        # A tick with thousands of pods to evict: the kinds and reasons are enough.
        item["steps"] = [{"kind": step.kind, "because": step.because} for step in ticked.done][:500]
    return item


def log_failure(store: Store, cluster: ClusterId, error: HoldfastError, now: Instant) -> None:
    """A tick that came to nothing: another process was acting, or something could not be reached."""
    reason = type(error).__name__
    since_ms = now.epoch_ms // _FAILURES_MS * _FAILURES_MS
    key = Key(f"{cluster}#{now.date()}", f"{since_ms:013d}#{FAILURE_KIND}#{reason}")
    values = {"at": now.iso(), "stopped": cut(str(error), 1000), "ttl": now.plus(KEPT_DAYS * 86_400).epoch_seconds}
    store.update(LOGS, key, set_all(values) + attr("ticks").plus(1))


def log_switch(store: Store, cluster: ClusterId, kind: str, words: str, now: Instant) -> None:
    """That somebody has paused or resumed the cluster."""
    item: Item = {
        "pk": f"{cluster}#{now.date()}",
        "sk": f"{now.epoch_ms:013d}#{kind}#switch",
        "at": now.iso(),
        "stopped": cut(words, 1000),
        "ttl": now.plus(KEPT_DAYS * 86_400).epoch_seconds,
    }
    store.put(LOGS, item)


def entries(
    store: Store, cluster: ClusterId, since: Instant, until: Instant, after: str | None = None
) -> Iterator[Entry]:
    """The log between two moments, the oldest first, day by day. `after` is the key of an entry: those that follow it.

    No further back than anything is kept.
    """
    since = max(since, until.plus(-KEPT_DAYS * 86_400))
    # What failed is counted under the moment at which its five minutes began.
    low = f"{since.epoch_ms // _FAILURES_MS * _FAILURES_MS:013d}" if after is None else f"{after} "
    day = Instant(int(low[:13]) // _DAY_MS * _DAY_MS)
    high = f"{until.epoch_ms:013d}~"
    while day <= until and low <= high:
        span = SortRange.between(max(low, f"{day.epoch_ms:013d}"), high)
        for item in every_item(store, Query(LOGS, f"{cluster}#{day.date()}", span)):
            entry = _entry(item)
            if entry.at >= since:
                yield entry
        day = day.plus(86_400)


def newest_entries(store: Store, cluster: ClusterId, until: Instant, most: int) -> list[Entry]:
    """The last entries up to a moment, the newest first, however long ago. Little more is read than is given."""
    found: list[Entry] = []
    for days in range(KEPT_DAYS + 1):
        day = until.plus(-days * 86_400)
        span = SortRange.up_to(f"{until.epoch_ms:013d}~")
        query = Query(LOGS, f"{cluster}#{day.date()}", span, reverse=True, limit=most)
        for item in every_item(store, query):
            found.append(_entry(item))
            if len(found) == most:
                return found
    return found


def last_tick(store: Store, cluster: ClusterId, now: Instant) -> Entry | None:
    """The newest tick of today or yesterday, however many have failed since. Mostly one short page is read."""
    for day in (now, now.plus(-86_400)):
        query = Query(LOGS, f"{cluster}#{day.date()}", reverse=True, limit=10)
        for item in every_item(store, query):
            entry = _entry(item)
            if entry.kind == TICK_KIND:
                return entry
    return None


def _entry(item: Item) -> Entry:
    return Entry(
        at=Instant.from_iso(item["at"]),
        key=str(item["sk"]),
        kind=str(item["sk"]).split("#")[1],
        seen=glance.read(item.get("seen")),
        rules=item.get("rules", []),
        steps=item.get("steps", []),
        stopped=item.get("stopped"),
        told=item.get("told", []),
        ticks=item.get("ticks", 1),
    )
