"""Notifications to an SNS topic, read back from a subscribed queue."""

import json
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.adapters.aws.sns import SnsNotifier, sns_client
from holdfast.kernel.errors import Retryable
from holdfast.ports.notify import Notification

NOTICE = Notification("launch-failed", "cluster/main", "No spot capacity", "t3.medium in eu-west-1a")


@pytest.fixture
def topic(raw: Any) -> Iterator[str]:
    arn = raw("sns").create_topic(Name="operators")["TopicArn"]
    yield arn
    raw("sns").delete_topic(TopicArn=arn)


@pytest.fixture
def inbox(raw: Any, topic: str) -> Iterator[str]:
    url = raw("sqs").create_queue(QueueName="inbox")["QueueUrl"]
    arn = raw("sqs").get_queue_attributes(QueueUrl=url, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    raw("sns").subscribe(TopicArn=topic, Protocol="sqs", Endpoint=arn)
    yield url
    raw("sqs").delete_queue(QueueUrl=url)


@pytest.fixture
def notifier(aws: dict[str, Any], topic: str) -> Iterator[SnsNotifier]:
    notifier = SnsNotifier(topic, sns_client(**aws))
    yield notifier
    notifier.close()


def received(raw: Any, inbox: str) -> Any:
    return json.loads(raw("sqs").receive_message(QueueUrl=inbox)["Messages"][0]["Body"])


def test_a_notification_reaches_the_topic(notifier: SnsNotifier, raw: Any, inbox: str) -> None:
    notifier.notify(NOTICE)
    message = received(raw, inbox)
    assert message["Subject"] == "No spot capacity"
    assert message["Message"] == "No spot capacity\n\nt3.medium in eu-west-1a\n\nlaunch-failed: cluster/main"


@pytest.mark.parametrize(
    ("title", "subject"),
    [
        ("Grüße\nan alle", "Urgent: Gr??e\\nan alle"),
        ("x" * 200, "Urgent: " + "x" * 91),
        ("", "Urgent:"),
    ],
)
def test_a_subject_is_one_short_line_of_ascii(
    notifier: SnsNotifier, raw: Any, inbox: str, title: str, subject: str
) -> None:
    notifier.notify(Notification("k", "k", title, "text", is_urgent=True))
    assert received(raw, inbox)["Subject"] == subject


def test_a_missing_topic_is_retryable(aws: dict[str, Any], topic: str) -> None:
    """Notifications are best effort: nothing waits for them."""
    nowhere = SnsNotifier(topic.replace("operators", "nobody"), sns_client(**aws))
    with pytest.raises(Retryable, match=r"NotFound.*the notification was not sent"):
        nowhere.notify(NOTICE)
    nowhere.close()
