"""Payloads as GitHub sends them, cut to what is read and a little more: the shapes are those of real deliveries."""

import json
import uuid
from pathlib import Path
from typing import Any, Final

from holdfast.jobs.intake.webhook import Delivery
from holdfast.kernel.instants import Instant

FOLDER: Final = Path(__file__).parent
CREATED: Final = Instant.from_iso("2026-01-15T10:00:00Z")
JOB_ID: Final = 43_012_345_678
RUN_ID: Final = 17_123_456_789
INSTALLATION_ID: Final = 12_345_678
REPOSITORY: Final = "acme-corporation/backend-service"


def sample(name: str) -> dict[str, Any]:
    """One of the files beside this one."""
    loaded: dict[str, Any] = json.loads((FOLDER / f"{name}.json").read_text())
    return loaded


def delivery_id(at: Instant, number: int = 0) -> str:
    """An id as GitHub makes them: a UUID of version 1, which holds the time."""
    ticks = (at.epoch_ms + 12_219_292_800_000) * 10_000 + number % 10_000
    return str(
        uuid.UUID(
            fields=(
                ticks & 0xFFFFFFFF,
                ticks >> 32 & 0xFFFF,
                ticks >> 48 & 0x0FFF | 0x1000,
                0x80,
                number >> 16 & 0xFF,
                7,
            )
        )
    )


def delivery(event: str, payload: dict[str, Any], at: Instant, number: int = 0, target: str = "99") -> Delivery:
    return Delivery(event, delivery_id(at, number), target, json.dumps(payload).encode())


def job_payload(
    action: str,
    *,
    at: Instant = CREATED,
    job_id: int = JOB_ID,
    run_id: int = RUN_ID,
    run_attempt: int = 1,
    installation: int = INSTALLATION_ID,
    deployment: int | None = None,
    conclusion: str | None = None,
    started: Instant | None = None,
    **fields: Any,
) -> dict[str, Any]:
    """A workflow_job payload at some point of the job's life."""
    payload = sample("workflow_job")
    job = payload["workflow_job"]
    ran = action == "in_progress" or (action == "completed" and started is not None)
    job |= {
        "id": job_id,
        "run_id": run_id,
        "run_attempt": run_attempt,
        "status": action,
        "started_at": (started or at if ran else CREATED).iso_seconds(),
    }
    if ran:
        job |= {"runner_id": 4_711, "runner_name": "runs-on--i-0123456789abcde01--x7Qd", "runner_group_id": 2}
    if action == "completed":
        job |= {"conclusion": conclusion or "success", "completed_at": at.iso_seconds()}
    job |= fields
    payload |= {"action": action, "installation": {"id": installation}}
    if deployment is not None:
        payload["deployment"] = sample("deployment")["deployment"] | {"id": deployment, "updated_at": at.iso_seconds()}
    return payload
