"""The progress of a backfill, stored in one item so that another process can resume it."""

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
class BackfillProgress:
    """Of `total` objects, `objects` were read: written, already there, expired (over 90 days) or unusable.

    `mended` counts webhooks that failed to reach the tables when they arrived, and are there now.
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

    def after(self, parts: Iterable["BackfillProgress"], cursor: str) -> "BackfillProgress":
        """The progress with the parts added, up to `cursor`."""
        parts = list(parts)
        sums = {name: getattr(self, name) + sum(getattr(part, name) for part in parts) for name in _SUMS}
        keys = (*self.unusable_keys, *(key for part in parts for key in part.unusable_keys))
        return replace(self, **sums, cursor=cursor, unusable_keys=keys[:_UNUSABLE_KEPT])


_TIMES: Final = ("started", "updated", "finished")


def last_backfill(store: Store) -> BackfillProgress | None:
    item = store.get(STATE, KEY)
    return None if item is None else _read(item)


def begin_backfill(store: Store, now: Instant, total: int) -> BackfillProgress:
    """The backfill in progress, or a new one of `total` objects."""
    known = last_backfill(store)
    if known is not None and known.finished is None:
        return known
    new = BackfillProgress(run=nonce(), started=now, updated=now, total=total)
    is_as_known = attr("pk").is_absent() if known is None else attr("run").equals(known.run)
    try:
        store.put(STATE, _written(new), is_as_known)
    except WriteConflict as conflict:
        if conflict.item is None:
            raise Retryable("the stored progress of the backfill was just removed; run it again") from conflict
        return _read(conflict.item)  # our own write, whose response was lost; or another process began
    return new


def save_progress(store: Store, done: BackfillProgress) -> None:
    """Save the position, unless another process is further or has started a new backfill."""
    condition = attr("run").equals(done.run) & attr("cursor").at_most(done.cursor)
    with suppress(WriteConflict):
        store.put(STATE, _written(done), condition)


def _written(done: BackfillProgress) -> Item:
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


def _read(item: Item) -> BackfillProgress:
    found: dict[str, Any] = {name: Instant(int(item[f"{name}Ms"])) for name in _TIMES if f"{name}Ms" in item}
    found |= {name: int(item.get(name, 0)) for name in ("total", *_SUMS)}
    return BackfillProgress(
        run=item["run"], cursor=item["cursor"], unusable_keys=tuple(item.get("unusableKeys", ())), **found
    )
