"""The AWS region, for every client.

boto3 reads `AWS_DEFAULT_REGION` and the profile. AWS's other SDKs read `AWS_REGION`, which ECS and many shells set
alone. `AWS_DEFAULT_REGION` still comes first: an update of Holdfast must not look for its tables in another region.
"""

import os
from dataclasses import dataclass
from typing import Final

import boto3
from botocore.exceptions import BotoCoreError

VARIABLES: Final = ("AWS_DEFAULT_REGION", "AWS_REGION")  # the first that is set counts


@dataclass(frozen=True, slots=True)
class AwsRegion:
    """`source` is the variable or the profile that names the region; `ignored` is a variable that names another."""

    name: str
    source: str
    ignored: str = ""


def region_variable() -> str | None:
    """The region that the environment names; None if boto3 must look in the profile."""
    return next((value for _, value in _named()), None)


def aws_region() -> AwsRegion | None:
    """The region in use, and where it comes from; None if there is none."""
    if named := _named():
        (source, region), *others = named
        return AwsRegion(region, source, "".join(f"{name}={value}" for name, value in others if value != region))
    try:
        session = boto3.session.Session()
    except BotoCoreError:  # a profile that does not exist: the check of the credentials says so
        return None
    return AwsRegion(session.region_name, f"profile {session.profile_name}") if session.region_name else None


def _named() -> list[tuple[str, str]]:
    return [(name, os.environ[name]) for name in VARIABLES if os.environ.get(name)]
