"""What the shipped policy decides about requests: Holdfast's own are allowed, and wider ones are denied.

A launch is one request on several resources, and each of them must be allowed. The keys are those that EC2's service
authorization reference lists for each resource.
"""

import json
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.adapters.aws.ec2 import _launch_request
from holdfast.cluster.seen import ACTION_TAG, ATTEMPT_TAG, SEQUENCE_TAG, SLOT_TAG
from holdfast.kernel.settings.world import CLUSTER_TAG
from holdfast.ports.machines import ACCEPTED_TAG, LaunchOrder, Market
from tests.support.iam_evaluation import Context, is_allowed

ROOT: Final = Path(__file__).parents[3]
ARN: Final = "arn:aws:ec2:eu-west-1:123456789012:"
TEMPLATE: Final = f"{ARN}launch-template/lt-0123456789abcdef0"
PROFILE: Final = "arn:aws:iam::123456789012:instance-profile/k3s-worker"
TAGS: Final = {
    CLUSTER_TAG: "cluster",
    ACTION_TAG: "a-1",
    SEQUENCE_TAG: "1",
    SLOT_TAG: "0",
    ATTEMPT_TAG: "1",
}


def filled_in() -> list[dict[str, Any]]:
    """The policy with the values of docs/cluster.md, inserted as its command does."""
    text = (ROOT / "deploy" / "iam" / "holdfast-policy.json").read_text(encoding="utf-8")
    command = (
        (ROOT / "docs" / "cluster.md").read_text(encoding="utf-8").partition("sed -e ")[2].partition("deploy/iam")[0]
    )
    for name, value, everywhere in re.findall(r"s/([A-Z0-9-]+)/([^/\s]+)/(g?)", command):
        lines = [line.replace(name, value, -1 if everywhere else 1) for line in text.splitlines()]
        text = "\n".join(lines)
    found: list[dict[str, Any]] = json.loads(text)["Statement"]
    return found


POLICY: Final = filled_in()


def launch(**changes: Any) -> dict[str, dict[str, Any]]:
    """Holdfast's launch, resource by resource; `changes` replaces the keys of a resource (None removes one)."""
    order = LaunchOrder(
        template="lt-0123456789abcdef0:3",
        instance_type="t3.medium",
        subnet_id="subnet-0aaa1111",
        market=Market.SPOT,
        zone="eu-west-1a",
        token="a" * 32,
        tags=TAGS,
        user_data="",
    )
    request = _launch_request(order)
    template = {"ec2:LaunchTemplate": TEMPLATE}
    from_template = {**template, "ec2:IsLaunchTemplateResource": "true"}
    metadata = request["MetadataOptions"]
    requested = {f"aws:RequestTag/{tag['Key']}": tag["Value"] for tag in request["TagSpecifications"][0]["Tags"]}
    parts: dict[str, dict[str, Any]] = {
        TEMPLATE: {},
        "arn:aws:ec2:eu-west-1::image/ami-1": from_template,
        f"{ARN}security-group/sg-1": from_template,
        f"{ARN}subnet/{request['SubnetId']}": template,
        f"{ARN}network-interface/*": template,
        f"{ARN}volume/*": {**template, **requested, "ec2:VolumeSize": "20", "ec2:VolumeType": "gp3"},
        f"{ARN}instance/*": {
            **template,
            **requested,
            "ec2:InstanceType": request["InstanceType"],
            "ec2:InstanceProfile": PROFILE,
            "ec2:MetadataHttpTokens": metadata["HttpTokens"],
            "ec2:MetadataHttpPutResponseHopLimit": str(metadata["HttpPutResponseHopLimit"]),
        },
    }
    for part, keys in changes.items():
        (name,) = (arn for arn in parts if f"{part.replace('_', '-')}/" in arn)
        parts[name] = {key: value for key, value in {**parts[name], **keys}.items() if value is not None}
    return parts


def may_launch(parts: Mapping[str, Context]) -> bool:
    return all(is_allowed(POLICY, "ec2:RunInstances", resource, keys) for resource, keys in parts.items())


def tagging(keys: list[str], **more: str) -> Iterator[bool]:
    context = {"aws:TagKeys": keys, **{f"aws:RequestTag/{key}": TAGS.get(key, "x") for key in keys}, **more}
    return (is_allowed(POLICY, "ec2:CreateTags", f"{ARN}{kind}/*", context) for kind in ("instance", "volume"))


def test_no_value_is_left_to_insert() -> None:
    names = r"REGION|ACCOUNT|TEMPLATE|CLUSTER|SUBNET\d|TYPE\d|VOLUME-GIB|WORKER-[A-Z]+|\bKEY\b"
    assert re.findall(names, json.dumps(POLICY)) == []


def test_our_launch_is_allowed() -> None:
    assert may_launch(launch())


@pytest.mark.parametrize(
    "changes",
    [
        {"instance": {"ec2:InstanceType": "p5.48xlarge"}},
        {"instance": {"ec2:InstanceProfile": "arn:aws:iam::123456789012:instance-profile/admin"}},
        {"instance": {"ec2:InstanceProfile": None}},
        {"instance": {f"aws:RequestTag/{CLUSTER_TAG}": "another"}},
        {"instance": {f"aws:RequestTag/{CLUSTER_TAG}": None}},
        {"instance": {"ec2:MetadataHttpTokens": "optional"}},
        {"instance": {"ec2:MetadataHttpPutResponseHopLimit": "2"}},
        {"instance": {"ec2:LaunchTemplate": None}},
        {"volume": {"ec2:VolumeSize": "16384"}},
        {"volume": {"ec2:VolumeType": "io2"}},
        {"volume": {"ec2:VolumeSize": None}},
        {"image": {"ec2:IsLaunchTemplateResource": "false"}},
        {"security_group": {"ec2:IsLaunchTemplateResource": "false"}},
    ],
    ids=str,
)
def test_a_wider_launch_is_denied(changes: dict[str, Any]) -> None:
    assert not may_launch(launch(**changes))


def test_a_new_interface_is_allowed_and_an_existing_one_is_not() -> None:
    existing = {f"{ARN}network-interface/eni-0123456789abcdef0": {"ec2:LaunchTemplate": TEMPLATE}}
    assert not may_launch({**launch(), **existing})


def test_a_subnet_or_a_template_of_others_is_denied() -> None:
    assert not may_launch({f"{ARN}subnet/subnet-0fff": {"ec2:LaunchTemplate": TEMPLATE}})
    assert not may_launch({f"{ARN}launch-template/lt-other": {}})


def test_at_launch_only_our_tags_are_set() -> None:
    created = {"ec2:CreateAction": "RunInstances"}
    assert all(tagging(list(TAGS), **created))
    assert not any(tagging([*TAGS, "kubernetes.io/cluster/other"], **created))
    assert not any(tagging([*TAGS, ACCEPTED_TAG], **created))
    assert not any(tagging([ACTION_TAG], **created))
    assert not any(tagging(list(TAGS), **{"ec2:CreateAction": "CreateVolume"}))
    assert not any(tagging(list(TAGS)))


@pytest.mark.parametrize(
    ("keys", "may"),
    [
        ({}, True),
        ({"ec2:InstanceProfile": "arn:aws:iam::123456789012:instance-profile/k3s-server"}, False),
        ({"ec2:InstanceProfile": None}, False),
        ({f"aws:ResourceTag/{CLUSTER_TAG}": "another"}, False),
        ({f"aws:ResourceTag/{CLUSTER_TAG}": None}, False),
    ],
    ids=str,
)
def test_only_our_workers_are_terminated(keys: dict[str, Any], may: bool) -> None:
    """The tag alone would not protect a server that somebody tagged by mistake."""
    context = {f"aws:ResourceTag/{CLUSTER_TAG}": "cluster", "ec2:InstanceProfile": PROFILE, **keys}
    known = {key: value for key, value in context.items() if value is not None}
    assert is_allowed(POLICY, "ec2:TerminateInstances", f"{ARN}instance/i-1", known) is may


def test_a_running_machine_gets_the_mark_of_acceptance_and_no_other_tag() -> None:
    ours = {f"aws:ResourceTag/{CLUSTER_TAG}": "cluster"}
    for keys, may in (([ACCEPTED_TAG], True), ([ACCEPTED_TAG, CLUSTER_TAG], False), ([CLUSTER_TAG], False)):
        assert is_allowed(POLICY, "ec2:CreateTags", f"{ARN}instance/i-1", {**ours, "aws:TagKeys": keys}) is may
    assert not is_allowed(POLICY, "ec2:CreateTags", f"{ARN}instance/i-1", ours)
