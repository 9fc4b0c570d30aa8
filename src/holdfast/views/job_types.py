"""The answers about jobs, runs, deployments, statistics and costs."""

from typing import Generic, Literal, TypeVar

from msgspec import UNSET, UnsetType

from holdfast.jobs.read.item_views import JobView
from holdfast.jobs.read.run_views import DeploymentView, RunView
from holdfast.kernel.json_types import Amount, Count, Money, Shape, Time

CostGrouping = Literal["repo", "workflow", "team", "pool", "day"]
T = TypeVar("T")


class ListPage(Shape, Generic[T], frozen=True, kw_only=True):
    """Some of the items. With a cursor there may be more; `examined`: how many were read to find these."""

    items: list[T]
    cursor: str | None
    examined: Count


class StuckJob(JobView, frozen=True, kw_only=True):
    seconds_there: Count
    limit_seconds: Count


class QueuedJob(JobView, frozen=True, kw_only=True):
    """`position`: among all that wait, None beyond the first 200. `why`: what it waits for."""

    position: Count | None
    why: str


class JobQueue(Shape, frozen=True, kw_only=True):
    items: list[QueuedJob]
    cursor: None = None
    examined: Count


class ExplainedJob(Shape, frozen=True, kw_only=True):
    """Where a job is, since when, why, and what happens next."""

    installation_id: Count
    job_id: Count
    status: str
    since: Time | None
    because: str
    next: str
    is_stuck: bool
    lines: list[str]


class WaitingEnvironment(Shape, frozen=True, kw_only=True):
    """An environment that jobs of a run wait for, and where that is known from."""

    environment: str
    source: Literal["store", "github"]
    wait_minutes: Count | UnsetType = UNSET
    wait_began_at: Time | UnsetType | None = UNSET
    reviewers: list[str] | UnsetType = UNSET


class RunWithJobs(RunView, frozen=True, kw_only=True):
    next_attempt: Count | None
    pending_deployments: list[WaitingEnvironment]
    jobs: ListPage[JobView]


class DeploymentWithJobs(DeploymentView, frozen=True, kw_only=True):
    """`is_pending_at_github`: None if GitHub was not asked, or did not answer."""

    is_pending_at_github: bool | None
    jobs: ListPage[JobView]


class WaitingDeployment(Shape, frozen=True, kw_only=True):
    """Jobs that wait for the same deployment. Without one, GitHub holds them back for another reason."""

    id: Count | None
    deployment: DeploymentWithJobs | None
    jobs: list[JobView]


class WaitingDeployments(Shape, frozen=True, kw_only=True):
    now: Time
    installations: list[Count]
    chosen: Count | None
    items: list[WaitingDeployment]
    more: bool


class Percentiles(Shape, frozen=True, kw_only=True):
    p50: Amount | None
    p95: Amount | None
    p99: Amount | None


class JobGroup(Shape, frozen=True, kw_only=True):
    """How often the jobs of a group succeed, how long they run and wait."""

    name: str
    jobs: Count
    conclusions: dict[str, Count]
    success_rate: Amount | None
    run_seconds: Percentiles
    queue_seconds: Percentiles
    approval_seconds: Percentiles
    interrupted: Count


class PoolUsage(Shape, frozen=True, kw_only=True):
    jobs: Count
    running: Count
    machine_seconds: Amount
    busy_seconds: Amount
    utilisation: Amount | None


class Gathered(Shape, frozen=True, kw_only=True):
    """Which jobs the figures are made of: all of the range. The cursor is always None.

    Jobs that have ended are as of `counted_at`; open ones as of now. `unknown_days`: not counted yet. `notes`: where
    the figures differ from the range.
    """

    installation_id: Count
    repo: str | None
    since: Time
    until: Time
    jobs: Count
    cursor: str | None
    examined: Count
    counted_at: Time | None
    unknown_days: list[str]
    notes: list[str]


class JobStats(Gathered, frozen=True, kw_only=True):
    total: JobGroup
    pools: dict[str, PoolUsage]
    days: dict[str, dict[str, Count]]
    items: list[JobGroup]


class CostRow(Shape, frozen=True, kw_only=True):
    """What the machines of a group of jobs cost; the price of `unpriced` of them is unknown."""

    name: str
    jobs: Count
    usd: Money
    is_estimate: bool
    unpriced: Count


class JobCosts(Gathered, frozen=True, kw_only=True):
    by: CostGrouping
    usd: Money
    prices_as_of: str
    prices_source: str
    days: list[CostRow]
    items: list[CostRow]
