"""A simulated GitHub: runs, jobs, approvals, re-runs; and webhooks that come late, twice, out of order or not at all.

It answers as GitHub does (implements `holdfast.ports.github.GitHub`), keeps a log of its deliveries, redelivers on
request and never by itself, and counts calls against a rate limit. Webhooks go to `deliver`, a function that takes
headers and body and gives the status code of the answer; `sign` makes the signature. `on_job` hears of each new job.
"""

import json
import random
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import DeliveryPage, DeliveryRecord, GitHubRefused, JobSeen, RateLimited, RunSeen
from holdfast.simulator.github_objects import (
    GitHubHabits,
    JobPlan,
    Sent,
    SimJob,
    SimRun,
    job_json,
    run_json,
    seen_job,
)
from holdfast.simulator.timeline import Timeline

Deliver = Callable[[Mapping[str, str], bytes], int]
_PAGE: Final = 100
FAILED: Final = frozenset({"failure", "timed_out", "startup_failure"})
SENT_MOST: Final = 1000  # webhooks of a run


class SimulatedGitHub:
    def __init__(
        self,
        timeline: Timeline,
        chance: random.Random,
        sign: Callable[[bytes], str],
        deliver: Deliver,
        habits: GitHubHabits | None = None,
        target: int = 99,
    ) -> None:
        self._timeline = timeline
        self._chance = chance
        self._sign = sign
        self.deliver = deliver
        self.habits = habits or GitHubHabits()
        self.runs: dict[RunId, SimRun] = {}
        self.jobs: dict[JobId, SimJob] = {}
        self.log: list[DeliveryRecord] = []
        self.asked: set[str] = set()  # the guids of what somebody wanted once more
        self.on_job: Callable[[SimJob], None] = lambda _: None
        self._sent: dict[int, Sent] = {}
        self._numbers = 1000
        self._calls: list[Instant] = []
        self._target = target

    # What happens at GitHub

    def start_run(
        self,
        installation: InstallationId,
        repository: str,
        jobs: Sequence[JobPlan],
        later: Sequence[Sequence[JobPlan]] = (),
    ) -> SimRun:
        """A run with its first jobs. `later` are stages that begin when all jobs so far have succeeded."""
        run = SimRun(RunId(self._number()), installation, repository, self._timeline.now(), len(self.runs))
        run.later = list(later)
        self.runs[run.id] = run
        self._tell_run(run, "requested")
        for plan in jobs:
            self.add_job(run, plan)
        return run

    def add_job(self, run: SimRun, plan: JobPlan) -> SimJob:
        job = SimJob(
            JobId(self._number()), run.id, run.attempt, plan.name, plan.environment, self._timeline.now(), plan.labels
        )
        self.jobs[job.id] = job
        run.jobs.append(job)
        if plan.environment is not None:
            job.deployment_id = self._number()
        self._tell_job(job, "queued")
        if plan.environment is not None:
            job.status = "waiting"
            self._tell_job(job, "waiting")
        self.on_job(job)
        return job

    def approve(self, job: SimJob) -> None:
        self._review(job, "approved")
        job.status = "queued"
        self._tell_job(job, "queued")

    def reject(self, job: SimJob) -> None:
        self._review(job, "rejected")
        self.finish(job, "failure")

    def start(self, job: SimJob, runner_name: str) -> None:
        job.status, job.started = "in_progress", self._timeline.now()
        job.runner_id, job.runner_name = self._number(), runner_name
        self._tell_job(job, "in_progress")
        run = self.runs[job.run_id]
        if run.status == "queued":
            run.status = "in_progress"
            self._tell_run(run, "in_progress")

    def finish(self, job: SimJob, conclusion: str) -> None:
        job.status, job.conclusion, job.completed = "completed", conclusion, self._timeline.now()
        self._tell_job(job, "completed")
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
        self._tell_run(run, "completed")

    def fail_to_start(self, run: SimRun) -> None:
        """The run ends before its jobs do anything, and nobody tells of the jobs."""
        run.status, run.conclusion = "completed", "startup_failure"
        self._tell_run(run, "completed")

    def jobs_of(self, run: SimRun) -> list[SimJob]:
        """Those of its latest attempt."""
        return run.jobs_of(run.attempt)

    def run_again(self, run: SimRun) -> None:
        """The next attempt begins, with the jobs that failed in this one."""
        failed = [job for job in self.jobs_of(run) if job.conclusion in FAILED]
        run.attempt, run.status, run.conclusion = run.attempt + 1, "queued", None
        self._tell_run(run, "requested")
        for job in failed:
            self.add_job(run, JobPlan(job.name, job.environment, job.labels))

    # What GitHub is asked

    def deliveries(self, cursor: str | None = None) -> DeliveryPage:
        self._count_call()
        before = int(cursor) if cursor else len(self.log)
        records = [record for record in self.log[max(0, before - _PAGE) : before][::-1] if self._is_kept(record)]
        return DeliveryPage(records, str(before - _PAGE) if before > _PAGE and len(records) == _PAGE else None)

    def redeliver(self, delivery_id: int) -> None:
        self._count_call()
        sent = self._sent.get(delivery_id)
        if sent is None:
            raise GitHubRefused(f"delivery {delivery_id} is not known", 404)
        self.asked.add(sent.guid)
        self._send_again(sent)

    def run(self, installation: InstallationId, repository: str, run_id: RunId) -> RunSeen | None:
        self._count_call()
        run = self.runs.get(run_id)
        if run is None or (run.installation, run.repository) != (installation, repository):
            return None
        return RunSeen(run.id, run.attempt, run.status, run.conclusion, run.updated or run.created)

    def jobs_of_run(
        self, installation: InstallationId, repository: str, run_id: RunId, run_attempt: int, page: int = 1
    ) -> Sequence[JobSeen]:
        self._count_call()
        run = self.runs.get(run_id)
        if run is None or (run.installation, run.repository) != (installation, repository):
            return []
        found = run.jobs_of(run_attempt)
        return [seen_job(job) for job in found[(page - 1) * _PAGE : page * _PAGE]]

    def rerun_failed_jobs(self, installation: InstallationId, repository: str, run_id: RunId) -> None:
        self._count_call()
        run = self.runs.get(run_id)
        if run is None or run.installation != installation or run.repository != repository:
            raise GitHubRefused(f"run {run_id} of {repository} is not known", 404)
        if run.status != "completed":
            raise GitHubRefused(f"run {run_id} is already running", 403)
        self.run_again(run)

    # Deliveries

    def _tell_job(self, job: SimJob, action: str) -> None:
        job.changed = self._timeline.now()
        payload: dict[str, Any] = {"workflow_job": {**job_json(job)}}
        if job.deployment_id is not None:
            payload["deployment"] = self._deployment_json(job)
        self._send("workflow_job", action, self.runs[job.run_id], payload, job)

    def _tell_run(self, run: SimRun, action: str) -> None:
        run.updated = self._timeline.now()
        self._send("workflow_run", action, run, {"workflow_run": run_json(run)})

    def _review(self, job: SimJob, action: str) -> None:
        job.review = action
        run = self.runs[job.run_id]
        named = [{"name": job.name, "environment": job.environment}]
        payload = {"workflow_run": run_json(run), "workflow_job_runs": named, "environment": job.environment}
        self._send("deployment_review", action, run, payload, job)

    def _deployment_json(self, job: SimJob) -> dict[str, Any]:
        return {
            "id": job.deployment_id,
            "environment": job.environment,
            "created_at": job.created.iso_seconds(),
            "updated_at": self._timeline.now().iso_seconds(),
        }

    def _send(self, event: str, action: str, run: SimRun, payload: dict[str, Any], job: SimJob | None = None) -> None:
        body = {
            "action": action,
            "repository": {"full_name": run.repository, "private": True, "default_branch": "main"},
            "installation": {"id": run.installation},
            **payload,
        }
        number = run.ordinal * SENT_MOST + run.sent
        run.sent += 1
        self._post(Sent(number, event, action, self._guid(), json.dumps(body).encode(), run, run.attempt, job))

    def _post(self, sent: Sent) -> None:
        self._timeline.after(self._delay(), lambda: self._attempt(sent))
        if self._chance.random() < self.habits.repeated_share:
            self._send_again(sent)

    def _send_again(self, sent: Sent) -> None:
        self._timeline.after(self._delay(), lambda: self._attempt(sent, is_redelivery=True))

    def _attempt(self, sent: Sent, *, is_redelivery: bool = False) -> None:
        is_lost = self._chance.random() < self.habits.lost_share
        status = 0 if is_lost else self.deliver(self._headers(sent), sent.body)
        self._note(sent, status, is_redelivery=is_redelivery)

    def _note(self, sent: Sent, status: int, *, is_redelivery: bool) -> None:
        """Write into the log of deliveries how an attempt went."""
        number = self._number()
        self._sent[number] = sent
        self.log.append(DeliveryRecord(number, sent.guid, self._timeline.now(), is_redelivery, status, sent.event))

    def _headers(self, sent: Sent) -> dict[str, str]:
        return {
            "x-github-event": sent.event,
            "x-github-delivery": sent.guid,
            "x-github-hook-installation-target-id": str(self._target),
            "x-hub-signature-256": self._sign(sent.body),
            "content-type": "application/json",
        }

    def _delay(self) -> float:
        late = self.habits.late_seconds if self._chance.random() < self.habits.late_share else 0.0
        return self._chance.uniform(*self.habits.delay_seconds) + late * self._chance.random()

    def _guid(self) -> str:
        """A UUID of version 1: the time is in it, and a number keeps two of one millisecond apart."""
        ticks = (self._timeline.now().epoch_ms + 12_219_292_800_000) * 10_000 + self._number() % 10_000
        low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000
        return str(uuid.UUID(fields=(low, middle, high, 0x80, 0, self._numbers)))

    def _is_kept(self, record: DeliveryRecord) -> bool:
        return self._timeline.now().seconds_since(record.delivered_at) <= 3 * 86_400

    def _count_call(self) -> None:
        now = self._timeline.now()
        self._calls = [at for at in self._calls if now.seconds_since(at) < 3600]
        if len(self._calls) >= self.habits.calls_per_hour:
            raise RateLimited("the rate limit is spent", min(self._calls, default=now).plus(3600))
        self._calls.append(now)

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers
