"""The jobs now: how many are where, those that run, and what their machines cost. Bounded, however many there are."""

from collections.abc import Mapping, Sequence
from decimal import Decimal
from typing import Final

from msgspec import structs

from holdfast.jobs.cost.prices import Prices
from holdfast.jobs.intake.tracker import installations
from holdfast.jobs.model.facts import Status
from holdfast.jobs.read import queries
from holdfast.jobs.read.item_views import JobView
from holdfast.jobs.read.queries import Paging
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.json_types import Count, Shape
from holdfast.ports.machines import Market
from holdfast.ports.store import Item, Store
from holdfast.views.job_types import JobGroup
from holdfast.views.job_views import JobViews

COUNT_MOST: Final = 500
INSTALLATIONS_MOST: Final = 10
_WITH_MACHINE: Final = (Status.IN_PROGRESS, Status.SCHEDULED)
_OPEN: Final = (*_WITH_MACHINE, Status.QUEUED, Status.WAITING)
_RUNNING_SHOWN: Final = 6


class JobCount(Shape, frozen=True, kw_only=True):
    """`more`: it was not counted further."""

    jobs: Count = 0
    more: bool = False


class OpenJobs(Shape, frozen=True, kw_only=True):
    in_progress: JobCount
    scheduled: JobCount
    queued: JobCount
    waiting: JobCount


class JobsNow(Shape, frozen=True, kw_only=True):
    """`problem`: why the store could not be read. `running` and `recent` are of the first installation.

    `recent`: the last 7 days.
    """

    installations: list[Count]
    problem: str | None
    counts: OpenJobs
    runners_usd_per_hour: float
    runners_saved_usd_per_hour: float
    stuck: JobCount
    running: list[JobView]
    recent: JobGroup | None


def jobs_now(store: Store, views: JobViews, prices: Prices) -> JobsNow:
    try:
        return _counted(store, views, prices, installations(store)[:INSTALLATIONS_MOST])
    except HoldfastError as error:
        return structs.replace(_counted(store, views, prices, []), problem=str(error))


def _counted(store: Store, views: JobViews, prices: Prices, known: Sequence[InstallationId]) -> JobsNow:
    counts = dict.fromkeys(_OPEN, JobCount())
    runners_usd = saved_usd = Decimal(0)
    for installation in known:
        for status in _OPEN:
            found = queries.jobs_by_status(store, installation, status, paging=Paging(COUNT_MOST))
            count = counts[status]
            counts[status] = JobCount(jobs=count.jobs + len(found.items), more=count.more or found.cursor is not None)
            for job in found.items if status in _WITH_MACHINE else ():
                usd, saved = _runner_usd(job, prices)
                runners_usd, saved_usd = runners_usd + usd, saved_usd + saved
    stuck = [views.stuck({"installation_id": str(installation), "limit": "100"}) for installation in known]
    first = {"installation_id": str(known[0])} if known else None
    running = {"status": "in_progress", "limit": str(_RUNNING_SHOWN)}
    return JobsNow(
        installations=list(known),
        problem=None,
        counts=OpenJobs(
            in_progress=counts[Status.IN_PROGRESS],
            scheduled=counts[Status.SCHEDULED],
            queued=counts[Status.QUEUED],
            waiting=counts[Status.WAITING],
        ),
        runners_usd_per_hour=float(runners_usd),
        runners_saved_usd_per_hour=float(saved_usd),
        stuck=JobCount(
            jobs=sum(len(page.items) for page in stuck), more=any(page.cursor is not None for page in stuck)
        ),
        running=views.jobs({**first, **running}).items if first else [],
        recent=views.stats(first).total if first else None,
    )


def _runner_usd(job: Item, prices: Prices) -> tuple[Decimal, Decimal]:
    """What a job's machine costs in an hour, and how much less that is than on demand."""
    instance_type, lifecycle = _text(job, "instance_type", ""), _text(job, "instance_lifecycle", "on-demand")
    price = prices.of(instance_type, lifecycle, None, None)
    on_demand = prices.of(instance_type, str(Market.ON_DEMAND), None, None)
    if price is None or on_demand is None:
        return Decimal(0), Decimal(0)
    return price.usd_per_hour, on_demand.usd_per_hour - price.usd_per_hour


def _text(job: Mapping[str, object], name: str, default: str) -> str:
    return str(job.get(name, default))
