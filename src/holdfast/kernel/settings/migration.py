# ruff: noqa: RUF009  setting() makes a dataclass field, anew each time
"""The settings of the way over from S3: where the older system keeps its webhooks, and how far the way is gone."""

import re
from dataclasses import dataclass
from typing import Final, Literal, get_args

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Choice, Maybe, Text

MigrationPhase = Literal["off", "dual_write", "dual_read", "dynamodb_only"]

_PLACES: Final = re.compile(r"\{([^{}]*)\}")


@dataclass(frozen=True, slots=True)
class KeyLayout:
    """The key of a webhook's object, with places for what tells one from another.

    The status comes last, so that the objects of one job stand beside each other in the bucket's order.
    """

    expected: str = (
        "a key with {job_id} and then {status}, each once, and {installation_id} before them or not at all, "
        "and with a text that all keys begin with"
    )

    def parse(self, given: object) -> str:
        text = Text(self.expected, r"[!-~]{1,500}").parse(given)
        places = _PLACES.findall(text)
        rest = _PLACES.sub("", text)
        # Two numbers side by side could not be told apart.
        is_apart = "}{" not in text
        if places not in (["job_id", "status"], ["installation_id", "job_id", "status"]) or not is_apart:
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
        help_text="The phase that the way over from S3 begins in: off or dual_write. "
        "Once one is stored, that one counts, and 'holdfast migrate' moves it.",
    )
    s3_bucket: str | None = setting(
        Maybe(Text("the name of an S3 bucket", r"[a-z0-9][a-z0-9.-]{1,61}[a-z0-9]")),
        default=None,
        example="runs-on-s3bucket-1a2b3c",
        group="Migration",
        help_text="The bucket with the webhooks of the older system. Left out: there is nothing to migrate.",
    )
    s3_webhook_layout: str = setting(
        KeyLayout(),
        default="webhooks/{installation_id}/{job_id}/{status}.json",
        example="webhooks/{job_id}/{status}",
        group="Migration",
        help_text="The keys of the webhooks' objects in S3_BUCKET.",
    )
    s3_runner_config_prefix: str = setting(
        Text("a prefix of keys", r"[!-~]{1,200}"),
        default="runners/",
        example="runners/",
        group="Migration",
        help_text="What the keys of the agents' runner-config.json begin with: these objects are never touched.",
    )
