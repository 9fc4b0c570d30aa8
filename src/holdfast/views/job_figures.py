"""Statistics and costs of many jobs: those that have ended as counted by day, and the open ones as they are now."""

from dataclasses import asdict
from decimal import Decimal
from typing import Final, NamedTuple

from msgspec import structs

from holdfast.jobs.figures.calendar import HOUR_MS, hour_of
from holdfast.jobs.figures.open_jobs import OpenFigures, open_figures
from holdfast.jobs.figures.reading import CountedFigures, counted_figures
from holdfast.jobs.read import statistics
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.queries import Span
from holdfast.jobs.read.statistics import DayFigures
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Store
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

LIMIT_ACCEPTED_MOST: Final = 10_000
STATS_DAYS: Final = 7
COST_DAYS: Final = 30


class FigureQuery(NamedTuple):
    """Which jobs figures are made of."""

    repository: str | None
    span: Span
    now: Instant


class GatheredFigures(NamedTuple):
    """The figures, and what they are made of."""

    figures: DayFigures
    about: Gathered


def figure_query(asked: QueryParams, days: int, now: Instant) -> FigureQuery:
    """The query that the parameters ask for; of the last `days` by default, from a full hour.

    A limit is from the time when figures were made of some jobs. It is still accepted, and cuts nothing. There is no
    cursor any more that a client could have from here.
    """
    span = asked.span()
    since = span.since or Instant(hour_of((span.until or now).plus(-days * 86_400)) * HOUR_MS)
    asked.limit(LIMIT_ACCEPTED_MOST, LIMIT_ACCEPTED_MOST)
    if (cursor := asked.cursor()) is not None:
        raise BadRequest(f"cursor {cut(cursor, 40)!r}: figures cover all jobs of their range; start without a cursor")
    return FigureQuery(asked.repository(), Span(since, span.until), now)


def gathered_figures(
    store: Store, installation: InstallationId, query: FigureQuery, team_property: str
) -> GatheredFigures:
    """The figures of all jobs that match."""
    now, repository = query.now, query.repository
    since, until = query.span.since or now, query.span.until or now
    counted = counted_figures(store, installation, since, until, now, repository)
    still_open = open_figures(store, installation, query.span, now, repository, team_property)
    figures = DayFigures(counted.days, still_open.days)
    return GatheredFigures(figures, _about(installation, query, figures, counted, still_open))


def _about(
    installation: InstallationId,
    query: FigureQuery,
    figures: DayFigures,
    counted: CountedFigures,
    still_open: OpenFigures,
) -> Gathered:
    return Gathered(
        installation_id=installation,
        repo=query.repository,
        since=(query.span.since or query.now).iso(),
        until=(query.span.until or query.now).iso(),
        jobs=figures.jobs,
        cursor=None,
        examined=still_open.examined,
        counted_at=counted.counted_at.iso() if counted.counted_at else None,
        unknown_days=counted.unknown_days,
        notes=counted.notes + still_open.notes,
    )


def job_stats(found: GatheredFigures) -> JobStats:
    figures = found.figures
    return JobStats(
        **structs.asdict(found.about),
        total=_job_group(statistics.whole(figures)),
        pools={name: PoolUsage(**usage) for name, usage in statistics.pool_utilisation(figures).items()},
        days=statistics.daily_counts(figures),
        items=[_job_group(group) for group in statistics.by_workflow_and_job(figures)],
    )


def job_costs(found: GatheredFigures, by: CostGrouping, viewing: Viewing) -> JobCosts:
    prices = viewing.prices
    groups, days = (statistics.costs(found.figures, group, prices) for group in (by, "day"))
    return JobCosts(
        **structs.asdict(found.about),
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
