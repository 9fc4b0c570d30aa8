"""Figures: totals by group of jobs. Merging is addition, so any order and any grouping give the same result.

Prices are applied when figures are read, because price lists are replaced by newer ones: what is counted is machine
time, by what its price depends on. Where the fleet reported the price, it is counted in dollars.
"""

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final, NamedTuple, Self

from holdfast.jobs.cost.prices import MachineUse, Prices
from holdfast.jobs.figures.histogram import Histogram

OTHER: Final = "(other)"  # stands for the names that a day has too many of
_NANO: Final = 10**9
_HOUR_MS: Final = 3_600_000


class GroupKey(NamedTuple):
    """What the jobs of a group have in common. `conclusion` is the status of jobs that have not ended."""

    repository: str
    workflow: str
    job_name: str
    team: str
    pool: str
    instance_type: str
    lifecycle: str
    region: str
    conclusion: str


class Kind(NamedTuple):
    """What the price of a machine depends on. `is_paid`: it is known, and the amount is nano-dollars, not ms."""

    instance_type: str
    lifecycle: str
    region: str
    is_paid: bool
    is_guess: bool


Kinds = tuple[Kind, ...]  # of all machines of a job; none: what they cost cannot be known


@dataclass(slots=True)
class Used:
    """The machines of jobs with the same kinds of machines. `scheduled`: how many had one requested."""

    jobs: int
    scheduled: int
    amounts: tuple[int, ...]


@dataclass(frozen=True, slots=True)
class GroupCost:
    usd: Decimal = Decimal(0)
    is_estimate: bool = False
    unpriced: int = 0


@dataclass(slots=True)
class Totals:
    jobs: int = 0
    interrupted: int = 0
    busy_ms: int = 0
    machine_ms: int = 0
    run_seconds: Histogram = field(default_factory=Histogram)
    queue_ms: Histogram = field(default_factory=Histogram)
    approval_ms: Histogram = field(default_factory=Histogram)
    used: dict[Kinds, Used] = field(default_factory=dict)

    def merge(self, other: "Totals") -> None:
        self.jobs += other.jobs
        self.interrupted += other.interrupted
        self.busy_ms += other.busy_ms
        self.machine_ms += other.machine_ms
        self.run_seconds.merge(other.run_seconds)
        self.queue_ms.merge(other.queue_ms)
        self.approval_ms.merge(other.approval_ms)
        for kinds, used in other.used.items():
            known = self.used.get(kinds) or Used(0, 0, (0,) * len(kinds))
            amounts = tuple(a + b for a, b in zip(known.amounts, used.amounts, strict=True))
            self.used[kinds] = Used(known.jobs + used.jobs, known.scheduled + used.scheduled, amounts)

    def cost(self, prices: Prices) -> GroupCost:
        """What the machines cost. Jobs with a machine whose price is unknown are counted, and left out of the sum."""
        usd, is_estimate, unpriced = Decimal(0), False, 0
        for kinds, used in self.used.items():
            found = [_usd(kind, amount, prices) for kind, amount in zip(kinds, used.amounts, strict=True)]
            known = [each for each in found if each is not None]
            if not kinds or len(known) < len(found):
                unpriced += used.scheduled
                continue
            usd += sum((each[0] for each in known), Decimal(0))
            is_estimate = is_estimate or any(each[1] for each in known)
        return GroupCost(usd, is_estimate, unpriced)

    def encoded(self) -> list[Any]:
        spreads = [each.encoded() for each in (self.run_seconds, self.queue_ms, self.approval_ms)]
        used = [[kinds, each.jobs, each.scheduled, each.amounts] for kinds, each in sorted(self.used.items())]
        return [self.jobs, self.interrupted, self.busy_ms, self.machine_ms, *spreads, used]

    @classmethod
    def decoded(cls, found: list[Any]) -> Self:
        jobs, interrupted, busy_ms, machine_ms, run, queue, approval, used = found
        spreads = Histogram.decoded(run), Histogram.decoded(queue), Histogram.decoded(approval)
        kinds = {
            tuple(Kind(*kind) for kind in kinds): Used(count, scheduled, tuple(amounts))
            for kinds, count, scheduled, amounts in used
        }
        return cls(jobs, interrupted, busy_ms, machine_ms, *spreads, kinds)


class Figures:
    """Totals by group."""

    def __init__(self, groups: Mapping[GroupKey, Totals] | None = None) -> None:
        self._groups: dict[GroupKey, Totals] = dict(groups or {})

    def add(self, group: GroupKey, totals: Totals) -> None:
        self._groups.setdefault(group, Totals()).merge(totals)

    def items(self) -> Iterator[tuple[GroupKey, Totals]]:
        yield from sorted(self._groups.items())

    def __len__(self) -> int:
        return len(self._groups)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Figures) and self._groups == other._groups

    __hash__ = None  # type: ignore[assignment] # mutable while it is made

    def __repr__(self) -> str:
        return f"Figures({dict(self.items())})"

    @property
    def repositories(self) -> set[str]:
        return {group.repository for group in self._groups}

    def of_repository(self, repository: str) -> "Figures":
        return Figures({group: totals for group, totals in self._groups.items() if group.repository == repository})

    def grouped(self, name_of: Callable[[GroupKey], str]) -> dict[str, Totals]:
        """Totals by another name, in its order."""
        found: dict[str, Totals] = {}
        for group, totals in self._groups.items():
            found.setdefault(name_of(group), Totals()).merge(totals)
        return dict(sorted(found.items()))

    def total(self) -> Totals:
        found = Totals()
        for totals in self._groups.values():
            found.merge(totals)
        return found

    def renamed(self, rename: Callable[[GroupKey], GroupKey]) -> "Figures":
        found = Figures()
        for group, totals in self.items():
            found.add(rename(group), totals)
        return found


def merged(several: Iterable[Figures]) -> Figures:
    found = Figures()
    for figures in several:
        for group, totals in figures.items():
            found.add(group, totals)
    return found


def within(figures: Figures, most: int) -> Figures:
    """The figures with at most about `most` groups: the names of the rarest jobs, then of workflows, become `OTHER`.

    Job names are anybody's text, such as one with a date in it. No sum changes, and no repository, pool or conclusion.
    """
    for name_of, rename in _COARSER:
        if len(figures) <= most:
            return figures
        least = len(figures.renamed(rename))
        sizes: dict[object, list[int]] = {}  # of each name: how many jobs, and how many groups
        for group, totals in figures.items():
            size = sizes.setdefault(name_of(group), [0, 0])
            size[0], size[1] = size[0] + totals.jobs, size[1] + 1
        kept: set[object] = set()
        for name, (_, groups) in sorted(sizes.items(), key=lambda each: (-each[1][0], str(each[0]))):
            least += groups
            if least > most:
                break
            kept.add(name)
        figures = figures.renamed(_renaming(name_of, rename, kept))
    return figures


_Rename = Callable[[GroupKey], GroupKey]
_COARSER: Final[tuple[tuple[Callable[[GroupKey], object], _Rename], ...]] = (
    (lambda group: (group.repository, group.workflow, group.job_name), lambda group: group._replace(job_name=OTHER)),
    (
        lambda group: (group.repository, group.workflow),
        lambda group: group._replace(workflow=OTHER, job_name=OTHER),
    ),
)


def _renaming(name_of: Callable[[GroupKey], object], rename: _Rename, kept: set[object]) -> _Rename:
    return lambda group: group if name_of(group) in kept else rename(group)


def used_by(uses: list[MachineUse], *, is_scheduled: bool) -> dict[Kinds, Used]:
    """The machines of one job."""
    if any(use.ms is None or use.instance_type is None for use in uses):
        return {(): Used(1, 1, ())} if is_scheduled else {}
    pairs = sorted((_kind(use), _amount(use)) for use in uses)
    return {tuple(kind for kind, _ in pairs): Used(1, int(is_scheduled), tuple(amount for _, amount in pairs))}


def _kind(use: MachineUse) -> Kind:
    is_paid = use.known_spot_usd is not None
    return Kind(use.instance_type or "", use.lifecycle, use.region or "", is_paid, use.is_guess)


def _amount(use: MachineUse) -> int:
    ms, usd = use.ms or 0, use.known_spot_usd
    return ms if usd is None else round(usd * ms * _NANO / _HOUR_MS)


def _usd(kind: Kind, amount: int, prices: Prices) -> tuple[Decimal, bool] | None:
    if kind.is_paid:
        return Decimal(amount) / _NANO, kind.is_guess
    price = prices.of(kind.instance_type, kind.lifecycle, kind.region or None, None)
    return None if price is None else (price.usd_per_hour * amount / _HOUR_MS, price.is_estimate or kind.is_guess)
