"""The least that does an ingest's work: `python -m bench.contenders.ingest_bare PORT FILE`.

uvicorn, one HMAC, msgspec, and the same rows as ours by bare SQL, in a file whose tables ours made. Requests that come
while a transaction is under way share the next one. There is nothing here for late events, hostile input, failures,
metrics, or a store that is not this file.
"""

import asyncio
import hashlib
import hmac
import sys
import time
from base64 import urlsafe_b64encode
from pathlib import Path
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final

import apsw
import msgspec
import uvicorn

from bench.contenders.ingest_deliveries import SECRET
from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.jobs.payloads import JobPayload, RunPayload
from holdfast.ports.store.tables import TABLES

_KEY: Final = SECRET.encode()
_JOB: Final = msgspec.json.Decoder(JobPayload)
_RUN: Final = msgspec.json.Decoder(RunPayload)
_ITEM: Final = msgspec.json.Decoder(dict[str, Any])
_ENCODE: Final = msgspec.json.Encoder().encode
_RANKS: Final = {"queued": 1, "waiting": 1, "in_progress": 3, "completed": 4}
_JOB_COLUMNS: Final = ("GSI1-PK", "created_at", "GSI2-PK", "GSI3-PK")

Headers = dict[bytes, bytes]


class Rows:
    """Bare SQL. Each call is a part of the transaction that its caller began."""

    def __init__(self, path: Path) -> None:
        sqlite_store(path, SystemClock(), tables=TABLES).close()
        self._connection = apsw.Connection(str(path))
        for pragma in ("journal_mode = WAL", "synchronous = FULL"):
            self.execute(f"PRAGMA {pragma}")

    def execute(self, sql: str, values: tuple[Any, ...] = ()) -> Any:
        return self._connection.execute(sql, values)

    def item(self, table: str, key: str) -> dict[str, Any] | None:
        rows = self.execute(f"SELECT item FROM {table} WHERE pk = ? AND sk = 'v'", (key,)).fetchall()  # noqa: S608
        return _ITEM.decode(rows[0][0]) if rows else None

    def put_job(self, key: str, item: dict[str, Any], *, is_new: bool) -> None:
        values = (_ENCODE(item).decode(), item["ttl"], *[item[name] for name in _JOB_COLUMNS], key)
        self.execute(_INSERT_JOB if is_new else _UPDATE_JOB, values)

    def put_run(self, key: str, item: dict[str, Any], *, is_new: bool) -> None:
        values = (_ENCODE(item).decode(), item["ttl"], key)
        self.execute(_INSERT_RUN if is_new else _UPDATE_RUN, values)

    def put_event(self, key: str, sort: str, item: dict[str, Any]) -> None:
        self.execute(_INSERT_EVENT, (_ENCODE(item).decode(), item["ttl"], key, sort))


_INSERT_JOB: Final = (
    'INSERT INTO workflow_jobs (item, expires, "key:GSI1-PK", "key:created_at", "key:GSI2-PK", "key:GSI3-PK", pk, sk) '
    "VALUES (?, ?, ?, ?, ?, ?, ?, 'v')"
)
_UPDATE_JOB: Final = (
    'UPDATE workflow_jobs SET item = ?, expires = ?, "key:GSI1-PK" = ?, "key:created_at" = ?, "key:GSI2-PK" = ?, '
    "\"key:GSI3-PK\" = ? WHERE pk = ? AND sk = 'v'"
)
_INSERT_EVENT: Final = "INSERT OR REPLACE INTO workflow_job_events (item, expires, pk, sk) VALUES (?, ?, ?, ?)"
_INSERT_RUN: Final = "INSERT INTO workflow_runs (item, expires, pk, sk) VALUES (?, ?, ?, 'v')"
_UPDATE_RUN: Final = "UPDATE workflow_runs SET item = ?, expires = ? WHERE pk = ? AND sk = 'v'"


def take(rows: Rows, headers: Headers, body: bytes) -> tuple[int, bytes]:
    signature = b"sha256=" + hmac.new(_KEY, body, hashlib.sha256).hexdigest().encode()
    if not hmac.compare_digest(signature, headers.get(b"x-hub-signature-256", b"")):
        return 401, b"{}"
    delivery = headers[b"x-github-delivery"].decode()
    mark = urlsafe_b64encode(hashlib.blake2b(delivery.encode(), digest_size=6).digest()).decode()
    now = int(time.time())
    if headers[b"x-github-event"] == b"workflow_run":
        is_new = _take_run(rows, _RUN.decode(body), mark, now)
    else:
        is_new = _take_job(rows, _JOB.decode(body), mark, delivery, now)
    return 200, _ENCODE({"result": "stored" if is_new else "duplicate", "delivery": delivery})


def _take_job(rows: Rows, payload: JobPayload, mark: str, delivery: str, now: int) -> bool:
    told = payload.workflow_job
    installation = payload.installation
    if told is None or installation is None:
        raise ValueError("not a payload of the benchmark")
    key, run_key = f"{installation.id}#{told.id}", f"{installation.id}#{told.run_id}#{told.run_attempt}"
    old = rows.item("workflow_jobs", key)
    if old is not None and mark in old["dl"]["$ss"]:
        return False
    action = payload.action
    job: dict[str, Any] = (old and dict(old)) or {
        "PK": key,
        "SK": "v",
        "created_at": told.created_at,
        "GSI2-PK": f"{installation.id}#{payload.repository.full_name}",
        "GSI3-PK": run_key,
        "received_at": now,
        "ttl": now + 90 * 86_400,
        "repo_is_private": payload.repository.private,
        "workflow_name": told.workflow_name,
        "job_name": told.name,
        "head_sha": told.head_sha,
        "default_branch": payload.repository.default_branch,
        "labels": told.labels,
        "custom_properties": payload.repository.custom_properties,
        "dl": {"$ss": []},
    }
    job |= {"status": action, "rk": _RANKS[action] * 10**14 + now, "GSI1-PK": f"{installation.id}#{action}"}
    job["dl"] = {"$ss": sorted([*job["dl"]["$ss"], mark])}
    if told.runner_id is not None:
        job |= {
            "started_at": told.started_at,
            "runner_id": told.runner_id,
            "runner_name": told.runner_name,
            "runner_group_id": told.runner_group_id,
        }
    if action == "completed":
        job |= {"conclusion": told.conclusion, "completed_at": told.completed_at}
    rows.put_job(key, job, is_new=old is None)
    sort = f"{now}#webhook_{action}#{mark}"
    event = {
        "PK": key,
        "SK": sort,
        "event_type": f"webhook_{action}",
        "status": action,
        "source": "github_webhook",
        "received_by": "bare",
        "received_at": now,
        "deliveries": 1,
        "ttl": now + 14 * 86_400,
        "action": action,
        "delivery": delivery,
        "changes": {"status": {"from": (old or {}).get("status"), "to": action}},
    }
    rows.put_event(key, sort, event)
    if old is None or action == "completed":
        _count(rows, payload, run_key, now)
    return True


def _count(rows: Rows, payload: JobPayload, run_key: str, now: int) -> None:
    told = payload.workflow_job
    if told is None:
        raise ValueError("not a payload of the benchmark")
    old = rows.item("workflow_runs", run_key)
    run = old or {"PK": run_key, "SK": "v", "ttl": now + 90 * 86_400, "repo_full_name": payload.repository.full_name}
    sets = {name: set(run.get(name, {"$ns": []})["$ns"]) for name in ("open", "done", "failed")}
    job = str(told.id)
    if payload.action == "completed":
        sets["open"].discard(job)
        sets["done"].add(job)
        if told.conclusion == "failure":
            sets["failed"].add(job)
    else:
        sets["open"].add(job)
    run |= {name: {"$ns": sorted(ids)} for name, ids in sets.items()}
    rows.put_run(run_key, run, is_new=old is None)


def _take_run(rows: Rows, payload: RunPayload, mark: str, now: int) -> bool:
    told, installation = payload.workflow_run, payload.installation
    if told is None or installation is None:
        raise ValueError("not a payload of the benchmark")
    key = f"{installation.id}#{told.id}#{told.run_attempt}"
    old = rows.item("workflow_runs", key)
    run = old or {"PK": key, "SK": "v", "ttl": now + 90 * 86_400, "repo_full_name": payload.repository.full_name}
    marks = run.get("dl", {"$ss": []})["$ss"]
    if mark in marks:
        return False
    run |= {
        "dl": {"$ss": sorted([*marks, mark])},
        "status": payload.action,
        "updated_at": told.updated_at,
        "workflow_id": told.workflow_id,
        "workflow_name": told.name,
        "head_sha": told.head_sha,
        "head_branch": told.head_branch,
        "conclusion": told.conclusion,
    }
    rows.put_run(key, run, is_new=old is None)
    return True


class Writer:
    """One thread; whatever has come while it wrote is its next transaction."""

    def __init__(self, path: Path, loop: asyncio.AbstractEventLoop) -> None:
        self._rows = Rows(path)
        self._loop = loop
        self.waiting: SimpleQueue[tuple[Headers, bytes, asyncio.Future[tuple[int, bytes]]]] = SimpleQueue()
        Thread(target=self._run, daemon=True).start()

    def _run(self) -> None:
        while True:
            group = [self.waiting.get()]
            while not self.waiting.empty():
                group.append(self.waiting.get())
            self._rows.execute("BEGIN IMMEDIATE")
            answers = [(future, take(self._rows, headers, body)) for headers, body, future in group]
            self._rows.execute("COMMIT")
            self._loop.call_soon_threadsafe(_answer, answers)


def _answer(answers: list[tuple[asyncio.Future[tuple[int, bytes]], tuple[int, bytes]]]) -> None:
    for future, answer in answers:
        future.set_result(answer)


class App:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._writer: Writer | None = None

    async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
        loop = asyncio.get_running_loop()
        body = bytearray()
        while True:
            message = await receive()
            body += message.get("body", b"")
            if not message.get("more_body"):
                break
        if scope["method"] != "POST":
            status, text = 200, b"{}"
        else:
            if self._writer is None:
                self._writer = Writer(self._path, loop)
            future: asyncio.Future[tuple[int, bytes]] = loop.create_future()
            self._writer.waiting.put((dict(scope["headers"]), bytes(body), future))
            status, text = await future
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(text)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": text})


if __name__ == "__main__":
    uvicorn.run(
        App(Path(sys.argv[2])),
        host="127.0.0.1",
        port=int(sys.argv[1]),
        log_config=None,
        access_log=False,
        lifespan="off",
        server_header=False,
    )
