"""The items beside the state: pools without capacity, nodes that could not be drained, refused tags, notices, pause."""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from holdfast.control.pause import pause_key
from holdfast.control.stored_attributes import AttributeReader
from holdfast.fleet.capacity_memory import capacity_key, forget_failure, read_failures, remember_failure
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, remove_all
from holdfast.ports.store.tables import STATE

_DRAIN: Final = "drain|"
_MARKS: Final = "tag|accepted"
_KEPT_SECONDS: Final = 86_400


class Remembered(Struct, frozen=True):
    """The items beside the state, read at one moment."""

    failures: Mapping[str, PoolFailure]
    undrainable: Mapping[InstanceId, PoolFailure]
    marks_refused: PoolFailure | None
    noticed: frozenset[InstanceId]
    is_paused: bool


def memory_keys(cluster: ClusterId) -> list[Key]:
    return [capacity_key(cluster), spots_key(cluster), pause_key(cluster)]


def spots_key(cluster: ClusterId) -> Key:
    """The item with the ids of machines whose notices are not closed."""
    return Key(f"{cluster}#spots")


def read_memory(items: list[Item | None]) -> Remembered:
    """The items in the order of `memory_keys`; absent ones are empty."""
    capacity, spots, pause = (item or {} for item in items)
    failures = read_failures(capacity)
    marks_refused = failures.pop(_MARKS, None)
    return Remembered(
        failures={name: failure for name, failure in failures.items() if not name.startswith(_DRAIN)},
        undrainable={
            InstanceId(name.removeprefix(_DRAIN)): failure
            for name, failure in failures.items()
            if name.startswith(_DRAIN)
        },
        marks_refused=marks_refused,
        noticed=frozenset(map(InstanceId, AttributeReader(spots, "spots: ").text_set("open"))),
        is_paused=pause.get("paused") is True,
    )


def remember_undrainable(
    store: Store,
    cluster: ClusterId,
    known: Mapping[InstanceId, PoolFailure],
    instance: InstanceId,
    now: Instant,
    action: str,
) -> dict[InstanceId, PoolFailure]:
    """Record that `action` could not drain a node, and drop records that are days old: their machines may be gone.

    An empty `action` counts every time.
    """
    failure = remember_failure(store, cluster, f"{_DRAIN}{instance}", known.get(instance), now, action)
    old = [name for name, failure in known.items() if now.seconds_since(failure.until) > _KEPT_SECONDS]
    if old:
        store.update(STATE, capacity_key(cluster), remove_all(*(f"{_DRAIN}{name}" for name in old[:50])))
    return {**known, instance: failure}


def remember_marks_refused(store: Store, cluster: ClusterId, earlier: PoolFailure | None, now: Instant) -> PoolFailure:
    """Record that EC2 refuses the tag of accepted machines, so that not every tick asks again."""
    return remember_failure(store, cluster, _MARKS, earlier, now, action="")  # each refusal counts


def forget_marks_refused(store: Store, cluster: ClusterId) -> None:
    forget_failure(store, cluster, _MARKS)
