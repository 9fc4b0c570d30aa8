"""Notices to an SNS topic, through boto3."""

from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.aws import AwsError, aws_client, aws_config, aws_errors
from holdfast.kernel.errors import Retryable
from holdfast.kernel.text import cut
from holdfast.ports.notify import Notice

if TYPE_CHECKING:
    from types_boto3_sns.client import SNSClient

READ_SECONDS: Final = 5
SUBJECT_MOST: Final = 99
TEXT_MOST: Final = 8000  # far below SNS' 256 KB: somebody reads this on a telephone


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

    def tell(self, notice: Notice) -> None:
        try:
            with aws_errors():
                self._client.publish(TopicArn=self._topic_arn, Subject=_subject(notice), Message=_message(notice))
        except AwsError as error:
            raise Retryable(f"SNS topic {cut(self._topic_arn, 120)}: {error}; the notice was not sent") from error


def _subject(notice: Notice) -> str:
    """One line of ASCII, which is all that SNS takes; it becomes the subject of mails."""
    line = cut(("Urgent: " if notice.is_urgent else "") + notice.title, SUBJECT_MOST)
    return line.encode("ascii", "replace").decode().strip()[:SUBJECT_MOST] or "Holdfast"


def _message(notice: Notice) -> str:
    return f"{notice.title}\n\n{notice.text}\n\n{notice.kind}: {notice.key}"[:TEXT_MOST]
