"""The simulated GitHub: runs, jobs, attempts, approvals and re-runs, as webhooks and as answers of its API.

It implements `holdfast.ports.github.GitHub`, keeps a log of deliveries, redelivers only on request, and enforces a rate
limit. What is pushed, when jobs start and how they end is decided by a workload on top of it: the script of a proof
run, or the demo's organisation. How webhooks are delivered is left to a subclass.
"""

import json
import uuid
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from itertools import islice
from typing import Any, Final

from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import (
    DeliveryPage,
    DeliveryRecord,
    GitHubRefused,
    JobSeen,
    RateLimited,
    RepositorySeen,
    RunSeen,
)
from holdfast.simulator.world.github_objects import (
    APP_ID,
    JobPlan,
    RunDetails,
    SimJob,
    SimRun,
    Webhook,
    deployment_json,
    job_json,
    repository_json,
    run_json,
    seen_job,
    seen_run,
)
from holdfast.simulator.world.timeline import Timeline

FAILED: Final = frozenset({"failure", "timed_out", "startup_failure"})
WEBHOOKS_MOST: Final = 1000  # of one run, if it is not large
_WEBHOOKS_EACH_JOB: Final = 24  # of three attempts, by two hooks
CALLS_PER_HOUR: Final = 5000
_PAGE: Final = 100
_LOG_SECONDS: Final = 3 * 86_400


def ordinals_of(jobs: int) -> int:
    """How many ordinals a run takes. Each has a range of numbers for webhooks, so a large run takes several."""
    return 1 + jobs * _WEBHOOKS_EACH_JOB // WEBHOOKS_MOST


def ignored(_job: SimJob) -> None:
    """The default of `on_job`. Not a lambda, which could not be stored."""


class SimulatedGitHub(ABC):
    """`on_job` is called with each new job."""

    # What happens now happened so long ago, and its webhooks are late. Of the class: stored worlds do not have it.
    _ago_seconds = 0.0

    def __init__(self, timeline: Timeline, *, calls_per_hour: int = CALLS_PER_HOUR, first_number: int = 1000) -> None:
        self._timeline = timeline
        self.calls_per_hour = calls_per_hour
        self.runs: dict[RunId, SimRun] = {}
        self.runs_started = 0
        self.jobs: dict[JobId, SimJob] = {}
        self.log: list[DeliveryRecord] = []
        self.redelivered: set[str] = set()  # guids for which a redelivery was requested
        self.on_job: Callable[[SimJob], None] = ignored
        self._delivered: dict[int, Webhook] = {}
        self._numbers = first_number
        self._calls: list[Instant] = []

    # Delivery

    @abstractmethod
    def send(self, webhook: Webhook) -> None:
        """Deliver a new webhook."""

    @abstractmethod
    def send_again(self, webhook: Webhook) -> None:
        """Deliver a webhook once more, on request."""

    def log_delivery(self, webhook: Webhook, status: int, *, is_redelivery: bool) -> None:
        """Record the outcome of a delivery attempt in the delivery log, if it was the App's."""
        if webhook.target != APP_ID:
            return
        number = self._number()
        self._delivered[number] = webhook
        record = DeliveryRecord(number, webhook.guid, self._timeline.now(), is_redelivery, status, webhook.event)
        self.add_to_log(record, webhook)

    def add_to_log(self, record: DeliveryRecord, _webhook: Webhook) -> None:
        self.log.append(record)

    # Runs and jobs

    def past_run(self, installation: InstallationId, repository: str, plan: JobPlan, ago_seconds: float) -> SimRun:
        """A run of one job that ended long ago; all its webhooks are sent only now."""
        on_job, self.on_job = self.on_job, ignored
        self._ago_seconds = ago_seconds
        run = self.start_run(installation, repository, [plan])
        [job] = run.jobs
        self._ago_seconds -= 20
        self.start(job, "runner")
        self._ago_seconds -= 300
        self.finish(job, "failure")
        self.on_job, self._ago_seconds = on_job, 0.0
        self.runs = {run.id: run, **self.runs}  # lists have the newest first
        return run

    def start_run(
        self,
        installation: InstallationId,
        repository: str,
        jobs: Sequence[JobPlan],
        later: Sequence[Sequence[JobPlan]] = (),
        details: RunDetails | None = None,
    ) -> SimRun:
        """Start a run with its first jobs. The stages in `later` each begin once all jobs so far have succeeded."""
        now, details = self._now(), details or RunDetails()
        run = SimRun(RunId(self._number()), installation, repository, now, self.runs_started, details)
        run.later = list(later)
        self.runs[run.id] = run
        self.runs_started += ordinals_of(len(jobs))
        self._send_run(run, "requested")
        for plan in jobs:
            self.add_job(run, plan)
        return run

    def add_job(self, run: SimRun, plan: JobPlan) -> SimJob:
        job = SimJob(JobId(self._number()), run.id, run.attempt, plan.name, plan.environment, self._now(), plan.labels)
        self.jobs[job.id] = job
        run.jobs.append(job)
        if plan.environment is not None:
            job.deployment_id = self._number()
        self._send_job(job, "queued")
        if plan.environment is not None:
            job.status = "waiting"
            self._send_job(job, "waiting")
        self.on_job(job)
        return job

    def approve(self, job: SimJob) -> None:
        self._review(job, "approved")
        job.status = "queued"
        self._send_job(job, "queued")

    def reject(self, job: SimJob) -> None:
        self._review(job, "rejected")
        self.finish(job, "failure")

    def start(self, job: SimJob, runner_name: str, runner_group_id: int | None = None) -> None:
        job.status, job.started = "in_progress", self._now()
        job.runner_id, job.runner_name, job.runner_group_id = self._number(), runner_name, runner_group_id
        self._send_job(job, "in_progress")
        run = self.runs[job.run_id]
        if run.status == "queued":
            run.status = "in_progress"
            self._send_run(run, "in_progress")

    def finish(self, job: SimJob, conclusion: str) -> None:
        job.status, job.conclusion, job.completed = "completed", conclusion, self._now()
        self._send_job(job, "completed")
        run = self.runs[job.run_id]
        jobs = self.jobs_of(run)
        if not all(each.status == "completed" for each in jobs):
            return
        failed = any(each.conclusion in FAILED for each in jobs)
        if run.later and all(each.conclusion == "success" for each in jobs):
            for plan in run.later.pop(0):
                self.add_job(run, plan)
            return
        run.status, run.conclusion = "completed", "failure" if failed else "success"
        self._send_run(run, "completed")

    def fail_to_start(self, run: SimRun) -> None:
        """End the run before its jobs do anything; no webhook reports the end of the jobs."""
        run.status, run.conclusion = "completed", "startup_failure"
        self._send_run(run, "completed")

    def jobs_of(self, run: SimRun) -> list[SimJob]:
        """The jobs of its latest attempt."""
        return run.jobs_of(run.attempt)

    def rerun(self, run: SimRun) -> None:
        """Start the next attempt, with the jobs that failed in this one."""
        failed = [job for job in self.jobs_of(run) if job.conclusion in FAILED]
        run.attempt, run.status, run.conclusion = run.attempt + 1, "queued", None
        self._send_run(run, "requested")
        for job in failed:
            self.add_job(run, JobPlan(job.name, job.environment, job.labels))

    def forget(self, run: SimRun) -> None:
        """Drop a run that will not change again."""
        del self.runs[run.id]
        for job in run.jobs:
            del self.jobs[job.id]

    # The API

    def deliveries(self, cursor: str | None = None) -> DeliveryPage:
        self._count_call()
        before = int(cursor) if cursor else len(self.log)
        records = [record for record in self.log[max(0, before - _PAGE) : before][::-1] if self._is_in_log(record)]
        return DeliveryPage(records, str(before - _PAGE) if before > _PAGE and len(records) == _PAGE else None)

    def redeliver(self, delivery_id: int) -> None:
        self._count_call()
        webhook = self._delivered.get(delivery_id)
        if webhook is None:
            raise GitHubRefused(f"delivery {delivery_id} does not exist", 404)
        self.redelivered.add(webhook.guid)
        self.send_again(webhook)

    def run(self, installation: InstallationId, repository: str, run_id: RunId) -> RunSeen | None:
        self._count_call()
        run = self.runs.get(run_id)
        if run is None or (run.installation, run.repository) != (installation, repository):
            return None
        return seen_run(run)

    def repositories(self, installation: InstallationId, page: int = 1) -> Sequence[RepositorySeen]:
        self._count_call()
        names = sorted({run.repository for run in self.runs.values() if run.installation == installation})
        return [RepositorySeen(name) for name in names[(page - 1) * _PAGE : page * _PAGE]]

    def runs_of_repository(
        self, installation: InstallationId, repository: str, status: str | None = None, page: int = 1
    ) -> Sequence[RunSeen]:
        self._count_call()
        whose = installation, repository
        runs = (run for run in reversed(self.runs.values()) if (run.installation, run.repository) == whose)
        found = (run for run in runs if status in (None, run.status))
        return [seen_run(run) for run in islice(found, (page - 1) * _PAGE, page * _PAGE)]

    def jobs_of_run(
        self, installation: InstallationId, repository: str, run_id: RunId, run_attempt: int, page: int = 1
    ) -> Sequence[JobSeen]:
        self._count_call()
        run = self.runs.get(run_id)
        if run is None or (run.installation, run.repository) != (installation, repository):
            return []
        found = run.jobs_of(run_attempt)
        return [seen_job(run, job) for job in found[(page - 1) * _PAGE : page * _PAGE]]

    def rerun_failed_jobs(self, installation: InstallationId, repository: str, run_id: RunId) -> None:
        self._count_call()
        run = self.runs.get(run_id)
        if run is None or run.installation != installation or run.repository != repository:
            raise GitHubRefused(f"run {run_id} of {repository} does not exist", 404)
        if run.status != "completed":
            raise GitHubRefused(f"run {run_id} is already running", 403)
        self.rerun(run)

    # Webhooks

    def _send_job(self, job: SimJob, action: str) -> None:
        job.changed = self._now()
        run = self.runs[job.run_id]
        payload: dict[str, Any] = {"workflow_job": job_json(run, job)}
        if job.deployment_id is not None:
            payload["deployment"] = deployment_json(job, self._now())
        self._send("workflow_job", action, run, payload, job)

    def _send_run(self, run: SimRun, action: str) -> None:
        run.updated = self._now()
        self._send("workflow_run", action, run, {"workflow_run": run_json(run)})

    def announce_deployment(self, job: SimJob, state: str | None = None) -> None:
        """Send the webhook of a job's deployment: that it was created, or its status."""
        run, now = self.runs[job.run_id], self._now()
        payload: dict[str, Any] = {"deployment": deployment_json(job, now), "workflow_run": run_json(run)}
        if state is None:
            self._send("deployment", "created", run, payload, job)
            return
        payload["deployment_status"] = {
            "state": state,
            "environment": job.environment,
            "created_at": now.iso_seconds(),
        }
        self._send("deployment_status", "created", run, payload, job)

    def _review(self, job: SimJob, action: str) -> None:
        job.review = action
        run = self.runs[job.run_id]
        reviewed = [{"name": job.name, "environment": job.environment}]
        payload = {"workflow_run": run_json(run), "workflow_job_runs": reviewed, "environment": job.environment}
        self._send("deployment_review", action, run, payload, job)

    def _send(self, event: str, action: str, run: SimRun, payload: dict[str, Any], job: SimJob | None = None) -> None:
        body = {
            "action": action,
            "repository": repository_json(run),
            "installation": {"id": run.installation},
            **payload,
        }
        number = run.ordinal * WEBHOOKS_MOST + run.webhooks
        run.webhooks += 1
        self.send(Webhook(number, event, action, self._guid(), json.dumps(body).encode(), run, run.attempt, job))

    def _guid(self) -> str:
        """A version 1 UUID: it contains the time, and a number tells two of one millisecond apart."""
        ticks = (self._now().epoch_ms + 12_219_292_800_000) * 10_000 + self._number() % 10_000
        low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000
        return str(uuid.UUID(fields=(low, middle, high, 0x80, 0, self._numbers)))

    def _now(self) -> Instant:
        """The time of what happens."""
        return self._timeline.now().plus(-self._ago_seconds) if self._ago_seconds else self._timeline.now()

    def _is_in_log(self, record: DeliveryRecord) -> bool:
        return self._timeline.now().seconds_since(record.delivered_at) <= _LOG_SECONDS

    def _count_call(self) -> None:
        now = self._timeline.now()
        self._calls = [at for at in self._calls if now.seconds_since(at) < 3600]
        if len(self._calls) >= self.calls_per_hour:
            raise RateLimited("the rate limit is exceeded", min(self._calls, default=now).plus(3600))
        self._calls.append(now)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
