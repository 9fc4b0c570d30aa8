"""What is remembered beside the state: pools without capacity, nodes that could not be drained, spot, pause.

Durable, so that a restart does not try again what just failed. Losing one of these writes costs a useless try, nothing
more; so they need no fence.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from holdfast.cluster.state import StateDamaged
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, attr
from holdfast.ports.store.tables import STATE
from holdfast.ports.store.values import shown

_DRAIN: Final = "drain|"


@dataclass(frozen=True, slots=True)
class Remembered:
    """The items beside the state, as of one look."""

    failures: Mapping[str, PoolFailure]
    undrainable: Mapping[InstanceId, Instant]
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
            InstanceId(name.removeprefix(_DRAIN)): failure.until
            for name, failure in failures.items()
            if name.startswith(_DRAIN)
        },
        noticed=frozenset(InstanceId(text) for text in spots.get("open", ())),
        is_paused=pause.get("paused") is True,
    )


def remember_failure(
    store: Store, cluster: ClusterId, pool: str, earlier: PoolFailure | None, now: Instant
) -> PoolFailure:
    """Note that a pool had no capacity, or that a node could not be drained."""
    failure = PoolFailure.after(earlier, now)
    stored = {"failures": failure.failures, "untilEpoch": failure.until.epoch_seconds}
    store.update(STATE, memory_keys(cluster)[0], attr(pool).set_to(stored))
    return failure


def forget_failure(store: Store, cluster: ClusterId, pool: str) -> None:
    """It worked: the next failure is a first one again."""
    store.update(STATE, memory_keys(cluster)[0], attr(pool).remove())


def drain_pool(instance: InstanceId) -> str:
    return f"{_DRAIN}{instance}"


def _failure(name: str, value: object) -> PoolFailure:
    match value:
        case {"failures": int(failures), "untilEpoch": int(until)}:
            return PoolFailure(failures, Instant.from_epoch_seconds(until))
    raise StateDamaged(f"capacity memory: {shown(name)} is {shown(value)}; remove that attribute")
