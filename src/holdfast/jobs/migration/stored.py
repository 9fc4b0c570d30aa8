"""A webhook as an object: how ours are written, and how any is read, also one that the older system wrote.

For each job and status S3 holds one webhook: the latest by the sender's time. Whoever comes late does not overwrite it,
so that it does not matter in which order webhooks come.

Ours hold the body as GitHub sent it, and who sent it when in the object's metadata. The older system's have no such
metadata: there, the object's own time is when it came, and the payload's times tell when it was sent. Where only the
job itself was stored, the key and the job's address say the rest.
"""

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import quote, unquote

import msgspec
from msgspec.structs import replace

from holdfast.jobs.facts import KEPT_SECONDS, JobEvent, job_event
from holdfast.jobs.job import folded
from holdfast.jobs.keys import JobKey
from holdfast.jobs.limits import BODY_BYTES_MOST, check_json
from holdfast.jobs.migration.layout import STATUSES, UNSTORED, Layout, Place
from holdfast.jobs.payloads import Installation, JobPayload, Repository, Unusable, WorkflowJob, decoded
from holdfast.jobs.webhook import Delivery, Refused
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


class NoWebhook(Exception):
    """The object cannot be understood, or says something else than its key does."""


@dataclass(frozen=True, slots=True)
class StoredWebhook:
    """`received_at` is when the first webhook came that was stored under this key."""

    key: str
    event: JobEvent
    etag: str
    received_at: Instant


class _BareJob(WorkflowJob):
    """A job without what GitHub wraps around it."""

    url: str = ""


# Reading


def webhook_of(stored: StoredObject, place: Place) -> StoredWebhook:
    """The webhook; NoWebhook says why there is none."""
    told = stored.metadata
    received = _instant(told.get("received-ms")) or stored.modified
    delivery = Delivery(EVENT, unquote(told.get("delivery", "")), unquote(told.get("target", "")), stored.body)
    if not delivery.id:
        delivery = replace(delivery, id=_own_id(stored.key))
    try:
        _check_body(stored.body)
        event = job_event(delivery, _payload(stored.body, place), received)
    except (Unusable, Refused, BadRequest) as error:
        raise NoWebhook(one_line(str(error))) from error
    if event.key.job_id != place.job_id:
        raise NoWebhook(f"it tells of job {event.key.job_id}, and its key of job {place.job_id}")
    if place.installation_id not in (None, event.key.installation_id):
        said = event.key.installation_id
        raise NoWebhook(f"it is of installation {said}, and its key says {place.installation_id}")
    return StoredWebhook(stored.key, event, stored.etag, received)


def _own_id(key: str) -> str:
    """For an object that names no delivery: as different as the keys are, and as short as an id may be."""
    return f"s3:{key}" if len(key) <= _KEY_CHARACTERS_MOST else f"s3:{hashlib.sha256(key.encode()).hexdigest()}"


def _check_body(body: bytes) -> None:
    if len(body) > BODY_BYTES_MOST:
        raise Unusable(f"it has more than {BODY_BYTES_MOST} bytes: GitHub sends no such webhook")
    if body.startswith(_GZIP):
        raise Unusable("it is compressed (gzip); objects are read as they are")
    check_json(body)


def _payload(body: bytes, place: Place) -> JobPayload:
    try:
        payload = decoded(body, JobPayload)
    except Unusable as error:
        payload = _wrapped(body, place, error)
    if payload.installation is None and place.installation_id is not None:
        payload.installation = Installation(place.installation_id)
    return payload


def _wrapped(body: bytes, place: Place, unusable: Unusable) -> JobPayload:
    """The job alone was stored: its repository is in its address."""
    try:
        job = typed_json.decoded(body, _BareJob)
    except msgspec.MsgspecError as error:
        raise unusable from error
    _, _, path = job.url.partition("/repos/")
    repository = "/".join(path.split("/")[:2])
    if "/" not in repository:
        raise Unusable("a job without its repository, and its url does not name one")
    return JobPayload(Repository(repository), job, str(place.status))


def webhooks_of_job(
    objects: Objects, layout: Layout, entries: Iterable[ObjectEntry]
) -> tuple[list[StoredWebhook], dict[str, str]]:
    """The webhooks of one job in the order in which they were sent; and by their keys, why others are none."""
    found: list[StoredWebhook] = []
    unusable: dict[str, str] = {}
    for entry in entries:
        place = layout.place(entry.key)
        if place is None:
            unusable[entry.key] = "its key is not that of a webhook"
            continue
        try:
            stored = objects.get(entry.key, BODY_BYTES_MOST)
            if stored is not None:  # else it was removed after it was listed
                found.append(webhook_of(stored, place))
        except (NoWebhook, Archived) as error:
            unusable[entry.key] = str(error)
    return sorted(found, key=lambda webhook: _order(webhook.event)), unusable


def webhooks_by_key(objects: Objects, layout: Layout, job: JobKey) -> list[StoredWebhook]:
    """The job's webhooks, asked for one by one: a list of a large bucket would cost more."""
    now = Instant(0)  # the entries' times are not used
    found, _ = webhooks_of_job(objects, layout, [ObjectEntry(layout.key(job, status), now) for status in STATUSES])
    # Without the installation in the key, another installation's job may have the same number.
    return [webhook for webhook in found if webhook.event.key == job]


def item_of(webhooks: Iterable[StoredWebhook], item: Item | None = None) -> Item | None:
    """The job as S3 knows it, or what S3 adds to an item: the fold takes facts in any order, and each once."""
    for webhook in webhooks:
        key = webhook.event.key.item
        item = {"PK": key.partition, "SK": key.sort, **folded(item, webhook.event)}
    return item


def is_expired(received: Instant, now: Instant) -> bool:
    """Whether the tables would not show it any more."""
    return received.epoch_seconds + KEPT_SECONDS <= now.epoch_seconds


# Writing


def put_webhook(objects: Objects, layout: Layout, delivery: Delivery, event: JobEvent) -> str:
    """Make sure that S3 holds this webhook, or a later one of the same status. Its key."""
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
            except NoWebhook:
                known = None  # nothing that anybody could use
            if known is not None and (known.event.key != event.key or _order(known.event) >= _order(event)):
                return key
            if known is not None:
                metadata = _metadata(delivery, min(known.received_at, event.received_at))
            is_written = objects.put(key, delivery.body, metadata, if_etag=there.etag)
        if is_written:
            return key
    raise Retryable(f"S3 object {key}: changed by others {_TRIES_MOST} times in a row; to be delivered again")


def mark_unstored(objects: Objects, key: str, mark: str) -> None:
    """Note that the tables lack a webhook that is under this key. `backfill` sees to it, and takes the note away.

    Each webhook has a note of its own: one that comes while another's is taken away is not forgotten with it.
    """
    objects.put(f"{UNSTORED}{key}?{mark}", b"{}")


def _metadata(delivery: Delivery, received_at: Instant) -> Mapping[str, str]:
    # Metadata travels as headers: whatever is not ASCII is escaped.
    return {
        "delivery": quote(delivery.id, safe="-:"),
        "target": quote(delivery.target[:100]),
        "received-ms": str(received_at.epoch_ms),
    }


def _order(event: JobEvent) -> tuple[int, str, str]:
    """As the fold weighs two events of one status: the later one, then the conclusion."""
    return event.at.epoch_ms, event.end.conclusion if event.end else "", event.mark


def _instant(text: str | None) -> Instant | None:
    # What S3 hands back may have been written by anybody who may write to the bucket.
    return Instant(int(text)) if text is not None and text.isascii() and text.isdigit() and len(text) <= 14 else None
