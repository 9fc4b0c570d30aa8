"""The post of the simulated organisation: its webhooks, signed, and its runners' events, over HTTP to this process.

Each parcel is sent until it is answered: at least once, in their order. What the endpoint refuses for good is told in
the log and left; what it cannot take now is sent again.
"""

import logging
from http.client import HTTPConnection, HTTPException
from typing import Final
from urllib.parse import urlsplit

from holdfast.jobs.webhook import WebhookSecrets
from holdfast.simulator.living import LivingWorld
from holdfast.simulator.organisation_objects import Parcel, Webhook
from holdfast.simulator.workplace import INSTALLATION

PARCELS_A_TURN: Final = 100
_SECONDS: Final = 10.0
_AGAIN_SECONDS: Final = 0.5
_PAUSE_SECONDS: Final = 0.2

_log = logging.getLogger(__name__)


class Post:
    """Keeps one connection; made anew when it breaks."""

    def __init__(self, living: LivingWorld, url: str, secrets: WebhookSecrets, token: str) -> None:
        self._living = living
        self._address = urlsplit(url)
        self._secrets = secrets
        self._token = token
        self._connection: HTTPConnection | None = None

    def once(self) -> float:
        """Deliver what is there; in how many seconds to look again."""
        try:
            sent = self._living.hand_over_parcels(self._is_delivered, PARCELS_A_TURN)
        except (OSError, HTTPException) as error:
            self.close()
            _log.debug("the organisation's post was not taken: %s", error)
            return _AGAIN_SECONDS
        return 0.0 if sent == PARCELS_A_TURN else _PAUSE_SECONDS

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None

    def _is_delivered(self, parcel: Parcel) -> bool:
        path, headers = self._addressed(parcel)
        if self._connection is None:
            self._connection = HTTPConnection(self._address.hostname or "", self._address.port, timeout=_SECONDS)
        self._connection.request("POST", path, parcel.body, {"Content-Type": "application/json", **headers})
        answer = self._connection.getresponse()
        text = answer.read()
        if answer.status != 200:
            _log.warning("the organisation's %s was answered %s: %s", path, answer.status, text[:200])
        return answer.status < 500

    def _addressed(self, parcel: Parcel) -> tuple[str, dict[str, str]]:
        if not isinstance(parcel, Webhook):
            return f"/api/jobs/{INSTALLATION}/{parcel.job_id}/events", {"Authorization": f"Bearer {self._token}"}
        return "/webhooks/github", {
            "X-GitHub-Event": parcel.event,
            "X-GitHub-Delivery": parcel.guid,
            "X-GitHub-Hook-Installation-Target-ID": "1",
            "X-Hub-Signature-256": self._secrets.signature_of(parcel.body),
        }
