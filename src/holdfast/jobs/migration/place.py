"""How far a backfill has come: one item, which outlives the process."""

from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, replace
from typing import Any, Final

from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.kernel.ids import nonce
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, attr
from holdfast.ports.store.tables import STATE

KEY: Final = Key("migration#backfill")
_UNUSABLE_KEPT: Final = 50
_SUMS: Final = ("objects", "jobs", "written", "there", "expired", "unusable", "mended")


@dataclass(frozen=True, slots=True)
class Backfilled:
    """Of `total` objects, `objects` were looked at: written, there already, expired (over 90 days), or unusable.

    `mended` counts webhooks that the tables could not take when they came, and have now.
    """

    run: str = ""
    started: Instant | None = None
    updated: Instant | None = None
    finished: Instant | None = None
    total: int = 0
    cursor: str = ""
    objects: int = 0
    jobs: int = 0
    written: int = 0
    there: int = 0
    expired: int = 0
    unusable: int = 0
    mended: int = 0
    unusable_keys: tuple[str, ...] = ()

    def after(self, parts: Iterable["Backfilled"], cursor: str) -> "Backfilled":
        """With the parts added, and the place moved."""
        parts = list(parts)
        sums = {name: getattr(self, name) + sum(getattr(part, name) for part in parts) for name in _SUMS}
        keys = (*self.unusable_keys, *(key for part in parts for key in part.unusable_keys))
        return replace(self, **sums, cursor=cursor, unusable_keys=keys[:_UNUSABLE_KEPT])

    def shown(self) -> dict[str, Any]:
        times = {name: None if (at := getattr(self, name)) is None else at.iso() for name in _TIMES}
        sums = {name: getattr(self, name) for name in ("total", *_SUMS)}
        return {"run": self.run, **times, **sums, "unusable_keys": list(self.unusable_keys)}


_TIMES: Final = ("started", "updated", "finished")


def last_backfill(store: Store) -> Backfilled | None:
    item = store.get(STATE, KEY)
    return None if item is None else _read(item)


def begun(store: Store, now: Instant, total: int) -> Backfilled:
    """The one that is under way, or a new one over so many objects."""
    known = last_backfill(store)
    if known is not None and known.finished is None:
        return known
    fresh = Backfilled(run=nonce(), started=now, updated=now, total=total)
    is_as_known = attr("pk").is_absent() if known is None else attr("run").equals(known.run)
    try:
        store.put(STATE, _written(fresh), is_as_known)
    except WriteConflict as conflict:
        if conflict.item is None:
            raise Retryable("the place of the backfill was removed just now; start it again") from conflict
        return _read(conflict.item)  # our own, and its answer was lost; or somebody began at the same time
    return fresh


def passed(store: Store, done: Backfilled) -> None:
    """Keep the place, unless another process is further, or has begun anew: then what we do is done twice, no more."""
    condition = attr("run").equals(done.run) & attr("cursor").at_most(done.cursor)
    with suppress(WriteConflict):
        store.put(STATE, _written(done), condition)


def _written(done: Backfilled) -> Item:
    times = {f"{name}Ms": at.epoch_ms for name in _TIMES if (at := getattr(done, name)) is not None}
    sums = {name: getattr(done, name) for name in ("total", *_SUMS)}
    return {
        "pk": KEY.partition,
        "run": done.run,
        "cursor": done.cursor,
        "unusableKeys": list(done.unusable_keys),
        **times,
        **sums,
    }


def _read(item: Item) -> Backfilled:
    found: dict[str, Any] = {name: Instant(int(item[f"{name}Ms"])) for name in _TIMES if f"{name}Ms" in item}
    found |= {name: int(item.get(name, 0)) for name in ("total", *_SUMS)}
    return Backfilled(
        run=item["run"], cursor=item["cursor"], unusable_keys=tuple(item.get("unusableKeys", ())), **found
    )
