"""The differences between S3 and the tables for a job.

    kind            means
    missing         S3 has webhooks of the job, and the tables do not have the job
    webhook         one of its webhooks was never recorded
    field           an attribute of the job differs from the value that its webhooks give
    history         one of its webhooks is not in its history
    run             the job is in the wrong set of its run, or in none
    deployment      its deployment is missing, or does not list the job
    unusable        the object is not a webhook, or does not match its key
    only_in_table   the tables have a job without a webhook in S3

Not compared, since webhooks do not contain it: when a webhook arrived (`received_at`, `ttl`), and what the runner fleet
reported.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from holdfast.jobs.intake.history import KEPT_SECONDS as HISTORY_KEPT_SECONDS
from holdfast.jobs.migration.stored import StoredWebhook, item_of
from holdfast.jobs.model.facts import JobEvent
from holdfast.jobs.model.job import MARKS_MOST
from holdfast.jobs.model.keys import DeploymentKey, JobKey
from holdfast.jobs.read.run_jobs import registered_run
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Item, Key, Store, Value
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS
from holdfast.ports.store.values import same

# Never compared: keys and marks are checked separately, the hash is that of the labels, and an older version did not
# store it; the rest depends on when a webhook arrived.
_NOT_COMPARED: Final = frozenset({"PK", "SK", "dl", "labels_hash", "received_at", "ttl"})
# Attributes that events without an object may change: those of the runner fleet and of GitHub's API.
_MAY_BE_AHEAD: Final = frozenset({"status", "rk", "GSI1-PK", "conclusion", "completed_at", "queued_ms", "waiting_ms"})
# Entries about to expire may already be gone.
_HISTORY_SPARE_SECONDS: Final = 3600


class DifferenceKind(StrEnum):
    MISSING = "missing"
    WEBHOOK = "webhook"
    FIELD = "field"
    HISTORY = "history"
    RUN = "run"
    DEPLOYMENT = "deployment"
    UNUSABLE = "unusable"
    ONLY_IN_TABLE = "only_in_table"


@dataclass(frozen=True, slots=True)
class JobDifference:
    """`what` names the attribute, the webhook or the object; `in_s3` and `in_tables` are the values found."""

    kind: DifferenceKind
    job: JobKey | None
    what: str
    in_s3: Any = None
    in_tables: Any = None


def differences_of_job(store: Store, webhooks: Sequence[StoredWebhook], now: Instant) -> list[JobDifference]:
    """The differences between one job's webhooks in S3 and the tables."""
    key = webhooks[0].event.key
    item = store.get(JOBS, key.item)
    if item is None:
        return [JobDifference(DifferenceKind.MISSING, key, f"job {key}", [webhook.key for webhook in webhooks])]
    return [
        *_webhooks_missing(key, webhooks, item),
        *_fields(key, webhooks, item),
        *_history(store, key, webhooks, now),
        *_run(store, webhooks),
        *_deployments(store, webhooks),
    ]


def _webhooks_missing(key: JobKey, webhooks: Sequence[StoredWebhook], item: Item) -> Iterator[JobDifference]:
    marks = item.get("dl", frozenset())
    if len(marks) >= MARKS_MOST:
        return  # the set is full: only the largest marks are kept
    for webhook in webhooks:
        if webhook.event.mark not in marks:
            yield JobDifference(DifferenceKind.WEBHOOK, key, webhook.key, webhook.event.mark, None)


def _fields(key: JobKey, webhooks: Sequence[StoredWebhook], item: Item) -> Iterator[JobDifference]:
    expected = item_of(webhooks) or {}
    knows_more = bool(item.get("dl", frozenset()) - expected["dl"])
    is_ahead = knows_more and _rank(item) >= _rank(expected)
    for name in sorted(expected.keys() - _NOT_COMPARED):
        if is_ahead and name in _MAY_BE_AHEAD:
            continue
        found = item.get(name)
        if found is None or not same(found, expected[name]):
            yield JobDifference(DifferenceKind.FIELD, key, name, expected[name], found)
    # Attributes that only webhooks set, but none of these webhooks has set.
    for name in sorted((_MAY_BE_AHEAD | _END_AND_RUNNER) & item.keys() - expected.keys()):
        if not knows_more:
            yield JobDifference(DifferenceKind.FIELD, key, name, None, item[name])


_END_AND_RUNNER: Final = frozenset({"started_at", "runner_id", "runner_name", "runner_group_id", "deployment_id"})


def _rank(item: Item) -> int:
    return int(item.get("rk", 0))


def _history(store: Store, key: JobKey, webhooks: Sequence[StoredWebhook], now: Instant) -> Iterator[JobDifference]:
    kept = [
        webhook
        for webhook in webhooks
        if now.seconds_since(webhook.event.received_at) < HISTORY_KEPT_SECONDS - _HISTORY_SPARE_SECONDS
    ]
    keys = [history_key(webhook.event) for webhook in kept]
    found = store.batch_get(JOB_EVENTS, keys, consistent=True) if keys else []
    for webhook, entry in zip(kept, found, strict=True):
        if entry is None:
            yield JobDifference(DifferenceKind.HISTORY, key, webhook.key, history_key(webhook.event).sort, None)


def history_key(event: JobEvent) -> Key:
    return Key(event.key.partition, f"{event.at.iso()}#{event.type}#{event.mark}")


def _run(store: Store, webhooks: Sequence[StoredWebhook]) -> Iterator[JobDifference]:
    event = webhooks[0].event
    if event.run is None:
        return
    run = registered_run(store, event.run)
    if run is None or event.key.job_id not in run["jobs"]:
        found = None if run is None else f"{len(run['jobs'])} other jobs"
        yield JobDifference(DifferenceKind.RUN, event.key, f"run {event.run}", f"job {event.key.job_id}", found)


def _deployments(store: Store, webhooks: Sequence[StoredWebhook]) -> Iterator[JobDifference]:
    for event in {
        webhook.event.deployment.deployment_id: webhook.event for webhook in webhooks if webhook.event.deployment
    }.values():
        assert event.deployment is not None  # noqa: S101 -- chosen for having one; narrows the type
        key = DeploymentKey(event.key.installation_id, event.deployment.deployment_id)
        found: dict[str, Value] = store.get(DEPLOYMENTS, key.item) or {}
        if event.key.job_id not in found.get("job_ids", ()):
            jobs = sorted(found["job_ids"]) if "job_ids" in found else None
            yield JobDifference(DifferenceKind.DEPLOYMENT, event.key, f"deployment {key}", [event.key.job_id], jobs)


def unusable_objects(keys: dict[str, str]) -> list[JobDifference]:
    return [JobDifference(DifferenceKind.UNUSABLE, None, key, cut(why, 300)) for key, why in keys.items()]
