"""Random deliveries for a storm: jobs of every kind, their runs, and approvals.

Two installations have the same ids, as two GitHub Enterprise Servers do. Whatever their order, they mean the
same: each deployment is decided once, and each run ends once.
"""

import json
import math
import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final

from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from tests.payloads import CREATED, delivery_id, job_payload, sample

INSTALLATIONS: Final = (1, 2)
JOBS_PER_RUN: Final = 20
_KINDS: Final = ("plain", "plain", "plain", "gated", "skipped", "cancelled", "re-run")
_REPEATED: Final = 0.1


@dataclass(frozen=True)
class Storm:
    """The deliveries in the order they were made, and the jobs and runs that they report."""

    deliveries: list[Delivery]
    jobs: list[JobKey]
    runs: list[RunKey]
    deployments: list[DeploymentKey]


def storm(count: int, seed: int) -> Storm:
    """At least that many deliveries; one in ten is sent twice."""
    chance = random.Random(seed)
    made = Storm([], [], [], [])
    number = 0
    while len(made.deliveries) * (1 + _REPEATED) < count:
        for installation in INSTALLATIONS:
            for event, payload, at in _of_run(made, number, InstallationId(installation), chance):
                made.deliveries.append(_delivery(event, payload, at, len(made.deliveries)))
        number += 1
    made.deliveries.extend(chance.sample(made.deliveries, math.ceil(len(made.deliveries) * _REPEATED)))
    return made


Sent = tuple[str, dict[str, Any], Instant]


def _of_run(made: Storm, number: int, installation: InstallationId, chance: random.Random) -> Iterator[Sent]:
    run, began = RunKey(installation, RunId(1000 + number), 1), CREATED.plus(number * 10)
    attempts = {1}
    for job in range(number * JOBS_PER_RUN, (number + 1) * JOBS_PER_RUN):
        kind = chance.choice(_KINDS)
        attempt = 2 if kind == "re-run" else 1
        attempts.add(attempt)
        key = JobKey(installation, JobId(job))
        made.jobs.append(key)
        if kind == "gated":
            made.deployments.append(DeploymentKey(installation, DeploymentId(job)))
            yield _review(run, key, began.plus(170), chance.choice(["approved", "rejected"]))
        yield from _of_job(kind, key, RunKey(installation, run.run_id, attempt), began, chance)
    for attempt in sorted(attempts):
        made.runs.append(RunKey(installation, run.run_id, attempt))
        yield from _run_itself(made.runs[-1], began, chance)


def _of_job(kind: str, key: JobKey, run: RunKey, began: Instant, chance: random.Random) -> Iterator[Sent]:
    actions: dict[str, list[tuple[str, float]]] = {
        "plain": [("queued", 0.4), ("in_progress", 30.2), ("completed", 60.7)],
        "re-run": [("queued", 600.4), ("in_progress", 630.2), ("completed", 660.7)],
        "gated": [("queued", 0.4), ("waiting", 1.9), ("queued", 180.3), ("in_progress", 210.2), ("completed", 260.7)],
        "skipped": [("completed", 0.9)],
        "cancelled": [("queued", 0.4), ("completed", 20.1)],
    }
    ends = {"skipped": "skipped", "cancelled": "cancelled"}
    conclusion = ends.get(kind) or chance.choice(["success", "success", "failure", "timed_out"])
    started = {seconds for action, seconds in actions[kind] if action == "in_progress"}
    for action, seconds in actions[kind]:
        payload = job_payload(
            action,
            at=began.plus(seconds),
            job_id=key.job_id,
            run_id=run.run_id,
            run_attempt=run.run_attempt,
            installation=key.installation_id,
            deployment=key.job_id if kind == "gated" else None,
            conclusion=conclusion,
            started=began.plus(min(started)) if started else None,
            created_at=began.iso_seconds(),
            name=f"job {key.job_id}",
        )
        yield "workflow_job", payload, began.plus(seconds)


def _review(run: RunKey, job: JobKey, at: Instant, decision: str) -> Sent:
    payload = sample("deployment_review") | {"action": decision, "installation": {"id": run.installation_id}}
    payload["workflow_run"] |= {"id": run.run_id}
    payload["workflow_job_runs"] = [{"name": f"job {job.job_id}", "environment": "production"}]
    return "deployment_review", payload, at


def _run_itself(run: RunKey, began: Instant, chance: random.Random) -> Iterator[Sent]:
    begun = began.plus(600 if run.run_attempt == 2 else 0)
    for action, seconds in (("requested", 0.1), ("in_progress", 20.5), ("completed", 300.5)):
        payload = sample("workflow_run") | {"action": action, "installation": {"id": run.installation_id}}
        payload["workflow_run"] |= {
            "id": run.run_id,
            "run_attempt": run.run_attempt,
            "run_started_at": begun.iso_seconds(),
            "updated_at": begun.plus(seconds).iso_seconds(),
            "conclusion": chance.choice(["success", "failure"]) if action == "completed" else None,
        }
        yield "workflow_run", payload, begun.plus(seconds)


def _delivery(event: str, payload: dict[str, Any], at: Instant, number: int) -> Delivery:
    return Delivery(event, delivery_id(at, number), "99", json.dumps(payload).encode())
