"""The launch template: what Holdfast cannot launch with, in words, before EC2 refuses it or a machine does not join.

A dry run in each subnet has EC2's own verdict. The template's content says what a dry run does not: a machine of the
wrong market, in the wrong security group, or with a disk whose key may not be used is launched, and fails later.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from dataclasses import replace
from functools import partial
from typing import Any, Final

from holdfast.entrypoints.doctor.aws import SECONDS, dry_client, dry_run, refused
from holdfast.entrypoints.doctor.findings import Finding, failed, ok, skipped, warning
from holdfast.kernel.ids import nonce
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import cut
from holdfast.ports.machines import LaunchOrder, MachineError, Market

LAUNCHES: Final = "launch template"
CONTENT: Final = "launch template: content"
READ: Final = "ec2:DescribeLaunchTemplateVersions"
_DISKS_KEY_OF_AWS: Final = "alias/aws/ebs"
_TAGGED: Final = ("instance", "volume")  # what the policy allows to tag
_TEXT_MOST: Final = 120

Content = Mapping[str, Any]


def content(settings: Settings) -> Iterator[Finding]:
    """Reads the template. Only this command does, so without the permission it is a warning."""
    from holdfast.adapters.aws.ec2 import Ec2Machines, ec2_client

    with closing(Ec2Machines(ec2_client(read_seconds=SECONDS))) as machines:
        try:
            found = machines.template_content(settings.launch_template or "")
        except MachineError as error:
            problem = refused(CONTENT, READ, error)
            yield warning(CONTENT, f"its content cannot be checked: {problem.seen}", problem.fix)
            return
    yield from content_findings(found)


def content_findings(found: Content) -> Iterator[Finding]:
    problems = [finding for check in _CHECKS for finding in check(found)]
    yield from problems
    if not any(problem.fix for problem in problems):
        yield ok(CONTENT, "its content is as it should be")


def _market(found: Content) -> Iterator[Finding]:
    if "InstanceMarketOptions" in found:
        seen = "it has InstanceMarketOptions, so on-demand launches would become what it says"
        yield failed(CONTENT, seen, "create a version without them: Holdfast chooses the market, see USE_SPOT")


def _network(found: Content) -> Iterator[Finding]:
    if found.get("NetworkInterfaces"):
        seen = "it defines network interfaces, and EC2 refuses them together with the subnet of a launch"
        yield failed(CONTENT, seen, "create a version without NetworkInterfaces and with SecurityGroupIds")
    elif found.get("SecurityGroups"):
        seen = "it has security groups by name, and EC2 refuses names together with the subnet of a launch"
        yield failed(CONTENT, seen, "create a version with SecurityGroupIds instead")
    elif not found.get("SecurityGroupIds"):
        seen = (
            "it has no security groups, so machines get the default group of the VPC and may not reach the K3s server"
        )
        yield warning(CONTENT, seen, "create a version with SecurityGroupIds, as docs/bootstrap.md describes")


def _tags(found: Content) -> Iterator[Finding]:
    kinds = {str(each.get("ResourceType", "")) for each in found.get("TagSpecifications", [])}
    others = sorted(kinds - set(_TAGGED))
    if others:
        seen = f"it tags {cut(', '.join(others), _TEXT_MOST)}; the policy allows tags on instances and volumes only"
        fix = "create a version without these TagSpecifications, or allow ec2:CreateTags on them for Holdfast's role"
        yield warning(CONTENT, seen, fix)


def _disks(found: Content) -> Iterator[Finding]:
    disks = (each.get("Ebs", {}) for each in found.get("BlockDeviceMappings", []))
    keys = sorted({str(disk["KmsKeyId"]) for disk in disks if disk.get("KmsKeyId")} - {_DISKS_KEY_OF_AWS})
    if keys:
        named = cut(", ".join(keys), _TEXT_MOST)
        yield skipped(
            "key of the disks",
            f"{named} cannot be tested without a launch: without the permissions of docs/bootstrap.md#encrypted-disks, "
            "new machines end with Client.InternalError",
        )


def _image(found: Content) -> Iterator[Finding]:
    image = str(found.get("ImageId", ""))
    if not image:
        yield failed(CONTENT, "it names no image", "create a version with an ImageId")
    elif image.startswith("resolve:ssm:"):
        seen = f"{cut(image, _TEXT_MOST)}: EC2 resolves it at each launch; Holdfast's role needs ssm:GetParameters"
        yield ok("image", seen)


def _metadata(found: Content) -> Iterator[Finding]:
    options = found.get("MetadataOptions", {})
    if options.get("HttpEndpoint") == "disabled":
        seen = "it disables the metadata service, without which a machine cannot join"
        yield failed(CONTENT, seen, "create a version with HttpEndpoint=enabled")
    if options.get("HttpPutResponseHopLimit", 1) > 1:
        seen = (
            "it has a metadata hop limit above 1, but Holdfast launches with 1: pods do not reach the metadata service"
        )
        fix = "run pods that need it in the host's network; the EBS CSI driver works without: see docs/bootstrap.md"
        yield warning(CONTENT, seen, fix)


def _termination(found: Content) -> Iterator[Finding]:
    if found.get("DisableApiTermination"):
        seen = "it protects machines from termination, so Holdfast could not remove any, and EC2 launches none as spot"
        yield failed(CONTENT, seen, "create a version without DisableApiTermination")


def _ignored(found: Content) -> Iterator[Finding]:
    if found.get("UserData"):
        seen = "it has user data, which each launch replaces"
        yield warning(CONTENT, seen, "put it into the image, or into /etc/rancher/k3s/config.yaml of the image")
    if not found.get("IamInstanceProfile"):
        seen = "it has no instance profile, so a machine cannot read the join token"
        yield failed(CONTENT, seen, "create a version with the profile of docs/bootstrap.md#the-role-of-the-machines")


_CHECKS: Final[tuple[Callable[[Content], Iterator[Finding]], ...]] = (
    _market,
    _network,
    _tags,
    _disks,
    _image,
    _metadata,
    _termination,
    _ignored,
)


def launches(settings: Settings) -> Iterator[Finding]:
    """A dry run in each subnet, as a scale-up would launch: also validates the template, tags, roles and disks."""
    from holdfast.adapters.aws.ec2 import Ec2Machines
    from holdfast.entrypoints.wiring.world import machine_tags
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
                finding = dry_run("ec2:RunInstances", partial(dry.launch, order))
                found.setdefault(finding, []).append(f"{market} in {subnet}")
    for finding, places in found.items():
        yield replace(finding, check=LAUNCHES, seen=f"{finding.seen}: {', '.join(places)}")
