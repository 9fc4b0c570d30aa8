"""Notices to webhooks: Slack's and those that read the same, or a plain JSON object.

The address of a webhook is its password. It is in no message and no log: only the host is.
"""

import re
from pathlib import Path
from typing import Any, Final

import msgspec

from holdfast.adapters.http_calls import HttpFailed, HttpLimits, HttpPlace
from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.notify import Notice

LIMITS: Final = HttpLimits(connect_seconds=2.0, whole_seconds=5.0, body_bytes=64 * 1024)
TITLE_MOST: Final = 200
TEXT_MOST: Final = 3000

# Words after an @ that call everybody, in the chats that read Slack's form; Slack's own are in angle brackets.
_CALLS: Final = re.compile(r"@(?=(?:all|channel|everyone|here)\b)", re.IGNORECASE)
_CONTROL: Final = re.compile(r"[\x00-\x09\x0b-\x1f\x7f\ud800-\udfff\u202a-\u202e\u2066-\u2069]")


class WebhookNotifier:
    """Implements `holdfast.ports.notify.Notifier`: the notice as a JSON object."""

    def __init__(
        self,
        address: str,
        clock: Clock,
        *,
        setting: str,
        ca_file: Path | None = None,
        limits: HttpLimits = LIMITS,
    ) -> None:
        self._place = HttpPlace(address, clock, setting=setting, ca_file=ca_file, limits=limits, https_only=True)

    def tell(self, notice: Notice) -> None:
        try:
            answer = self._place.post(msgspec.json.encode(self._body(notice)), {"Content-Type": "application/json"})
        except HttpFailed as error:
            raise Retryable(f"webhook at {error}; the notice was not sent") from error
        # A redirect is a failure, too: to follow it would give the notice, and perhaps the secret, to another host.
        if not 200 <= answer.status < 300:
            raise Retryable(f"webhook at {self._place}: HTTP status {answer.status}; the notice was not taken")

    def _body(self, notice: Notice) -> dict[str, Any]:
        return {
            "source": "holdfast",
            "kind": _clean(notice.kind, TITLE_MOST),
            "key": _clean(notice.key, TITLE_MOST),
            "title": _clean(notice.title, TITLE_MOST),
            "text": _clean(notice.text, TEXT_MOST),
            "is_urgent": notice.is_urgent,
        }


class SlackNotifier(WebhookNotifier):
    """The notice as a message, in Slack's form."""

    def _body(self, notice: Notice) -> dict[str, Any]:
        title = ("Urgent: " if notice.is_urgent else "") + slack_escaped(_clean(notice.title, TITLE_MOST))
        text = slack_escaped(_clean(notice.text, TEXT_MOST))
        # Not unfurled: a link in the name of somebody's job must not be fetched on our behalf.
        return {"text": f"*{title}*\n{text}", "unfurl_links": False, "unfurl_media": False}


def slack_escaped(text: str) -> str:
    """Text that Slack shows as it is: no links, no mentions, nobody called."""
    plain = text.replace("&", "&amp;").replace("<", "&lt;").replace(">", "&gt;")
    return _CALLS.sub("@\u200b", plain)


def _clean(text: str, most: int) -> str:
    """The text without what would disturb the one who reads it; line breaks stay."""
    clean = _CONTROL.sub("", text)
    return clean if len(clean) <= most else f"{clean[:most]}…"
