"""What a person can do about a machine that ended before it joined."""

import pytest

from holdfast.fleet.end_reasons import REMEDIES, end_words, remedy_of
from holdfast.ports.machines import StateReason

# Written out: each code of EC2's documentation, and words of the remedy; "" where another launch may succeed.
EXPECTED = {
    "Client.InternalError": "KMS key",
    "Client.InvalidKMSKey.DisabledException": "the key that the image's disks are encrypted with",
    "Client.InvalidKMSKey.InvalidState": "the key that the image's disks are encrypted with",
    "Client.VolumeLimitExceeded": "higher quota",
    "Client.InvalidSnapshot.NotFound": "snapshot",
    "Client.InstanceInitiatedShutdown": "get-console-output",
    "Client.InstanceTerminated": "image",
    "Client.UserInitiatedShutdown": "CloudTrail",
    "Client.UserInitiatedHibernate": "hibernated",
    "Server.InsufficientInstanceCapacity": "",
    "Server.InternalError": "",
    "Server.ScheduledStop": "",
    "Server.SpotInstanceShutdown": "",
    "Server.SpotInstanceTermination": "",
    "Client.SomethingNew": "",
}


@pytest.mark.parametrize(("code", "words"), EXPECTED.items())
def test_each_reason_that_needs_a_person_names_a_remedy_and_others_none(code: str, words: str) -> None:
    remedy = remedy_of(StateReason(code, "why"))
    assert words in remedy
    assert bool(words) == bool(remedy)
    assert end_words(StateReason(code, "why")) == f"{code}: why" + (f"; {remedy}" if remedy else "")


def test_every_remedy_is_expected_here() -> None:
    assert set(REMEDIES) <= set(EXPECTED)
