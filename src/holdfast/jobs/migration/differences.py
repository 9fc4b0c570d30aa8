"""Where S3 and the tables disagree about a job. Pure, but for reading what the tables hold.

    kind            means
    missing         S3 has webhooks of the job, and the tables have no such job
    webhook         one of its webhooks was never recorded
    field           an attribute of the job is not what the webhooks make of it
    history         one of its webhooks is not in its history
    run             the job is not where it belongs among its run's jobs
    deployment      the deployment that it names is not known, or does not know the job
    unusable        the object is no webhook, or is not what its key says
    only_in_table   the tables have a job of which S3 has no webhook

Left out, since no webhook tells it: when a webhook came (`received_at`, `ttl`), and what the runner fleet did.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any, Final

from holdfast.jobs.facts import FAILED, JobEvent, Status
from holdfast.jobs.history import KEPT_SECONDS as HISTORY_KEPT_SECONDS
from holdfast.jobs.job import MARKS_MOST
from holdfast.jobs.keys import DeploymentKey, JobKey
from holdfast.jobs.migration.stored import StoredWebhook, item_of
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Item, Key, Store, Value
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS
from holdfast.ports.store.values import same

# Never compared: keys and marks are looked at by themselves, the rest depends on when a webhook came.
_NOT_COMPARED: Final = frozenset({"PK", "SK", "dl", "received_at", "ttl"})
# What moves on with events that have no object: the runner fleet's, and what GitHub's API was asked.
_MOVES_ON: Final = frozenset({"status", "rk", "GSI1-PK", "conclusion", "completed_at", "queued_ms", "waiting_ms"})
# Entries near their end may be gone already.
_HISTORY_SPARE_SECONDS: Final = 3600


class Kind(StrEnum):
    MISSING = "missing"
    WEBHOOK = "webhook"
    FIELD = "field"
    HISTORY = "history"
    RUN = "run"
    DEPLOYMENT = "deployment"
    UNUSABLE = "unusable"
    ONLY_IN_TABLE = "only_in_table"


@dataclass(frozen=True, slots=True)
class Difference:
    """`what` names the attribute, the webhook or the object; the two sides are as they were found."""

    kind: Kind
    job: JobKey | None
    what: str
    in_s3: Any = None
    in_tables: Any = None

    def shown(self) -> dict[str, Any]:
        return {
            "kind": str(self.kind),
            "installation_id": self.job.installation_id if self.job else None,
            "job_id": self.job.job_id if self.job else None,
            "what": self.what,
            "s3": plain(self.in_s3),
            "tables": plain(self.in_tables),
        }


def plain(value: Any) -> Any:
    """As JSON has it."""
    if isinstance(value, frozenset | set):
        return sorted(value)
    if isinstance(value, dict):
        return {name: plain(inner) for name, inner in value.items()}
    if isinstance(value, list | tuple):
        return [plain(inner) for inner in value]
    return value if value is None or isinstance(value, str | int | float | bool) else str(value)


def differences_of_job(store: Store, webhooks: Sequence[StoredWebhook], now: Instant) -> list[Difference]:
    """All that S3's webhooks of one job say, held against the tables."""
    key = webhooks[0].event.key
    item = store.get(JOBS, key.item)
    if item is None:
        return [Difference(Kind.MISSING, key, f"job {key}", [webhook.key for webhook in webhooks])]
    return [
        *_webhooks_missing(key, webhooks, item),
        *_fields(key, webhooks, item),
        *_history(store, key, webhooks, now),
        *_run(store, webhooks, item),
        *_deployments(store, webhooks),
    ]


def _webhooks_missing(key: JobKey, webhooks: Sequence[StoredWebhook], item: Item) -> Iterator[Difference]:
    marks = item.get("dl", frozenset())
    if len(marks) >= MARKS_MOST:
        return  # only the largest are kept
    for webhook in webhooks:
        if webhook.event.mark not in marks:
            yield Difference(Kind.WEBHOOK, key, webhook.key, webhook.event.mark, None)


def _fields(key: JobKey, webhooks: Sequence[StoredWebhook], item: Item) -> Iterator[Difference]:
    expected = item_of(webhooks) or {}
    knows_more = bool(item.get("dl", frozenset()) - expected["dl"])
    is_ahead = knows_more and _rank(item) >= _rank(expected)
    for name in sorted(expected.keys() - _NOT_COMPARED):
        if is_ahead and name in _MOVES_ON:
            continue
        found = item.get(name)
        if found is None or not same(found, expected[name]):
            yield Difference(Kind.FIELD, key, name, expected[name], found)
    # What webhooks set, and none of these webhooks has set.
    for name in sorted((_MOVES_ON | _END_AND_RUNNER) & item.keys() - expected.keys()):
        if not knows_more:
            yield Difference(Kind.FIELD, key, name, None, item[name])


_END_AND_RUNNER: Final = frozenset({"started_at", "runner_id", "runner_name", "runner_group_id", "deployment_id"})


def _rank(item: Item) -> int:
    return int(item.get("rk", 0))


def _history(store: Store, key: JobKey, webhooks: Sequence[StoredWebhook], now: Instant) -> Iterator[Difference]:
    kept = [
        webhook
        for webhook in webhooks
        if now.seconds_since(webhook.event.received_at) < HISTORY_KEPT_SECONDS - _HISTORY_SPARE_SECONDS
    ]
    keys = [history_key(webhook.event) for webhook in kept]
    found = store.batch_get(JOB_EVENTS, keys, consistent=True) if keys else []
    for webhook, entry in zip(kept, found, strict=True):
        if entry is None:
            yield Difference(Kind.HISTORY, key, webhook.key, history_key(webhook.event).sort, None)


def history_key(event: JobEvent) -> Key:
    return Key(event.key.partition, f"{event.at.iso()}#{event.type}#{event.mark}")


def _run(store: Store, webhooks: Sequence[StoredWebhook], item: Item) -> Iterator[Difference]:
    """The run counts the job as the table has it: a job that is ahead of S3 is counted as such."""
    event = webhooks[0].event
    if event.run is None:
        return
    run = store.get(RUNS, event.run.item) or {}
    is_done = item.get("status") == Status.COMPLETED
    expected = {"done"} if is_done else {"open"}
    if is_done and item.get("conclusion") in FAILED:
        expected.add("failed")
    found = {name for name in ("open", "done", "failed") if event.key.job_id in run.get(name, ())}
    if found != expected:
        what = f"run {event.run}"
        yield Difference(Kind.RUN, event.key, what, sorted(expected), sorted(found) if run else None)


def _deployments(store: Store, webhooks: Sequence[StoredWebhook]) -> Iterator[Difference]:
    for event in {
        webhook.event.deployment.deployment_id: webhook.event for webhook in webhooks if webhook.event.deployment
    }.values():
        assert event.deployment is not None  # noqa: S101 -- chosen for having one; narrows the type
        key = DeploymentKey(event.key.installation_id, event.deployment.deployment_id)
        found: dict[str, Value] = store.get(DEPLOYMENTS, key.item) or {}
        if event.key.job_id not in found.get("job_ids", ()):
            jobs = sorted(found["job_ids"]) if "job_ids" in found else None
            yield Difference(Kind.DEPLOYMENT, event.key, f"deployment {key}", [event.key.job_id], jobs)


def unusable(keys: dict[str, str]) -> list[Difference]:
    return [Difference(Kind.UNUSABLE, None, key, cut(why, 300)) for key, why in keys.items()]
