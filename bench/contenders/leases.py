"""The work: take a lease, as a tick does. The same for every contender.

An item of some 600 bytes is read, its fence and its owner are checked, the fence goes up by one and the lease lasts
longer. There are many items, updated in no order: a group of writes must not be cheap because all land on one page.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import cycle, islice
from typing import Any, Final, Protocol

from bench.harness.measuring import Sample, timed
from holdfast.ports.store import Key, Store, Table, attr

TABLE: Final = Table(name="bench-state", setting="BENCH_TABLE", purpose="leases to take", partition="pk")
OWNER: Final = "7f3a9c1e-tick"

_UNTIL_EPOCH: Final = 1_768_471_290


def lease_item(name: str) -> dict[str, Any]:
    """A cluster's state while an action of two machines is under way."""
    return {
        "pk": name,
        "scalingInProgress": True,
        "lastScaleEpoch": 1_768_470_000,
        "pendingSinceEpoch": 1_768_471_140,
        "workerCount": 5,
        "lockOwner": OWNER,
        "lockUntilEpoch": _UNTIL_EPOCH,
        "fence": 0,
        "actionSeq": 12,
        "scaleUpActionId": "1768471200-41-9c1e",
        "scaleUpStartedEpoch": 1_768_471_200,
        "scaleUpRequested": 2,
        "scaleUpInstanceIds": ["i-0123456789abcdef0"],
        "scaleUpPhase": "LAUNCHING",
        "scaleUpPlan": [
            {
                "s": "subnet-0a1b2c3d",
                "z": "eu-west-1a",
                "m": "spot",
                "t": "t3.medium",
                "k": 0,
                "i": "i-0123456789abcdef0",
            },
            {"s": "subnet-4e5f6a7b", "z": "eu-west-1b", "m": "spot", "t": "t3.medium", "k": 1, "i": ""},
        ],
    }


def until_after(fence: int) -> int:
    """The lease's new end."""
    return _UNTIL_EPOCH + fence


def take_from(store: Store, name: str, fence: int) -> None:
    """The update by our port, built anew each time as its callers do."""
    store.update(
        TABLE,
        Key(name),
        attr("fence").plus(1) + attr("lockUntilEpoch").set_to(until_after(fence)),
        attr("fence").equals(fence) & attr("lockOwner").equals(OWNER),
    )


class Side(Protocol):
    """One side of the comparison."""

    def create(self, names: Sequence[str]) -> None:
        """Put one item for each name."""
        ...

    def take(self, name: str, fence: int) -> None:
        """Take the lease that stands at this fence; any other outcome is an error."""
        ...

    def read(self, name: str) -> dict[str, Any]: ...

    def close(self) -> None: ...


@dataclass(frozen=True, slots=True)
class Size:
    """How much is done: so many items; in each round so many updates by each writer, by the number of writers."""

    items: int
    updates_each: Mapping[int, int]
    rounds: int


class Leases:
    """The items of one side, each with the fence at which it stands."""

    def __init__(self, side: Side, size: Size) -> None:
        self._side = side
        self._take = side.take
        self._updates_each = size.updates_each
        names = [f"cluster-{number:04d}" for number in range(size.items)]
        side.create(names)
        self._fences = dict.fromkeys(names, 0)
        self._shuffled = random.Random(7).sample(names, len(names))

    def taken_by(self, writers: int) -> Sample:
        """Let so many writers work at once, each on items of its own."""
        each = self._updates_each[writers]
        shares = [self._shuffled[start::writers] for start in range(writers)]
        return timed([partial(self._take_some, share, each) for share in shares], writers * each)

    def _take_some(self, names: Sequence[str], times: int) -> None:
        for name in islice(cycle(names), times):
            self._take(name, self._fences[name])
            self._fences[name] += 1

    def check(self) -> None:
        """Check that every acknowledged update is stored once: a store that forgets would be fast."""
        for name, fence in self._fences.items():
            found = self._side.read(name)["fence"]
            if found != fence:
                raise RuntimeError(f"{name}: fence {found}, expected {fence} after the updates")
