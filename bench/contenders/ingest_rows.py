"""The same rows as ours by bare SQL, for one kind of input: what `ingest_deliveries` makes.

The same items with the same attributes, of jobs, history, runs and deployments, in the same indexes; `bench/ingest`
compares the two files when both have taken in the same deliveries. There is nothing here for late events, hostile
input, failures, or a store that is not this file.
"""

import hashlib
import hmac
import json
import time
from base64 import urlsafe_b64encode
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any, Final

import apsw
import msgspec

from bench.contenders.ingest_deliveries import SECRET
from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.jobs.intake.payloads import Deployment, Installation, JobPayload, RunPayload, WorkflowJob, WorkflowRun
from holdfast.ports.store.tables import TABLES


class Job(JobPayload, kw_only=True):
    """With what every delivery of the benchmark has."""

    workflow_job: WorkflowJob
    installation: Installation


class Run(RunPayload, kw_only=True):
    workflow_run: WorkflowRun
    installation: Installation


_KEY: Final = SECRET.encode()
_JOB: Final = msgspec.json.Decoder(Job)
_RUN: Final = msgspec.json.Decoder(Run)
_ITEM: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODE: Final = msgspec.json.Encoder().encode
_STEP: Final = 10**14
_RANKS: Final = {"queued": 1, "waiting": 1, "in_progress": 3, "completed": 4}
_RUN_RANKS: Final = {"queued": 1, "in_progress": 2, "completed": 3}
_JOB_COLUMNS: Final = ("GSI1-PK", "created_at", "GSI2-PK", "GSI3-PK")
_TOLD: Final = ("status", "conclusion", "runner_id", "runner_name", "deployment_id")
_KEPT_SECONDS: Final = 90 * 86_400

Headers = dict[bytes, bytes]
Item = dict[str, Any]


class Rows:
    """Bare SQL. Each call is a part of the transaction that its caller began."""

    def __init__(self, path: Path) -> None:
        sqlite_store(path, SystemClock(), tables=TABLES).close()
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self.execute(f"PRAGMA {pragma}")

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(sql, values)

    def item(self, table: str, key: str, sort: str = "v") -> Item | None:
        rows = self.execute(f"SELECT item FROM {table} WHERE pk = ? AND sk = ?", (key, sort)).fetchall()  # noqa: S608
        return _ITEM.decode(rows[0][0]) if rows else None

    def put_job(self, item: Item, *, is_new: bool) -> None:
        if is_new:
            columns = [item[name] for name in _JOB_COLUMNS]
            self.execute(_INSERT_JOB, (_ENCODE(item).decode(), item["PK"], item["ttl"], *columns))
        else:
            self.execute(_UPDATE_JOB, (_ENCODE(item).decode(), item["GSI1-PK"], item["PK"]))

    def put(self, table: str, item: Item, *, is_new: bool) -> None:
        """An item of a table that has no index but those of its key and its expiry."""
        values = (_ENCODE(item).decode(), item["PK"], item["SK"])
        if is_new:
            self.execute(f"INSERT INTO {table} (item, pk, sk, expires) VALUES (?, ?, ?, ?)", (*values, item["ttl"]))  # noqa: S608
        else:
            self.execute(f"UPDATE {table} SET item = ? WHERE pk = ? AND sk = ?", values)  # noqa: S608


_INSERT_JOB: Final = (
    'INSERT INTO workflow_jobs (item, pk, sk, expires, "key:GSI1-PK", "key:created_at", "key:GSI2-PK", "key:GSI3-PK") '
    "VALUES (?, ?, 'v', ?, ?, ?, ?, ?)"
)
# What else is in an index does not change while a job lives.
_UPDATE_JOB: Final = "UPDATE workflow_jobs SET item = ?, \"key:GSI1-PK\" = ? WHERE pk = ? AND sk = 'v'"


def take(rows: Rows, headers: Headers, body: bytes) -> tuple[int, bytes]:
    signature = b"sha256=" + hmac.new(_KEY, body, hashlib.sha256).hexdigest().encode()
    if not hmac.compare_digest(signature, headers.get(b"x-hub-signature-256", b"")):
        return 401, b"{}"
    delivery = headers[b"x-github-delivery"].decode()
    mark = _mark(delivery)
    now = time.time()
    if headers[b"x-github-event"] == b"workflow_run":
        is_new = _take_run(rows, _RUN.decode(body), mark, int(now))
    else:
        is_new = _take_job(rows, _JOB.decode(body), mark, delivery, now)
    return 200, _ENCODE({"result": "stored" if is_new else "duplicate", "delivery": delivery})


def _take_job(rows: Rows, payload: Job, mark: str, delivery: str, now: float) -> bool:
    reported, installation, action = payload.workflow_job, payload.installation, payload.action
    key, run_key = f"{installation.id}#{reported.id}", f"{installation.id}#{reported.run_id}#{reported.run_attempt}"
    at = reported.completed_at or reported.started_at or ""
    sort = f"{at}#webhook_{action}#{mark}"
    received = datetime.fromtimestamp(now, UTC).isoformat(timespec="milliseconds")[:-6] + "Z"
    old = rows.item("workflow_jobs", key)
    if old is not None and mark in old["dl"]["$ss"]:
        event = rows.item("workflow_job_events", key, sort) or {}
        rows.put("workflow_job_events", event | {"deliveries": event["deliveries"] + 1}, is_new=False)
        return False
    job = dict(old) if old else _identity(payload, key, run_key, received, int(now))
    job |= _said(payload, _epoch_ms(at))
    job["dl"] = {"$ss": sorted([*job["dl"]["$ss"], mark])}
    rows.put_job(job, is_new=old is None)
    before = old or {}
    event = {
        "PK": key,
        "SK": sort,
        "event_type": f"webhook_{action}",
        "status": action,
        "source": "github_webhook",
        "received_by": "bare",
        "received_at": received,
        "deliveries": 1,
        "ttl": int(now) + 14 * 86_400,
        "action": action,
        "delivery": delivery,
        "changes": {
            name: {"from": before.get(name), "to": job[name]}
            for name in _TOLD
            if name in job and before.get(name) != job[name]
        },
    }
    rows.put("workflow_job_events", event, is_new=True)
    if old is None:
        _register(rows, payload, run_key, int(now))
    if payload.deployment is not None and (old is None or action == "waiting"):
        _take_deployment(rows, payload, payload.deployment, int(now))
    return True


def _said(payload: Job, at_ms: int) -> Item:
    """What this event says of the job."""
    reported, action = payload.workflow_job, payload.action
    said: Item = {
        "status": action,
        "rk": _RANKS[action] * _STEP + at_ms,
        "GSI1-PK": f"{payload.installation.id}#{action}",
    }
    if action in ("queued", "waiting"):
        said[f"{action}_ms"] = at_ms
    if reported.runner_name:
        said |= {"started_at": reported.started_at, "runner_name": reported.runner_name}
        said |= {"runner_group_id": reported.runner_group_id} | (
            {"runner_id": reported.runner_id} if reported.runner_id else {}
        )
    if action == "completed":
        said |= {"conclusion": reported.conclusion, "completed_at": reported.completed_at}
    if payload.deployment is not None:
        said["deployment_id"] = payload.deployment.id
    return said


def _identity(payload: Job, key: str, run_key: str, received: str, now: int) -> Item:
    reported, installation, repository = payload.workflow_job, payload.installation, payload.repository
    return {
        "PK": key,
        "SK": "v",
        "created_at": reported.created_at,
        "GSI2-PK": f"{installation.id}#{repository.full_name}",
        "GSI3-PK": run_key,
        "received_at": received,
        "ttl": now + _KEPT_SECONDS,
        "repo_id": repository.id,
        "repo_is_private": repository.private,
        "workflow_name": reported.workflow_name,
        "job_name": reported.name,
        "head_sha": reported.head_sha,
        "default_branch": repository.default_branch,
        "labels": reported.labels,
        "labels_hash": _labels_hash(tuple(reported.labels or ())),
        "custom_properties": repository.custom_properties,
        "dl": {"$ss": []},
    }


def _register(rows: Rows, payload: Job, run_key: str, now: int) -> None:
    """The job among those of its run, and a look at the run itself."""
    reported = payload.workflow_job
    job = _run_identity(payload, run_key, now) | {"SK": f"job#{reported.id}", "head_sha": reported.head_sha}
    job |= {"head_branch": reported.head_branch, "workflow_name": reported.workflow_name}
    if payload.deployment is not None:
        place = _mark(payload.deployment.environment or "")[:3] + _mark(reported.name or "")[:5]
        job["gates"] = {"$ss": [f"{payload.deployment.id}#{place}#{payload.deployment.created_at}"]}
    rows.put("workflow_runs", job, is_new=True)
    rows.item("workflow_runs", run_key)


def _take_deployment(rows: Rows, payload: Job, found: Deployment, now: int) -> None:
    reported = payload.workflow_job
    key = f"{payload.installation.id}#{found.id}"
    old = rows.item("deployments", key)
    item = old or {
        "PK": key,
        "SK": "v",
        "status": "pending",
        "created_at": found.created_at,
        "ttl": now + _KEPT_SECONDS,
        "repo_full_name": payload.repository.full_name,
        "environment": found.environment,
        "run_id": reported.run_id,
        "run_attempt": reported.run_attempt,
        "job_ids": {"$ns": []},
    }
    item["job_ids"] = {"$ns": sorted({*item["job_ids"]["$ns"], str(reported.id)})}
    if payload.action == "waiting":
        item["requires_approval"] = True
    rows.put("deployments", item, is_new=old is None)


def _take_run(rows: Rows, payload: Run, mark: str, now: int) -> bool:
    reported, installation = payload.workflow_run, payload.installation
    key = f"{installation.id}#{reported.id}#{reported.run_attempt}"
    old = rows.item("workflow_runs", key)
    run = old or _run_identity(payload, key, now)
    marks = run.get("dl", {"$ss": []})["$ss"]
    if mark in marks:
        return False
    status = "queued" if payload.action == "requested" else payload.action
    run |= {
        "dl": {"$ss": sorted([*marks, mark])},
        "status": status,
        "rk": _RUN_RANKS[status] * _STEP + _epoch_ms(reported.updated_at or ""),
        "created_at": reported.created_at,
        "updated_at": reported.updated_at,
        "workflow_id": reported.workflow_id,
        "workflow_name": reported.name,
        "head_sha": reported.head_sha,
        "head_branch": reported.head_branch,
    }
    if reported.conclusion:
        run["conclusion"] = reported.conclusion
    rows.put("workflow_runs", run, is_new=old is None)
    return True


def _run_identity(payload: Job | Run, key: str, now: int) -> Item:
    repository = payload.repository
    return {
        "PK": key,
        "SK": "v",
        "ttl": now + _KEPT_SECONDS,
        "repo_full_name": repository.full_name,
        "repo_id": repository.id,
        "repo_is_private": repository.private,
    }


@cache
def _labels_hash(labels: tuple[str, ...]) -> str:
    text = json.dumps(sorted({label.lower() for label in labels}))
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def _mark(text: str) -> str:
    return urlsafe_b64encode(hashlib.blake2b(text.encode(), digest_size=6).digest()).decode()


def _epoch_ms(text: str) -> int:
    return int(datetime.fromisoformat(text).timestamp() * 1000)
