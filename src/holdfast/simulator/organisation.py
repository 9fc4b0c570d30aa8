"""A GitHub organisation at work: pushes, matrices, approvals, re-runs; and the runners that its jobs get.

What it has to tell lies in `outbox` until somebody has delivered it: webhooks as GitHub sends them (not yet signed),
and what a runner fleet would tell of its machines. Everything is drawn from a chance of its own, and every event is a
bound method or a partial, so that it can be kept in a file with its future. Only what is still open is kept.
"""

import json
import math
import random
import uuid
from functools import partial
from typing import Any, Final

from holdfast.simulator.organisation_objects import Job, Parcel, Run, RunnerTold, Webhook, job_json, run_json
from holdfast.simulator.timeline import Timeline
from holdfast.simulator.workplace import INSTALLATION, OWNER, POOLS, REPOSITORIES, JobKind, Repository, Workflow

_DAY_SECONDS: Final = 86_400
# From push to push, at noon and at night.
_NOON_SECONDS: Final = 150.0
_NIGHT_SECONDS: Final = 900.0
# Nobody pushes while so much waits to be delivered: a world that runs too fast for its machine must not pile up.
OUTBOX_MOST: Final = 60
_FAILS: Final = 0.03
_IS_INTERRUPTED: Final = 0.03
_IS_REJECTED: Final = 0.1
_HAS_NO_CAPACITY: Final = 0.06
_ATTEMPTS_MOST: Final = 3


class Organisation:
    def __init__(self, timeline: Timeline, seed: int) -> None:
        self._timeline = timeline
        self._chance = random.Random(seed)  # noqa: S311 -- a simulation wants chance that can be repeated
        self.outbox: list[Parcel] = []
        self._jobs: dict[int, Job] = {}
        self._waiting: dict[str, list[int]] = {pool: [] for pool in POOLS}
        self._busy: dict[str, int] = dict.fromkeys(POOLS, 0)
        self._number = 40_000_000 + seed % 1000 * 1_000_000
        self._after((5, 60), self._push)

    # Runs

    def _push(self) -> None:
        if len(self.outbox) <= OUTBOX_MOST:
            repository = self._chance.choices(REPOSITORIES, [each.share for each in REPOSITORIES])[0]
            workflow = self._chance.choice(repository.workflows)
            self.start(repository, workflow)
        seconds = self._timeline.now().epoch_seconds % _DAY_SECONDS
        night = (1 + math.cos(2 * math.pi * seconds / _DAY_SECONDS)) / 2  # 1 at midnight, 0 at noon
        mean = _NOON_SECONDS + (_NIGHT_SECONDS - _NOON_SECONDS) * night
        self._after((mean * 0.3, mean * 1.7), self._push)

    def start(self, repository: Repository, workflow: Workflow) -> None:
        sha = f"{self._chance.getrandbits(160):040x}"
        branch = self._chance.choice(workflow.branches)
        run = Run(self._next(), repository, workflow, branch, sha, self._timeline.now())
        self._tell_run(run, "requested")
        self._begin(run, workflow.stages[0])

    def _begin(self, run: Run, kinds: tuple[JobKind, ...] | list[JobKind]) -> None:
        jobs = [Job(self._next(), run, kind, self._timeline.now()) for kind in kinds]
        run.open |= {job.id for job in jobs}
        for job in jobs:
            self._jobs[job.id] = job
            if job.kind.environment is None:
                self._queue(job)
            else:
                job.status, job.deployment = "waiting", self._next()
                self._tell_job(job, "waiting")
                self._after((60, 5400), partial(self._review, job.id))

    def _review(self, number: int) -> None:
        job = self._jobs[number]
        job.released = self._timeline.now()
        rejected = self._chance.random() < _IS_REJECTED
        named = [{"name": job.kind.name, "environment": job.kind.environment}]
        self._send(
            "deployment_review",
            "rejected" if rejected else "approved",
            job.run,
            {
                "workflow_run": run_json(job.run, self._timeline.now()),
                "workflow_job_runs": named,
                "environment": job.kind.environment,
            },
        )
        if rejected:
            self._complete(job, "failure")
        else:
            self._queue(job)

    def _end(self, run: Run) -> None:
        run.status, run.conclusion = "completed", "failure" if run.failed else "success"
        self._tell_run(run, "completed")
        if run.failed and run.attempt < _ATTEMPTS_MOST and self._chance.random() < 0.6:
            self._after((120, 900), partial(self._again, run))

    def _again(self, run: Run) -> None:
        """Somebody runs the failed jobs again."""
        failed, run.failed = run.failed, []
        run.attempt, run.status, run.conclusion = run.attempt + 1, "queued", None
        self._tell_run(run, "requested")
        self._begin(run, failed)

    # Runners

    def _queue(self, job: Job) -> None:
        job.status = "queued"
        self._tell_job(job, "queued")
        self._waiting[job.kind.pool].append(job.id)
        self._after((2, 9), partial(self._assign, job.kind.pool))

    def _assign(self, pool: str) -> None:
        """The first that waits gets a runner, if the pool may have one more."""
        if self._waiting[pool] and self._busy[pool] < POOLS[pool].most:
            self._busy[pool] += 1
            self._launch(self._jobs[self._waiting[pool].pop(0)])

    def _launch(self, job: Job) -> None:
        pool = POOLS[job.kind.pool]
        job.market = "spot" if self._chance.random() < pool.spot_share else "on-demand"
        self._tell_runner(job, "runner_scheduled", self._machine(job))
        if job.market == "spot" and self._chance.random() < _HAS_NO_CAPACITY:
            self._after((10, 40), partial(self._relaunch, job.id))
        else:
            self._after((8, 25), partial(self._attach, job.id))

    def _relaunch(self, number: int) -> None:
        job = self._jobs[number]
        job.market, job.attempt = "on-demand", job.attempt + 1
        self._tell_runner(job, "runner_rescheduled", self._machine(job))
        self._after((8, 25), partial(self._attach, number))

    def _attach(self, number: int) -> None:
        job = self._jobs[number]
        job.instance = f"i-{self._chance.getrandbits(68):017x}"
        boot = self._chance.uniform(12, 30)
        register = boot + self._chance.uniform(3, 8)
        now = self._timeline.now()
        times = {"booted_at": now.plus(boot).iso(), "registered_at": now.plus(register).iso()}
        self._tell_runner(job, "runner_attached", self._machine(job) | times)
        self._timeline.after(register + self._chance.uniform(1, 4), partial(self._run, number))

    def _run(self, number: int) -> None:
        job = self._jobs[number]
        job.status, job.started, job.runner = "in_progress", self._timeline.now(), self._next()
        self._tell_job(job, "in_progress")
        if job.run.status == "queued":
            job.run.status = "in_progress"
            self._tell_run(job.run, "in_progress")
        seconds = self._chance.uniform(*job.kind.seconds)
        if job.market == "spot" and self._chance.random() < _IS_INTERRUPTED:
            self._timeline.after(seconds * self._chance.random(), partial(self._interrupt, number))
        else:
            self._timeline.after(seconds, partial(self._finish, number))

    def interrupt_one(self) -> str:
        """EC2 takes the machine of a running job on spot; what was done, in words."""
        running = [
            job
            for job in self._jobs.values()
            if job.status == "in_progress" and job.market == "spot" and not job.is_interrupted
        ]
        if not running:
            return "no job runs on a spot machine"
        chosen = self._chance.choice(running)
        self._interrupt(chosen.id)
        return f"EC2 gave notice to the runner of {chosen.kind.name} in {chosen.run.repository.name}"

    def _interrupt(self, number: int) -> None:
        job = self._jobs.get(number)
        if job is None or job.is_interrupted:
            return  # it has ended, or was taken on order
        job.is_interrupted = True
        self._tell_runner(job, "runner_interrupted", {})
        self._timeline.after(120, partial(self._finish, number))

    def _finish(self, number: int) -> None:
        job = self._jobs.get(number)
        if job is None:
            return  # what EC2 takes may have ended by itself meanwhile
        is_failed = job.is_interrupted or self._chance.random() < _FAILS
        self._tell_runner(job, "runner_terminated", {})
        self._busy[job.kind.pool] -= 1
        self._after((1, 4), partial(self._assign, job.kind.pool))
        self._complete(job, "failure" if is_failed else "success")

    def _complete(self, job: Job, conclusion: str) -> None:
        run = job.run
        job.status, job.conclusion, job.completed = "completed", conclusion, self._timeline.now()
        self._tell_job(job, "completed")
        del self._jobs[job.id]
        run.open.discard(job.id)
        if conclusion != "success":
            run.failed.append(job.kind)
        if run.open:
            return
        # The jobs that were run again belong to the stage that failed.
        run.stage += 0 if run.failed else 1
        if run.failed or run.stage >= len(run.workflow.stages):
            self._end(run)
        else:
            self._begin(run, run.workflow.stages[run.stage])

    # Telling

    def _machine(self, job: Job) -> dict[str, str]:
        return {
            "instance_type": POOLS[job.kind.pool].instance_type,
            "instance_lifecycle": job.market,
            "pool_name": job.kind.pool,
        }

    def _tell_runner(self, job: Job, kind: str, attributes: dict[str, str]) -> None:
        told = {"type": kind, "at": self._timeline.now().iso(), "attempt": job.attempt, "attributes": attributes}
        if job.instance:
            told["instance_id"] = job.instance
        self.outbox.append(RunnerTold(job.id, json.dumps(told).encode()))

    def _tell_job(self, job: Job, action: str) -> None:
        payload: dict[str, Any] = {"workflow_job": job_json(job)}
        if job.deployment is not None:
            payload["deployment"] = {
                "id": job.deployment,
                "environment": job.kind.environment,
                "created_at": job.created.iso_seconds(),
                "updated_at": (job.released or job.created).iso_seconds(),
            }
        self._send("workflow_job", action, job.run, payload)

    def _tell_run(self, run: Run, action: str) -> None:
        self._send("workflow_run", action, run, {"workflow_run": run_json(run, self._timeline.now())})

    def _send(self, event: str, action: str, run: Run, payload: dict[str, Any]) -> None:
        body = {
            "action": action,
            "repository": {
                "full_name": f"{OWNER}/{run.repository.name}",
                "private": run.repository.private,
                "default_branch": "main",
                "custom_properties": {"team": run.repository.team},
            },
            "installation": {"id": INSTALLATION},
            **payload,
        }
        guid = str(uuid.UUID(int=self._chance.getrandbits(128), version=4))
        self.outbox.append(Webhook(event, guid, json.dumps(body).encode()))

    def _next(self) -> int:
        self._number += 1
        return self._number

    def _after(self, span: tuple[float, float], event: Any) -> None:
        self._timeline.after(self._chance.uniform(*span), event)
