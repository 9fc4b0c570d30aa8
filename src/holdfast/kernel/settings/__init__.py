# ruff: noqa: RUF009  setting() returns a new dataclass field each time
"""Settings: declared once, typed, and each with a default, a unit and a line of help.

Sources in order of precedence: a command-line flag where there is one, the environment, `holdfast.toml` (the same
names, flat), the default. The table `[runners]` is in the file only. Errors are reported before anything is touched. An
undeclared name is an error too: it is a typing mistake that would otherwise go unnoticed.

`holdfast settings` and the reference page are generated from the declarations below.
"""

import difflib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Literal, get_args

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings.bootstrap import BootstrapSettings
from holdfast.kernel.settings.cluster import ClusterSettings
from holdfast.kernel.settings.console import ConsoleSettings
from holdfast.kernel.settings.contradictions import contradictions
from holdfast.kernel.settings.declaring import Derived, Setting, setting, settings_of
from holdfast.kernel.settings.github import GitHubSettings
from holdfast.kernel.settings.jobs import JobsSettings
from holdfast.kernel.settings.kinds import Address, Choice, Location, Seconds, StoreAddress, Text, Whole
from holdfast.kernel.settings.loading import load
from holdfast.kernel.settings.migration import MigrationSettings
from holdfast.kernel.settings.runners import RunnerSettings, runner_settings
from holdfast.kernel.settings.tables import file_table
from holdfast.kernel.settings.world import WorldSettings

__all__ = [
    "SETTINGS",
    "BillingMode",
    "LogFormat",
    "LogLevel",
    "Setting",
    "Settings",
    "StoreAddress",
    "load_settings",
    "mistyped",
]

LogLevel = Literal["debug", "info", "warning", "error"]
LogFormat = Literal["text", "json"]
BillingMode = Literal["on-demand", "provisioned"]
DynamoClientName = Literal["lean", "boto3"]


def _table_name(default: str, holds: str) -> str:
    return setting(
        Text("a table name (3 to 255 of A-Z a-z 0-9 _ . -)", r"[A-Za-z0-9_.-]{3,255}"),
        default=default,
        example=default,
        group="Store",
        help_text=f"The DynamoDB table for {holds}.",
    )


@dataclass(frozen=True, kw_only=True)
class Settings(
    MigrationSettings,
    ConsoleSettings,
    BootstrapSettings,
    GitHubSettings,
    JobsSettings,
    WorldSettings,
    ClusterSettings,
):
    """Every setting of Holdfast. An attribute's name is the setting's name in lower case."""

    log_level: LogLevel = setting(
        Choice(get_args(LogLevel)),
        default="info",
        example="debug",
        group="General",
        help_text="The least severe level to log: debug, info, warning or error. Libraries never log at debug.",
    )
    log_format: LogFormat = setting(
        Choice(get_args(LogFormat)),
        default="text",
        example="json",
        group="General",
        help_text="The format of log lines: text for people, or one JSON object per line.",
    )
    holdfast_host: str = setting(
        Text("a host name or address", r"[A-Za-z0-9_.:%-]{1,255}"),
        default="127.0.0.1",
        example="0.0.0.0",  # noqa: S104  an example, not a default: it listens on every network interface
        group="Server",
        flag="--host",
        flag_value="HOST",
        help_text="The address the web server listens on.",
    )
    holdfast_port: int = setting(
        Whole(0, 65535),
        default=8080,
        example="8080",
        group="Server",
        flag="--port",
        flag_value="PORT",
        help_text="The port the web server listens on; 0 picks a free one.",
    )
    holdfast_data: Path = setting(
        Location("a path to a directory"),
        default=Path(".holdfast"),
        example="/var/lib/holdfast",
        group="Store",
        flag="--data",
        flag_value="DIR",
        help_text="The directory for Holdfast's own files; created if it does not exist. As a flag also a SQLite file.",
    )
    holdfast_store: StoreAddress = setting(
        Address(),
        default=Derived(
            "sqlite:HOLDFAST_DATA/holdfast.db",
            lambda earlier: StoreAddress("sqlite", earlier["holdfast_data"] / "holdfast.db"),
        ),
        example="dynamodb:",
        group="Store",
        help_text="Where state is stored: sqlite: and the path of a file, or dynamodb: for the tables named below.",
    )
    state_table: str = _table_name("k3s-autoscaler-state", "cluster state")
    logs_table: str = _table_name("k3s-autoscaler-logs", "scaling decisions")
    jobs_table: str = _table_name("workflow_jobs", "workflow jobs")
    job_events_table: str = _table_name("workflow_job_events", "the events of each workflow job")
    runs_table: str = _table_name("workflow_runs", "workflow runs")
    deployments_table: str = _table_name("deployments", "deployments")
    dynamodb_deadline_sec: float = setting(
        Seconds(0.1, 300),
        default=8.0,
        example="8",
        group="Store",
        unit="seconds",
        help_text="How long a call to DynamoDB is retried. An attempt in progress may take up to 4 s longer.",
    )
    dynamodb_client: DynamoClientName = setting(
        Choice(get_args(DynamoClientName)),
        default="lean",
        example="boto3",
        group="Store",
        help_text="The DynamoDB client: Holdfast's own (lean), or boto3. Behind a proxy it is always boto3.",
    )
    dynamodb_billing: BillingMode = setting(
        Choice(get_args(BillingMode)),
        default="on-demand",
        example="provisioned",
        group="Store",
        help_text="The billing mode of new DynamoDB tables: on-demand, or provisioned for a steady load.",
    )
    runners: RunnerSettings = file_table("runners", runner_settings, RunnerSettings())


SETTINGS: Final = settings_of(Settings)
_SIMILAR: Final = 0.87


def mistyped(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Variables whose names resemble a setting, with that setting. They may be another program's: only a warning."""
    known = [row.name for row in SETTINGS]
    for name in sorted(environment):
        if name in known or name.startswith(("HOLDFAST_", "AWS_")):  # checked when loaded; boto3's
            continue
        close = difflib.get_close_matches(name, known, n=1, cutoff=_SIMILAR)
        if close:
            yield name, close[0]


def load_settings(environment: Mapping[str, str], flags: Mapping[str, str] | None = None) -> Settings:
    """Holdfast's settings from all sources, or one `BadSetting` with a line for each problem."""
    settings = load(Settings, environment, flags)
    problems = list(contradictions(settings))
    if problems:
        raise BadSetting("\n".join(problems))
    return settings
