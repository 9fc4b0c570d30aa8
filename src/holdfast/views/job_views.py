"""Jobs, runs, deployments, statistics and costs, as the command line, the API and the console show them.

Parameters are texts, and are validated here for all of them.
"""

import logging
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from typing import Final, TypeVar

from msgspec import structs

from holdfast.jobs.intake.bounds import is_repository_name
from holdfast.jobs.intake.tracker import installations
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey, run_key_of
from holdfast.jobs.read import queries
from holdfast.jobs.read.explain import explanation_of, waits_for
from holdfast.jobs.read.item_views import JobEventView, JobView, Viewing, event_view, job_view, repository_of
from holdfast.jobs.read.queries import ANY, FILTERS, REPOSITORY_PART, Filter, FoundItems
from holdfast.jobs.read.run_jobs import registered_run
from holdfast.jobs.read.run_views import deployment_view, run_view
from holdfast.jobs.read.stuck import StuckLimits, seconds_in_status
from holdfast.kernel.errors import BadRequest, NotFound, Retryable
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.ports.clock import Clock
from holdfast.ports.store import Item, Store
from holdfast.ports.store.tables import DEPLOYMENTS, RUNS
from holdfast.runners.offer import Offer
from holdfast.views.job_figures import (
    COST_DAYS,
    STATS_DAYS,
    GatheredFigures,
    cost_grouping,
    figure_query,
    gathered_figures,
    job_costs,
    job_stats,
)
from holdfast.views.job_listings import STUCK, all_jobs, all_stuck, now_whole
from holdfast.views.job_types import (
    DeploymentWithJobs,
    ExplainedJob,
    JobCosts,
    JobQueue,
    JobStats,
    ListPage,
    QueuedJob,
    RunWithJobs,
    StuckJob,
    WaitingDeployment,
)
from holdfast.views.pending_deployments import Fresh, is_pending_at_github, pending_environments
from holdfast.views.query_params import QueryParams, number
from holdfast.views.runner_classes import labels_answer

QUEUE_MOST: Final = 200
WAITING_MOST: Final = 50
_IN_QUEUE: Final = ("queued", "scheduled")
_log = logging.getLogger(__name__)

Params = Mapping[str, str]
T = TypeVar("T")


@dataclass(frozen=True, slots=True)
class WithStatus(Filter):
    """For the index by repository, which does not hold the status."""

    status: str | None = None

    def __call__(self, job: Item) -> bool:
        return self.status in (None, job.get("status")) and Filter.__call__(self, job)


class JobViews:
    """Views of one store; what it lacks is read from GitHub."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        viewing: Viewing,
        patience: StuckLimits,
        fresh: Fresh | None = None,
        offer: Offer | None = None,
    ) -> None:
        self._offer = offer
        self._fresh = fresh
        self._store = store
        self._clock = clock
        self._viewing = viewing
        self._patience = patience

    # Lists

    def jobs(self, params: Params) -> ListPage[JobView]:
        """By repository, by status, or all; newest first."""
        return self._jobs(params)

    def queue(self, params: Params) -> JobQueue:
        """Jobs that wait for a runner, oldest first. A position counts all of them, filtered or not."""
        oldest = [
            self._jobs({**_installation_of(params), "status": status, "limit": str(QUEUE_MOST)}, is_newest_first=False)
            for status in _IN_QUEUE
        ]
        positions = {job.job_id: position for position, job in enumerate(_oldest(oldest), 1)}
        is_filtered = not params.keys() <= {"installation_id", "status", "limit"}
        found = [self._jobs({**params, "status": status}) for status in _IN_QUEUE] if is_filtered else oldest
        return JobQueue(
            items=[
                QueuedJob(**structs.asdict(job), position=positions.get(job.job_id), why=waits_for(job))
                for job in _oldest(found)
            ],
            examined=sum(page.examined for page in found),
        )

    def waiting_deployments(self, installation_id: str) -> tuple[list[WaitingDeployment], bool]:
        """Jobs that wait for an approval, by deployment; and whether there are more than these."""
        params = {"installation_id": installation_id, "status": "waiting", "limit": str(WAITING_MOST)}
        found = self._jobs(params)
        by_deployment: dict[int | None, list[JobView]] = {}
        for job in found.items:
            by_deployment.setdefault(job.deployment_id, []).append(job)
        waiting = [
            WaitingDeployment(id=number, deployment=self.deployment_of(jobs[0]), jobs=jobs)
            for number, jobs in by_deployment.items()
        ]
        return sorted(waiting, key=lambda each: each.jobs[0].created_at or ""), found.cursor is not None

    def _jobs(self, params: Params, *, is_newest_first: bool = True) -> ListPage[JobView]:
        asked = QueryParams(params, "installation_id", "status", "repo", "since", "until", "limit", "cursor", *FILTERS)
        span, status = asked.span(), asked.status()
        paging = asked.paging(is_newest_first=is_newest_first)
        installation = self._installation(asked)
        repository, texts = asked.text("repo"), asked.texts(*FILTERS)
        if repository is not None and not self._is_repository(installation, repository):
            texts |= {REPOSITORY_PART: repository}
            repository = None
        wanted = Filter(texts) if texts else ANY
        if repository is not None:
            wanted = WithStatus(texts, status) if texts or status else ANY
            found = queries.jobs_by_repository(self._store, installation, repository, span, paging, wanted)
        elif status is not None:
            found = queries.jobs_by_status(self._store, installation, status, span, paging, wanted)
            found = replace(found, items=now_whole(self._store, found.items))
        else:
            found = all_jobs(self._store, installation, span, paging, wanted)
        return _page(self._job_views(found.items), found)

    def _is_repository(self, installation: InstallationId, text: str) -> bool:
        """Whether the text is the whole name of a repository with jobs, which has an index; otherwise it is a part."""
        return is_repository_name(text) and queries.has_jobs(self._store, installation, text)

    def stuck(self, params: Params) -> ListPage[StuckJob]:
        """Stuck jobs: the worst status first, and the oldest first in each."""
        asked = QueryParams(params, "installation_id", "status", "limit", "cursor")
        status, paging = asked.status(), asked.paging()
        statuses = STUCK if status is None else (status,)
        now = self._clock.now()
        limits = {status: self._patience.seconds(status) for status in statuses}
        found = all_stuck(self._store, self._installation(asked), statuses, now, self._patience, paging)
        jobs = [
            StuckJob(
                **structs.asdict(job),
                seconds_there=int(seconds_in_status(item, Status(item["status"]), now)),
                limit_seconds=limits[Status(item["status"])],
            )
            for item, job in zip(found.items, self._job_views(found.items), strict=True)
        ]
        return _page(jobs, found)

    def events(self, installation_id: str, job_id: str, params: Params) -> ListPage[JobEventView]:
        """The job's history, oldest first."""
        asked = QueryParams(params, "day", "event_type", "limit", "cursor")
        paging = asked.paging(is_newest_first=False)
        key = job_key(installation_id, job_id)
        day, event_type = asked.day(), asked.event_type()
        found = queries.events(self._store, key, paging, day=day, event_type=event_type)
        if not found.items and paging.cursor is None:
            self._job(key)  # neither events nor a job: unknown
        return _page([event_view(entry) for entry in found.items], found)

    # Single things

    def job(self, installation_id: str, job_id: str, params: Params) -> JobView:
        QueryParams(params)
        job = self._job(job_key(installation_id, job_id))
        try:
            return self._job_views([job])[0]
        except Retryable as error:
            # The job came from S3, which stands in for tables that do not respond; its run is only in the tables.
            _log.warning("the store does not respond; showing the job without its workflow_id: %s", error)
            return job_view(job, self._viewing, None)

    def explain(self, installation_id: str, job_id: str, params: Params) -> ExplainedJob:
        QueryParams(params)
        key = job_key(installation_id, job_id)
        job = self._job(key)
        deployment = None
        if "deployment_id" in job:
            gate = DeploymentKey(key.installation_id, DeploymentId(int(job["deployment_id"])))
            deployment = self._store.get(DEPLOYMENTS, gate.item)
        is_lost = bool(job.get("was_interrupted")) and "GSI3-PK" in job
        run = queries.run(self._store, run_key_of(job["GSI3-PK"])) if is_lost else None
        answer = labels_answer(self._offer, job.get("labels", ()), repository_of(job)) if self._offer else None
        words = explanation_of(job, deployment, self._clock.now(), self._patience, run, answer)
        return ExplainedJob(
            installation_id=key.installation_id, job_id=key.job_id, **asdict(words), lines=words.lines()
        )

    def run(self, installation_id: str, run_id: str, run_attempt: str, params: Params) -> RunWithJobs:
        """One attempt of a run, and a page of its jobs."""
        paging = QueryParams(params, "limit", "cursor").paging()
        installation = InstallationId(number("installation_id", installation_id))
        key = RunKey(installation, RunId(number("run_id", run_id)), number("run_attempt", run_attempt))
        run = queries.run(self._store, key)
        if run is None:
            raise NotFound(f"run {key.run_id}, attempt {key.run_attempt}, of installation {installation} not found")
        if self._fresh is not None:
            run = self._fresh(key, run)
        found = queries.jobs_by_run(self._store, key, paging)
        later = RunKey(key.installation_id, key.run_id, key.run_attempt + 1)
        return RunWithJobs(
            **structs.asdict(run_view(run, self._viewing)),
            next_attempt=later.run_attempt if registered_run(self._store, later, consistent=False) else None,
            pending_deployments=pending_environments(self._store, self._fresh, key, run, found.items),
            jobs=_page(self._job_views(found.items), found),
        )

    def deployment(self, installation_id: str, deployment_id: str, params: Params) -> DeploymentWithJobs:
        """The deployment, and the jobs that wait or waited for it."""
        QueryParams(params)
        installation = InstallationId(number("installation_id", installation_id))
        key = DeploymentKey(installation, DeploymentId(number("deployment_id", deployment_id)))
        found = queries.deployment(self._store, key)
        if found is None:
            raise NotFound(f"deployment {key.deployment_id} of installation {installation} not found")
        jobs = FoundItems(found[1], None, len(found[1]))
        view = deployment_view(*found)
        return DeploymentWithJobs(
            **structs.asdict(view),
            is_pending_at_github=is_pending_at_github(self._store, self._fresh, installation, view),
            jobs=_page(self._job_views(jobs.items), jobs),
        )

    def deployment_of(self, job: JobView) -> DeploymentWithJobs | None:
        """The deployment that a job waits or waited for; it may have expired before the job."""
        if not job.deployment_id:
            return None
        try:
            return self.deployment(str(job.installation_id), str(job.deployment_id), {})
        except NotFound:
            return None

    # Figures

    def stats(self, params: Params) -> JobStats:
        """How often jobs succeed, how long they run and wait: in total, by workflow and job, by pool, by day."""
        asked = QueryParams(params, "installation_id", "repo", "since", "until", "limit", "cursor")
        return job_stats(self._gathered(asked, STATS_DAYS))

    def costs(self, params: Params) -> JobCosts:
        """What the jobs' machines cost, the most expensive group first."""
        asked = QueryParams(params, "by", "installation_id", "repo", "since", "until", "limit", "cursor")
        by = cost_grouping(asked.text("by") or "repo")
        return job_costs(self._gathered(asked, COST_DAYS), by, self._viewing)

    def _gathered(self, asked: QueryParams, days: int) -> GatheredFigures:
        # Validate first: a bad parameter is an error even if no installation is known yet.
        query = figure_query(asked, days, self._clock.now())
        return gathered_figures(self._store, self._installation(asked), query, self._viewing.team_property)

    # Parts

    def _installation(self, asked: QueryParams) -> InstallationId:
        number = asked.number("installation_id")
        return InstallationId(number) if number is not None else self.only_installation()

    def only_installation(self) -> InstallationId:
        """The one that is known; with several, the caller has to choose."""
        known = installations(self._store)
        if len(known) == 1:
            return known[0]
        if not known:
            raise NotFound("no installation is known yet: no webhook of GitHub has been stored")
        some = ", ".join(map(str, known[:20])) + (" and more" if len(known) > 20 else "")
        raise BadRequest(f"installation_id: there is more than one; choose one of {some}")

    def _job(self, key: JobKey) -> Item:
        found = queries.job(self._store, key)
        if found is None:
            raise NotFound(f"job {key.job_id} of installation {key.installation_id} not found")
        return found

    def _job_views(self, jobs: Sequence[Item]) -> list[JobView]:
        """The jobs with all attributes; those that only a run holds are read from there."""
        keys = list(dict.fromkeys(run_key_of(job["GSI3-PK"]).item for job in jobs if "GSI3-PK" in job))
        runs = zip(keys, self._store.batch_get(RUNS, keys) if keys else (), strict=True)
        workflows = {key.partition: run.get("workflow_id") for key, run in runs if run is not None}
        return [job_view(job, self._viewing, workflows.get(job.get("GSI3-PK", ""))) for job in jobs]


def job_key(installation_id: str, job_id: str) -> JobKey:
    return JobKey(InstallationId(number("installation_id", installation_id)), JobId(number("job_id", job_id)))


def _page(items: list[T], found: FoundItems) -> ListPage[T]:
    return ListPage(items=items, cursor=found.cursor, examined=found.examined)


def _oldest(pages: Sequence[ListPage[JobView]]) -> list[JobView]:
    """The oldest jobs of several pages, as many as each may have: beyond them, one page may lack what another has."""
    jobs = [job for page in pages for job in page.items]
    return sorted(jobs, key=lambda job: (job.created_at or "", job.job_id))[:QUEUE_MOST]


def _installation_of(params: Params) -> dict[str, str]:
    return {name: value for name, value in params.items() if name == "installation_id"}
