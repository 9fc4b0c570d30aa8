"""AWS: the identity in use, our machines and subnets, and the permissions that are missing. Nothing is terminated.

Launching and terminating are tested with DryRun, which EC2 answers as it would the real request. Two client hooks
enforce that: the first sets the flag, the second refuses to send a request without it.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from email.utils import parsedate_to_datetime
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.adapters.aws_region import aws_region
from holdfast.entrypoints.doctor.findings import Finding, failed, failed_by_error, ok, skipped, warning
from holdfast.entrypoints.doctor.granted import denied
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.machines import MachineError

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client

REGION: Final = "AWS region"
IDENTITY: Final = "AWS credentials"
INSTANCES: Final = "ec2:DescribeInstances"
SUBNETS: Final = "subnets"
_DRY: Final = "DryRunOperation"
_ADDRESSES_FEW: Final = 8
SECONDS: Final = 8.0


@dataclass
class ServerTime:
    """A server's time, and our time when we received it."""

    who: str = ""
    theirs: Instant | None = None
    ours: Instant | None = None

    def record(self, who: str, date: str, ours: Instant) -> None:
        try:
            parsed = parsedate_to_datetime(date)
        except (TypeError, ValueError):
            return
        self.who, self.theirs, self.ours = who, Instant(int(parsed.timestamp() * 1000)), ours


def region() -> Iterator[Finding]:
    found = aws_region()
    if found is None:
        yield failed(REGION, "none is configured", "set AWS_REGION, for example AWS_REGION=eu-west-1")
        return
    yield ok(REGION, f"{found.name}, from {found.source}")
    if found.ignored:
        yield warning(
            REGION, f"{found.source} counts, and {found.ignored} is ignored", "set both to one region, or unset one"
        )


def identity(clock: Clock, time: ServerTime) -> Iterator[Finding]:
    """Needs no permission. A rejection carries the server's time too, and a wrong clock is a common cause."""
    client = aws_client("sts", aws_config(read_seconds=SECONDS))
    with closing(client):
        try:
            with aws_errors():
                answer = client.get_caller_identity()
        except AwsError as error:
            _record_time(time, getattr(error.__cause__, "response", {}), clock)
            yield _unidentified(error)
            return
        _record_time(time, answer, clock)
    yield ok(IDENTITY, answer["Arn"])


def _unidentified(error: AwsError) -> Finding:
    if error.code in ("NoCredentialsError", "PartialCredentialsError"):
        return failed(
            IDENTITY, error.message, "set AWS_PROFILE or AWS_ACCESS_KEY_ID, or run with an instance or task role"
        )
    if error.status in (400, 401, 403):
        return failed(IDENTITY, str(error), "renew the credentials, and check this machine's clock")
    return failed_by_error(IDENTITY, explained(error, "AWS sts:GetCallerIdentity"))


def _record_time(time: ServerTime, answer: Mapping[str, Any], clock: Clock) -> None:
    headers = answer.get("ResponseMetadata", {}).get("HTTPHeaders", {})
    time.record("AWS", headers.get("date", ""), clock.now())


# EC2


def dry_client() -> "EC2Client":
    """A client that launches, tags and terminates nothing."""
    from holdfast.adapters.aws.ec2 import ec2_client

    client = ec2_client(read_seconds=SECONDS)
    for call in ("RunInstances", "TerminateInstances", "CreateTags"):
        client.meta.events.register(f"provide-client-params.ec2.{call}", _as_dry_run)  # type: ignore[arg-type]
    client.meta.events.register("before-call.ec2", _refuse_unless_dry)
    return client


def _as_dry_run(params: dict[str, Any], **_: Any) -> dict[str, Any]:
    """The return value replaces the parameters, whatever the type stubs say."""
    return {**params, "DryRun": True}


def _refuse_unless_dry(params: dict[str, Any], **_: Any) -> None:
    if params["body"].get("DryRun") != "true":
        raise NeedsOperator("stopped a request to EC2 without DryRun; nothing was sent; please report this bug")


@dataclass
class WorkersFound:
    """How many machines of ours EC2 lists; None until they were listed."""

    number: int | None = None


def instances(settings: Settings, workers: WorkersFound | None = None) -> Iterator[Finding]:
    from holdfast.adapters.aws.ec2 import Ec2Machines
    from holdfast.entrypoints.wiring.world import machine_tags

    with closing(Ec2Machines()) as machines:
        tags = machine_tags(settings)
        try:
            found = [machine for machine in machines.tagged(tags) if not machine.is_gone]
        except MachineError as error:
            yield refused(INSTANCES, INSTANCES, error)
            return
    if workers is not None:
        workers.number = len(found)
    words = ", ".join(f"{name}={value}" for name, value in tags.items())
    yield ok(INSTANCES, f"{len(found)} instances tagged {words}")
    if not found:
        for call in ("ec2:TerminateInstances", "ec2:CreateTags"):
            yield skipped(call, "there is no instance of ours to test with")
        return
    with closing(Ec2Machines(dry_client())) as dry:
        yield dry_run("ec2:TerminateInstances", lambda: dry.terminate(found[0].id))
        yield dry_run("ec2:CreateTags", lambda: dry.mark_accepted(found[0].id, "doctor"))


def subnets(settings: Settings) -> Iterator[Finding]:
    from holdfast.adapters.aws.ec2 import Ec2Machines

    with closing(Ec2Machines()) as machines:
        try:
            found = machines.subnets(settings.subnets or ())
        except MachineError as error:
            yield refused(SUBNETS, "ec2:DescribeSubnets", error)
            return
    zones = sorted({subnet.zone for subnet in found})
    yield ok(SUBNETS, f"{len(found)} in {', '.join(zones)}")
    for subnet in found:
        if subnet.free_addresses < _ADDRESSES_FEW:
            left = f"{subnet.id} in {subnet.zone} has {subnet.free_addresses} free addresses"
            yield warning(SUBNETS, left, "add a larger subnet to SUBNETS: launches fail when none is left")
    if len(zones) == 1:
        yield warning(
            SUBNETS, "all subnets are in one zone", "add subnets in other zones: a single zone may run out of capacity"
        )


def dry_run(action: str, call: Callable[[], object]) -> Finding:
    try:
        call()
    except MachineError as error:
        return ok(action, "dry run succeeded") if error.code == _DRY else refused(action, action, error)
    # Only an imitation of EC2 ignores DryRun.
    return failed(action, "EC2 did not confirm the dry run", "look for an unexpected instance, and report this")


def refused(name: str, action: str, error: MachineError) -> Finding:
    missing = denied(action, error.code, error.message)
    if missing:
        return failed(name, str(missing), missing.fix)
    return failed(name, f"{error.code}: {error.message}", _FIXES.get(error.code.partition(".")[0], _OTHER_FIX))


_OTHER_FIX: Final = "look up the error code in the EC2 documentation"
_FIXES: Final = {
    "InvalidLaunchTemplateId": "correct LAUNCH_TEMPLATE (template id and version number) or the region",
    "InvalidSubnetID": "correct SUBNETS or the region",
    "InvalidSubnetId": "correct SUBNETS or the region",
    "InvalidAMIID": "the template's AMI no longer exists: create a version with a new AMI, and set LAUNCH_TEMPLATE",
    "Unsupported": "this zone does not offer a type in INSTANCE_TYPES; choose another",
    "VcpuLimitExceeded": "request a higher limit from AWS, or use smaller instance types",
    "EndpointConnectionError": "check the network and the region",
}
