# ruff: noqa: RUF009  setting() makes a dataclass field, anew each time
"""The settings of the job tracker: when a job is stuck, where its links lead, and what things cost."""

from dataclasses import dataclass
from pathlib import Path

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Location, Maybe, Number, Text, WholeSeconds


def _patience(default: int, what: str) -> int:
    return setting(
        WholeSeconds(1, 90 * 86_400),
        default=default,
        example=str(default),
        group="Jobs",
        unit="seconds",
        help_text=f"A job that {what} for longer is stuck.",
    )


def _unit_price(default: float, what: str) -> float:
    return setting(
        Number(0, 1000),
        default=default,
        example=f"{default:g}",
        group="Jobs",
        help_text=f"US dollars for a million {what}: for 'holdfast cost --dynamodb'.",
    )


@dataclass(frozen=True, kw_only=True)
class JobsSettings(Declaration):
    github_url: str = setting(
        Text("an http:// or https:// address without a slash at its end", r"https?://[!-~]{0,199}[!-.0-~]"),
        default="https://github.com",
        example="https://github.example.com",
        group="GitHub",
        help_text="Where GitHub's pages are: links to jobs and runs begin with it.",
    )
    stuck_queued_sec: int = _patience(900, "is queued, and has no runner asked for,")
    stuck_scheduled_sec: int = _patience(900, "has a runner asked for, and does not begin")
    stuck_running_sec: int = _patience(6 * 3600, "runs")
    prices_file: Path | None = setting(
        Maybe(Location("a path to a file")),
        default=None,
        example="/etc/holdfast/prices.json",
        group="Jobs",
        help_text="EC2's prices, in the form of holdfast/jobs/prices.json. If not set, those that 'holdfast prices "
        "refresh' wrote into the data directory, else those that are shipped.",
    )
    dynamodb_write_usd: float = _unit_price(0.625, "write units of DynamoDB on demand")
    dynamodb_read_usd: float = _unit_price(0.125, "read units of DynamoDB on demand")
    dynamodb_provisioned_write_usd: float = _unit_price(0.18, "write units that are provisioned and fully used")
    dynamodb_provisioned_read_usd: float = _unit_price(0.036, "read units that are provisioned and fully used")
