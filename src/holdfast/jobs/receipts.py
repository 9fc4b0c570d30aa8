"""What became of a delivery."""

from enum import StrEnum

from msgspec import Struct

from holdfast.jobs.keys import JobKey
from holdfast.kernel.ids import InstallationId


class Result(StrEnum):
    STORED = "stored"  # its effect is durable
    DUPLICATE = "duplicate"  # it was before; all of its effect has been made sure of once more
    IGNORED = "ignored"  # an event that is not tracked
    UNUSABLE = "unusable"  # GitHub signed it, but it is not what it should be; recorded, to be looked at


class Receipt(Struct, frozen=True):
    """`job` is the job that the delivery told of; `reason` says why it was of no use."""

    result: Result
    delivery: str
    event: str
    reason: str = ""
    installation: InstallationId | None = None
    job: JobKey | None = None
