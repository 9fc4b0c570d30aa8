"""The doctor on AWS: moto's server where it is faithful, a scripted one for denials, DynamoDB Local."""

import json
import os
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, Final
from uuid import uuid4

import boto3
import pytest

from holdfast.adapters.aws.ec2 import Ec2Machines
from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.doctor import aws, aws_services, diagnose, launch_template, store
from holdfast.entrypoints.doctor.aws import ServerTime, dry_client
from holdfast.entrypoints.doctor.findings import Finding, FindingOutcome
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.settings import SETTINGS, Settings, load_settings
from holdfast.ports.machines import MachineError
from holdfast.ports.store.tables import TABLES
from tests.servers.processes import RunningServer
from tests.servers.scripted_http import Asked, Reply, serving

REGION: Final = "eu-west-1"
CLOCK: Final = SystemClock()


@pytest.fixture(autouse=True)
def environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("HOLDFAST_", "AWS_")) or name in {row.name for row in SETTINGS}:
            monkeypatch.delenv(name)
    # boto3 keeps the first credentials it saw for as long as the process lives.
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    for name, value in {
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": REGION,
    }.items():
        monkeypatch.setenv(name, value)


@dataclass(frozen=True)
class Account:
    """An account with everything that Holdfast needs, and the settings for it."""

    settings: dict[str, str]
    raw: Any

    def load(self, **changes: str) -> Settings:
        given = {name: value for name, value in {**self.settings, **changes}.items() if value}
        return load_settings(given)

    def machines(self) -> list[Any]:
        found = self.raw("ec2").describe_instances()["Reservations"]
        return [machine for group in found for machine in group["Instances"]]


@pytest.fixture(scope="module")
def raw(moto_server: RunningServer) -> Iterator[Any]:
    """`raw(service)`: a plain client, to prepare things and to inspect the results."""
    clients: dict[str, Any] = {}
    options = {"region_name": REGION, "aws_access_key_id": "test", "aws_secret_access_key": "test"}

    def client(service: str) -> Any:
        if service not in clients:
            clients[service] = boto3.client(service, endpoint_url=moto_server.url, **options)  # type: ignore[call-overload]
        return clients[service]

    yield client
    for each in clients.values():
        each.close()


@pytest.fixture(scope="module")
def image(raw: Any) -> str:
    return str(raw("ec2").describe_images(Owners=["amazon"])["Images"][0]["ImageId"])


@pytest.fixture(scope="module")
def made(raw: Any, image: str) -> dict[str, str]:
    ec2, name = raw("ec2"), uuid4().hex[:8]
    vpc = ec2.create_vpc(CidrBlock="10.0.0.0/16")["Vpc"]["VpcId"]
    subnets = [
        ec2.create_subnet(VpcId=vpc, CidrBlock=f"10.0.{number}.0/24", AvailabilityZone=f"{REGION}{zone}")
        for number, zone in enumerate("ab")
    ]
    data = {"ImageId": image, "InstanceType": "t3.medium"}
    template = ec2.create_launch_template(LaunchTemplateName=f"workers-{name}", LaunchTemplateData=data)
    raw("ssm").put_parameter(Name=f"/{name}/kube-token", Value="secret-canary", Type="SecureString")
    return {
        "HOLDFAST_WORLD": "aws",
        "LAUNCH_TEMPLATE": f"{template['LaunchTemplate']['LaunchTemplateId']}:1",
        "SUBNETS": ",".join(subnet["Subnet"]["SubnetId"] for subnet in subnets),
        "KUBE_SERVER": "https://127.0.0.1:9",
        "KUBE_TOKEN_PARAMETER": f"/{name}/kube-token",
        "K3S_URL": "https://10.0.0.10:6443",
        "K3S_TOKEN_PARAMETER": f"/{name}/k3s-token",
        "GITHUB_WEBHOOK_SECRET": "test-secret",
        "PROMETHEUS_URL": "http://127.0.0.1:9",
    }


@pytest.fixture
def account(moto_server: RunningServer, monkeypatch: pytest.MonkeyPatch, raw: Any, made: dict[str, str]) -> Account:
    """With its own cluster and queue, so that no test sees another's."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_server.url)
    name = uuid4().hex[:8]
    dead = raw("sqs").create_queue(QueueName=f"dead-{name}")["QueueUrl"]
    arn = raw("sqs").get_queue_attributes(QueueUrl=dead, AttributeNames=["QueueArn"])["Attributes"]["QueueArn"]
    redrive = json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": 5})
    queue = raw("sqs").create_queue(QueueName=f"events-{name}", Attributes={"RedrivePolicy": redrive})["QueueUrl"]
    return Account({**made, "CLUSTER_ID": f"c-{name}", "EVENTS_QUEUE_URL": queue}, raw)


def outcomes(found: Iterator[Finding]) -> list[tuple[str, str]]:
    return [(each.check, str(each.outcome)) for each in found]


# An account that is set up correctly


def test_credentials_are_shown_and_the_servers_time_is_read(account: Account) -> None:
    time = ServerTime()
    (found,) = aws.identity(CLOCK, time)
    assert (found.outcome, "arn:aws:sts::123456789012:" in found.seen) == (FindingOutcome.OK, True)
    (where,) = aws.region()
    assert where.seen == f"{REGION}, from AWS_DEFAULT_REGION"
    assert time.who == "AWS"
    assert time.theirs is not None


def test_a_dry_run_in_each_subnet_and_market_launches_nothing(account: Account) -> None:
    before = len(account.machines())
    (found,) = launch_template.launches(account.load())
    assert (found.check, found.outcome) == ("launch template", FindingOutcome.OK)
    for subnet in account.settings["SUBNETS"].split(","):
        assert f"on-demand in {subnet}" in found.seen
        assert f"spot in {subnet}" in found.seen
    assert len(account.machines()) == before


def test_a_dry_run_terminates_and_tags_nothing(account: Account, image: str) -> None:
    settings = account.load()
    tags = [{"Key": "holdfast.dev/cluster", "Value": settings.cluster_id}]
    launched = account.raw("ec2").run_instances(
        ImageId=image, MinCount=1, MaxCount=1, TagSpecifications=[{"ResourceType": "instance", "Tags": tags}]
    )
    assert outcomes(aws.instances(settings)) == [
        ("ec2:DescribeInstances", "ok"),
        ("ec2:TerminateInstances", "ok"),
        ("ec2:CreateTags", "ok"),
    ]
    name = launched["Instances"][0]["InstanceId"]
    (shown,) = (machine for machine in account.machines() if machine["InstanceId"] == name)
    assert shown["State"]["Name"] in ("pending", "running")
    assert shown["Tags"] == tags


def test_without_a_machine_of_ours_termination_is_not_checked(account: Account) -> None:
    assert outcomes(aws.instances(account.load())) == [
        ("ec2:DescribeInstances", "ok"),
        ("ec2:TerminateInstances", "not asked"),
        ("ec2:CreateTags", "not asked"),
    ]


def test_no_request_leaves_the_dry_client_without_its_flag(account: Account) -> None:
    """The second hook works even where the first one does not."""
    client = dry_client()
    client.meta.events.unregister("provide-client-params.ec2.TerminateInstances", aws._as_dry_run)  # type: ignore[arg-type]
    with pytest.raises(NeedsOperator, match="without DryRun"):
        Ec2Machines(client).terminate(InstanceId("i-0123456789abcdef0"))
    client.close()


def test_subnets_are_reported_by_zone(account: Account) -> None:
    (found,) = aws.subnets(account.load())
    assert (found.outcome, found.seen) == (FindingOutcome.OK, "2 in eu-west-1a, eu-west-1b")
    one = account.settings["SUBNETS"].split(",")[0]
    assert outcomes(aws.subnets(account.load(SUBNETS=one))) == [("subnets", "ok"), ("subnets", "warning")]


def test_a_parameter_is_read_and_never_shown(account: Account) -> None:
    found = list(aws_services.parameters(account.load(), CLOCK))
    assert outcomes(iter(found)) == [("SSM K3S_TOKEN_PARAMETER", "not asked"), ("SSM KUBE_TOKEN_PARAMETER", "ok")]
    assert "secret-canary" not in str(found)


def test_the_queue_is_readable_and_nothing_was_taken_from_it(account: Account) -> None:
    settings = account.load()
    assert outcomes(aws_services.queue(settings)) == [
        ("events queue", "ok"),
        ("sqs:DeleteMessage", "ok"),
        ("sqs:ReceiveMessage", "ok"),
    ]
    url = str(settings.events_queue_url)
    account.raw("sqs").send_message(QueueUrl=url, MessageBody="{}")
    assert outcomes(aws_services.queue(settings))[-1] == ("sqs:ReceiveMessage", "not asked")
    received = account.raw("sqs").receive_message(QueueUrl=url, AttributeNames=["ApproximateReceiveCount"])
    assert received["Messages"][0]["Attributes"]["ApproximateReceiveCount"] == "1"


# Missing resources


def test_a_missing_subnet_or_parameter_is_named(account: Account) -> None:
    (subnet,) = aws.subnets(account.load(SUBNETS="subnet-0123"))
    assert (subnet.outcome, subnet.fix) == (FindingOutcome.FAILED, "correct SUBNETS or the region")
    *_, parameter = aws_services.parameters(account.load(KUBE_TOKEN_PARAMETER="/not/there"), CLOCK)
    assert (parameter.outcome, "/not/there: not found" in parameter.seen) == (FindingOutcome.FAILED, True)


def test_a_queue_without_dead_letters_is_a_warning_and_a_missing_queue_a_failure(account: Account) -> None:
    plain = account.raw("sqs").create_queue(QueueName=f"plain-{uuid4().hex[:8]}")["QueueUrl"]
    found = list(aws_services.queue(account.load(EVENTS_QUEUE_URL=plain)))
    assert [str(each.outcome) for each in found] == ["ok", "warning", "ok", "ok"]
    assert "dead-letter" in found[1].seen
    (gone,) = aws_services.queue(account.load(EVENTS_QUEUE_URL=f"{plain}-gone"))
    assert (gone.outcome, "no such queue" in gone.seen) == (FindingOutcome.FAILED, True)


def test_without_events_there_is_a_warning(account: Account) -> None:
    assert outcomes(aws_services.queue(account.load(EVENTS_QUEUE_URL=""))) == [("events queue", "warning")]
    posted = account.load(EVENTS_QUEUE_URL="", EVENTS_SECRET="0123456789abcdef")
    assert outcomes(aws_services.queue(posted)) == [("events queue", "not asked")]


# Denials, in the words of AWS


def denial(action: str, resource: str) -> str:
    who = "User: arn:aws:sts::123456789012:assumed-role/holdfast/i-1"
    return f"{who} is not authorized to perform: {action} on resource: {resource} because no identity-based policy"


def ec2_error(code: str, message: str) -> Reply:
    body = f"<Response><Errors><Error><Code>{code}</Code><Message>{message}</Message></Error></Errors></Response>"
    return Reply(body.encode(), 403 if code.startswith("Unauthorized") else 400, {"Content-Type": "text/xml"})


def ec2_denies(asked: Asked) -> Reply:
    action = asked.form["Action"]
    if action == "RunInstances" and asked.form["SubnetId"] == "subnet-1":
        return ec2_error("DryRunOperation", "Request would have succeeded, but DryRun flag is set.")
    denied = denial(f"ec2:{action}", "arn:aws:ec2:eu-west-1:1:subnet/subnet-2")
    return ec2_error("UnauthorizedOperation", f"You are not authorized to perform this operation. {denied}")


def test_a_missing_template_is_named(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    """moto answers a dry run before it looks for the template."""
    gone = ec2_error("InvalidLaunchTemplateId.NotFound", "The specified launch template does not exist.")
    with serving(lambda _: gone) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", server.url)
        (found,) = launch_template.launches(account.load())
    assert (found.outcome, "InvalidLaunchTemplateId.NotFound" in found.seen) == (FindingOutcome.FAILED, True)
    assert found.fix.startswith("correct LAUNCH_TEMPLATE")


def test_a_missing_permission_is_named_with_its_statement(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(ec2_denies) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_EC2", server.url)
        fine, missing = launch_template.launches(account.load(SUBNETS="subnet-1,subnet-2", USE_SPOT="false"))
        (looking,) = aws.instances(account.load())
    assert (fine.outcome, fine.seen) == (FindingOutcome.OK, "dry run succeeded: on-demand in subnet-1")
    assert missing.outcome is FindingOutcome.FAILED
    assert missing.seen.startswith("ec2:RunInstances is denied on arn:aws:ec2:eu-west-1:1:subnet/subnet-2")
    assert missing.fix == "add statement LaunchInTheseSubnets of deploy/iam/holdfast-policy.json to the role"
    assert (looking.outcome, "statement Look" in looking.fix) == (FindingOutcome.FAILED, True)
    assert all("DryRun=true" in asked.body.decode() for asked in server.asked if b"RunInstances" in asked.body)


def test_an_ec2_without_dry_runs_is_a_failure(account: Account) -> None:
    (found,) = [aws.dry_run("ec2:RunInstances", lambda: None)]
    assert (found.outcome, found.fix) == (
        FindingOutcome.FAILED,
        "look for an unexpected instance, and report this",
    )
    with pytest.raises(MachineError, match="DryRunOperation"):
        Ec2Machines(dry_client()).terminate(InstanceId("i-0123456789abcdef0"))


def json_denies(asked: Asked) -> Reply:
    action = asked.headers["x-amz-target"].rpartition(".")[2]
    service = {"AmazonSSM": "ssm", "AmazonSQS": "sqs"}[asked.headers["x-amz-target"].rpartition(".")[0]]
    body = {
        "__type": "AccessDeniedException",
        "message": denial(f"{service}:{action}", "arn:aws:x:eu-west-1:1:thing"),
    }
    return Reply(json.dumps(body).encode(), 400, {"Content-Type": "application/x-amz-json-1.1"})


def test_unreadable_secrets_and_queues_are_named(account: Account, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(json_denies) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_SSM", server.url)
        monkeypatch.setenv("AWS_ENDPOINT_URL_SQS", server.url)
        *_, parameter = aws_services.parameters(account.load(), CLOCK)
        (queue,) = aws_services.queue(account.load())
    assert parameter.seen == "ssm:GetParameter is denied on arn:aws:x:eu-west-1:1:thing"
    assert "ReadOwnSecrets" in parameter.fix
    assert queue.seen == "sqs:GetQueueAttributes is denied on arn:aws:x:eu-west-1:1:thing"
    assert "HearEvents" in queue.fix


def test_the_time_is_read_even_from_refused_credentials(monkeypatch: pytest.MonkeyPatch) -> None:
    """A wrong clock is often why they are refused."""
    body = b"<ErrorResponse><Error><Code>SignatureDoesNotMatch</Code><Message>expired</Message></Error></ErrorResponse>"
    date = "Fri, 15 Jan 2100 10:00:00 GMT"
    with serving(lambda _: Reply(body, 403, {"Content-Type": "text/xml", "Date": date})) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL", server.url)
        time = ServerTime()
        (found,) = aws.identity(CLOCK, time)
    assert (found.outcome, found.fix) == (
        FindingOutcome.FAILED,
        "renew the credentials, and check this machine's clock",
    )
    assert time.theirs is not None


# All of it


def test_no_failure_hides_another_check(account: Account) -> None:
    """Kubernetes and Prometheus are unreachable; everything else is checked and ok."""
    found = list(diagnose(account.load(HOLDFAST_STORE="sqlite:/nowhere/x.db"), {}, CLOCK))
    outcome = {each.check: str(each.outcome) for each in found}
    assert outcome["launch template"] == "ok"
    assert outcome["Kubernetes"] == outcome["Prometheus: CPU"] == "failed"
    assert outcome["Kubernetes permissions"] == "not asked"
    assert [each.seen[:14] for each in found if each.check == "Prometheus: CPU"] == ["Prometheus at "]
    assert outcome["GitHub webhook secret"] == outcome["clock"] == "ok"


def test_a_cluster_without_workers_and_without_their_metrics_is_fine(account: Account) -> None:
    """As on the day of the set-up, when the guide says to run it."""
    empty = b'{"status":"success","data":{"resultType":"vector","result":[]}}'
    with serving(lambda _: Reply(empty, headers={"Content-Type": "application/json"})) as prometheus:
        settings = account.load(HOLDFAST_STORE="sqlite:/nowhere/x.db", PROMETHEUS_URL=prometheus.url)
        found = list(diagnose(settings, {}, CLOCK))
    about = [each for each in found if each.check.startswith(("Prometheus", "ec2:"))]
    assert {each.check: str(each.outcome) for each in about} == {
        "ec2:DescribeInstances": "ok",
        "ec2:TerminateInstances": "not asked",
        "ec2:CreateTags": "not asked",
        "Prometheus: CPU": "not asked",
        "Prometheus: pending pods": "not asked",
        "Prometheus: Ready nodes": "not asked",
    }
    assert all(each.seen.startswith("unknown yet: ") for each in about if each.check.startswith("Prometheus"))


# The store on DynamoDB


@pytest.fixture
def dynamodb(dynamodb_server: RunningServer, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", dynamodb_server.url)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", f"doctor{uuid4().hex}")
    return load_settings({"HOLDFAST_STORE": "dynamodb:"})


@pytest.mark.real
def test_dynamodb_tables_are_checked_and_usable(dynamodb: Settings) -> None:
    from holdfast.entrypoints.wiring.stores import opened_tables

    assert [str(each.outcome) for each in store.tables(dynamodb, CLOCK)] == ["failed"] * 6
    with opened_tables(dynamodb, CLOCK, writable=True) as tables:
        list(tables.create())
    assert outcomes(store.reached(dynamodb, CLOCK)) == [("store", "ok")]
    assert outcomes(store.tables(dynamodb, CLOCK)) == [("tables", "ok")]
    allowed = list(store.permissions(dynamodb, CLOCK))
    assert [str(each.outcome) for each in allowed] == ["ok"] * len(TABLES)
    from holdfast.entrypoints.wiring.stores import open_store
    from holdfast.ports.store import Key

    there = open_store(dynamodb, CLOCK)
    assert [
        there.get(table, Key("holdfast-doctor", None if table.sort is None else "holdfast-doctor")) for table in TABLES
    ] == [None] * len(TABLES)
    there.close()


@pytest.mark.real
def test_billing_is_a_warning_and_a_missing_index_a_failure(dynamodb: Settings, dynamodb_server: RunningServer) -> None:
    client = boto3.client("dynamodb", endpoint_url=dynamodb_server.url)
    client.create_table(
        TableName="workflow_jobs",
        KeySchema=[{"AttributeName": "PK", "KeyType": "HASH"}, {"AttributeName": "SK", "KeyType": "RANGE"}],
        AttributeDefinitions=[{"AttributeName": name, "AttributeType": "S"} for name in ("PK", "SK")],
        ProvisionedThroughput={"ReadCapacityUnits": 1, "WriteCapacityUnits": 1},
    )
    client.close()
    found = [each for each in store.tables(dynamodb, CLOCK) if each.check == "table workflow_jobs"]
    by_attribute = {each.seen.partition(":")[0]: str(each.outcome) for each in found}
    assert by_attribute == {
        "index GSI1": "failed",
        "index GSI2": "failed",
        "index GSI3": "failed",
        "ttl": "failed",
        "billing": "warning",
    }


def test_each_action_that_dynamodb_denies_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def denies(asked: Asked) -> Reply:
        call = asked.headers["x-amz-target"].rpartition(".")[2]
        action = {"TransactWriteItems": "ConditionCheckItem"}.get(call, call)
        body = {
            "__type": "com.amazon.coral.service#AccessDeniedException",
            "Message": denial(f"dynamodb:{action}", "arn:aws:dynamodb:eu-west-1:1:table/x"),
        }
        return Reply(json.dumps(body).encode(), 400, {"Content-Type": "application/x-amz-json-1.0"})

    with serving(denies) as server:
        monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", server.url)
        found = list(store.permissions(load_settings({"HOLDFAST_STORE": "dynamodb:"}), CLOCK))
    assert len(found) == 7 * len(TABLES)
    assert {each.seen.partition(" ")[0] for each in found} == {
        f"dynamodb:{name}"
        for name in ("BatchGetItem", "ConditionCheckItem", "DeleteItem", "GetItem", "PutItem", "Query", "UpdateItem")
    }
    assert {each.fix for each in found} == {"add statement Remember of deploy/iam/holdfast-policy.json to the role"}
