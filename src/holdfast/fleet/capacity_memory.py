"""Pools that recently had no capacity, in the item `<scope>#capacity`: a restart does not retry them at once.

One shortage counts once for each pool and action (`PoolFailure.after`): nine slots that are refused in the same moment
leave the pool out for three minutes, not for hours. The item remembers the action, so this holds after a crash, too.

A lost write costs one useless attempt and nothing more, so writes need no fence.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from holdfast.control.stored_attributes import StateDamaged
from holdfast.fleet.options import CAPACITY_BACKOFF, PoolFailure
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, attr
from holdfast.ports.store.tables import STATE
from holdfast.ports.store.values import shown

_SKEW_SECONDS: Final = 60  # two clocks may differ a little without one of them having jumped

K = TypeVar("K")


def capacity_key(scope: str) -> Key:
    return Key(f"{scope}#capacity")


def read_failures(item: Item) -> dict[str, PoolFailure]:
    """Every failure in the item, by the name of what failed. Names contain a bar; `pk` does not."""
    return {name: _failure(name, value) for name, value in item.items() if "|" in name}


def without_future_failures(failures: Mapping[K, PoolFailure], now: Instant) -> dict[K, PoolFailure]:
    """Drop failures that last longer than the longest back-off: a clock that had jumped wrote them."""
    latest = now.plus(CAPACITY_BACKOFF.most_seconds + _SKEW_SECONDS)
    return {name: failure for name, failure in failures.items() if failure.until <= latest}


def remember_failure(
    store: Store, scope: str, name: str, earlier: PoolFailure | None, now: Instant, action: str
) -> PoolFailure:
    """Store the failure that `action` met; `earlier` is the stored one. Repeating it changes nothing."""
    failure = PoolFailure.after(earlier, now, action)
    if failure != earlier:
        stored = {"failures": failure.failures, "untilEpoch": failure.until.epoch_seconds, "action": action}
        store.update(STATE, capacity_key(scope), attr(name).set_to(stored))
    return failure


def forget_failure(store: Store, scope: str, pool: str) -> None:
    """A launch in the pool succeeded: its next failure counts as the first one again."""
    store.update(STATE, capacity_key(scope), attr(pool).remove())


def _failure(name: str, value: object) -> PoolFailure:
    match value:
        case {"failures": int(failures), "untilEpoch": int(until), **more}:
            return PoolFailure(failures, Instant.from_epoch_seconds(until), str(more.get("action", "")))
    raise StateDamaged(f"capacity memory: {shown(name)} is {shown(value)}; remove that attribute")
