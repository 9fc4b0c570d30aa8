"""EC2 instances, through boto3."""

import logging
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors
from holdfast.adapters.server_date import ServerDate
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.machines import (
    ACCEPTED_TAG,
    USER_DATA_BYTES_MOST,
    LaunchOrder,
    Machine,
    MachineError,
    MachineState,
    Market,
    StateReason,
    Subnet,
)

if TYPE_CHECKING:
    from types_boto3_ec2.client import EC2Client
    from types_boto3_ec2.type_defs import FilterTypeDef, InstanceTypeDef, RunInstancesRequestTypeDef

TOKEN_MOST: Final = 64
TAGS_MOST: Final = 50
TAG_KEY_MOST: Final = 128
TAG_VALUE_MOST: Final = 256
PAGE_MOST: Final = 1000
IDS_MOST: Final = 500

# RunInstances takes seconds, and after a timeout it must be repeated: better wait a little longer.
READ_SECONDS: Final = 15

_TEMPLATE: Final = re.compile(r"(lt-[0-9A-Za-z]+):([1-9][0-9]*)")
_UNKNOWN_IDS: Final = ("InvalidInstanceID.NotFound", "InvalidInstanceID.Malformed")
_REASON_CODE: Final = re.compile(r"(Client|Server)\.[A-Za-z0-9.]{1,80}", re.ASCII)
_REASON_MOST: Final = 200
_MARKETS: Final = {None: Market.ON_DEMAND, "spot": Market.SPOT}

log = logging.getLogger(__name__)


class UnreadableMachine(Exception):
    """EC2's description of a machine cannot be read; the message says why."""


def ec2_client(*, read_seconds: float = READ_SECONDS, **options: Any) -> "EC2Client":
    """A client that sends each request once, with boto3's own configuration."""
    client: EC2Client = aws_client("ec2", aws_config(read_seconds=read_seconds), **options)
    return client


class Ec2Machines:
    """Implements `holdfast.ports.machines.Machines`.

    A machine that cannot be read is left out of a list and counted in `unreadable`: one odd machine must not hide the
    others, and absence from a list proves nothing anyway.
    """

    def __init__(self, client: "EC2Client | None" = None) -> None:
        self._client = client or ec2_client()
        self._dated = ServerDate()
        self._client.meta.events.register("after-call.ec2", self._dated.record)
        self.unreadable = 0

    def close(self) -> None:
        self._client.close()

    def server_time(self) -> Instant | None:
        return self._dated.now()

    def launch(self, order: LaunchOrder) -> Machine:
        request = _launch_request(order)
        with _machine_errors():
            answer = self._client.run_instances(**request)
        try:
            return machine_from(answer["Instances"][0])
        except (UnreadableMachine, LookupError) as error:
            # It was launched, but as what? A retry with the same token returns it, and lists show it by its tags.
            raise MachineError("UnreadableAnswer", f"RunInstances: {error}") from error

    def terminate(self, machine: InstanceId) -> None:
        # One id per call: EC2 refuses a whole batch for one bad id.
        with _machine_errors():
            self._client.terminate_instances(InstanceIds=[machine])

    def mark_accepted(self, machine: InstanceId, action: str) -> None:
        _check_tags({ACCEPTED_TAG: action})
        with _machine_errors():
            self._client.create_tags(Resources=[machine], Tags=[{"Key": ACCEPTED_TAG, "Value": action}])

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        if not tags:
            raise BadRequest("without a tag this would list every instance of the account; name at least one tag")
        filters: list[FilterTypeDef] = [
            {"Name": f"tag:{key}", "Values": [_literal(value)]} for key, value in tags.items()
        ]
        machines = self._described(Filters=filters, PaginationConfig={"PageSize": PAGE_MOST})
        return [machine for machine in machines if tags.items() <= machine.tags.items()]

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        wanted = list(dict.fromkeys(machines))
        parts = (wanted[start : start + IDS_MOST] for start in range(0, len(wanted), IDS_MOST))
        return [machine for part in parts for machine in self._known_of(part)]

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]:
        if not subnets:
            return []  # EC2 would return all of them
        with _machine_errors():
            pages = self._client.get_paginator("describe_subnets").paginate(SubnetIds=list(dict.fromkeys(subnets)))
            shown = [subnet for page in pages for subnet in page.get("Subnets", [])]
        return [Subnet(each["SubnetId"], each["AvailabilityZone"], each["AvailableIpAddressCount"]) for each in shown]

    def template_content(self, template: str) -> Mapping[str, Any]:
        """What a launch template and its version say, in EC2's own names. Not part of the port: only doctor looks."""
        name, version = _template(template)
        with _machine_errors():
            found = self._client.describe_launch_template_versions(LaunchTemplateId=name, Versions=[version])
        versions = found.get("LaunchTemplateVersions", [])
        if not versions:
            raise MachineError("InvalidLaunchTemplateId.VersionNotFound", f"{template} does not exist")
        return versions[0].get("LaunchTemplateData", {})

    def _known_of(self, wanted: list[InstanceId]) -> list[Machine]:
        """EC2 refuses the whole call for one unknown id, and names it: leave it out, and ask for the rest."""
        while wanted:
            try:
                return self._described(InstanceIds=wanted)
            except MachineError as error:
                if error.code not in _UNKNOWN_IDS:
                    raise
                named = set(re.findall(r"[\w.-]+", error.message))
                rest = [machine for machine in wanted if machine not in named]
                if len(rest) == len(wanted):
                    return self._known_one_by_one(wanted) if len(wanted) > 1 else []
                wanted = rest
        return []  # never call it without ids: EC2 would return every instance of the account

    def _known_one_by_one(self, wanted: Iterable[InstanceId]) -> list[Machine]:
        return [machine for one in wanted for machine in self._known_of([one])]

    def _described(self, **request: Any) -> list[Machine]:
        with _machine_errors():
            pages = self._client.get_paginator("describe_instances").paginate(**request)
            groups = [group for page in pages for group in page.get("Reservations", [])]
        return list(self._readable(instance for group in groups for instance in group.get("Instances", [])))

    def _readable(self, shown: "Iterable[InstanceTypeDef]") -> Iterator[Machine]:
        for instance in shown:
            try:
                yield machine_from(instance)
            except UnreadableMachine as error:
                self.unreadable += 1
                log.warning("skipped an instance in EC2's response: %s", error)


def machine_from(instance: "InstanceTypeDef") -> Machine:
    """The machine that EC2 describes. A terminated one has no subnet and no address."""
    try:
        return Machine(
            id=InstanceId(instance["InstanceId"]),
            state=MachineState(instance["State"]["Name"]),
            zone=instance["Placement"]["AvailabilityZone"],
            subnet_id=instance.get("SubnetId", ""),
            instance_type=instance["InstanceType"],
            market=_MARKETS[instance.get("InstanceLifecycle")],
            private_ip=instance.get("PrivateIpAddress"),
            launched=Instant(int(instance["LaunchTime"].timestamp() * 1000)),
            tags={tag["Key"]: tag.get("Value", "") for tag in instance.get("Tags", [])},
            state_reason=_state_reason(instance),
        )
    except (KeyError, ValueError) as error:
        name = cut(str(instance.get("InstanceId", "an instance without an id")))
        raise UnreadableMachine(f"{name}: unexpected or missing {cut(str(error))}") from error


def _state_reason(instance: "InstanceTypeDef") -> StateReason | None:
    """The reason for the latest change of state. A machine that starts has the code `pending`, which says nothing."""
    given = instance.get("StateReason", {})
    code = str(given.get("Code", ""))
    if not _REASON_CODE.fullmatch(code):
        return None
    message = str(given.get("Message", "")).removeprefix(f"{code}: ")  # EC2 often repeats the code
    return StateReason(code, cut(message, _REASON_MOST))


@contextmanager
def _machine_errors() -> Iterator[None]:
    """Translates boto3's errors into MachineError."""
    try:
        with aws_errors():
            yield
    except AwsError as error:
        raise MachineError(error.code, error.message) from error


def _literal(value: str) -> str:
    """A filter's value, escaped: EC2 treats `*` and `?` as wildcards."""
    return re.sub(r"([\\*?])", r"\\\1", value)


# Refuse here what EC2 would refuse, with the code that EC2 would use: the table of codes says what follows.


def _launch_request(order: LaunchOrder) -> "RunInstancesRequestTypeDef":
    template, version = _template(order.template)
    _check_token(order.token)
    _check_tags(order.tags)
    _check_user_data(order.user_data)
    tags = [{"Key": key, "Value": value} for key, value in order.tags.items()]
    request: dict[str, Any] = {
        "MinCount": 1,
        "MaxCount": 1,
        "ClientToken": order.token,
        "LaunchTemplate": {"LaunchTemplateId": template, "Version": version},
        "InstanceType": order.instance_type,
        "SubnetId": order.subnet_id,
        "UserData": order.user_data,
        # In the same call: if we died before tagging, an untagged machine would be leaked.
        "TagSpecifications": [{"ResourceType": kind, "Tags": tags} for kind in ("instance", "volume") if tags],
        # Regardless of the template: otherwise a pod that forwards requests could leak the machine's role.
        "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    }
    if order.market is Market.SPOT:
        request["InstanceMarketOptions"] = {
            "MarketType": "spot",
            "SpotOptions": {"SpotInstanceType": "one-time", "InstanceInterruptionBehavior": "terminate"},
        }
    return request  # type: ignore[return-value]  # built in two steps


def _template(text: str) -> tuple[str, str]:
    match = _TEMPLATE.fullmatch(text)
    if match is None:
        # No $Latest: EC2 refuses the same token with another version, because it is another order.
        raise MachineError(
            "InvalidLaunchTemplateId.Malformed",
            f"{cut(text)!r} is not the id of a launch template and a version number, such as lt-0abc:3",
        )
    return match[1], match[2]


def _check_token(token: str) -> None:
    if not (0 < len(token) <= TOKEN_MOST and token.isascii()):
        raise MachineError("InvalidParameterValue", f"a token has 1 to {TOKEN_MOST} ASCII characters, not {len(token)}")


def _check_tags(tags: Mapping[str, str]) -> None:
    if len(tags) > TAGS_MOST:
        raise MachineError("TagLimitExceeded", f"{len(tags)} tags; EC2 accepts {TAGS_MOST}")
    for key, value in tags.items():
        if not 0 < len(key) <= TAG_KEY_MOST or key.startswith("aws:"):
            raise MachineError(
                "InvalidTagKey.Malformed",
                f"tag {cut(key)!r}: a key has 1 to {TAG_KEY_MOST} characters and does not begin with aws:",
            )
        if len(value) > TAG_VALUE_MOST:
            raise MachineError(
                "InvalidParameterValue", f"tag {key!r}: {len(value)} characters; EC2 accepts {TAG_VALUE_MOST}"
            )


def _check_user_data(text: str) -> None:
    size = len(text.encode())
    if size > USER_DATA_BYTES_MOST:
        raise MachineError(
            "InvalidUserData.Malformed", f"user data of {size} bytes; EC2 accepts {USER_DATA_BYTES_MOST}: shorten it"
        )
