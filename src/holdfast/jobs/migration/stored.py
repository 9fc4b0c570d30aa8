"""Webhooks as S3 objects: writes ours, and reads ours and those of the older system.

S3 has one webhook per job and status: the latest by the sender's time. A late webhook does not overwrite a newer one,
so the order of arrival does not matter.

Our objects contain GitHub's body; their metadata has the delivery and the time of arrival. Objects of the older system
have no such metadata: the object's modification time is the time of arrival, and the payload's own times say when it
was sent. If only the job was stored, the rest comes from the key and the job's url.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from holdfast.jobs.intake.json_limits import BODY_BYTES_MOST, check_json
from holdfast.jobs.intake.payloads import Installation, JobPayload, Repository, UnusablePayload, WorkflowJob, decoded
from holdfast.jobs.intake.webhook import OBJECT_ID, Delivery, WebhookRefused
from holdfast.jobs.migration.layout import STATUSES, UNSTORED, ObjectLayout, ObjectPlace
from holdfast.jobs.model.facts import KEPT_SECONDS, JobEvent, job_event
from holdfast.jobs.model.job import folded
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadRequest, Retryable
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import one_line
from holdfast.ports.objects import Archived, ObjectEntry, Objects, StoredObject
from holdfast.ports.store import Item

EVENT: Final = "workflow_job"
_TRIES_MOST: Final = 5
_KEY_CHARACTERS_MOST: Final = 190
_GZIP: Final = b"\x1f\x8b"


class NotAWebhook(Exception):
    """The object cannot be read as a webhook, or does not match its key."""


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """`received_at` is when the first webhook stored under this key arrived."""

    key: str
    event: JobEvent
    etag: str
    received_at: Instant


class _BareJob(WorkflowJob):
    """A job without the rest of the payload."""

    url: str = ""


# Reading


def webhook_of(stored: StoredObject, place: ObjectPlace) -> StoredWebhook:
    """The webhook in the object; NotAWebhook if there is none."""
    metadata = stored.metadata
    received = _instant(metadata.get("received-ms")) or stored.modified
    delivery = Delivery(EVENT, unquote(metadata.get("delivery", "")), unquote(metadata.get("target", "")), stored.body)
    if not delivery.id:
        delivery = replace(delivery, id=_own_id(stored.key))
    try:
        _check_body(stored.body)
        event = job_event(delivery, _payload(stored.body, place), received)
    except (UnusablePayload, WebhookRefused, BadRequest) as error:
        raise NotAWebhook(one_line(str(error))) from error
    if event.key.job_id != place.job_id:
        raise NotAWebhook(f"it is of job {event.key.job_id}, but its key says {place.job_id}")
    if place.installation_id not in (None, event.key.installation_id):
        found = event.key.installation_id
        raise NotAWebhook(f"it is of installation {found}, but its key says {place.installation_id}")
    return StoredWebhook(stored.key, event, stored.etag, received)


def _own_id(key: str) -> str:
    """An id for an object without a delivery id: unique like its key, and short enough for an id."""
    return OBJECT_ID + (key if len(key) <= _KEY_CHARACTERS_MOST else hashlib.sha256(key.encode()).hexdigest())


def _check_body(body: bytes) -> None:
    if len(body) > BODY_BYTES_MOST:
        raise UnusablePayload(f"it has more than {BODY_BYTES_MOST} bytes, the most that GitHub sends")
    if body.startswith(_GZIP):
        raise UnusablePayload("it is compressed (gzip); expected plain JSON")
    check_json(body)


def _payload(body: bytes, place: ObjectPlace) -> JobPayload:
    try:
        payload = decoded(body, JobPayload)
    except UnusablePayload as error:
        payload = _wrapped(body, place, error)
    if payload.installation is None and place.installation_id is not None:
        payload.installation = Installation(place.installation_id)
    return payload


def _wrapped(body: bytes, place: ObjectPlace, unusable: UnusablePayload) -> JobPayload:
    """The payload of an object that has only the job: its repository is in its url."""
    try:
        job = typed_json.decoded(body, _BareJob)
    except msgspec.MsgspecError as error:
        raise unusable from error
    _, _, path = job.url.partition("/repos/")
    repository = "/".join(path.split("/")[:2])
    if "/" not in repository:
        raise UnusablePayload("it is a job without a repository, and its url names none")
    return JobPayload(Repository(repository), job, str(place.status))


def webhooks_of_job(
    objects: Objects, layout: ObjectLayout, entries: Iterable[ObjectEntry]
) -> tuple[list[StoredWebhook], dict[str, str]]:
    """The webhooks of one job, in the order they were sent; and by key, why other objects are unusable."""
    found: list[StoredWebhook] = []
    unusable: dict[str, str] = {}
    for entry in entries:
        place = layout.place(entry.key)
        if place is None:
            unusable[entry.key] = "its key does not match S3_WEBHOOK_LAYOUT"
            continue
        try:
            stored = objects.get(entry.key, BODY_BYTES_MOST)
            if stored is not None:  # else it was deleted after it was listed
                found.append(webhook_of(stored, place))
        except (NotAWebhook, Archived) as error:
            unusable[entry.key] = str(error)
    return sorted(found, key=lambda webhook: _order(webhook.event)), unusable


def webhooks_by_key(objects: Objects, layout: ObjectLayout, job: JobKey) -> list[StoredWebhook]:
    """The job's webhooks, read by key: listing a large bucket would cost more."""
    now = Instant(0)  # the entries' times are not used
    found, _ = webhooks_of_job(objects, layout, [ObjectEntry(layout.key(job, status), now) for status in STATUSES])
    # Without the installation in the key, another installation's job may have the same number.
    return [webhook for webhook in found if webhook.event.key == job]


def item_of(webhooks: Iterable[StoredWebhook], item: Item | None = None) -> Item | None:
    """The job as its webhooks describe it, folded into `item` if there is one."""
    for webhook in webhooks:
        key = webhook.event.key.item
        item = {"PK": key.partition, "SK": key.sort, **folded(item, webhook.event)}
    return item


def is_expired(received: Instant, now: Instant) -> bool:
    """Whether it has expired from the tables."""
    return received.epoch_seconds + KEPT_SECONDS <= now.epoch_seconds


# Writing


def put_webhook(objects: Objects, layout: ObjectLayout, delivery: Delivery, event: JobEvent) -> str:
    """Make sure that S3 has this webhook, or a later one of the same status; returns its key."""
    assert event.status is not None  # noqa: S101 -- a webhook's event has one; narrows the type
    key = layout.key(event.key, event.status)
    place = layout.place(key)
    assert place is not None  # noqa: S101 -- a key that the layout made
    metadata = _metadata(delivery, event.received_at)
    if objects.put(key, delivery.body, metadata, if_absent=True):
        return key
    for _ in range(_TRIES_MOST):
        there = objects.get(key, BODY_BYTES_MOST)
        if there is None:
            is_written = objects.put(key, delivery.body, metadata, if_absent=True)
        else:
            try:
                known = webhook_of(there, place)
            except NotAWebhook:
                known = None  # unusable: overwrite it
            if known is not None and (known.event.key != event.key or _order(known.event) >= _order(event)):
                return key
            if known is not None:
                metadata = _metadata(delivery, min(known.received_at, event.received_at))
            is_written = objects.put(key, delivery.body, metadata, if_etag=there.etag)
        if is_written:
            return key
    raise Retryable(f"S3 object {key}: changed by other processes {_TRIES_MOST} times in a row; not acknowledged")


def mark_unstored(objects: Objects, key: str, mark: str) -> None:
    """Note that the tables lack the webhook under this key. `backfill` fills it in and deletes the note.

    Each webhook has its own note, so that deleting one note does not lose another webhook of the same key.
    """
    objects.put(f"{UNSTORED}{key}?{mark}", b"{}")


def _metadata(delivery: Delivery, received_at: Instant) -> Mapping[str, str]:
    # Metadata is sent as headers, so it must be ASCII.
    return {
        "delivery": quote(delivery.id, safe="-:"),
        "target": quote(delivery.target[:100]),
        "received-ms": str(received_at.epoch_ms),
    }


def _order(event: JobEvent) -> tuple[int, str, str]:
    """The order in which the fold ranks two events of one status: by time, then conclusion."""
    return event.at.epoch_ms, event.end.conclusion if event.end else "", event.mark


def _instant(text: str | None) -> Instant | None:
    # Checked: anyone with access to the bucket may have written it.
    return Instant(int(text)) if text is not None and text.isascii() and text.isdigit() and len(text) <= 14 else None
