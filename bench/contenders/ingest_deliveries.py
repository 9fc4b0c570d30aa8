"""GitHub's webhooks as whole HTTP requests: 7 to 14 KB of JSON, signed, in the mix that a busy organization sends.

A hundred deliveries are 30 jobs of two runs: each job queues, starts and ends; three of them wait for an approval; five
are of the runs themselves, and two come twice. The events of one job stand 30 places apart, so that with 16 in flight
they come in order, as nearly all of GitHub's do.
"""

import hashlib
import hmac
import random
import uuid
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any, Final

import msgspec

SECRET: Final = "the-secret-of-the-benchmark"  # noqa: S105 -- no secret at all
PATH: Final = "/webhooks/github"
JOBS: Final = 30  # of each block
BLOCK: Final = 100  # deliveries
_RUNS: Final = 2
_GATED: Final = 3
_REPEATED: Final = 2
_INSTALLATION: Final = 12_345_678
_EPOCH_SECONDS: Final = 1_790_000_000
_GREGORIAN_SECONDS: Final = 12_219_292_800
_REPOSITORY: Final = "acme-corporation/backend-service"
_API: Final = f"https://api.example.com/repos/{_REPOSITORY}"
_LINKS: Final = 36  # that GitHub gives a repository
_STEPS: Final = ("Set up job", "Check out the sources", "Restore the cache", "Install dependencies", "Build", "Test")


def blocks(count: int, first: int = 0) -> Iterator[list[bytes]]:
    """Requests in blocks of a hundred; none of a block is in another one."""
    for number in range(first, first + count):
        yield [_request(*each) for each in _block(number)]


def _block(number: int) -> list[tuple[str, str, bytes]]:
    """Event, delivery id and body, in the order in which they are sent."""
    chance = random.Random(number)
    at = _EPOCH_SECONDS + number * 600
    runs = [10_000_000_000 + number * _RUNS + run for run in range(_RUNS)]
    jobs = [(40_000_000_000 + number * JOBS + job, runs[job % _RUNS]) for job in range(JOBS)]
    sent = [_run(run, "requested", at) for run in runs]
    sent += [_job(job, run, "queued", at, job % 10 == 0) for job, run in jobs]
    sent += [_job(job, run, "waiting", at + 1, True) for job, run in jobs if job % 10 == 0][:_GATED]
    sent += [_run(runs[0], "in_progress", at + 30)]
    sent += [_job(job, run, "in_progress", at + 30, job % 10 == 0) for job, run in jobs]
    sent += [_job(job, run, "completed", at + 90, job % 10 == 0) for job, run in jobs]
    sent += [_run(run, "completed", at + 100) for run in runs]
    named = [(event, _delivery_id(at, number * BLOCK + position), body) for position, (event, body) in enumerate(sent)]
    for _ in range(_REPEATED):
        place = chance.randrange(len(named) - 40)
        named.insert(place + 40, named[place])
    return named


def _request(event: str, delivery: str, body: bytes) -> bytes:
    signature = hmac.new(SECRET.encode(), body, hashlib.sha256).hexdigest()
    lines = (
        f"POST {PATH} HTTP/1.1",
        "Host: 127.0.0.1",
        "User-Agent: GitHub-Hookshot/044aadd",
        f"Content-Length: {len(body)}",
        "Accept: */*",
        "Content-Type: application/json",
        f"X-GitHub-Delivery: {delivery}",
        f"X-GitHub-Event: {event}",
        "X-GitHub-Hook-ID: 292430182",
        "X-GitHub-Hook-Installation-Target-ID: 79929171",
        "X-GitHub-Hook-Installation-Target-Type: integration",
        f"X-Hub-Signature: sha1={signature[:40]}",
        f"X-Hub-Signature-256: sha256={signature}",
    )
    return "\r\n".join([*lines, "", ""]).encode("ascii") + body


def _delivery_id(at: int, number: int) -> str:
    """A UUID of version 1, as GitHub's are."""
    ticks = (at + _GREGORIAN_SECONDS) * 10_000_000 + number
    low, middle, high = ticks & 0xFFFFFFFF, ticks >> 32 & 0xFFFF, ticks >> 48 & 0x0FFF | 0x1000
    return str(uuid.UUID(fields=(low, middle, high, 0x80, number >> 16 & 0xFF, 7)))


def _job(job: int, run: int, action: str, at: int, is_gated: bool) -> tuple[str, bytes]:  # noqa: FBT001
    begun = at if action == "in_progress" else at - 60
    has_runner = action in ("in_progress", "completed")
    workflow_job: dict[str, Any] = {
        "id": job,
        "run_id": run,
        "workflow_name": "Continuous integration",
        "head_branch": "feature/refunds",
        "run_url": f"{_API}/actions/runs/{run}",
        "run_attempt": 1,
        "node_id": f"CR_kwDOHonYzs8AAAAJ{job}",
        "head_sha": hashlib.sha1(str(run).encode(), usedforsecurity=False).hexdigest(),
        "url": f"{_API}/actions/jobs/{job}",
        "html_url": f"{_API}/actions/runs/{run}/job/{job}",
        "status": action,
        "conclusion": ("failure" if job % 17 == 0 else "success") if action == "completed" else None,
        "created_at": _iso(at - {"queued": 0, "waiting": 1, "in_progress": 30, "completed": 90}[action]),
        "started_at": _iso(begun if has_runner else at),
        "completed_at": _iso(at) if action == "completed" else None,
        "name": f"integration tests (postgres-16, {job % JOBS})",
        "steps": _steps(action, at),
        "check_run_url": f"{_API}/check-runs/{job}",
        "labels": [f"runs-on={run}", "runner=4cpu-linux-x64", "family=m7i+m7a", "spot=true"],
        "runner_id": job % 100_000 if has_runner else None,
        "runner_name": f"runs-on--i-{job:017x}--x7Qd" if has_runner else None,
        "runner_group_id": 2 if has_runner else None,
        "runner_group_name": "Default" if has_runner else None,
    }
    payload = {"action": action, "workflow_job": workflow_job, **_around()}
    if is_gated:
        payload["deployment"] = _deployment(job, at)
    return "workflow_job", msgspec.json.encode(payload)


def _run(run: int, action: str, at: int) -> tuple[str, bytes]:
    sha = hashlib.sha1(str(run).encode(), usedforsecurity=False).hexdigest()
    workflow_run = {
        "id": run,
        "name": "Continuous integration",
        "node_id": f"WFR_kwLOHonYzs8AAA{run}",
        "head_branch": "feature/refunds",
        "head_sha": sha,
        "path": ".github/workflows/ci.yml",
        "display_title": "Refunds in parts",
        "run_number": run % 10_000,
        "event": "pull_request",
        "status": {"requested": "queued"}.get(action, action),
        "conclusion": "success" if action == "completed" else None,
        "workflow_id": 44_556_677,
        "url": f"{_API}/actions/runs/{run}",
        "created_at": _iso(at - {"requested": 0, "in_progress": 30, "completed": 100}[action]),
        "updated_at": _iso(at),
        "run_started_at": _iso(at - {"requested": 0, "in_progress": 30, "completed": 100}[action]),
        "run_attempt": 1,
        "actor": _user("octocat"),
        "triggering_actor": _user("octocat"),
        "head_commit": {"id": sha, "message": "Refunds in parts\n\n" + "Because customers ask for it. " * 8},
        "repository": _repository(),
        "head_repository": {"id": 512_345_678, "full_name": _REPOSITORY, "private": True},
    }
    return "workflow_run", msgspec.json.encode({"action": action, "workflow_run": workflow_run, **_around()})


def _steps(action: str, at: int) -> list[dict[str, Any]]:
    count = {"in_progress": 6, "completed": 24}.get(action, 0)
    return [
        {
            "name": f"{_STEPS[number % len(_STEPS)]} ({number})",
            "status": "completed",
            "conclusion": "success",
            "number": number + 1,
            "started_at": _iso(at - 50 + number),
            "completed_at": _iso(at - 49 + number),
        }
        for number in range(count)
    ]


def _deployment(job: int, at: int) -> dict[str, Any]:
    return {
        "id": 1_600_000_000 + job,
        "url": f"{_API}/deployments/{1_600_000_000 + job}",
        "task": "deploy",
        "environment": "production",
        "created_at": _iso(at - at % 600),
        "updated_at": _iso(at),
        "creator": _user("octocat"),
    }


def _around() -> dict[str, Any]:
    return {
        "repository": {**_repository(), "custom_properties": {"team": "payments", "tier": "1"}},
        "organization": {**_user("acme-corporation"), "description": "Orders, payments and what follows from them"},
        "sender": _user("octocat"),
        "installation": {"id": _INSTALLATION, "node_id": "MDIzOkludGVncmF0aW9uSW5zdGFsbGF0aW9u"},
    }


def _repository() -> dict[str, Any]:
    return {
        "id": 512_345_678,
        "node_id": "R_kgDOHonYzg",
        "name": "backend-service",
        "full_name": _REPOSITORY,
        "private": True,
        "owner": _user("acme-corporation"),
        "description": "Orders, payments and what follows from them",
        "fork": False,
        **{f"resource_{number}_url": f"{_API}/resources-{number}{{/number}}" for number in range(_LINKS)},
        "created_at": "2022-07-10T09:12:13Z",
        "updated_at": "2026-09-14T18:03:11Z",
        "pushed_at": "2026-09-15T09:59:51Z",
        "language": "Go",
        "visibility": "private",
        "default_branch": "main",
        "topics": ["payments", "orders"],
    }


def _user(login: str) -> dict[str, Any]:
    url = f"https://api.example.com/users/{login}"
    links = ("followers", "following", "gists", "starred", "subscriptions", "organizations", "repos", "events")
    return {"login": login, "id": 583_231, "node_id": "MDQ6VXNlcjU4MzIzMQ==", "url": url} | {
        f"{name}_url": f"{url}/{name}" for name in links
    }


def _iso(epoch_seconds: int) -> str:
    return datetime.fromtimestamp(epoch_seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")
