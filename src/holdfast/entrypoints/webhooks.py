"""What becomes of a webhook, whether it came over HTTP or through Lambda: its answer, and never an exception."""

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

from msgspec import Struct

from holdfast.jobs.receipts import Receipt
from holdfast.jobs.webhook import Delivery, Refusal, Refused, WebhookSecrets, admitted
from holdfast.kernel.errors import BadSetting, HoldfastError, NeedsOperator
from holdfast.kernel.settings import Settings

RETRY_SECONDS: Final = 10
_STATUSES: Final = {
    Refusal.UNSIGNED: (401, "unauthorized"),
    Refusal.TOO_LARGE: (413, "too_large"),
    Refusal.NOT_JSON: (415, "unsupported_media_type"),
    Refusal.MALFORMED: (400, "bad_request"),
}

_log = logging.getLogger(__name__)


class Outcome(Struct, frozen=True):
    """An answer, in HTTP's terms."""

    status: int
    body: Mapping[str, Any]
    retry_after_seconds: int | None = None


class Receiver(Protocol):
    """Who makes a delivery durable: the tracker, or the one that writes to S3 as well."""

    def receive(self, delivery: Delivery) -> Receipt: ...


class ReceiverOfMany(Protocol):
    """Who can also take in several at once, each with a receipt or the reason why it has none."""

    def receive_all(self, deliveries: Sequence[Delivery]) -> list[Receipt | Exception]: ...


def take_webhook(headers: Mapping[str, str], body: bytes, known: WebhookSecrets, tracker: Receiver) -> Outcome:
    """Header names in lower case. 200 means that GitHub need not send it again."""
    try:
        return _outcome(tracker.receive(admitted(headers, body, known)))
    except HoldfastError as error:
        return _outcome(error)


def take_webhooks(
    requests: Sequence[tuple[Mapping[str, str], bytes]], known: WebhookSecrets, tracker: ReceiverOfMany
) -> list[Outcome | Exception]:
    """Those that came at the same time, each with its own outcome; an exception is a mistake of ours."""
    found = [_admitted_or_refused(headers, body, known) for headers, body in requests]
    deliveries = [each for each in found if isinstance(each, Delivery)]
    receipts = iter(tracker.receive_all(deliveries) if deliveries else ())
    answers = [next(receipts) if isinstance(each, Delivery) else each for each in found]
    return [_outcome(answer) if isinstance(answer, Receipt | HoldfastError) else answer for answer in answers]


def _admitted_or_refused(headers: Mapping[str, str], body: bytes, known: WebhookSecrets) -> Delivery | Refused:
    try:
        return admitted(headers, body, known)
    except Refused as error:
        return error


def _outcome(receipt: Receipt | HoldfastError) -> Outcome:
    if isinstance(receipt, Refused):
        status, code = _STATUSES[receipt.refusal]
        return _failed(status, code, str(receipt))
    if isinstance(receipt, HoldfastError):
        # Store away, table missing, or full: nothing was acknowledged, and GitHub's log of failed deliveries has it.
        level = logging.ERROR if isinstance(receipt, NeedsOperator) else logging.WARNING
        _log.log(level, "a webhook was not stored: %s", receipt)
        return _failed(503, "unavailable", "the store does not answer; send it again", RETRY_SECONDS)
    told: dict[str, Any] = {"result": str(receipt.result), "delivery": receipt.delivery}
    if receipt.reason:
        told["reason"] = receipt.reason
    return Outcome(200, told)


def webhook_secrets(settings: Settings) -> WebhookSecrets:
    """GITHUB_WEBHOOK_SECRET; the simulated world makes one for itself, and keeps it in the data directory."""
    if settings.github_webhook_secret is not None:
        return WebhookSecrets.from_text(settings.github_webhook_secret)
    if settings.holdfast_world != "sim":
        raise BadSetting(
            "GITHUB_WEBHOOK_SECRET is not set, and HOLDFAST_WORLD=aws needs it; "
            "it is the secret of the GitHub App's webhook. Without an App, any long text that nobody knows keeps "
            'the endpoint shut; for example GITHUB_WEBHOOK_SECRET="$(openssl rand -hex 32)"'
        )
    return WebhookSecrets.from_text(_own_secret(settings.holdfast_data / "webhook-secret"))


def lambda_request(event: Mapping[str, Any]) -> tuple[dict[str, str], bytes]:
    """Headers and raw body of a function URL's or an API Gateway's event, of either version.

    A load balancer may send its headers as lists alone; of several values the last counts, as in API Gateway's own.
    What has another shape is no request: it has no body, and nobody signed it.
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
        return headers, b""  # unsigned, whatever it was


def _lambda_headers(event: Mapping[str, Any]) -> dict[str, Any]:
    for name in ("headers", "multiValueHeaders"):
        found = event.get(name)
        if found and isinstance(found, Mapping):
            last = {str(key): value[-1:] if isinstance(value, list) else [value] for key, value in found.items()}
            return {key: value[0] for key, value in last.items() if value and value[0] is not None}
    return {}


def _failed(status: int, code: str, message: str, retry_after_seconds: int | None = None) -> Outcome:
    return Outcome(status, {"error": {"code": code, "message": message}}, retry_after_seconds)


def _own_secret(path: Path) -> str:
    try:
        if not path.exists():
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            _write_once(path, secrets.token_hex(32))
        text = path.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise NeedsOperator(f"{path} cannot be used: {error}; name another directory with --data") from error
    if not text:
        raise NeedsOperator(f"{path} is empty, and anybody could sign with that; remove it, and start again")
    return text


def _write_once(path: Path, text: str) -> None:
    """Make the file with its text in it, or leave the one that another process has made meanwhile."""
    with NamedTemporaryFile("w", dir=path.parent, encoding="ascii") as written:  # its mode is 0600
        written.write(text)
        written.flush()
        with suppress(FileExistsError):
            os.link(written.name, path)
