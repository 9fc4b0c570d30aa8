# ruff: noqa: RUF009  setting() returns a new dataclass field each time
"""Settings for migrating from an older system that keeps webhooks in S3."""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Choice, Maybe, Text

MigrationPhase = Literal["off", "dual_write", "dual_read", "dynamodb_only"]

_PLACES: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """The key of a webhook's object, as a template.

    The status comes last, so that the objects of one job are adjacent in a listing.
    """

    expected: str = (
        "a key template with a fixed prefix, optionally {installation_id}, then {job_id} and {status}, each once"
    )

    def parse(self, raw: object) -> str:
        text = Text(self.expected, r"[!-~]{1,500}").parse(raw)
        places = _PLACES.findall(text)
        rest = _PLACES.sub("", text)
        # Two adjacent fields could not be separated again.
        if places not in (["job_id", "status"], ["installation_id", "job_id", "status"]) or "}{" in text:
            raise ValueError(self.expected)
        if "{" in rest or "}" in rest or text.startswith(("{", "/")):
            raise ValueError(self.expected)
        return text


@dataclass(frozen=True, kw_only=True)
class MigrationSettings(Declaration):
    jobs_migration: MigrationPhase = setting(
        Choice(get_args(MigrationPhase)),
        default="off",
        example="dual_write",
        group="Migration",
        help_text="The initial phase of the migration from S3: off or dual_write. "
        "Afterwards the stored phase applies, and 'holdfast migrate' changes it.",
    )
    s3_bucket: str | None = setting(
        Maybe(Text("the name of an S3 bucket", r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")),
        default=None,
        example="runs-on-s3bucket-1a2b3c",
        group="Migration",
        help_text="The bucket with the older system's webhooks. If not set, there is nothing to migrate.",
    )
    s3_webhook_layout: str = setting(
        KeyLayout(),
        default="webhooks/{installation_id}/{job_id}/{status}.json",
        example="webhooks/{job_id}/{status}",
        group="Migration",
        help_text="The key layout of webhook objects in S3_BUCKET.",
    )
    s3_runner_config_prefix: str = setting(
        Text("a key prefix", r"[!-~]{1,200}"),
        default="runners/",
        example="runners/",
        group="Migration",
        help_text="The key prefix of the agents' runner-config.json objects, which are never touched.",
    )
