"""What the log says about webhooks that are not stored."""

import pytest

from holdfast.entrypoints.webhook_receiver import take_webhooks
from holdfast.jobs.intake.webhook import Delivery, Receipt, ReceiptResult, WebhookSecrets
from holdfast.kernel.errors import StoreUnavailable

SECRETS = WebhookSecrets.from_text("hunter2-hunter2")


class Receiver:
    """Stores webhooks unless its disk is full."""

    is_full = False

    def receive_all(self, deliveries: list[Delivery]) -> list[Receipt | Exception]:
        return [
            StoreUnavailable("the disk is full")
            if self.is_full
            else Receipt(ReceiptResult.STORED, delivery.id, delivery.event)
            for delivery in deliveries
        ]


def test_an_outage_is_logged_once_and_so_is_its_end(caplog: pytest.LogCaptureFixture) -> None:
    """A line for each of hundreds of webhooks would fill a disk that is nearly full."""
    caplog.set_level("INFO", logger="holdfast.entrypoints.webhook_receiver")
    receiver, body = Receiver(), b"{}"
    headers = {"x-hub-signature-256": SECRETS.signature_of(body), "content-type": "application/json"}
    request = ({**headers, "x-github-event": "ping", "x-github-delivery": "1"}, body)
    for is_full in (False, True, False):
        receiver.is_full = is_full
        take_webhooks([request] * 200, SECRETS, receiver)  # type: ignore[arg-type]
    messages = [record.getMessage() for record in caplog.records]
    assert messages == ["webhook not stored: the disk is full", "webhooks are stored again, after 200 failures"]
