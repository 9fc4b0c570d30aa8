"""A run: one attempt of a workflow, as workflow_run reports it, folded like a job. Its jobs are in `run_jobs.py`.

A run may look complete between two stages of its jobs, so completeness is computed at each read and never stored.
"""

from collections.abc import Mapping
from typing import Final

from msgspec import Struct

from holdfast.jobs.intake import bounds
from holdfast.jobs.intake.item_writes import combined, if_absent, set_values
from holdfast.jobs.intake.payloads import RunPayload, UnusablePayload, WorkflowRun
from holdfast.jobs.intake.webhook import Delivery, short_mark
from holdfast.jobs.model.facts import KEPT_SECONDS, End, JobEvent, RepositoryName, Status, check_repository
from holdfast.jobs.model.job import MARKS_MOST
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.model.times import not_before, parsed, sent_at
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Condition, Item, Update, Value, attr, remove_all

STARTUP_FAILURE: Final = "startup_failure"
# A run of a fork ends so until a maintainer approves it; then the same attempt goes on.
ACTION_REQUIRED: Final = "action_required"
_STEP: Final = 10**14
_PHASES: Final = {"queued": 1, "in_progress": 2, "completed": 3}
_STATUS_OF_ACTION: Final = {"requested": "queued", "in_progress": "in_progress", "completed": "completed"}


class RunEvent(Struct, frozen=True):
    """The facts of a workflow_run webhook."""

    key: RunKey
    at: Instant
    received_at: Instant
    mark: str
    status: str
    conclusion: str
    identity: Mapping[str, Value]


def run_event(delivery: Delivery, payload: RunPayload, received_at: Instant) -> RunEvent:
    run = payload.workflow_run
    if run is None:
        raise UnusablePayload("workflow_run is null")
    if payload.action not in _STATUS_OF_ACTION:
        raise UnusablePayload(f"workflow_run: action {cut(payload.action)!r} is unknown")
    installation = InstallationId(payload.installation.id if payload.installation else 0)
    created = parsed(run.created_at) or received_at
    # Later attempts of a run keep its created_at, so the start of this attempt bounds the sender's time.
    began = parsed(run.run_started_at) or created
    at = sent_at(delivery.id, began, parsed(run.updated_at) or began)
    received_at = not_before(received_at, at)
    return RunEvent(
        key=RunKey(installation, RunId(run.id), run.run_attempt),
        at=at,
        received_at=received_at,
        mark=delivery.body_mark,
        status=_STATUS_OF_ACTION[payload.action],
        conclusion=bounds.bounded(run.conclusion or "unknown", 40) if payload.action == "completed" else "",
        identity=_identity(payload, run, created, received_at),
    )


def _identity(payload: RunPayload, run: WorkflowRun, created: Instant, received_at: Instant) -> dict[str, Value]:
    found: dict[str, Value] = {
        "repo_full_name": bounds.repository_name(payload.repository.full_name),
        "created_at": created.iso_seconds(),
        "ttl": received_at.epoch_seconds + KEPT_SECONDS,
    }
    if run.workflow_id is not None:
        found["workflow_id"] = run.workflow_id
    if payload.repository.id:
        found["repo_id"] = payload.repository.id
    if payload.repository.private:
        found["repo_is_private"] = True
    texts = {"workflow_name": run.name, "head_sha": run.head_sha, "head_branch": run.head_branch}
    return found | {name: bounds.bounded(text) for name, text in texts.items() if text}


def folded_run(run: Item | None, event: RunEvent) -> Item:
    if run is not None and event.mark in run.get("dl", ()):
        return run
    if run is not None:
        check_repository(f"run {event.key}", repository_in(run), repository_in(event.identity))
    new = {**event.identity, **(run or {})}
    here = (_rank(event), event.status, event.conclusion)
    if here > (_known_rank(new), new.get("status", ""), new.get("conclusion", "")):
        new.pop("conclusion", None)
        new |= _status_attributes(event)
    new["dl"] = frozenset(sorted({*new.get("dl", ()), event.mark})[-MARKS_MOST:])
    return new


def repository_in(facts: Mapping[str, Value]) -> RepositoryName:
    return facts.get("repo_full_name"), facts.get("repo_id")


def quick_run(event: RunEvent) -> tuple[Update, Condition]:
    """The same in one conditional write, for a webhook that arrives once and in order."""
    status = set_values(_status_attributes(event))
    if not event.conclusion:
        status += remove_all("conclusion")
    update = combined([status, attr("dl").add_elements({event.mark}), if_absent(event.identity)])
    marks, ranked = attr("dl"), attr("rk")
    condition = ~marks.contains(event.mark) & ~marks.is_larger_than(MARKS_MOST - 1)
    repository = attr("repo_full_name")
    condition &= repository.is_absent() | repository.equals(event.identity["repo_full_name"])
    return update, condition & (ranked.is_absent() | ranked.less_than(_rank(event)))


def _rank(event: RunEvent) -> int:
    phase = _PHASES["queued"] if event.conclusion == ACTION_REQUIRED else _PHASES[event.status]
    return phase * _STEP + event.at.epoch_ms


def _known_rank(run: Item) -> int:
    """The item's rank; an older version ranked a run that needs an approval like one that has ended."""
    known: int = run.get("rk", 0)
    is_held = run.get("conclusion") == ACTION_REQUIRED and known >= _PHASES["completed"] * _STEP
    return known - (_PHASES["completed"] - _PHASES["queued"]) * _STEP if is_held else known


def _status_attributes(event: RunEvent) -> dict[str, Value]:
    found: dict[str, Value] = {"status": event.status, "rk": _rank(event), "updated_at": event.at.iso()}
    return found | ({"conclusion": event.conclusion} if event.conclusion else {})


def startup_failure_end(run: RunKey, item: Item, job: JobId, received_at: Instant) -> JobEvent | None:
    """The end of a job whose run failed to start: GitHub may send no webhook for it."""
    if item.get("conclusion") != STARTUP_FAILURE or "updated_at" not in item:
        return None
    at = Instant.from_iso(item["updated_at"])
    return JobEvent(
        key=JobKey(run.installation_id, job),
        type="run_startup_failure",
        at=at,
        received_at=received_at,
        mark=short_mark(STARTUP_FAILURE, run.partition),
        source="github_webhook",
        run=run,
        repository=item.get("repo_full_name"),
        repository_id=item.get("repo_id"),
        status=Status.COMPLETED,
        end=End(STARTUP_FAILURE, at.iso_seconds()),
        is_inferred=True,
    )
