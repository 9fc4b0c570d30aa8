"""What figures say: how often jobs succeed, how long they take and wait, what they cost."""

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from typing import Any, Final

from holdfast.jobs.cost.prices import Prices
from holdfast.jobs.figures.histogram import Histogram
from holdfast.jobs.figures.totals import Figures, GroupKey, Totals, merged
from holdfast.jobs.model.facts import FAILED, Status
from holdfast.kernel.errors import BadRequest

PERCENTILES: Final = (50, 95, 99)
_USD_PARTS: Final = Decimal("0.000001")


@dataclass(frozen=True, slots=True)
class DayFigures:
    """Figures by day: of the jobs that have ended, and of the open ones, whose conclusion is their status."""

    ended: Mapping[str, Figures] = field(default_factory=dict)
    open: Mapping[str, Figures] = field(default_factory=dict)

    def by_day(self) -> dict[str, Figures]:
        days = sorted({*self.ended, *self.open})
        return {day: merged(part[day] for part in (self.ended, self.open) if day in part) for day in days}

    def all_ended(self) -> Figures:
        return merged(self.ended.values())

    def all_open(self) -> Figures:
        return merged(self.open.values())

    @property
    def jobs(self) -> int:
        return merged(self.by_day().values()).total().jobs


@dataclass(frozen=True, slots=True)
class Group:
    """The statistics of a group of jobs."""

    name: str
    jobs: int
    conclusions: Mapping[str, int]
    success_rate: float | None
    run_seconds: Mapping[str, float | None]
    queue_seconds: Mapping[str, float | None]
    approval_seconds: Mapping[str, float | None]
    interrupted: int


def groups(figures: DayFigures, name_of: Callable[[GroupKey], str]) -> list[Group]:
    """Skipped and cancelled jobs are neither success nor failure."""
    ended, still_open = figures.all_ended(), figures.all_open()
    conclusions: dict[str, Counter[str]] = {}
    for key, totals in ended.items():
        conclusions.setdefault(name_of(key), Counter())[key.conclusion] += totals.jobs
    named = merged((ended, still_open)).grouped(name_of)
    return [_group(name, totals, conclusions.get(name, Counter())) for name, totals in named.items()]


def whole(figures: DayFigures) -> Group:
    """The group of all jobs."""
    return next(iter(groups(figures, lambda _: "all")), _group("all", Totals(), Counter()))


def by_workflow_and_job(figures: DayFigures) -> list[Group]:
    return groups(figures, lambda key: f"{key.workflow} / {key.job_name}")


def _group(name: str, totals: Totals, conclusions: Counter[str]) -> Group:
    failed = sum(count for conclusion, count in conclusions.items() if conclusion in FAILED)
    judged = conclusions["success"] + failed
    return Group(
        name=name,
        jobs=totals.jobs,
        conclusions={conclusion: count for conclusion, count in sorted(conclusions.items()) if count},
        success_rate=conclusions["success"] / judged if judged else None,
        run_seconds=_spread(totals.run_seconds, 1),
        queue_seconds=_spread(totals.queue_ms, 1000),
        approval_seconds=_spread(totals.approval_ms, 1000),
        interrupted=totals.interrupted,
    )


def daily_counts(figures: DayFigures) -> dict[str, dict[str, int]]:
    """Jobs by day of creation and by conclusion, or by status if they have not ended."""
    return {
        day: {name: totals.jobs for name, totals in each.grouped(lambda key: key.conclusion).items()}
        for day, each in figures.by_day().items()
    }


def pool_utilisation(figures: DayFigures) -> dict[str, dict[str, Any]]:
    """For each pool, the share of its machines' time in which jobs ran."""
    running: Counter[str] = Counter()
    for key, totals in figures.all_open().items():
        if key.conclusion == Status.IN_PROGRESS:
            running[key.pool] += totals.jobs
    named = merged(figures.by_day().values()).grouped(lambda key: key.pool)
    return {name: _utilisation(totals, running[name]) for name, totals in named.items()}


def _utilisation(totals: Totals, running: int) -> dict[str, Any]:
    machine, busy = totals.machine_ms / 1000, totals.busy_ms / 1000
    return {
        "jobs": totals.jobs,
        "running": running,
        "machine_seconds": machine,
        "busy_seconds": busy,
        "utilisation": round(min(1.0, busy / machine), 4) if machine else None,
    }


_COST_NAMES: Final[dict[str, Callable[[GroupKey], str]]] = {
    "repo": lambda key: key.repository,
    "workflow": lambda key: f"{key.repository} / {key.workflow}",
    "team": lambda key: key.team,
    "pool": lambda key: key.pool,
}
COST_GROUPS: Final = (*_COST_NAMES, "day")


@dataclass(frozen=True, slots=True)
class CostGroup:
    """`unpriced` jobs ran on machines without a known price; the sum excludes them."""

    name: str
    jobs: int
    usd: Decimal
    is_estimate: bool
    unpriced: int


def costs(figures: DayFigures, group: str, prices: Prices) -> list[CostGroup]:
    """The cost of the jobs' machines: the most expensive group first, or the newest day."""
    if group == "day":
        days = figures.by_day().items()
        return sorted((_cost_group(day, each.total(), prices) for day, each in days), key=_name, reverse=True)
    if group not in _COST_NAMES:
        raise BadRequest(f"cost by {group!r}: expected one of {', '.join(COST_GROUPS)}")
    named = merged(figures.by_day().values()).grouped(_COST_NAMES[group])
    found = [_cost_group(name, totals, prices) for name, totals in named.items()]
    return sorted(found, key=lambda each: (-each.usd, each.name))


def _cost_group(name: str, totals: Totals, prices: Prices) -> CostGroup:
    cost = totals.cost(prices)
    return CostGroup(name, totals.jobs, cost.usd.quantize(_USD_PARTS), cost.is_estimate, cost.unpriced)


def _name(group: CostGroup) -> str:
    return group.name


def _spread(values: Histogram, per_second: int) -> dict[str, float | None]:
    found = {f"p{percent}": values.percentile(percent) for percent in PERCENTILES}
    if per_second == 1:
        return {**found}
    return {name: None if value is None else value / per_second for name, value in found.items()}
