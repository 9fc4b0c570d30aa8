"""EventBridge's events from an SQS queue."""

import json
import logging
from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.adapters.aws.sqs import WAIT_SECONDS, Event, SqsEvents, sqs_client
from holdfast.kernel.errors import NeedsOperator, Retryable

WARNING = {
    "id": "7bf73129",
    "detail-type": "EC2 Spot Instance Interruption Warning",
    "source": "aws.ec2",
    "detail": {"instance-id": "i-1", "instance-action": "terminate"},
}


@pytest.fixture
def queue(raw: Any) -> Iterator[str]:
    """A queue that redelivers an unhandled message at once, and gives up after three attempts."""
    sqs = raw("sqs")
    dead = sqs.create_queue(QueueName="dead")["QueueUrl"]
    arn = sqs.get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "3"})
    attributes = {"VisibilityTimeout": "0", "RedrivePolicy": redrive}
    url = sqs.create_queue(QueueName="events", Attributes=attributes)["QueueUrl"]
    yield url
    sqs.delete_queue(QueueUrl=url)
    sqs.delete_queue(QueueUrl=dead)


@pytest.fixture
def events(aws: dict[str, Any], queue: str) -> Iterator[SqsEvents]:
    events = SqsEvents(queue, sqs_client(**aws), wait_seconds=0)
    yield events
    events.close()


def send(raw: Any, queue: str, body: str) -> None:
    raw("sqs").send_message(QueueUrl=queue, MessageBody=body)


def handle_all(events: SqsEvents) -> list[Event]:
    seen: list[Event] = []
    while events.handle_next(seen.append):
        pass
    return seen


def test_an_event_is_handled_and_then_deleted(events: SqsEvents, raw: Any, queue: str) -> None:
    send(raw, queue, json.dumps(WARNING))
    assert handle_all(events) == [WARNING]
    assert handle_all(events) == []


def test_a_poll_ends_before_a_supervisor_loses_patience(aws: dict[str, Any], queue: str) -> None:
    """A process that stops waits for its last poll; Docker kills it after 10 s."""
    client, asked = sqs_client(**aws), []

    def at_once(params: dict[str, Any], **_: Any) -> None:
        asked.append(params["WaitTimeSeconds"])
        params["WaitTimeSeconds"] = 0

    client.meta.events.register("before-parameter-build.sqs.ReceiveMessage", at_once)
    events = SqsEvents(queue, client)
    events.handle_next(lambda _: None)
    events.close()
    assert 0 < asked[0] <= 5


def test_an_empty_queue_yields_no_event(events: SqsEvents) -> None:
    assert events.handle_next(lambda _: None) == 0


@pytest.mark.parametrize("error", [Retryable("the store is away"), ZeroDivisionError()], ids=["expected", "mistake"])
def test_an_unhandled_event_is_delivered_again(
    events: SqsEvents, raw: Any, queue: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    def fail(_: Event) -> None:
        raise error

    send(raw, queue, json.dumps(WARNING))
    assert events.handle_next(fail) == 0
    assert "failed (attempt 1), left in the queue" in caplog.text
    assert handle_all(events) == [WARNING]


@pytest.mark.parametrize("body", ["not json", "[]", '"text"', "{", '{"a":' * 5000], ids=lambda body: body[:10])
def test_a_malformed_message_blocks_no_other(
    events: SqsEvents, raw: Any, queue: str, body: str, caplog: pytest.LogCaptureFixture
) -> None:
    """It is logged each time, and goes to the dead-letter queue after the queue's maximum receives."""
    send(raw, queue, body)
    send(raw, queue, json.dumps(WARNING))
    seen: list[Event] = []
    with caplog.at_level(logging.WARNING):
        for _ in range(5):
            events.handle_next(seen.append)
    assert seen == [WARNING]
    assert caplog.text.count("left in the queue") == 3
    assert "Traceback" not in caplog.text  # that is for bugs of ours


def test_whether_a_queue_has_a_dead_letter_queue_is_known(events: SqsEvents, raw: Any, aws: dict[str, Any]) -> None:
    assert events.has_dead_letter_queue()
    url = raw("sqs").create_queue(QueueName="for-ever")["QueueUrl"]
    for_ever = SqsEvents(url, sqs_client(**aws))
    assert not for_ever.has_dead_letter_queue()
    for_ever.close()


def test_a_queue_that_does_not_exist_needs_an_operator(aws: dict[str, Any], queue: str) -> None:
    nowhere = SqsEvents(queue.replace("events", "nowhere"), sqs_client(**aws), wait_seconds=0)
    with pytest.raises(NeedsOperator, match="no such queue in this region and account"):
        nowhere.handle_next(lambda _: None)
    nowhere.close()


def test_the_read_timeout_is_longer_than_a_long_poll(aws: dict[str, Any]) -> None:
    client = sqs_client(**aws)
    assert client.meta.config.read_timeout > WAIT_SECONDS  # type: ignore[attr-defined]
    client.close()
