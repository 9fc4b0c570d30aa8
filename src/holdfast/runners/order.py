"""Who gets the next machine, and who has to wait for which limit. Pure.

The oldest jobs of a class are covered by the machines that it already has. For each of the others a machine is wanted,
in this order: the repository with the fewest machines for its weight first, then the oldest job. A job's place in that
order is its queue position. A limit delays only the jobs that it applies to.
"""

import heapq
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final

from msgspec import Struct, field

from holdfast.kernel.ids import InstallationId, JobId
from holdfast.runners.batch import MACHINES_MOST

ClassKey = tuple[InstallationId, str]
WEIGHT: Final = 1.0


class Wish(Struct, frozen=True):
    """A job that wants a machine of its class. `limits_key` is the class without its token."""

    class_key: ClassKey
    limits_key: str
    profile: str
    repository: str  # owner/name, in lower case
    job_id: JobId
    queued_ms: int

    @property
    def owner(self) -> str:
        return self.repository.partition("/")[0]


class Limits(Struct, frozen=True):
    """The most machines at once; None: no limit. What is not named has none."""

    fleet: int | None = None
    owners: Mapping[str, int] = field(default_factory=dict)
    repositories: Mapping[str, int] = field(default_factory=dict)
    profiles: Mapping[str, int] = field(default_factory=dict)
    weights: Mapping[str, float] = field(default_factory=dict)  # by repository; 1 if not named


class Usage(Struct, frozen=True):
    """The machines that exist or are ordered, each counted once in every mapping that it belongs to."""

    fleet: int = 0
    owners: Mapping[str, int] = field(default_factory=dict)
    repositories: Mapping[str, int] = field(default_factory=dict)
    profiles: Mapping[str, int] = field(default_factory=dict)


class Held(Struct, frozen=True):
    """A wish that a limit holds back."""

    wish: Wish
    because: str


class Order(Struct, frozen=True):
    """The machines to buy, in order, and the wishes that have to wait."""

    buys: tuple[Wish, ...]
    held: tuple[Held, ...]


class Lot(Struct, frozen=True):
    """What one batch is bought for: jobs of one class."""

    class_key: ClassKey
    wishes: tuple[Wish, ...]


def uncovered(wishes: Iterable[Wish], supply: Mapping[ClassKey, int]) -> list[Wish]:
    """The wishes beyond the supply of their class: its oldest jobs are covered."""
    by_class: dict[ClassKey, list[Wish]] = {}
    for wish in wishes:
        by_class.setdefault(wish.class_key, []).append(wish)
    rest = []
    for key, of_class in by_class.items():
        rest += sorted(of_class, key=_age)[supply.get(key, 0) :]
    return rest


def ordered(wishes: Iterable[Wish], usage: Usage, limits: Limits) -> Order:
    """The fair order of the wishes, cut by the limits."""
    queues: dict[str, list[Wish]] = {}
    for wish in sorted(wishes, key=_age, reverse=True):
        queues.setdefault(wish.repository, []).append(wish)
    used = _Used(usage)
    heap = [_turn(used, limits, queue[-1]) for queue in queues.values()]
    heapq.heapify(heap)
    buys, held = [], []
    while heap:
        repository = heapq.heappop(heap)[-1]
        wish = queues[repository].pop()
        because = used.limit_reached(wish, limits)
        if because is None:
            used.count(wish)
            buys.append(wish)
        else:
            held.append(Held(wish, because))
        if queues[repository]:
            heapq.heappush(heap, _turn(used, limits, queues[repository][-1]))
    return Order(tuple(buys), tuple(held))


def lots(buys: Sequence[Wish], most: int = MACHINES_MOST) -> Iterator[Lot]:
    """The buys in batches of one class each, in the order of each batch's first job."""
    open_lots: dict[ClassKey, list[Wish]] = {}
    all_lots: list[list[Wish]] = []
    for wish in buys:
        lot = open_lots.get(wish.class_key)
        if lot is None or len(lot) == most:
            lot = open_lots[wish.class_key] = []
            all_lots.append(lot)
        lot.append(wish)
    for lot in all_lots:
        yield Lot(lot[0].class_key, tuple(lot))


class _Used:
    """Machines as counted so far: those that exist, and those that this order buys."""

    def __init__(self, usage: Usage) -> None:
        self._fleet = usage.fleet
        self._owners = Counter(usage.owners)
        self.repositories = Counter(usage.repositories)
        self._profiles = Counter(usage.profiles)

    def count(self, wish: Wish) -> None:
        self._fleet += 1
        self._owners[wish.owner] += 1
        self.repositories[wish.repository] += 1
        self._profiles[wish.profile] += 1

    def limit_reached(self, wish: Wish, limits: Limits) -> str | None:
        """The first limit that does not allow one more machine for the wish, in words."""
        for what, used, most in (
            ("the fleet", self._fleet, limits.fleet),
            (wish.owner, self._owners[wish.owner], limits.owners.get(wish.owner)),
            (wish.repository, self.repositories[wish.repository], limits.repositories.get(wish.repository)),
            (f"profile {wish.profile}", self._profiles[wish.profile], limits.profiles.get(wish.profile)),
        ):
            if most is not None and used >= most:
                return f"{what} has {used} of at most {most} machines"
        return None


def _turn(used: _Used, limits: Limits, wish: Wish) -> tuple[float, int, int, str]:
    """When the repository's next wish gets its turn: the smallest is first."""
    share = used.repositories[wish.repository] / limits.weights.get(wish.repository, WEIGHT)
    return share, wish.queued_ms, wish.job_id, wish.repository


def _age(wish: Wish) -> tuple[int, int]:
    return wish.queued_ms, wish.job_id
