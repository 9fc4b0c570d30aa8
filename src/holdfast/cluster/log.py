"""The decision log: what each tick saw, what each rule said, what was done, and why not more.

One item a tick in LOGS_TABLE, by day. It tells the truth of one process about one tick; nothing is decided by it, so
a lost entry loses an explanation and nothing else.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.cluster.plan import Ticked
from holdfast.cluster.seen import Seen
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.readings import Reading, Unknown
from holdfast.ports.store import Item, Query, SortRange, Store, every_item
from holdfast.ports.store.tables import LOGS
from holdfast.ports.store.values import ITEM_BYTES_MOST, item_bytes

KEPT_DAYS: Final = 30
_DAY_MS: Final = 86_400_000


@dataclass(frozen=True, slots=True)
class Entry:
    """One tick, as it was logged."""

    at: Instant
    kind: str
    seen: dict[str, str]
    rules: list[dict[str, Any]]
    steps: list[dict[str, Any]]
    stopped: str | None

    def shown(self) -> dict[str, Any]:
        return {
            "at": self.at.iso(),
            "kind": self.kind,
            "seen": self.seen,
            "rules": self.rules,
            "steps": self.steps,
            "stopped": self.stopped,
        }


def seen_shown(seen: Seen) -> dict[str, str]:
    """What was seen, in a few words each."""
    state = seen.state
    action = state.up.action if state.up else state.down.action if state.down else "none"
    phase = state.up.phase if state.up else state.down.phase if state.down else "none"
    return {
        "workers": str(len(seen.staying)),
        "expected": str(seen.expected),
        "cpu": _reading(seen.cpu, lambda value: f"{value:.2f}"),
        "pending": _reading(
            seen.pending, lambda value: f"{value.count} pods, the oldest for {value.oldest_seconds:.0f} s"
        ),
        "nodes": _reading(seen.kube, lambda view: str(len(view.nodes))),
        "action": str(action),
        "phase": str(phase),
        "notices": str(len(seen.notices)),
        "paused": "yes" if seen.is_paused else "no",
        "fence": str(state.fence),
    }


def log_item(cluster: ClusterId, ticked: Ticked, owner: str) -> Item:
    now = ticked.seen.now
    item: Item = {
        "pk": f"{cluster}#{now.date()}",
        "sk": f"{now.epoch_ms:013d}#tick#{owner}",
        "at": now.iso(),
        "seen": seen_shown(ticked.seen),
        "rules": [rule.shown() for rule in ticked.plan.rules],
        "steps": [step.shown() for step in ticked.done],
        "ttl": now.plus(KEPT_DAYS * 86_400).epoch_seconds,
    }
    if ticked.stopped:
        item["stopped"] = ticked.stopped[:1000]
    if item_bytes(item) > ITEM_BYTES_MOST // 4:
        # A tick with thousands of pods to evict: the kinds and reasons are enough.
        item["steps"] = [{"kind": step.kind, "because": step.because} for step in ticked.done][:500]
    return item


def entries(store: Store, cluster: ClusterId, since: Instant, until: Instant) -> Iterator[Entry]:
    """The log between two moments, the oldest first, day by day."""
    day = Instant(since.epoch_ms // _DAY_MS * _DAY_MS)
    while day <= until:
        span = SortRange.between(f"{max(since, day).epoch_ms:013d}", f"{until.epoch_ms:013d}~")
        for item in every_item(store, Query(LOGS, f"{cluster}#{day.date()}", span)):
            yield _entry(item)
        day = day.plus(86_400)


def _entry(item: Item) -> Entry:
    return Entry(
        at=Instant.from_iso(item["at"]),
        kind=str(item["sk"]).split("#")[1],
        seen=item.get("seen", {}),
        rules=item.get("rules", []),
        steps=item.get("steps", []),
        stopped=item.get("stopped"),
    )


def _reading(reading: Reading[Any], words: Any) -> str:
    return str(reading) if isinstance(reading, Unknown) else str(words(reading.value))
