"""Machines on EC2: requests, and how responses are read. boto3 talks to a scripted server over HTTP."""

import base64
import logging
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from xml.sax.saxutils import escape

import pytest
from msgspec.structs import replace

from holdfast.adapters.aws.ec2 import TAGS_MOST, Ec2Machines, ec2_client
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import USER_DATA_BYTES_MOST, LaunchOrder, MachineError, MachineState, Market, Subnet
from tests.servers.scripted_http import Asked, Reply, Reset, ScriptedServer, Silence, serving

SENT_ONCE = 1
ORDER = LaunchOrder(
    token="token-1",
    template="lt-0abc:3",
    instance_type="t3.medium",
    market=Market.SPOT,
    subnet_id="subnet-1",
    zone="eu-west-1a",
    tags={"Cluster": "main", "holdfast.dev/slot": "0"},
    user_data="#!/bin/sh\necho grüße\n",
)


def instance_xml(name: str = "i-1", state: str = "running", lifecycle: str = "spot", **changes: str) -> str:
    parts = {
        "instanceId": name,
        "instanceState": f"<code>16</code><name>{state}</name>",
        "placement": "<availabilityZone>eu-west-1a</availabilityZone>",
        "subnetId": "subnet-1",
        "instanceType": "t3.medium",
        "instanceLifecycle": lifecycle,
        "privateIpAddress": "10.0.0.7",
        "launchTime": "2026-01-15T10:00:01.000Z",
        "tagSet": "<item><key>Cluster</key><value>main</value></item>",
    } | changes
    return "".join(f"<{name}>{value}</{name}>" for name, value in parts.items() if value)


def answer(operation: str, inner: str) -> Reply:
    namespace = "http://ec2.amazonaws.com/doc/2016-11-15/"
    return Reply(f'<{operation}Response xmlns="{namespace}">{inner}</{operation}Response>'.encode())


def described(*instances: str, next_token: str = "") -> Reply:
    items = "".join(f"<item>{instance}</item>" for instance in instances)
    reservations = f"<reservationSet><item><instancesSet>{items}</instancesSet></item></reservationSet>"
    return answer("DescribeInstances", reservations + (f"<nextToken>{next_token}</nextToken>" if next_token else ""))


def launched(instance: str) -> Reply:
    return answer("RunInstances", f"<instancesSet><item>{instance}</item></instancesSet>")


def refused(code: str, message: str = "because", status: int = 400) -> Reply:
    errors = f"<Errors><Error><Code>{code}</Code><Message>{escape(message)}</Message></Error></Errors>"
    return Reply(f"<Response>{errors}<RequestID>r</RequestID></Response>".encode(), status=status)


class Ec2Script:
    """Responses from a list, in order; more requests than responses are an error in the test."""

    def __init__(self) -> None:
        self.replies: list[Reply | type[Exception]] = []

    def __call__(self, _: Asked) -> Reply:
        reply = self.replies.pop(0)
        if isinstance(reply, Reply):
            return reply
        raise reply


SCRIPT = Ec2Script()


@pytest.fixture(scope="module")
def server() -> Iterator[ScriptedServer]:
    with serving(SCRIPT) as running:
        yield running


@contextmanager
def machines_at(url: str, **options: Any) -> Iterator[Ec2Machines]:
    options |= {"aws_access_key_id": "test", "aws_secret_access_key": "test"}
    machines = Ec2Machines(ec2_client(endpoint_url=url, region_name="eu-west-1", **options))
    yield machines
    machines.close()


@pytest.fixture(scope="module")
def machines_of_all(server: ScriptedServer) -> Iterator[Ec2Machines]:
    """One client for all tests: creating one takes longer than a test."""
    with machines_at(server.url) as machines:
        yield machines


@pytest.fixture
def machines(machines_of_all: Ec2Machines, server: ScriptedServer) -> Ec2Machines:
    server.asked.clear()
    SCRIPT.replies.clear()
    machines_of_all.unreadable = 0
    return machines_of_all


def ids(*names: str) -> list[InstanceId]:
    return [InstanceId(name) for name in names]


def asked_ids(asked: Asked) -> list[str]:
    return [value for name, value in asked.form.items() if name.startswith("InstanceId")]


def test_a_state_reason_is_bounded_and_escaped_and_one_that_says_nothing_is_none(
    machines: Ec2Machines,
) -> None:
    """A message can contain what a stranger chose: it ends in logs, terminals and chats."""
    shout = escape("Client.InternalError: a\n\u202eholdfast: ok " + "x" * 5000)
    hostile = instance_xml("i-1", stateReason=f"<code>Client.InternalError</code><message>{shout}</message>")
    starting = instance_xml("i-2", stateReason="<code>pending</code><message>pending</message>")
    odd = instance_xml("i-3", stateReason="<code>Client.&#10;x</code><message>y</message>")
    SCRIPT.replies = [described(hostile, starting, odd, instance_xml("i-4"))]
    first, *others = machines.tagged({"Cluster": "main"})
    assert first.state_reason is not None
    assert first.state_reason.code == "Client.InternalError"
    assert first.state_reason.message.startswith("a\\n\\u202eholdfast: ok xxx")
    assert first.state_reason.message.isprintable()
    assert len(first.state_reason.message) < 210
    assert [machine.state_reason for machine in others] == [None, None, None]


# Launching


def test_one_machine_is_ordered_with_everything_in_one_call(machines: Ec2Machines, server: ScriptedServer) -> None:
    SCRIPT.replies = [launched(instance_xml(state="pending"))]
    machine = machines.launch(ORDER)
    sent = server.asked[0].form
    assert (sent["Action"], sent["MinCount"], sent["MaxCount"]) == ("RunInstances", "1", "1")
    assert sent["ClientToken"] == "token-1"
    assert (sent["LaunchTemplate.LaunchTemplateId"], sent["LaunchTemplate.Version"]) == ("lt-0abc", "3")
    assert (sent["InstanceType"], sent["SubnetId"]) == ("t3.medium", "subnet-1")
    assert base64.b64decode(sent["UserData"]).decode() == ORDER.user_data
    assert sent["InstanceMarketOptions.MarketType"] == "spot"
    assert sent["InstanceMarketOptions.SpotOptions.SpotInstanceType"] == "one-time"
    assert sent["InstanceMarketOptions.SpotOptions.InstanceInterruptionBehavior"] == "terminate"
    for number, kind in ((1, "instance"), (2, "volume")):
        assert sent[f"TagSpecification.{number}.ResourceType"] == kind
        assert sent[f"TagSpecification.{number}.Tag.1.Key"] == "Cluster"
        assert sent[f"TagSpecification.{number}.Tag.2.Value"] == "0"
    assert machine.id == "i-1"
    assert machine.state is MachineState.PENDING
    assert machine.market is Market.SPOT
    assert machine.launched == Instant.from_iso("2026-01-15T10:00:01Z")


def test_every_machine_requires_session_tokens_for_its_metadata(machines: Ec2Machines, server: ScriptedServer) -> None:
    SCRIPT.replies = [launched(instance_xml()), launched(instance_xml(lifecycle=""))]
    for market in Market:
        machines.launch(replace(ORDER, market=market))
    for asked in server.asked:
        assert asked.form["MetadataOptions.HttpTokens"] == "required"
        assert asked.form["MetadataOptions.HttpPutResponseHopLimit"] == "1"


def test_an_on_demand_order_has_no_market_options(machines: Ec2Machines, server: ScriptedServer) -> None:
    SCRIPT.replies = [launched(instance_xml(lifecycle=""))]
    assert machines.launch(replace(ORDER, market=Market.ON_DEMAND)).market is Market.ON_DEMAND
    assert not any("Market" in name for name in server.asked[0].form)


def test_the_same_order_is_sent_byte_for_byte(machines: Ec2Machines, server: ScriptedServer) -> None:
    """EC2 refuses a different order with the same token."""
    SCRIPT.replies = [launched(instance_xml()), launched(instance_xml())]
    machines.launch(ORDER)
    machines.launch(ORDER)
    assert server.asked[0].body == server.asked[1].body


@pytest.mark.parametrize(
    ("order", "code"),
    [
        (replace(ORDER, user_data="x" * (USER_DATA_BYTES_MOST + 1)), "InvalidUserData.Malformed"),
        (replace(ORDER, user_data="ü" * (USER_DATA_BYTES_MOST // 2 + 1)), "InvalidUserData.Malformed"),
        (replace(ORDER, tags={f"k{n}": "v" for n in range(TAGS_MOST + 1)}), "TagLimitExceeded"),
        (replace(ORDER, tags={"k" * 129: "v"}), "InvalidTagKey.Malformed"),
        (replace(ORDER, tags={"": "v"}), "InvalidTagKey.Malformed"),
        (replace(ORDER, tags={"aws:name": "v"}), "InvalidTagKey.Malformed"),
        (replace(ORDER, tags={"k": "v" * 257}), "InvalidParameterValue"),
        (replace(ORDER, token="t" * 65), "InvalidParameterValue"),
        (replace(ORDER, token="ü"), "InvalidParameterValue"),
        (replace(ORDER, token=""), "InvalidParameterValue"),
        (replace(ORDER, template="lt-0abc"), "InvalidLaunchTemplateId.Malformed"),
        (replace(ORDER, template="lt-0abc:$Latest"), "InvalidLaunchTemplateId.Malformed"),
    ],
)
def test_an_order_that_ec2_would_refuse_is_not_sent(
    machines: Ec2Machines, server: ScriptedServer, order: LaunchOrder, code: str
) -> None:
    with pytest.raises(MachineError) as raised:
        machines.launch(order)
    assert raised.value.code == code
    assert ruling_on(code).verdict is Ec2Verdict.OPERATOR
    assert server.asked == []


def test_an_order_at_every_limit_is_sent(machines: Ec2Machines, server: ScriptedServer) -> None:
    tags = {f"{n:0128d}": "v" * 256 for n in range(TAGS_MOST)}
    SCRIPT.replies = [launched(instance_xml())]
    machines.launch(replace(ORDER, tags=tags, user_data="x" * USER_DATA_BYTES_MOST, token="t" * 64))
    assert len(server.asked) == SENT_ONCE


# Errors


@pytest.mark.parametrize(
    ("reply", "code", "verdict"),
    [
        (refused("InsufficientInstanceCapacity", status=500), "InsufficientInstanceCapacity", Ec2Verdict.NOT_HERE),
        (refused("RequestLimitExceeded", status=503), "RequestLimitExceeded", Ec2Verdict.AGAIN),
        (refused("IdempotentParameterMismatch"), "IdempotentParameterMismatch", Ec2Verdict.MISMATCH),
        (
            refused("IdempotentInstanceTerminated"),
            "IdempotentInstanceTerminated",
            Ec2Verdict.ALREADY_TERMINATED,
        ),
        (refused("UnauthorizedOperation", status=403), "UnauthorizedOperation", Ec2Verdict.OPERATOR),
        (refused("InternalError", status=500), "InternalError", Ec2Verdict.NO_ANSWER),
        (Reply(b"", status=503), "503", Ec2Verdict.NO_ANSWER),
        (Reply(b"<html>a proxy's page</html>", status=502), "502", Ec2Verdict.NO_ANSWER),
        (Reply(b"not xml"), "ResponseParserError", Ec2Verdict.NO_ANSWER),
        (Reply(b"<RunInstancesResponse><instan", missing_bytes=99), "ResponseParserError", Ec2Verdict.NO_ANSWER),
        (Reply(b""), "ResponseParserError", Ec2Verdict.NO_ANSWER),
        (launched(instance_xml(launchTime="yesterday")), "ResponseParserError", Ec2Verdict.NO_ANSWER),
        (launched(instance_xml(state="dancing")), "UnreadableAnswer", Ec2Verdict.NO_ANSWER),
        (answer("RunInstances", "<instancesSet/>"), "UnreadableAnswer", Ec2Verdict.NO_ANSWER),
        (Reset, "ConnectionClosedError", Ec2Verdict.NO_ANSWER),
    ],
)
def test_a_failed_launch_has_its_error_code_and_is_never_retried(
    machines: Ec2Machines, server: ScriptedServer, reply: Reply | type[Exception], code: str, verdict: Ec2Verdict
) -> None:
    """boto3's own retries would hide that an earlier attempt may have launched a machine."""
    SCRIPT.replies = [reply]
    with pytest.raises(MachineError) as raised:
        machines.launch(ORDER)
    assert raised.value.code == code
    assert ruling_on(raised.value.code).verdict is verdict
    assert len(server.asked) == SENT_ONCE


def test_a_launch_without_a_response_times_out_and_may_have_happened(server: ScriptedServer) -> None:
    SCRIPT.replies = [Silence]
    with machines_at(server.url, read_seconds=0.1) as hasty, pytest.raises(MachineError) as raised:
        hasty.launch(ORDER)
    assert raised.value.code == "ReadTimeoutError"
    assert ruling_on(raised.value.code).verdict is Ec2Verdict.NO_ANSWER


def test_a_refused_connection_is_reported_as_not_sent() -> None:
    with serving(SCRIPT) as gone:
        url = gone.url
    with machines_at(url) as machines, pytest.raises(MachineError) as raised:
        machines.terminate(InstanceId("i-1"))
    assert ruling_on(raised.value.code).verdict is Ec2Verdict.AGAIN


def test_a_message_stays_one_short_line(machines: Ec2Machines) -> None:
    SCRIPT.replies = [refused("UnauthorizedOperation", "Encoded message:\n" + "x" * 3000, status=403)]
    with pytest.raises(MachineError) as raised:
        machines.launch(ORDER)
    assert len(str(raised.value)) < 600
    assert "\n" not in str(raised.value)


# Lists


def test_a_list_by_tags_reads_all_pages_and_all_states(machines: Ec2Machines, server: ScriptedServer) -> None:
    gone = instance_xml("i-2", "terminated", subnetId="", privateIpAddress="")
    SCRIPT.replies = [
        described(instance_xml("i-1"), next_token="more"),
        described(next_token="still more"),
        described(gone),
    ]
    found = machines.tagged({"Cluster": "main"})
    assert [(machine.id, machine.state) for machine in found] == [
        ("i-1", MachineState.RUNNING),
        ("i-2", MachineState.TERMINATED),
    ]
    assert (found[0].private_ip, found[1].private_ip, found[1].subnet_id) == ("10.0.0.7", None, "")
    assert [asked.form.get("NextToken") for asked in server.asked] == [None, "more", "still more"]
    assert server.asked[0].form["Filter.1.Name"] == "tag:Cluster"
    assert not any("state" in value for value in server.asked[0].form.values())


def test_a_tag_is_matched_literally_and_not_as_a_pattern(machines: Ec2Machines, server: ScriptedServer) -> None:
    others = "<item><key>Cluster</key><value>another</value></item>"
    SCRIPT.replies = [described(instance_xml("i-1", tagSet=others))]
    assert machines.tagged({"Cluster": "a*?\\"}) == []
    assert server.asked[0].form["Filter.1.Value.1"] == "a\\*\\?\\\\"


def test_an_empty_list_of_tags_is_refused_and_an_empty_list_of_ids_makes_no_call(
    machines: Ec2Machines, server: ScriptedServer
) -> None:
    """EC2 would return everything in the account for either."""
    with pytest.raises(BadRequest, match="at least one tag"):
        machines.tagged({})
    assert machines.found([]) == []
    assert machines.subnets([]) == []
    assert server.asked == []


@pytest.mark.parametrize(
    "odd",
    [
        instance_xml("i-2", launchTime=""),
        instance_xml("i-2", "dancing"),
        instance_xml("i-2", lifecycle="scheduled"),
        instance_xml("i-2", placement=""),
        instance_xml(""),
    ],
    ids=["no-launch-time", "unknown-state", "unknown-lifecycle", "no-zone", "no-id"],
)
def test_a_machine_that_cannot_be_read_hides_no_other(
    machines: Ec2Machines, caplog: pytest.LogCaptureFixture, odd: str
) -> None:
    SCRIPT.replies = [described(instance_xml("i-1"), odd, instance_xml("i-3"))]
    with caplog.at_level(logging.WARNING):
        assert [machine.id for machine in machines.tagged({"Cluster": "main"})] == ["i-1", "i-3"]
    assert machines.unreadable == 1
    assert len(caplog.messages) == 1


def test_a_machine_without_tags_is_read(machines: Ec2Machines) -> None:
    SCRIPT.replies = [described(instance_xml("i-1", tagSet=""))]
    assert machines.found(ids("i-1"))[0].tags == {}


def test_unknown_ids_are_left_out_and_the_rest_is_requested_again(
    machines: Ec2Machines, server: ScriptedServer
) -> None:
    message = "The instance IDs 'i-2, i-33' do not exist"
    malformed = 'Invalid id: "i-bad"'
    SCRIPT.replies = [
        refused("InvalidInstanceID.NotFound", message),
        refused("InvalidInstanceID.Malformed", malformed),
        described(instance_xml("i-1"), instance_xml("i-3")),
    ]
    found = machines.found(ids("i-1", "i-2", "i-3", "i-33", "i-bad", "i-1"))
    assert [machine.id for machine in found] == ["i-1", "i-3"]
    assert [asked_ids(asked) for asked in server.asked] == [
        ["i-1", "i-2", "i-3", "i-33", "i-bad"],
        ["i-1", "i-3", "i-bad"],
        ["i-1", "i-3"],
    ]


def test_many_ids_are_requested_in_parts(
    machines: Ec2Machines, server: ScriptedServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("holdfast.adapters.aws.ec2.IDS_MOST", 2)
    SCRIPT.replies = [described(instance_xml("i-1"), instance_xml("i-2")), described(instance_xml("i-3"))]
    assert [machine.id for machine in machines.found(ids("i-1", "i-2", "i-3"))] == ["i-1", "i-2", "i-3"]
    assert [asked_ids(asked) for asked in server.asked] == [["i-1", "i-2"], ["i-3"]]


def test_unknown_ids_that_are_not_named_are_found_one_by_one(machines: Ec2Machines, server: ScriptedServer) -> None:
    SCRIPT.replies = [
        refused("InvalidInstanceID.NotFound", "some do not exist"),
        described(instance_xml("i-1")),
        refused("InvalidInstanceID.NotFound", "it does not exist"),
    ]
    assert [machine.id for machine in machines.found(ids("i-1", "i-2"))] == ["i-1"]
    assert [asked_ids(asked) for asked in server.asked] == [["i-1", "i-2"], ["i-1"], ["i-2"]]


def test_when_no_id_is_known_the_list_is_empty(machines: Ec2Machines, server: ScriptedServer) -> None:
    SCRIPT.replies = [refused("InvalidInstanceID.NotFound", "The instance IDs 'i-1, i-2' do not exist")]
    assert machines.found(ids("i-1", "i-2")) == []
    assert len(server.asked) == SENT_ONCE


def test_any_other_error_of_a_list_is_raised(machines: Ec2Machines) -> None:
    SCRIPT.replies = [refused("RequestLimitExceeded", status=503)]
    with pytest.raises(MachineError, match="RequestLimitExceeded"):
        machines.found(ids("i-1"))


def test_an_error_on_a_later_page_fails_the_whole_list(machines: Ec2Machines) -> None:
    """Half a list would be taken for a complete one."""
    SCRIPT.replies = [described(instance_xml("i-1"), next_token="more"), refused("InternalError", status=500)]
    with pytest.raises(MachineError, match="InternalError"):
        machines.tagged({"Cluster": "main"})


# The rest


def test_each_termination_call_has_one_id(machines: Ec2Machines, server: ScriptedServer) -> None:
    SCRIPT.replies = [answer("TerminateInstances", "<instancesSet/>")]
    machines.terminate(InstanceId("i-1"))
    assert server.asked[0].form["Action"] == "TerminateInstances"
    assert asked_ids(server.asked[0]) == ["i-1"]


def test_terminating_an_unknown_machine_is_an_error(machines: Ec2Machines) -> None:
    """It does not prove that the machine is gone: the caller decides."""
    SCRIPT.replies = [refused("InvalidInstanceID.NotFound", "The instance ID 'i-1' does not exist")]
    with pytest.raises(MachineError) as raised:
        machines.terminate(InstanceId("i-1"))
    assert ruling_on(raised.value.code).verdict is Ec2Verdict.UNKNOWN_MACHINE


def test_a_subnet_has_its_zone_and_its_free_addresses(machines: Ec2Machines) -> None:
    subnet = (
        "<subnetId>subnet-1</subnetId><availabilityZone>eu-west-1a</availabilityZone>"
        "<availableIpAddressCount>250</availableIpAddressCount>"
    )
    SCRIPT.replies = [answer("DescribeSubnets", f"<subnetSet><item>{subnet}</item></subnetSet>")]
    assert machines.subnets(["subnet-1"]) == [Subnet("subnet-1", "eu-west-1a", 250)]


def test_the_client_never_retries_by_itself() -> None:
    client = ec2_client(region_name="eu-west-1", aws_access_key_id="test", aws_secret_access_key="test")
    assert client.meta.config.retries == {"total_max_attempts": 1, "mode": "standard"}  # type: ignore[attr-defined]
    client.close()
