"""Notifications to webhooks: in Slack's format, or as a plain JSON object.

A webhook's URL is its password. Messages and logs contain only its host.
"""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.adapters.http_calls import HttpEndpoint, HttpFailed, HttpLimits
from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.notify import Notification

LIMITS: Final = HttpLimits(connect_seconds=2.0, whole_seconds=5.0, body_bytes=64 * 1024)
TITLE_MOST: Final = 200
TEXT_MOST: Final = 3000

# Mentions that notify everyone, in chats that accept Slack's format; Slack's own mentions are in angle brackets.
_CALLS: Final = re.compile(r"@(?=(?:all|channel|everyone|here)\b)", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


class WebhookNotifier:
    """Implements `holdfast.ports.notify.Notifier`: the notification as a JSON object."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        setting: str,
        ca_file: Path | None = None,
        limits: HttpLimits = LIMITS,
    ) -> None:
        self._endpoint = HttpEndpoint(address, clock, setting=setting, ca_file=ca_file, limits=limits, https_only=True)

    def notify(self, notification: Notification) -> None:
        try:
            answer = self._endpoint.post(
                msgspec.json.encode(self._body(notification)), {"Content-Type": "application/json"}
            )
        except HttpFailed as error:
            raise Retryable(f"webhook at {error}; the notification was not sent") from error
        # Redirects are not followed: another host would get the notification, and perhaps the secret.
        if not 200 <= answer.status < 300:
            raise Retryable(
                f"webhook at {self._endpoint}: HTTP status {answer.status}; the notification was not accepted"
            )

    def _body(self, notification: Notification) -> dict[str, Any]:
        return {
            "source": "holdfast",
            "kind": _clean(notification.kind, TITLE_MOST),
            "key": _clean(notification.key, TITLE_MOST),
            "title": _clean(notification.title, TITLE_MOST),
            "text": _clean(notification.text, TEXT_MOST),
            "is_urgent": notification.is_urgent,
        }


class SlackNotifier(WebhookNotifier):
    """The notification as a message, in Slack's format."""

    def _body(self, notification: Notification) -> dict[str, Any]:
        title = ("Urgent: " if notification.is_urgent else "") + slack_escaped(_clean(notification.title, TITLE_MOST))
        text = slack_escaped(_clean(notification.text, TEXT_MOST))
        # Not unfurled: a link in the name of a job must not be fetched on our behalf.
        return {"text": f"*{title}*\n{text}", "unfurl_links": False, "unfurl_media": False}


def slack_escaped(text: str) -> str:
    """Text that Slack shows literally: no links, no mentions."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _CALLS.sub("@\u200b", plain)


def _clean(text: str, most: int) -> str:
    """The text without control characters, limited in length; line breaks stay."""
    clean = _CONTROL.sub("", text)
    return clean if len(clean) <= most else f"{clean[:most]}…"
