"""The IAM policies allow what the adapters call, and no more."""

import ast
import json
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any, Final

import botocore.session
import pytest
from botocore import xform_name

from holdfast.jobs.migration.layout import UNSTORED
from holdfast.kernel.settings import SETTINGS
from holdfast.kernel.settings.world import CLUSTER_TAG
from holdfast.ports.machines import ACCEPTED_TAG
from holdfast.ports.store.tables import TABLES

ROOT: Final = Path(__file__).parents[3]
ADAPTERS: Final = ROOT / "src" / "holdfast" / "adapters"
POLICIES: Final = sorted((ROOT / "deploy" / "iam").glob("*.json"))
RUNNING: Final = ROOT / "deploy" / "iam" / "holdfast-policy.json"
SERVICES: Final = ("ec2", "pricing", "s3", "sns", "sqs", "ssm")
CLIENTS: Final = {path: path.stem for path in (ADAPTERS / "aws" / f"{name}.py" for name in SERVICES)}

# What a call needs besides, or instead of, the action of the same name.
TRANSACTION: Final = {f"dynamodb:{name}" for name in ("ConditionCheckItem", "DeleteItem", "PutItem", "UpdateItem")}
INSTEAD: Final = {
    "dynamodb:TransactWriteItems": TRANSACTION,
    # IAM's names for these calls are not the API's.
    "s3:ListObjectsV2": {"s3:ListBucket"},
    "s3:GetBucketLifecycleConfiguration": {"s3:GetLifecycleConfiguration"},
    "s3:PutBucketLifecycleConfiguration": {"s3:PutLifecycleConfiguration"},
}
BESIDE: Final = {
    "ec2:RunInstances": {"ec2:CreateTags", "iam:PassRole"},  # tags in the same call; the template's instance profile
    "ssm:GetParameter": {"kms:Decrypt"},  # of a SecureString
}

each_policy = pytest.mark.parametrize("policy", POLICIES, ids=lambda path: path.name)


@cache
def operations(service: str) -> dict[str, str]:
    """The API's calls by boto3's names for them."""
    names = botocore.session.get_session().get_service_model(service).operation_names
    return {xform_name(name): name for name in names}


def called() -> set[str]:
    """Every API call in the source of the adapters, by the name of its IAM action."""
    plain = {f"{service}:{name}" for path, service in CLIENTS.items() for name in client_calls(path, service)}
    plain |= {f"dynamodb:{name}" for path in (ADAPTERS / "dynamodb").glob("*.py") for name in dynamodb_calls(path)}
    needed = {action for call in plain for action in INSTEAD.get(call, {call})}
    return needed | {action for call in plain for action in BESIDE.get(call, set())}


def client_calls(path: Path, service: str) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        match node:
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="_client"), attr="get_paginator"), args=[name]):
                assert isinstance(name, ast.Constant)
                yield operations(service)[str(name.value)]
            case ast.Call(func=ast.Attribute(value=ast.Attribute(attr="_client"), attr=method)) if method != "close":
                yield operations(service)[method]


def dynamodb_calls(path: Path) -> Iterator[str]:
    """There the call is an argument: every string that is the name of a call."""
    known = set(operations("dynamodb").values())
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Constant) and node.value in known:
            yield str(node.value)


def statements(policy: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(policy.read_text(encoding="utf-8"))["Statement"]
    return found


def several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def actions(policy: Path) -> set[str]:
    return {action for statement in statements(policy) for action in several(statement["Action"])}


def statement_of(action: str) -> Iterator[dict[str, Any]]:
    return (statement for statement in statements(RUNNING) if action in several(statement["Action"]))


def resources_in(statement: dict[str, Any]) -> set[str]:
    return {arn.rpartition(":table/")[2] for arn in several(statement["Resource"])}


def tables_in(statement: dict[str, Any]) -> set[str]:
    return {name.partition("/")[0] for name in resources_in(statement)}


def test_every_call_is_found() -> None:
    """Otherwise the next test would pass for an adapter that is written differently."""
    services = {action.partition(":")[0] for action in called()}
    assert services == {"dynamodb", "ec2", "iam", "kms", "pricing", "s3", "sns", "sqs", "ssm"}
    assert {"ec2:RunInstances", "ec2:DescribeInstances", "dynamodb:UpdateItem", "dynamodb:UpdateTable"} <= called()
    made = re.compile(r"(boto3\.|aws_)client\(")
    clients = {path for path in ADAPTERS.rglob("*.py") if made.search(path.read_text(encoding="utf-8"))}
    assert clients == {*CLIENTS, ADAPTERS / "dynamodb" / "boto3_transport.py", ADAPTERS / "aws" / "clients.py"}


def test_every_call_of_the_adapters_is_allowed_and_nothing_else_is() -> None:
    assert {action for policy in POLICIES for action in actions(policy)} == called()


@each_policy
def test_no_action_contains_a_wildcard(policy: Path) -> None:
    assert [action for action in actions(policy) if "*" in action or "?" in action] == []
    assert [statement for statement in statements(policy) if {"NotAction", "NotResource"} & set(statement)] == []


@each_policy
def test_only_read_actions_are_allowed_on_all_resources(policy: Path) -> None:
    everywhere = [statement for statement in statements(policy) if "*" in several(statement["Resource"])]
    looking = {action for statement in everywhere for action in several(statement["Action"])}
    assert all(action.startswith(("ec2:Describe", "pricing:Get")) for action in looking)


def test_machines_can_be_launched_only_from_the_template_and_with_our_tags() -> None:
    launching = [s for s in statement_of("ec2:RunInstances") if s["Effect"] == "Allow"]
    of_template = [s for s in launching if ":launch-template/" not in str(s["Resource"])]
    assert len(launching) - len(of_template) == 1
    assert all("ec2:LaunchTemplate" in statement["Condition"]["ArnLike"] for statement in of_template)
    (instances,) = (s for s in launching if ":instance/" in str(s["Resource"]))
    assert f"aws:RequestTag/{CLUSTER_TAG}" in instances["Condition"]["StringEquals"]
    assert instances["Condition"]["StringEquals"]["ec2:MetadataHttpTokens"] == "required"


def test_only_our_machines_are_terminated_and_only_new_ones_get_any_tag() -> None:
    (terminating,) = statement_of("ec2:TerminateInstances")
    assert terminating["Condition"]["StringEquals"] == {f"aws:ResourceTag/{CLUSTER_TAG}": "CLUSTER"}
    launching, _ = statement_of("ec2:CreateTags")
    assert launching["Condition"]["StringEquals"]["ec2:CreateAction"] == "RunInstances"


def test_a_running_machine_of_ours_gets_one_tag_and_no_other() -> None:
    _, marking = statement_of("ec2:CreateTags")
    assert several(marking["Resource"]) == ["arn:aws:ec2:REGION:ACCOUNT:instance/*"]
    assert marking["Condition"] == {
        "StringEquals": {f"aws:ResourceTag/{CLUSTER_TAG}": "CLUSTER"},
        "ForAllValues:StringEquals": {"aws:TagKeys": [ACCEPTED_TAG]},
        "Null": {"aws:TagKeys": "false"},  # for no keys at all, "for all values" would hold
    }


def test_the_runtime_policy_creates_no_tables_and_reads_their_indexes() -> None:
    assert not {"dynamodb:CreateTable", "dynamodb:UpdateTable", "dynamodb:UpdateTimeToLive"} & actions(RUNNING)
    (writing,) = statement_of("dynamodb:UpdateItem")
    assert tables_in(writing) == {table.name for table in TABLES}
    indexed = {name.removesuffix("/index/*") for name in resources_in(writing) if name.endswith("/index/*")}
    assert indexed == {table.name for table in TABLES if table.indexes}
    (looking,) = statement_of("dynamodb:DescribeTable")
    assert tables_in(looking) == {table.name for table in TABLES}


def test_each_secret_of_a_setting_may_be_read_and_decrypted() -> None:
    """By the names in the settings' examples, which the policy uses too. Only the workers read the K3s token."""
    ours = [row for row in SETTINGS if row.name.endswith("_PARAMETER") and row.name != "K3S_TOKEN_PARAMETER"]
    assert {"GITHUB_APP_KEY_PARAMETER", "GITHUB_TOKEN_PARAMETER"} <= {row.name for row in ours}
    named = {f"arn:aws:ssm:REGION:ACCOUNT:parameter{row.example}" for row in ours}
    (reading,) = statement_of("ssm:GetParameter")
    assert set(several(reading["Resource"])) == named
    (decrypting,) = statement_of("kms:Decrypt")
    assert set(decrypting["Condition"]["StringEquals"]["kms:EncryptionContext:PARAMETER_ARN"]) == named


def test_no_webhook_and_no_agents_configuration_can_be_deleted() -> None:
    """Only the notes that Holdfast itself stores next to the webhooks."""
    migration = ROOT / "deploy" / "iam" / "migration-policy.json"
    (deleting,) = (s for s in statements(migration) if "s3:DeleteObject" in several(s["Action"]))
    assert several(deleting["Resource"]) == [f"arn:aws:s3:::BUCKET/{UNSTORED}*"]
    assert "runners" not in migration.read_text(encoding="utf-8")
