"""Statistics and costs of many jobs, and the jobs that they are made of."""

from dataclasses import asdict, replace
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec import structs

from holdfast.jobs.read import queries, statistics
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.queries import FoundItems, Paging, Span
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Item, Store
from holdfast.views.job_listings import all_jobs
from holdfast.views.job_types import (
    CostGrouping,
    CostRow,
    Gathered,
    JobCosts,
    JobGroup,
    JobStats,
    Percentiles,
    PoolUsage,
)
from holdfast.views.query_params import QueryParams

GATHERED_MOST: Final = 10_000  # jobs that the figures of one answer are made of
GATHERED: Final = 1000
STATS_DAYS: Final = 7
COST_DAYS: Final = 30


class FigureQuery(NamedTuple):
    """Which jobs figures are made of."""

    repository: str | None
    span: Span
    now: Instant
    limit: int
    cursor: str | None


class GatheredJobs(NamedTuple):
    """The jobs that figures are made of, and how they were chosen."""

    items: list[Item]
    about: Gathered


def figure_query(asked: QueryParams, days: int, now: Instant) -> FigureQuery:
    """The query that the parameters ask for; of the last `days` by default."""
    span = asked.span()
    since = span.since or (span.until or now).plus(-days * 86_400)
    limit = asked.limit(GATHERED_MOST, GATHERED)
    return FigureQuery(asked.repository(), Span(since, span.until), now, limit, asked.cursor())


def gathered_jobs(store: Store, installation: InstallationId, query: FigureQuery) -> GatheredJobs:
    """The newest jobs that match."""

    def walk(paging: Paging) -> FoundItems:
        paging = replace(paging, cursor=paging.cursor or query.cursor)
        if query.repository is not None:
            return queries.jobs_by_repository(store, installation, query.repository, query.span, paging)
        return all_jobs(store, installation, query.span, paging)

    found = queries.gathered(walk, query.limit)
    since, until = query.span.since or query.now, query.span.until or query.now
    about = Gathered(
        installation_id=installation,
        repo=query.repository,
        since=since.iso(),
        until=until.iso(),
        jobs=len(found.items),
        cursor=found.cursor,
        examined=found.examined,
    )
    return GatheredJobs(found.items, about)


def job_stats(jobs: GatheredJobs, now: Instant) -> JobStats:
    pools = statistics.pool_utilisation(jobs.items, now)
    return JobStats(
        **structs.asdict(jobs.about),
        total=_job_group(statistics.group_of("all", jobs.items)),
        pools={name: PoolUsage(**usage) for name, usage in pools.items()},
        days=statistics.daily_counts(jobs.items),
        items=[_job_group(group) for group in statistics.by_workflow_and_job(jobs.items)],
    )


def job_costs(jobs: GatheredJobs, by: CostGrouping, viewing: Viewing, now: Instant) -> JobCosts:
    prices = viewing.prices
    groups, days = (statistics.costs(jobs.items, group, prices, now, viewing.team_property) for group in (by, "day"))
    return JobCosts(
        **structs.asdict(jobs.about),
        by=by,
        usd=sum((group.usd for group in groups), Decimal(0)),
        prices_as_of=prices.as_of,
        prices_source=prices.source,
        days=[CostRow(**asdict(day)) for day in sorted(days, key=lambda day: day.name)],
        items=[CostRow(**asdict(group)) for group in groups],
    )


def cost_grouping(by: str) -> CostGrouping:
    match by:
        case "repo" | "workflow" | "team" | "pool" | "day":
            return by
    raise BadRequest(f"by {cut(by)!r}: expected one of {', '.join(statistics.COST_GROUPS)}")


def _job_group(group: statistics.Group) -> JobGroup:
    return JobGroup(
        name=group.name,
        jobs=group.jobs,
        conclusions=dict(group.conclusions),
        success_rate=group.success_rate,
        run_seconds=Percentiles(**group.run_seconds),
        queue_seconds=Percentiles(**group.queue_seconds),
        approval_seconds=Percentiles(**group.approval_seconds),
        interrupted=group.interrupted,
    )
