"""Receives webhooks over HTTP or Lambda, and events of the runner fleet. A webhook always gets an answer."""

import base64
import binascii
import logging
import os
import secrets
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from tempfile import NamedTemporaryFile
from typing import Any, Final, Protocol

from msgspec import UNSET, Struct

from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.folded_lines import FoldedLines
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import (
    Delivery,
    Receipt,
    WebhookRefusal,
    WebhookRefused,
    WebhookSecrets,
    verified_delivery,
)
from holdfast.kernel.errors import BadRequest, BadSetting, HoldfastError, NeedsOperator
from holdfast.kernel.file_trust import distrusted
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import cut
from holdfast.views.command_answers import ErrorAnswer, RecordedEvent, WebhookResult, error_of
from holdfast.views.job_views import job_key
from holdfast.views.query_params import QueryParams

RETRY_SECONDS: Final = 10
STATUSES: Final = {
    WebhookRefusal.UNSIGNED: (401, "unauthorized"),
    WebhookRefusal.TOO_LARGE: (413, "too_large"),
    WebhookRefusal.NOT_JSON: (415, "unsupported_media_type"),
    WebhookRefusal.MALFORMED: (400, "bad_request"),
    WebhookRefusal.WRONG_SERVER: (403, "wrong_server"),
    WebhookRefusal.TOO_OLD: (503, "unavailable"),  # the sweep does not request a 400 again
}

_log = logging.getLogger(__name__)
# GitHub sends hundreds of webhooks a minute: a line for each would fill a disk that is nearly full.
_not_stored = FoldedLines(_log, SystemClock())
_wrong_server = FoldedLines(_log, SystemClock())


class WebhookOutcome(Struct, frozen=True):
    """The HTTP response to a webhook."""

    status: int
    body: WebhookResult | ErrorAnswer
    retry_after_seconds: int | None = None

    @property
    def result(self) -> str:
        """What became of the webhook; empty if it was not received."""
        return self.body.result if isinstance(self.body, WebhookResult) else ""


class WebhookReceiver(Protocol):
    """Makes a delivery durable: the tracker, or the migration's, which also writes to S3."""

    def receive(self, delivery: Delivery) -> Receipt: ...


class BatchReceiver(Protocol):
    """Receives several at once; returns a receipt or an error for each."""

    def receive_all(self, deliveries: Sequence[Delivery]) -> list[Receipt | Exception]: ...


def take_webhook(
    headers: Mapping[str, str], body: bytes, known: WebhookSecrets, tracker: WebhookReceiver
) -> WebhookOutcome:
    """Header names are lower case. 200 means that GitHub need not redeliver."""
    try:
        return _outcome(tracker.receive(verified_delivery(headers, body, known)))
    except HoldfastError as error:
        return _outcome(error)


def take_webhooks(
    requests: Sequence[tuple[Mapping[str, str], bytes]], known: WebhookSecrets, tracker: BatchReceiver
) -> list[WebhookOutcome | Exception]:
    """Requests that arrived together, each with its own outcome; an exception is a bug."""
    found = [_admitted_or_refused(headers, body, known) for headers, body in requests]
    deliveries = [each for each in found if isinstance(each, Delivery)]
    receipts = iter(tracker.receive_all(deliveries) if deliveries else ())
    answers = [next(receipts) if isinstance(each, Delivery) else each for each in found]
    return [_outcome(answer) if isinstance(answer, Receipt | HoldfastError) else answer for answer in answers]


def _admitted_or_refused(headers: Mapping[str, str], body: bytes, known: WebhookSecrets) -> Delivery | WebhookRefused:
    try:
        return verified_delivery(headers, body, known)
    except WebhookRefused as error:
        return error


def _outcome(receipt: Receipt | HoldfastError) -> WebhookOutcome:
    if isinstance(receipt, WebhookRefused):
        status, code = STATUSES[receipt.refusal]
        if receipt.refusal is WebhookRefusal.WRONG_SERVER:
            _wrong_server.log(logging.ERROR, f"webhook refused: {receipt}")
        return _failed(status, code, str(receipt))
    if isinstance(receipt, HoldfastError):
        # Store unavailable, or table missing or full: not acknowledged, so GitHub's delivery log lists it as failed.
        level = logging.ERROR if isinstance(receipt, NeedsOperator) else logging.WARNING
        _not_stored.log(level, f"webhook not stored: {receipt}")
        return _failed(503, "unavailable", "the store is unavailable; retry later", RETRY_SECONDS)
    _not_stored.is_over("webhooks are stored again")
    return WebhookOutcome(
        200, WebhookResult(result=receipt.result, delivery=receipt.delivery, reason=receipt.reason or UNSET)
    )


def record_internal_event(
    tracker: Tracker, installation_id: str, job_id: str, event: Mapping[str, Any]
) -> RecordedEvent:
    """Validate and record an event of the runner fleet, once however often it is sent; returns the job's status."""
    key = job_key(installation_id, job_id)
    if event["type"] not in set(InternalType):
        raise BadRequest(f"type {cut(event['type'])!r}: expected one of {', '.join(InternalType)}")
    at = QueryParams({"at": event["at"]}, "at").time("at")
    if at is None:
        raise BadRequest(f"at {cut(event['at'])!r}: expected the time of the event")
    instance = None if event["instance_id"] is None else InstanceId(event["instance_id"])
    recorded = tracker.record_event(
        InternalEvent(key, InternalType(event["type"]), at, event["attempt"], instance, event["attributes"])
    )
    return RecordedEvent(
        result="duplicate" if recorded.is_duplicate else "stored",
        installation_id=key.installation_id,
        job_id=key.job_id,
        status=recorded.job.get("status"),
        scheduling_attempt=recorded.job.get("scheduling_attempt"),
    )


def webhook_secrets(settings: Settings) -> WebhookSecrets:
    """GITHUB_WEBHOOK_SECRET; the simulated world generates one and keeps it in the data directory."""
    if settings.github_webhook_secret is not None:
        return WebhookSecrets.from_text(settings.github_webhook_secret)
    if settings.holdfast_world != "sim":
        raise BadSetting(
            "GITHUB_WEBHOOK_SECRET is not set but HOLDFAST_WORLD=aws requires it; "
            "use the secret of the GitHub App's webhook. Without an App, any long random text keeps "
            'the endpoint closed; for example GITHUB_WEBHOOK_SECRET="$(openssl rand -hex 32)"'
        )
    return WebhookSecrets.from_text(_own_secret(settings.holdfast_data / "webhook-secret"))


def lambda_request(event: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
    """Headers and raw body of a Lambda event from a function URL, a load balancer or either version of API Gateway.

    A load balancer may send headers as lists; of several values the last counts, as in API Gateway. An event of another
    shape yields an empty body, which has no valid signature.
    """
    headers = {name.lower(): str(value) for name, value in _lambda_headers(event).items()}
    text = event.get("body")
    if not isinstance(text, str):
        return headers, b""
    if not event.get("isBase64Encoded"):
        return headers, text.encode("utf-8", "surrogatepass")
    try:
        return headers, base64.b64decode(text, validate=True)
    except (binascii.Error, ValueError):
        return headers, b""  # has no valid signature


def _lambda_headers(event: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("headers", "multiValueHeaders"):
        found = event.get(name)
        if found and isinstance(found, Mapping):
            last = {str(key): value[-1:] if isinstance(value, list) else [value] for key, value in found.items()}
            return {key: value[0] for key, value in last.items() if value and value[0] is not None}
    return {}


def _failed(status: int, code: str, message: str, retry_after_seconds: int | None = None) -> WebhookOutcome:
    return WebhookOutcome(status, error_of(code, message), retry_after_seconds)


def _own_secret(path: Path) -> str:
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_once(path, secrets.token_hex(32))
        if found := distrusted(path.parent, path):
            raise NeedsOperator(f"{path} was not read: {found}; choose another directory with --data")
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NeedsOperator(f"{path} cannot be used: {error}; choose another directory with --data") from error
    if not text:
        raise NeedsOperator(f"{path} is empty, so anyone could sign webhooks; remove it and restart")
    return text


def _write_once(path: Path, text: str) -> None:
    """Create the file with its content, unless another process has created it first."""
    with NamedTemporaryFile("w", dir=path.parent, encoding="ascii") as written:  # its mode is 0600
        written.write(text)
        written.flush()
        with suppress(FileExistsError):
            os.link(written.name, path)
