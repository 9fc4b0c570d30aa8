# ruff: noqa: RUF009  setting() returns a new dataclass field each time
"""Settings of the job tracker: when a job counts as stuck, the base URL of its links, and prices."""

from dataclasses import dataclass
from pathlib import Path
from typing import Literal, get_args

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Choice, Location, Maybe, Number, Text, WholeSeconds

IndexProjectionName = Literal["keys", "status"]


def _stuck_after(default: int, what: str) -> int:
    return setting(
        WholeSeconds(1, 90 * 86_400),
        default=default,
        example=str(default),
        group="Jobs",
        unit="seconds",
        help_text=f"A job is stuck when it has been {what} for longer than this.",
    )


def _unit_price(default: float, what: str) -> float:
    return setting(
        Number(0, 1000),
        default=default,
        example=f"{default:g}",
        group="Jobs",
        help_text=f"The price of a million {what} in US dollars, for 'holdfast cost --dynamodb'.",
    )


@dataclass(frozen=True, kw_only=True)
class JobsSettings(Declaration):
    github_url: str = setting(
        Text("an http:// or https:// URL without a trailing slash", r"https?://[!-~]{0,199}[!-.0-~]"),
        default="https://github.com",
        example="https://github.example.com",
        group="GitHub",
        help_text="The URL of GitHub's web pages, for links to jobs and runs.",
    )
    stuck_queued_sec: int = _stuck_after(900, "queued without a requested runner")
    stuck_scheduled_sec: int = _stuck_after(900, "waiting for its requested runner")
    stuck_running_sec: int = _stuck_after(6 * 3600, "running")
    team_property: str = setting(
        Text("the name of a custom property", r"[!-~]{1,75}"),
        default="team",
        example="owning_team",
        group="Jobs",
        help_text="The custom property of a repository that names its team, for costs by team.",
    )
    jobs_index_projection: IndexProjectionName = setting(
        Choice(get_args(IndexProjectionName)),
        default="keys",
        example="status",
        group="Jobs",
        help_text="What the jobs' indexes by repository and by run (GSI2, GSI3) contain: keys, or also status and "
        "conclusion, for programs that read the tables themselves. Holdfast needs only keys.",
    )
    figures_sec: int | None = setting(
        Maybe(WholeSeconds(10, 3600)),
        default=None,
        example="120",
        group="Jobs",
        unit="seconds",
        help_text="How often ended jobs are counted, for statistics and costs. If not set, every 720 seconds on "
        "DynamoDB, where counting costs read units, and every 60 seconds otherwise.",
    )
    prices_file: Path | None = setting(
        Maybe(Location("a path to a file")),
        default=None,
        example="/etc/holdfast/prices.json",
        group="Jobs",
        help_text="A file with EC2 prices, in the format of holdfast/jobs/cost/prices.json. If not set, the file that "
        "'holdfast prices refresh' wrote to the data directory, or else the shipped one.",
    )
    dynamodb_write_usd: float = _unit_price(0.625, "on-demand write units")
    dynamodb_read_usd: float = _unit_price(0.125, "on-demand read units")
    dynamodb_provisioned_write_usd: float = _unit_price(0.18, "provisioned, fully used write units")
    dynamodb_provisioned_read_usd: float = _unit_price(0.036, "provisioned, fully used read units")
