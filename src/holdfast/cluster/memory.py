"""What is remembered beside the state: pools without capacity, nodes that could not be drained, spot, pause.

Durable, so that a restart does not try again what just failed. Losing one of these writes costs a useless try, nothing
more; so they need no fence.
"""

from collections.abc import Mapping
from typing import Final, TypeVar

from msgspec import Struct

from holdfast.cluster.attributes import Reader, StateDamaged
from holdfast.fleet.options import CAPACITY_BACKOFF, PoolFailure
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, attr, remove_all
from holdfast.ports.store.tables import STATE
from holdfast.ports.store.values import shown

_DRAIN: Final = "drain|"
_KEPT_SECONDS: Final = 86_400
_SKEW_SECONDS: Final = 60  # two clocks may differ a little, without one of them having jumped

K = TypeVar("K")


class Remembered(Struct, frozen=True):
    """The items beside the state, as of one look."""

    failures: Mapping[str, PoolFailure]
    undrainable: Mapping[InstanceId, PoolFailure]
    noticed: frozenset[InstanceId]
    is_paused: bool


def memory_keys(cluster: ClusterId) -> list[Key]:
    return [Key(f"{cluster}#{name}") for name in ("capacity", "spots", "pause")]


def spots_key(cluster: ClusterId) -> Key:
    """The ids of the spot notices that are not closed."""
    return memory_keys(cluster)[1]


def read_memory(items: list[Item | None]) -> Remembered:
    """The items in the order of `memory_keys`; absent ones mean nothing to remember."""
    capacity, spots, pause = (item or {} for item in items)
    failures = {name: _failure(name, value) for name, value in capacity.items() if "|" in name}
    return Remembered(
        failures={name: failure for name, failure in failures.items() if not name.startswith(_DRAIN)},
        undrainable={
            InstanceId(name.removeprefix(_DRAIN)): failure
            for name, failure in failures.items()
            if name.startswith(_DRAIN)
        },
        noticed=frozenset(map(InstanceId, Reader(spots, "spots: ").text_set("open"))),
        is_paused=pause.get("paused") is True,
    )


def believable(failures: Mapping[K, PoolFailure], now: Instant) -> dict[K, PoolFailure]:
    """Those that a clock can have written that was right: none is kept for longer than the longest back-off."""
    latest = now.plus(CAPACITY_BACKOFF.most_seconds + _SKEW_SECONDS)
    return {name: failure for name, failure in failures.items() if failure.until <= latest}


def remember_failure(
    store: Store, cluster: ClusterId, pool: str, earlier: PoolFailure | None, now: Instant
) -> PoolFailure:
    """Note that a pool had no capacity, or that a node could not be drained."""
    failure = PoolFailure.after(earlier, now)
    stored = {"failures": failure.failures, "untilEpoch": failure.until.epoch_seconds}
    store.update(STATE, memory_keys(cluster)[0], attr(pool).set_to(stored))
    return failure


def remember_undrainable(
    store: Store, cluster: ClusterId, known: Mapping[InstanceId, PoolFailure], instance: InstanceId, now: Instant
) -> dict[InstanceId, PoolFailure]:
    """Note that a node could not be drained; and forget those of days ago, whose machines may be long gone."""
    failure = remember_failure(store, cluster, f"{_DRAIN}{instance}", known.get(instance), now)
    old = [name for name, failure in known.items() if now.seconds_since(failure.until) > _KEPT_SECONDS]
    if old:
        store.update(STATE, memory_keys(cluster)[0], remove_all(*(f"{_DRAIN}{name}" for name in old[:50])))
    return {**known, instance: failure}


def forget_failure(store: Store, cluster: ClusterId, pool: str) -> None:
    """It worked: the next failure is a first one again."""
    store.update(STATE, memory_keys(cluster)[0], attr(pool).remove())


def _failure(name: str, value: object) -> PoolFailure:
    match value:
        case {"failures": int(failures), "untilEpoch": int(until)}:
            return PoolFailure(failures, Instant.from_epoch_seconds(until))
    raise StateDamaged(f"capacity memory: {shown(name)} is {shown(value)}; remove that attribute")
