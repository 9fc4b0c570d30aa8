"""Notifications to an SNS topic, through boto3."""

from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors
from holdfast.kernel.errors import Retryable
from holdfast.kernel.text import cut
from holdfast.ports.notify import Notification

if TYPE_CHECKING:
    from types_boto3_sns.client import SNSClient

READ_SECONDS: Final = 5
SUBJECT_MOST: Final = 99
TEXT_MOST: Final = 8000  # far below SNS' limit of 256 KB: people read this on a phone


def sns_client(**options: Any) -> "SNSClient":
    client: SNSClient = aws_client("sns", aws_config(read_seconds=READ_SECONDS), **options)
    return client


class SnsNotifier:
    """Implements `holdfast.ports.notify.Notifier`."""

    def __init__(self, topic_arn: str, client: "SNSClient | None" = None) -> None:
        self._topic_arn = topic_arn
        self._client = client or sns_client()

    def close(self) -> None:
        self._client.close()

    def notify(self, notification: Notification) -> None:
        try:
            with aws_errors():
                self._client.publish(
                    TopicArn=self._topic_arn, Subject=_subject(notification), Message=_message(notification)
                )
        except AwsError as error:
            raise Retryable(f"SNS topic {cut(self._topic_arn, 120)}: {error}; the notification was not sent") from error


def _subject(notification: Notification) -> str:
    """One line of ASCII, as SNS requires; the subject of an email."""
    line = cut(("Urgent: " if notification.is_urgent else "") + notification.title, SUBJECT_MOST)
    return line.encode("ascii", "replace").decode().strip()[:SUBJECT_MOST] or "Holdfast"


def _message(notification: Notification) -> str:
    return f"{notification.title}\n\n{notification.text}\n\n{notification.kind}: {notification.key}"[:TEXT_MOST]
