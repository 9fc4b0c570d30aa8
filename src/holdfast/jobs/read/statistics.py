"""Figures over many jobs: how often they succeed, how long they take and wait, what they cost."""

from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from holdfast.jobs.cost.prices import Prices, cost_of
from holdfast.jobs.model.durations import is_carried_over, moments_of
from holdfast.jobs.model.facts import FAILED
from holdfast.jobs.model.machines import was_interrupted, with_own_machine
from holdfast.jobs.read.item_views import TEAM_PROPERTY, repository_of
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item

PERCENTILES: Final = (50, 95, 99)


def percentile(values: Sequence[float], percent: int) -> float | None:
    """The smallest value that at least `percent` percent of the values do not exceed."""
    if not values:
        return None
    ordered = sorted(values)
    return ordered[max(0, -(-percent * len(ordered) // 100) - 1)]


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


def group_of(name: str, jobs: Sequence[Item]) -> Group:
    """Skipped and cancelled jobs are neither success nor failure. An earlier attempt has what was carried over."""
    jobs = [job for job in jobs if not is_carried_over(job)]
    conclusions = Counter(job["conclusion"] for job in jobs if "conclusion" in job)
    failed = sum(count for conclusion, count in conclusions.items() if conclusion in FAILED)
    judged = conclusions["success"] + failed
    moments = [moments_of(job) for job in jobs]
    return Group(
        name=name,
        jobs=len(jobs),
        conclusions=dict(sorted(conclusions.items())),
        success_rate=conclusions["success"] / judged if judged else None,
        run_seconds=_spread(each.run_seconds for each in moments),
        queue_seconds=_spread(_seconds(each.overall_queue_ms) for each in moments),
        approval_seconds=_spread(_seconds(each.approval_ms) for each in moments),
        interrupted=sum(1 for job in jobs if was_interrupted(job)),
    )


def grouped(jobs: Iterable[Item], name_of: Callable[[Item], str]) -> dict[str, list[Item]]:
    found: dict[str, list[Item]] = defaultdict(list)
    for job in jobs:
        found[name_of(job)].append(job)
    return dict(sorted(found.items()))


def by_workflow_and_job(jobs: Iterable[Item]) -> list[Group]:
    named = grouped(jobs, lambda job: f"{job.get('workflow_name', '?')} / {job.get('job_name', '?')}")
    return [group_of(name, group) for name, group in named.items()]


def daily_counts(jobs: Iterable[Item]) -> dict[str, dict[str, int]]:
    """Jobs by day of creation and by conclusion, or by status if they have not ended."""
    days: dict[str, Counter[str]] = defaultdict(Counter)
    for job in jobs:
        days[job["created_at"][:10]][job.get("conclusion") or job["GSI1-PK"].partition("#")[2]] += 1
    return {day: dict(sorted(counts.items())) for day, counts in sorted(days.items())}


def pool_utilisation(jobs: Iterable[Item], now: Instant) -> dict[str, dict[str, Any]]:
    """For each pool, the share of its machines' time in which jobs ran."""
    return {name: _utilisation(group, now) for name, group in grouped(jobs, _pool).items()}


def _utilisation(jobs: Sequence[Item], now: Instant) -> dict[str, Any]:
    moments = [moments_of(job) for job in jobs]
    machine = sum(each.machine_seconds(now) or 0.0 for each in moments)
    busy = sum(
        max(0.0, (each.completed or now).seconds_since(each.started)) for each in moments if each.started is not None
    )
    return {
        "jobs": len(jobs),
        "running": sum(1 for each in moments if each.started and not each.completed),
        "machine_seconds": round(machine, 3),
        "busy_seconds": round(busy, 3),
        "utilisation": round(min(1.0, busy / machine), 4) if machine else None,
    }


_COST_NAMES: Final[dict[str, Callable[[Item, str], str]]] = {
    "repo": lambda job, _: repository_of(job) or "unknown",
    "workflow": lambda job, _: f"{repository_of(job) or 'unknown'} / {job.get('workflow_name', 'unknown')}",
    "team": lambda job, team_property: _team(job, team_property),
    "pool": lambda job, _: _pool(job),
    "day": lambda job, _: str(job.get("created_at", "unknown"))[:10],
}
COST_GROUPS: Final = tuple(_COST_NAMES)


@dataclass(frozen=True, slots=True)
class CostGroup:
    """`unpriced` jobs ran on machines without a known price; the sum excludes them."""

    name: str
    jobs: int
    usd: Decimal
    is_estimate: bool
    unpriced: int


def costs(
    jobs: Iterable[Item], group: str, prices: Prices, now: Instant | None = None, team_property: str = TEAM_PROPERTY
) -> list[CostGroup]:
    """The cost of the jobs' machines: the most expensive group first, or the newest day."""
    if group not in _COST_NAMES:
        raise BadRequest(f"cost by {group!r}: expected one of {', '.join(COST_GROUPS)}")
    named = grouped(jobs, lambda job: _COST_NAMES[group](job, team_property))
    found = [_cost_group(name, items, prices, now) for name, items in named.items()]
    if group == "day":
        return sorted(found, key=lambda each: each.name, reverse=True)
    return sorted(found, key=lambda each: (-each.usd, each.name))


def _cost_group(name: str, jobs: Sequence[Item], prices: Prices, now: Instant | None) -> CostGroup:
    found = [(job, cost_of(job, prices, now)) for job in jobs]
    known = [cost for _, cost in found if cost is not None]
    unpriced = sum(1 for job, cost in found if cost is None and "scheduled_at" in job)
    usd = sum((cost.usd for cost in known), Decimal(0))
    return CostGroup(name, len(jobs), usd, any(cost.is_estimate for cost in known), unpriced)


def _team(job: Item, team_property: str) -> str:
    """The team that a repository's property names; a property with several values names them all."""
    found = job.get("custom_properties", {}).get(team_property, "none")
    return ", ".join(map(str, found)) if isinstance(found, list) else str(found)


def _pool(job: Item) -> str:
    return str(with_own_machine(job).get("pool_name", "none"))


def _seconds(milliseconds: int | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000


def _spread(values: Iterable[float | None]) -> dict[str, float | None]:
    known = [value for value in values if value is not None]
    return {f"p{percent}": percentile(known, percent) for percent in PERCENTILES}
