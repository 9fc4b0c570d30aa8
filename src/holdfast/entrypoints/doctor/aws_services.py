"""SSM parameters, events queue, notifications and migration bucket: may we use them? Nothing is sent or received."""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from typing import Any, Final

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.entrypoints.doctor.aws import SECONDS
from holdfast.entrypoints.doctor.findings import Finding, failed, failed_by_error, ok, skipped, warning
from holdfast.entrypoints.doctor.granted import denied, denied_by
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock


def parameters(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Reads each parameter the way Holdfast does. Values are never shown."""
    from holdfast.entrypoints.wiring.world import ssm_parameters

    configured = {name: getattr(settings, name.lower()) for name in _PARAMETERS}
    named = {name: value for name, value in configured.items() if value}
    if settings.k3s_token_parameter:
        why = f"{settings.k3s_token_parameter} is read by the workers, with their own instance role"
        yield skipped("SSM K3S_TOKEN_PARAMETER", why)
    if not named:
        yield skipped("SSM parameters", "no setting names a parameter that Holdfast reads itself")
        return
    with closing(ssm_parameters(clock)) as there:
        for name, value in named.items():
            yield _readable(f"SSM {name}", value, there.secret)


_PARAMETERS: Final = (
    "KUBE_TOKEN_PARAMETER",
    "PROMETHEUS_TOKEN_PARAMETER",
    "GITHUB_APP_KEY_PARAMETER",
    "GITHUB_TOKEN_PARAMETER",
)


def _readable(check: str, name: str, secret: Callable[[str], str]) -> Finding:
    try:
        text = secret(name)
    except HoldfastError as error:
        return _failed_call(check, "ssm:GetParameter", error)
    if not text.strip():
        return failed(check, f"{name} is empty", "store the secret in the parameter")
    return ok(check, f"{name} can be read")


def _failed_call(check: str, action: str, error: HoldfastError) -> Finding:
    missing = denied_by(action, error)
    return failed(check, str(missing), missing.fix) if missing else failed_by_error(check, error)


def queue(settings: Settings) -> Iterator[Finding]:
    url = settings.events_queue_url
    if not url:
        if settings.events_secret:
            yield skipped("events queue", "none configured: EC2 events arrive at /events/aws")
        else:
            fix = "set EVENTS_QUEUE_URL, or EVENTS_SECRET for /events/aws"
            yield warning("events queue", "spot interruption notices are not received", fix)
        return
    from holdfast.adapters.aws.sqs import SqsEvents, sqs_client

    with closing(SqsEvents(url, sqs_client(), wait_seconds=0)) as events:
        try:
            has_dead_letters = events.has_dead_letter_queue()
        except HoldfastError as error:
            yield _failed_call("events queue", "sqs:GetQueueAttributes", error)
            return
    yield ok("events queue", "readable")
    if not has_dead_letters:
        fix = "add a RedrivePolicy to the queue; docs/cluster.md has the commands"
        yield warning("events queue", "no dead-letter queue: a message that fails is redelivered for days", fix)
    yield from _queue_permissions(url)


def _queue_permissions(url: str) -> Iterator[Finding]:
    client = aws_client("sqs", aws_config(read_seconds=SECONDS))
    with closing(client):
        waiting = _answer(client.get_queue_attributes, QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        number = int(waiting.get("Attributes", {}).get("ApproximateNumberOfMessages", 0))
        yield _allowed("sqs:DeleteMessage", client.delete_message, QueueUrl=url, ReceiptHandle="holdfast-doctor")
        if number:
            yield skipped(
                "sqs:ReceiveMessage",
                f"{number} messages are waiting; receiving one would count as an attempt",
            )
        else:
            request = {"QueueUrl": url, "MaxNumberOfMessages": 1, "VisibilityTimeout": 0, "WaitTimeSeconds": 0}
            yield _allowed("sqs:ReceiveMessage", client.receive_message, **request)


def _answer(call: Callable[..., Any], **request: Any) -> Mapping[str, Any]:
    with aws_errors():
        found: Mapping[str, Any] = call(**request)
    return found


def _allowed(action: str, call: Callable[..., Any], **request: Any) -> Finding:
    """Whether the call is allowed. AWS checks permissions before arguments, so any other error means that it is."""
    try:
        _answer(call, **request)
    except AwsError as error:
        missing = denied(action, error.code, error.message)
        if missing:
            return failed(action, str(missing), missing.fix)
        if error.is_transient:
            return failed_by_error(action, explained(error, action))
    return ok(action, "allowed")


def topic(settings: Settings) -> Iterator[Finding]:
    if settings.sns_topic_arn:
        yield skipped("sns:Publish", "cannot be tested without sending a notification")


def bucket(settings: Settings) -> Iterator[Finding]:
    from holdfast.adapters.aws.s3 import s3_client

    if not settings.s3_bucket:
        return
    client = s3_client()
    with closing(client):
        yield _allowed("s3:ListBucket", client.list_objects_v2, Bucket=settings.s3_bucket, MaxKeys=1)
        yield _allowed(
            "s3:GetLifecycleConfiguration", client.get_bucket_lifecycle_configuration, Bucket=settings.s3_bucket
        )
    yield skipped("s3:PutObject", "cannot be tested without writing to the bucket")
