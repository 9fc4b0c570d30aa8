"""EventBridge events from an SQS queue, for the daemon.

A message is deleted after it was handled, so an event is handled at least once: handlers must be idempotent. A message
that cannot be handled stays, returns after the queue's visibility timeout, and moves to the dead-letter queue as the
redrive policy says. A queue without such a policy redelivers it until it expires.
"""

import logging
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, Final

import msgspec

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.kernel import typed_json
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.text import cut, one_line

if TYPE_CHECKING:
    from types_boto3_sqs.client import SQSClient
    from types_boto3_sqs.type_defs import MessageTypeDef

Event = dict[str, Any]

MESSAGES_MOST: Final = 10  # SQS' maximum per call
# SQS allows 20, and Docker kills 10 s after SIGTERM. A process that is asked to stop waits for its last poll: a message
# that SQS sends into a closed connection is invisible until the visibility timeout, and a spot notice has two minutes.
# Four times as many requests cost a few cents a month.
WAIT_SECONDS: Final = 5
_NO_QUEUE: Final = ("NonExistentQueue", "QueueDoesNotExist")

log = logging.getLogger(__name__)


def sqs_client(**options: Any) -> "SQSClient":
    # Longer than the longest poll: an empty response must not look like a timeout.
    client: SQSClient = aws_client("sqs", aws_config(read_seconds=WAIT_SECONDS + 10), **options)
    return client


class SqsEvents:
    """One queue of events."""

    def __init__(self, queue_url: str, client: "SQSClient | None" = None, *, wait_seconds: int = WAIT_SECONDS) -> None:
        self._queue_url = queue_url
        self._client = client or sqs_client()
        self._wait_seconds = wait_seconds

    def __str__(self) -> str:
        return f"SQS queue {cut(self._queue_url, 200)}"

    def close(self) -> None:
        self._client.close()

    def handle_next(self, handle: Callable[[Event], object]) -> int:
        """Wait for events, handle each, and return how many were handled. Raises only if the queue cannot be read."""
        return sum(self._handled(message, handle) for message in self._received())

    def has_dead_letter_queue(self) -> bool:
        """Whether messages that cannot be handled are moved away, instead of returning until they expire."""
        try:
            with aws_errors():
                answer = self._client.get_queue_attributes(QueueUrl=self._queue_url, AttributeNames=["RedrivePolicy"])
        except AwsError as error:
            raise self._explained(error) from error
        return "RedrivePolicy" in answer.get("Attributes", {})

    def _received(self) -> "list[MessageTypeDef]":
        try:
            with aws_errors():
                answer = self._client.receive_message(
                    QueueUrl=self._queue_url,
                    MaxNumberOfMessages=MESSAGES_MOST,
                    WaitTimeSeconds=self._wait_seconds,
                    MessageSystemAttributeNames=["ApproximateReceiveCount"],
                )
        except AwsError as error:
            raise self._explained(error) from error
        return answer.get("Messages", [])

    def _handled(self, message: "MessageTypeDef", handle: Callable[[Event], object]) -> bool:
        name = message.get("MessageId", "")
        tries = message.get("Attributes", {}).get("ApproximateReceiveCount", "?")
        try:
            handle(typed_json.decoded(message.get("Body", ""), Event))
        except (HoldfastError, msgspec.MsgspecError, UnicodeError, RecursionError) as error:
            log.warning(
                "handling event %s failed (attempt %s), left in the queue: %s", name, tries, one_line(str(error))
            )
            return False
        except Exception:
            # A bug. It must not block the next message.
            log.exception("handling event %s failed (attempt %s), left in the queue", name, tries)
            return False
        self._delete(message)
        return True

    def _delete(self, message: "MessageTypeDef") -> None:
        try:
            with aws_errors():
                self._client.delete_message(QueueUrl=self._queue_url, ReceiptHandle=message.get("ReceiptHandle", ""))
        except AwsError as error:
            log.warning(
                "event %s was handled but not deleted; it will be redelivered: %s", message.get("MessageId"), error
            )

    def _explained(self, error: AwsError) -> Exception:
        if error.code.endswith(_NO_QUEUE):
            return NeedsOperator(f"{self}: no such queue in this region and account; create it, or use another")
        return explained(error, str(self))
