"""The doctor on launch templates, K3s addresses and proxies: what Holdfast cannot use is refused, with a fix."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final
from urllib.parse import urlsplit
from xml.sax.saxutils import escape

import pytest
from botocore.utils import get_environ_proxies

from holdfast.entrypoints.doctor import bootstrap, launch_template
from holdfast.entrypoints.doctor.findings import Finding, FindingOutcome
from holdfast.kernel.settings import Settings, load_settings
from tests.servers.scripted_http import Asked, Reply, serving

GOOD: Final[dict[str, Any]] = {
    "ImageId": "ami-0123456789abcdef0",
    "IamInstanceProfile": {"Name": "k3s-worker"},
    "SecurityGroupIds": ["sg-0123456789abcdef0"],
    "MetadataOptions": {"HttpTokens": "required", "HttpPutResponseHopLimit": 1},
    "BlockDeviceMappings": [{"DeviceName": "/dev/xvda", "Ebs": {"Encrypted": True, "KmsKeyId": "alias/aws/ebs"}}],
    "TagSpecifications": [{"ResourceType": "instance", "Tags": [{"Key": "team", "Value": "web"}]}],
}
KEY: Final = "arn:aws:kms:eu-west-1:123456789012:key/1234abcd-12ab-34cd-56ef-1234567890ab"


def found(**changes: Any) -> list[Finding]:
    given = {name: value for name, value in {**GOOD, **changes}.items() if value is not None}
    return list(launch_template.content_findings(given))


def test_a_template_as_the_guide_describes_it_is_fine() -> None:
    (only,) = found()
    assert (only.check, only.outcome) == ("launch template: content", FindingOutcome.OK)


@pytest.mark.parametrize(
    ("changes", "outcome", "seen", "fix"),
    [
        ({"InstanceMarketOptions": {"MarketType": "spot"}}, "failed", "InstanceMarketOptions", "USE_SPOT"),
        (
            {"NetworkInterfaces": [{"DeviceIndex": 0, "Groups": ["sg-1"]}], "SecurityGroupIds": None},
            "failed",
            "network interfaces",
            "SecurityGroupIds",
        ),
        ({"SecurityGroupIds": None, "SecurityGroups": ["workers"]}, "failed", "by name", "SecurityGroupIds"),
        ({"SecurityGroupIds": None}, "warning", "no security groups", "SecurityGroupIds"),
        (
            {"TagSpecifications": [{"ResourceType": "network-interface", "Tags": []}]},
            "warning",
            "it tags network-interface",
            "ec2:CreateTags",
        ),
        ({"ImageId": None}, "failed", "no image", "ImageId"),
        ({"MetadataOptions": {"HttpEndpoint": "disabled"}}, "failed", "metadata service", "HttpEndpoint=enabled"),
        ({"MetadataOptions": {"HttpPutResponseHopLimit": 2}}, "warning", "hop limit above 1", "EBS CSI driver"),
        ({"DisableApiTermination": True}, "failed", "protects machines", "without DisableApiTermination"),
        ({"UserData": "IyEvYmluL3No"}, "warning", "user data", "image"),
        ({"IamInstanceProfile": None}, "failed", "no instance profile", "docs/bootstrap.md"),
    ],
)
def test_what_holdfast_cannot_launch_with_is_named_with_a_fix(
    changes: dict[str, Any], outcome: str, seen: str, fix: str
) -> None:
    (only,) = found(**changes)
    assert str(only.outcome) == outcome
    assert seen in only.seen
    assert fix in only.fix


def test_a_disk_under_a_customers_key_is_supported_and_says_what_it_needs() -> None:
    key, rest = found(BlockDeviceMappings=[{"Ebs": {"KmsKeyId": KEY}}, {"VirtualName": "ephemeral0"}])
    assert (key.check, key.outcome, rest.outcome) == (
        "key of the disks",
        FindingOutcome.SKIPPED,
        FindingOutcome.OK,
    )
    assert key.seen.startswith(KEY)
    assert "docs/bootstrap.md#encrypted-disks" in key.seen
    assert "Client.InternalError" in key.seen


def test_an_image_that_ec2_looks_up_in_ssm_is_supported_and_says_what_it_needs() -> None:
    image, rest = found(ImageId="resolve:ssm:/golden/k3s")
    assert (image.outcome, rest.outcome) == (FindingOutcome.OK, FindingOutcome.OK)
    assert image.seen.startswith("resolve:ssm:/golden/k3s: ")
    assert "ssm:GetParameters" in image.seen


# Read from EC2


def settings(**more: str) -> Settings:
    return load_settings({"HOLDFAST_WORLD": "aws", "LAUNCH_TEMPLATE": "lt-0abc:3", **more})


@contextmanager
def ec2(monkeypatch: pytest.MonkeyPatch, reply: Reply) -> Iterator[list[Asked]]:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    with serving(lambda _: reply) as server:
        for name, value in {
            "AWS_ACCESS_KEY_ID": "test",
            "AWS_SECRET_ACCESS_KEY": "test",
            "AWS_DEFAULT_REGION": "eu-west-1",
            "AWS_ENDPOINT_URL_EC2": server.url,
        }.items():
            monkeypatch.setenv(name, value)
        yield server.asked


def versions(content: str) -> Reply:
    item = f"<item><versionNumber>3</versionNumber><launchTemplateData>{content}</launchTemplateData></item>"
    name = "DescribeLaunchTemplateVersionsResponse"
    namespace = "http://ec2.amazonaws.com/doc/2016-11-15/"
    return Reply(
        f'<{name} xmlns="{namespace}"><launchTemplateVersionSet>{item}</launchTemplateVersionSet></{name}>'.encode()
    )


def test_exactly_the_version_of_the_settings_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    reply = versions(
        "<imageId>ami-1</imageId><iamInstanceProfile><name>k3s-worker</name></iamInstanceProfile>"
        "<networkInterfaceSet><item><deviceIndex>0</deviceIndex></item></networkInterfaceSet>"
        "<instanceMarketOptions><marketType>spot</marketType></instanceMarketOptions>"
    )
    with ec2(monkeypatch, reply) as asked:
        seen = list(launch_template.content(settings()))
    assert [str(each.outcome) for each in seen] == ["failed", "failed"]
    assert "InstanceMarketOptions" in seen[0].seen
    assert "network interfaces" in seen[1].seen
    assert [(one.form["LaunchTemplateId"], one.form["LaunchTemplateVersion.1"]) for one in asked] == [("lt-0abc", "3")]


def test_without_the_permission_to_read_it_there_is_a_warning_with_the_statement(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Only this command reads the template: ticks do without, so this is no failure."""
    words = "User: arn:aws:sts::1:assumed-role/x/y is not authorized to perform: ec2:DescribeLaunchTemplateVersions"
    body = "<Response><Errors><Error><Code>UnauthorizedOperation</Code>"
    denied = f"{body}<Message>{escape(words)} because no</Message></Error></Errors></Response>"
    with ec2(monkeypatch, Reply(denied.encode(), 403, {"Content-Type": "text/xml"})):
        (only,) = launch_template.content(settings())
    assert only.outcome is FindingOutcome.WARNING
    assert only.fix == "add statement Look of deploy/iam/holdfast-policy.json to the role"


def test_a_version_that_does_not_exist_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "DescribeLaunchTemplateVersionsResponse"
    with ec2(monkeypatch, Reply(f"<{name}><launchTemplateVersionSet/></{name}>".encode())):
        (only,) = launch_template.content(settings())
    assert "lt-0abc:3 does not exist" in only.seen
    assert only.fix.startswith("correct LAUNCH_TEMPLATE")


# K3s servers and proxies


@pytest.mark.parametrize(
    ("url", "words"),
    [
        ("https://k3s.example.com:6443", "each needs --tls-san k3s.example.com"),
        ("https://10.0.0.10:6443", "10.0.0.10: one address; with several servers"),
        ("https://[fd00::10]:6443", "fd00::10: one address"),
    ],
)
def test_one_address_or_a_name_in_front_of_several_servers_is_supported(url: str, words: str) -> None:
    (only,) = bootstrap.server(settings(K3S_URL=url))
    assert only.outcome is FindingOutcome.OK
    assert words in only.seen


def test_a_proxy_is_named_with_what_does_not_use_it() -> None:
    assert list(bootstrap.proxies({})) == []
    (only,) = bootstrap.proxies({"HTTPS_PROXY": "http://user:secret@proxy:3128"})
    assert (only.outcome, "secret" in only.seen) == (FindingOutcome.WARNING, False)
    assert "HTTPS_PROXY is set: AWS is called through it; Kubernetes, Prometheus, GitHub" in only.seen


@pytest.mark.parametrize("name", ["HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy"])
def test_a_proxy_that_aws_is_not_called_through_is_no_such_proxy(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    environment = {name: "http://proxy:3128", "NO_PROXY": "169.254.169.254"}
    (only,) = bootstrap.proxies(environment)
    assert f"{name} is set, but not HTTPS_PROXY: AWS is called directly" in only.seen
    assert _proxy_of_botocore("https://ec2.eu-west-1.amazonaws.com/", environment, monkeypatch) is None


@pytest.mark.parametrize(
    ("environment", "is_named"),
    [
        ({"HTTPS_PROXY": "http://proxy:1"}, False),
        ({"HTTP_PROXY": "http://proxy:1"}, True),
        ({"HTTP_PROXY": "http://proxy:1", "NO_PROXY": "169.254.169.254,.internal"}, False),
        ({"HTTP_PROXY": "http://proxy:1", "NO_PROXY": "*"}, False),
        ({"http_proxy": "http://proxy:1", "NO_PROXY": "169.254.0.0/16"}, True),
        ({"http_proxy": "http://proxy:1", "NO_PROXY": "169.254.169.254", "no_proxy": ".internal"}, True),
    ],
)
def test_the_metadata_service_behind_a_proxy_is_named_exactly_if_botocore_would_ask_there(
    environment: dict[str, str], is_named: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    fixes = [finding.fix for finding in bootstrap.proxies(environment)]
    assert any("add 169.254.169.254 to NO_PROXY" in fix for fix in fixes) is is_named
    asked = _proxy_of_botocore("http://169.254.169.254/", environment, monkeypatch)
    assert (asked is not None) is is_named


def _proxy_of_botocore(url: str, environment: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> str | None:
    for name in ("http_proxy", "https_proxy", "all_proxy", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    found: str | None = get_environ_proxies(url).get(urlsplit(url).scheme)
    return found
