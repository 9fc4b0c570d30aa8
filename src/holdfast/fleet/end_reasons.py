"""Why a new machine ended before it joined: EC2's state reason in words, with a remedy if a person can act. Pure.

EC2 accepts a launch before it has attached the disks: a key that may not be used, a missing snapshot or a full quota
ends the machine a few seconds later, and only its state reason says so.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.fleet.ec2_errors import ruling_on
from holdfast.ports.machines import StateReason

_CONSOLE: Final = "its console output may say why: aws ec2 get-console-output --latest --output text --instance-id ID"

# What the code does not say by itself. Codes that RunInstances also uses have their remedy in `ec2_errors`.
REMEDIES: Final[Mapping[str, str]] = {
    # The code of a disk whose key is disabled, is being deleted, or may not be used by the role that launches.
    "Client.InternalError": "most likely EC2 could not use the KMS key of its disks: enable the key, and allow "
    "Holdfast's role to use it, as in docs/bootstrap.md#encrypted-disks",
    "Client.InvalidSnapshot.NotFound": "the snapshot of a disk no longer exists: name another image or snapshot in the "
    "launch template",
    "Client.InstanceInitiatedShutdown": f"it shut itself down: {_CONSOLE}",
    "Client.InstanceTerminated": "it was ended while an image of it was created; create images of other machines",
    "Client.UserInitiatedShutdown": "a person or another program ended it through EC2's API; CloudTrail says who",
    "Client.UserInitiatedHibernate": "a person or another program hibernated it through EC2's API",
}


def remedy_of(reason: StateReason) -> str:
    """What a person can do about it; "" if nothing, because another launch may succeed (spot, capacity, EC2 itself)."""
    return REMEDIES.get(reason.code) or ruling_on(reason.code).remedy


def end_words(reason: StateReason) -> str:
    """``Client.InternalError: Client error on launch; most likely …``."""
    remedy = remedy_of(reason)
    return f"{reason.code}: {reason.message}" + (f"; {remedy}" if remedy else "")
