"""Checks a delivery: is it small enough, is it GitHub's, is it JSON? Nothing is parsed before the signature is checked.

    raw body + headers → size → signature → media type → limits of JSON → Delivery

A refused delivery raises `WebhookRefused` with the reason as one word, which the endpoint turns into a status code.
"""

import base64
import hashlib
import hmac
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Self

from msgspec import Struct

from holdfast.jobs.intake.json_limits import BODY_BYTES_MOST, check_json
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.errors import BadRequest, BadSetting
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.text import cut

SECRETS_MOST: Final = 2
_HEADER_CHARACTERS_MOST: Final = 200
# The headers that are read.
HEADERS: Final = (
    "content-encoding",
    "content-length",
    "content-type",
    "x-github-delivery",
    "x-github-event",
    "x-github-hook-installation-target-id",
    "x-hub-signature-256",
)
OBJECT_ID: Final = "s3:"  # how the id of a webhook begins that was read from an object without a delivery id
_PREFIX: Final = b"sha256="
_JSON: Final = "application/json"


class WebhookRefusal(StrEnum):
    UNSIGNED = "unsigned"  # no signature, or a wrong one (401)
    TOO_LARGE = "too_large"  # 413
    NOT_JSON = "not_json"  # another media type, or encoded content (415)
    MALFORMED = "malformed"  # signed, but not JSON, past a limit of it, or without GitHub's headers (400)
    WRONG_SERVER = "wrong_server"  # of another GitHub server than this one tracks (403)
    TOO_OLD = "too_old"  # a replay; or our clock is ahead, so the sweep must request it again (503)


class WebhookRefused(BadRequest):
    """The delivery was refused, and nothing was written. A redelivery would be refused as well."""

    def __init__(self, refusal: WebhookRefusal, message: str) -> None:
        super().__init__(message)
        self.refusal = refusal


@dataclass(frozen=True, slots=True)
class WebhookSecrets:
    """The secrets that GitHub may sign with: two during a rotation. Never shown."""

    values: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def from_text(cls, text: str) -> Self:
        """One secret, or two separated by a comma."""
        values = tuple(part.strip().encode() for part in text.split(","))
        if not 1 <= len(values) <= SECRETS_MOST or not all(values):
            raise BadSetting(
                "GITHUB_WEBHOOK_SECRET: expected one secret, or two separated by a comma during a rotation"
            )
        return cls(values)

    def have_signed(self, body: bytes, signature: bytes) -> bool:
        """Whether one of them made this signature. All are tried, each in constant time."""
        matches = [hmac.compare_digest(signature, _signature(secret, body)) for secret in self.values]
        return any(matches)

    def signature_of(self, body: bytes) -> str:
        """The header that GitHub would send, for the simulated GitHub and for tests."""
        return _signature(self.values[0], body).decode("ascii")


class Delivery(Struct, frozen=True):
    """One webhook from GitHub. `target` distinguishes two hooks that receive the same event."""

    event: str
    id: str
    target: str
    body: bytes

    def __repr__(self) -> str:
        return f"Delivery({self.event!r}, {self.id!r}, {self.target!r}, {len(self.body)} bytes)"

    @property
    def mark(self) -> str:
        """Eight characters that identify this delivery in the items it has changed."""
        return short_mark(self.target, self.id)

    @property
    def body_mark(self) -> str:
        """The same for the body. The headers are not signed, so a body may be replayed under another id and target."""
        digest = hashlib.sha256(self.body).hexdigest()
        # An object without a delivery id lacks the sender's time: it must not hide the webhook itself.
        return short_mark(OBJECT_ID, digest) if self.id.startswith(OBJECT_ID) else short_mark(digest)


class ReceiptResult(StrEnum):
    STORED = "stored"  # its effect is durable
    DUPLICATE = "duplicate"  # stored before; its whole effect was checked once more
    IGNORED = "ignored"  # an event that is not tracked
    UNUSABLE = "unusable"  # signed by GitHub, but it does not fit its event; recorded for the operator


class Receipt(Struct, frozen=True):
    """The outcome of a delivery. `job` is the job it is about; `reason` says why it was ignored or unusable."""

    result: ReceiptResult
    delivery: str
    event: str
    reason: str = ""
    installation: InstallationId | None = None
    job: JobKey | None = None


def short_mark(*parts: str) -> str:
    digest = hashlib.blake2b("\0".join(parts).encode(errors="replace"), digest_size=6).digest()
    return base64.urlsafe_b64encode(digest).decode("ascii")


def verified_delivery(headers: Mapping[str, str], body: bytes, secrets: WebhookSecrets) -> Delivery:
    """The delivery, if it is GitHub's and its body is safe to parse. Header names are in lower case."""
    if len(body) > BODY_BYTES_MOST:
        raise WebhookRefused(WebhookRefusal.TOO_LARGE, f"the body has {len(body)} bytes; at most {BODY_BYTES_MOST}")
    # As bytes: comparing text that is not ASCII would raise an error instead of refusing.
    signature = headers.get("x-hub-signature-256", "").encode("utf-8", "replace")
    if not secrets.have_signed(body, signature):
        raise WebhookRefused(WebhookRefusal.UNSIGNED, "X-Hub-Signature-256 is missing or does not match the body")
    _check_media_type(headers)
    try:
        check_json(body)
    except BadRequest as error:
        raise WebhookRefused(WebhookRefusal.MALFORMED, str(error)) from error
    return Delivery(
        event=_header(headers, "x-github-event"),
        id=_header(headers, "x-github-delivery"),
        target=headers.get("x-github-hook-installation-target-id", "")[:_HEADER_CHARACTERS_MOST],
        body=body,
    )


def _signature(secret: bytes, body: bytes) -> bytes:
    return _PREFIX + hmac.digest(secret, body, "sha256").hex().encode("ascii")


def _check_media_type(headers: Mapping[str, str]) -> None:
    media_type = headers.get("content-type", "")
    if media_type != _JSON and media_type.partition(";")[0].strip().lower() != _JSON:
        raise WebhookRefused(WebhookRefusal.NOT_JSON, f"content type {cut(media_type)!r}; expected {_JSON}")
    if headers.get("content-encoding", "").strip().lower() not in ("", "identity"):
        raise WebhookRefused(WebhookRefusal.NOT_JSON, "the content is encoded; expected no Content-Encoding")


def _header(headers: Mapping[str, str], name: str) -> str:
    value = headers.get(name, "")
    if not value or len(value) > _HEADER_CHARACTERS_MOST or not value.isascii() or not value.isprintable():
        raise WebhookRefused(WebhookRefusal.MALFORMED, f"header {name} is missing, too long or not printable")
    return value
