"""Delivers the demo organisation's webhooks, signed, and its runner reports, over HTTP to this process.

Messages are delivered at least once, in order. One that the endpoint rejects is logged and dropped; one that it cannot
accept now is retried.
"""

import logging
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.simulator.demo.organisation import OutboxMessage
from holdfast.simulator.demo.persistent_world import PersistentWorld
from holdfast.simulator.world.github_objects import Webhook

MESSAGES_A_TURN: Final = 100
_TIMEOUT_SECONDS: Final = 10.0
_RETRY_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.2

_log = logging.getLogger(__name__)


class DemoWebhooks:
    """Keeps one connection, and opens a new one when it breaks."""

    def __init__(self, world: PersistentWorld, url: str, secrets: WebhookSecrets, token: str) -> None:
        self._world = world
        self._address = urlsplit(url)
        self._secrets = secrets
        self._token = token
        self._connection: HTTPConnection | None = None

    def deliver(self) -> float:
        """Deliver the messages in the outbox; returns the seconds until the next call."""
        try:
            delivered = self._world.deliver_outbox(self._is_delivered, MESSAGES_A_TURN)
        except (OSError, HTTPException) as error:
            self.close()
            _log.debug("demo webhook not delivered, retrying: %s", error)
            return _RETRY_SECONDS
        return 0.0 if delivered == MESSAGES_A_TURN else _PAUSE_SECONDS

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_delivered(self, message: OutboxMessage) -> bool:
        path, headers = self._request(message)
        if self._connection is None:
            self._connection = HTTPConnection(
                self._address.hostname or "", self._address.port, timeout=_TIMEOUT_SECONDS
            )
        self._connection.request("POST", path, message.body, headers)
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            _log.warning("demo webhook to %s was answered %s: %s", path, answer.status, text[:200])
        return answer.status < 500

    def _request(self, message: OutboxMessage) -> tuple[str, dict[str, str]]:
        if isinstance(message, Webhook):
            return "/webhooks/github", message.headers(self._secrets.signature_of(message.body))
        headers = {"content-type": "application/json", "authorization": f"Bearer {self._token}"}
        return f"/api/jobs/{message.run.installation}/{message.job.id}/events", headers
