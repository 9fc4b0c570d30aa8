"""AWS: who we are there, and what the role lacks, by name. Nothing is launched, terminated, received or sent.

Launching and terminating are asked with DryRun, which EC2 answers as it would the real request. Two hooks of the client
see to that, one after the other: the first sets the flag, the second refuses to send a request without it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass, replace
from email.utils import parsedate_to_datetime
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.aws import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.entrypoints.doctor.findings import Finding, failed, not_asked, of_error, ok, warning
from holdfast.entrypoints.doctor.granted import denied, denied_by
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import nonce
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.machines import LaunchOrder, MachineError, Market

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client

IDENTITY: Final = "AWS credentials"
INSTANCES: Final = "ec2:DescribeInstances"
SUBNETS: Final = "subnets"
_DRY: Final = "DryRunOperation"
_ADDRESSES_FEW: Final = 8
_SECONDS: Final = 8.0


@dataclass
class ServerTime:
    """What time another one has, and what time it was here when it said so."""

    who: str = ""
    theirs: Instant | None = None
    ours: Instant | None = None

    def heard(self, who: str, date: str, ours: Instant) -> None:
        try:
            told = parsedate_to_datetime(date)
        except (TypeError, ValueError):
            return
        self.who, self.theirs, self.ours = who, Instant(int(told.timestamp() * 1000)), ours


def identity(clock: Clock, time: ServerTime) -> Iterator[Finding]:
    """Needs no permission. Also when it is refused it tells the time, and a wrong clock is often why."""
    client = aws_client("sts", aws_config(read_seconds=_SECONDS))
    with closing(client):
        try:
            with aws_errors():
                answer = client.get_caller_identity()
        except AwsError as error:
            _note_time(time, getattr(error.__cause__, "response", {}), clock)
            yield _stranger(error)
            return
        _note_time(time, answer, clock)
        region = client.meta.region_name
    yield ok(IDENTITY, f"{answer['Arn']}, in {region}")


def _stranger(error: AwsError) -> Finding:
    if error.code in ("NoCredentialsError", "PartialCredentialsError"):
        return failed(IDENTITY, error.message, "set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run where a role is given")
    if error.status in (400, 401, 403):
        return failed(IDENTITY, str(error), "renew the credentials, and see to this machine's clock")
    return of_error(IDENTITY, explained(error, "AWS, who are we"))


def _note_time(time: ServerTime, answer: Mapping[str, Any], clock: Clock) -> None:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    time.heard("AWS", headers.get("date", ""), clock.now())


# EC2


def dry_client() -> "EC2Client":
    """A client that launches and terminates nothing."""
    from holdfast.adapters.ec2 import ec2_client

    client = ec2_client(read_seconds=_SECONDS)
    for call in ("RunInstances", "TerminateInstances"):
        client.meta.events.register(f"provide-client-params.ec2.{call}", _as_dry_run)  # type: ignore[arg-type]
    client.meta.events.register("before-call.ec2", _refuse_unless_dry)
    return client


def _as_dry_run(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    """What a hook of this event returns is sent instead, whatever the stubs say."""
    return {**params, "DryRun": True}


def _refuse_unless_dry(params: dict[str, Any], **_: Any) -> None:
    if params["body"].get("DryRun") != "true":
        raise NeedsOperator("a request to EC2 without DryRun was about to be sent; nothing was sent; report it")


def instances(settings: Settings) -> Iterator[Finding]:
    from holdfast.adapters.ec2 import Ec2Machines
    from holdfast.entrypoints.world import machine_tags

    with closing(Ec2Machines()) as machines:
        tags = machine_tags(settings)
        try:
            found = [machine for machine in machines.tagged(tags) if not machine.is_gone]
        except MachineError as error:
            yield _refused(INSTANCES, INSTANCES, error)
            return
    words = ", ".join(f"{name}={value}" for name, value in tags.items())
    yield ok(INSTANCES, f"{len(found)} machines with {words}")
    if not found:
        yield not_asked("ec2:TerminateInstances", "there is no machine of ours to ask about")
        return
    with closing(Ec2Machines(dry_client())) as dry:
        yield _dry_run("ec2:TerminateInstances", lambda: dry.terminate(found[0].id))


def subnets(settings: Settings) -> Iterator[Finding]:
    from holdfast.adapters.ec2 import Ec2Machines

    with closing(Ec2Machines()) as machines:
        try:
            found = machines.subnets(settings.subnets or ())
        except MachineError as error:
            yield _refused(SUBNETS, "ec2:DescribeSubnets", error)
            return
    zones = sorted({subnet.zone for subnet in found})
    yield ok(SUBNETS, f"{len(found)} in {', '.join(zones)}")
    for subnet in found:
        if subnet.free_addresses < _ADDRESSES_FEW:
            left = f"{subnet.id} in {subnet.zone} has {subnet.free_addresses} addresses left"
            yield warning(SUBNETS, left, "add a larger subnet to SUBNETS: nothing is launched where none is left")
    if len(zones) == 1:
        yield warning(SUBNETS, "all are in one zone", "name subnets of several zones: one may run out of capacity")


def launches(settings: Settings) -> Iterator[Finding]:
    """A dry run in each subnet, as a scale-up would do it: template, tags, roles and disks are judged, too."""
    from holdfast.adapters.ec2 import Ec2Machines
    from holdfast.entrypoints.world import machine_tags
    from holdfast.fleet.user_data import user_data

    markets = [Market.ON_DEMAND, *([Market.SPOT] if settings.use_spot else [])]
    found: dict[Finding, list[str]] = {}
    with closing(Ec2Machines(dry_client())) as dry:
        for subnet in settings.subnets or ():
            for market in markets:
                order = LaunchOrder(
                    token=f"holdfast-doctor-{nonce()}",
                    template=settings.launch_template or "",
                    instance_type=settings.instance_types[0],
                    market=market,
                    subnet_id=subnet,
                    zone="",
                    tags=machine_tags(settings),
                    user_data=user_data(settings),
                )
                finding = _dry_run("ec2:RunInstances", partial(dry.launch, order))
                found.setdefault(finding, []).append(f"{market} in {subnet}")
    for finding, places in found.items():
        yield replace(finding, check="launch template", seen=f"{finding.seen}: {', '.join(places)}")


def _dry_run(action: str, ask: Callable[[], object]) -> Finding:
    try:
        ask()
    except MachineError as error:
        return ok(action, "a dry run would have succeeded") if error.code == _DRY else _refused(action, action, error)
    # An EC2 that knows no DryRun is none, or a model of it.
    return failed(action, "EC2 did not say that it was a dry run", "look for a machine that is too many, and report it")


def _refused(name: str, action: str, error: MachineError) -> Finding:
    missing = denied(action, error.code, error.message)
    if missing:
        return failed(name, str(missing), missing.fix)
    return failed(name, f"{error.code}: {error.message}", _MENDING.get(error.code.partition(".")[0], _BY_CAUSE))


_BY_CAUSE: Final = "look the code up in EC2's documentation"
_MENDING: Final = {
    "InvalidLaunchTemplateId": "correct LAUNCH_TEMPLATE, or the region: template and number of its version",
    "InvalidSubnetID": "correct SUBNETS, or the region",
    "InvalidSubnetId": "correct SUBNETS, or the region",
    "InvalidAMIID": "the template names an image that is gone: make a version with another, and name it",
    "Unsupported": "INSTANCE_TYPES has a type that this zone does not offer; choose another",
    "VcpuLimitExceeded": "ask AWS for a higher limit, or use smaller instance types",
    "EndpointConnectionError": "is the network there, and AWS_DEFAULT_REGION right?",
}


# SSM, SQS, SNS, S3


def parameters(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Read as they are when they are used. Their values are shown nowhere."""
    from holdfast.entrypoints.world import ssm_parameters

    named = {name: getattr(settings, name.lower()) for name in _PARAMETERS}
    wanted = {name: value for name, value in named.items() if value}
    if settings.k3s_token_parameter:
        why = f"{settings.k3s_token_parameter} is read by the workers, with the role of their machines"
        yield not_asked("SSM K3S_TOKEN_PARAMETER", why)
    if not wanted:
        yield not_asked("SSM parameters", "no setting names one that Holdfast reads itself")
        return
    with closing(ssm_parameters(clock)) as there:
        for name, value in wanted.items():
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
        return _of_refusal(check, "ssm:GetParameter", error)
    if not text.strip():
        return failed(check, f"{name} is empty", "put the secret into the parameter")
    return ok(check, f"{name} can be read")


def _of_refusal(check: str, action: str, error: HoldfastError) -> Finding:
    missing = denied_by(action, error)
    return failed(check, str(missing), missing.fix) if missing else of_error(check, error)


def queue(settings: Settings) -> Iterator[Finding]:
    url = settings.events_queue_url
    if not url:
        if settings.events_secret:
            yield not_asked("events queue", "there is none: EC2's events come to /events/aws")
        else:
            fix = "set EVENTS_QUEUE_URL, or EVENTS_SECRET for /events/aws"
            yield warning("events queue", "nobody tells of spot interruptions; two minutes' notice is lost", fix)
        return
    from holdfast.adapters.sqs import SqsEvents, sqs_client

    with closing(SqsEvents(url, sqs_client(), wait_seconds=0)) as events:
        try:
            has_dead_letters = events.has_dead_letter_queue()
        except HoldfastError as error:
            yield _of_refusal("events queue", "sqs:GetQueueAttributes", error)
            return
    yield ok("events queue", "its attributes can be read")
    if not has_dead_letters:
        fix = "give the queue a RedrivePolicy; docs/cluster.md has the commands"
        yield warning("events queue", "it has no dead-letter queue: what cannot be handled comes back for days", fix)
    yield from _queue_permissions(url)


def _queue_permissions(url: str) -> Iterator[Finding]:
    client = aws_client("sqs", aws_config(read_seconds=_SECONDS))
    with closing(client):
        waiting = _answer(client.get_queue_attributes, QueueUrl=url, AttributeNames=["ApproximateNumberOfMessages"])
        number = int(waiting.get("Attributes", {}).get("ApproximateNumberOfMessages", 0))
        yield _allowed("sqs:DeleteMessage", client.delete_message, QueueUrl=url, ReceiptHandle="holdfast-doctor")
        if number:
            yield not_asked("sqs:ReceiveMessage", f"{number} messages wait: to receive one would count as a try")
        else:
            asked = {"QueueUrl": url, "MaxNumberOfMessages": 1, "VisibilityTimeout": 0, "WaitTimeSeconds": 0}
            yield _allowed("sqs:ReceiveMessage", client.receive_message, **asked)


def _answer(call: Callable[..., Any], **request: Any) -> Mapping[str, Any]:
    with aws_errors():
        found: Mapping[str, Any] = call(**request)
    return found


def _allowed(action: str, call: Callable[..., Any], **request: Any) -> Finding:
    """Whether it is allowed. Any other refusal, as of a handle that is none, comes after that was decided."""
    try:
        _answer(call, **request)
    except AwsError as error:
        missing = denied(action, error.code, error.message)
        if missing:
            return failed(action, str(missing), missing.fix)
        if error.may_pass:
            return of_error(action, explained(error, action))
    return ok(action, "is allowed")


def topic(settings: Settings) -> Iterator[Finding]:
    if settings.sns_topic_arn:
        yield not_asked("sns:Publish", "it cannot be tried without sending a notice to everybody")


def bucket(settings: Settings) -> Iterator[Finding]:
    from holdfast.adapters.s3 import s3_client

    if not settings.s3_bucket:
        return
    client = s3_client()
    with closing(client):
        yield _allowed("s3:ListBucket", client.list_objects_v2, Bucket=settings.s3_bucket, MaxKeys=1)
        yield _allowed(
            "s3:GetLifecycleConfiguration", client.get_bucket_lifecycle_configuration, Bucket=settings.s3_bucket
        )
    yield not_asked("s3:PutObject", "it cannot be tried without writing to the bucket")
