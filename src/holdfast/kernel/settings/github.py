# ruff: noqa: RUF009  setting() makes a dataclass field, anew each time
"""The settings of what is asked of GitHub: as whom, how often, and when a run is run again."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.kernel.settings.bootstrap import PARAMETER
from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Flag, Kind, Location, Maybe, Text, Whole, WholeSeconds

_FILE = Maybe(Location("a path to a file"))
_PARAMETER = Maybe(Text("the name of an SSM parameter", PARAMETER))


def _maybe(kind: Kind[Any], example: str, help_text: str) -> Any:
    return setting(kind, default=None, example=example, group="GitHub", help_text=help_text)


def _of(kind: Kind[Any], default: Any, help_text: str, unit: str = "") -> Any:
    example = str(default).lower() if isinstance(default, bool) else str(default)
    return setting(kind, default=default, example=example, group="GitHub", help_text=help_text, unit=unit)


@dataclass(frozen=True, kw_only=True)
class GitHubSettings(Declaration):
    github_api_url: str = setting(
        Text("an https:// address without a slash at its end", r"https://[!->@-~]{0,199}[!-.0->@-~]"),
        default="https://api.github.com",
        example="https://github.example.com/api/v3",
        group="GitHub",
        help_text="Where GitHub's API is.",
    )
    github_ca_file: Path | None = _maybe(
        _FILE, "/etc/holdfast/github-ca.crt", "The certificate authority of GITHUB_API_URL; the system's if not set."
    )
    github_app_id: int | None = _maybe(
        Maybe(Whole(1, 2**53)),
        "123456",
        "The GitHub App to ask GitHub as. Without it, and without a token, GitHub is not asked.",
    )
    github_app_key_file: Path | None = _maybe(
        _FILE, "/etc/holdfast/github-app.pem", "A file with a private key of the App, in PEM; read at each use."
    )
    github_app_key_parameter: str | None = _maybe(
        _PARAMETER, "/holdfast/github-app-key", "The SSM parameter with a private key of the App, in PEM."
    )
    github_token_file: Path | None = _maybe(
        _FILE,
        "/etc/holdfast/github-token",
        "A file with a token, where there is no App: runs are asked about and run again; deliveries are not.",
    )
    github_token_parameter: str | None = _maybe(
        _PARAMETER, "/holdfast/github-token", "The SSM parameter with a token, where there is no App."
    )
    github_sweep_sec: int = _of(
        WholeSeconds(60, 86_400), 300, "How often the daemon looks for webhooks that were lost.", "seconds"
    )
    github_sweep_calls: int = _of(
        Whole(50, 5000), 200, "How many calls to GitHub one such look may make. GitHub allows 5,000 an hour."
    )
    webhook_oldest_sec: int = _of(
        WholeSeconds(86_400, 90 * 86_400),
        8 * 86_400,
        "A webhook that was sent longer ago is not used. GitHub sends again for three days, its Enterprise Server for "
        "seven.",
        "seconds",
    )
    auto_retry: bool = _of(Flag(), True, "Whether failed jobs are run again when EC2 took the machines of all of them.")
    auto_retry_attempts: int = _of(
        Whole(1, 50), 3, "An attempt with this number, or a higher one, is not run again by itself."
    )
    auto_retry_daily: int = _of(Whole(0, 10_000), 20, "How many runs of one repository are run again in a day.")
    auto_retry_deployments: bool = _of(Flag(), False, "Whether that holds for jobs with a deployment, too.")


def contradictions(settings: GitHubSettings) -> Iterator[str]:
    """A line for each."""
    s = settings
    keys = [s.github_app_key_file, s.github_app_key_parameter]
    tokens = [s.github_token_file, s.github_token_parameter]
    if s.github_app_id is None and any(keys):
        yield "the key of a GitHub App is named and GITHUB_APP_ID is not set; for example GITHUB_APP_ID=123456"
    if s.github_app_id is not None and not any(keys):
        yield (
            f"GITHUB_APP_ID={s.github_app_id} needs the key of the App; "
            "for example GITHUB_APP_KEY_FILE=/etc/holdfast/github-app.pem"
        )
    if all(keys):
        yield "GITHUB_APP_KEY_FILE and GITHUB_APP_KEY_PARAMETER are both set; leave one of them out"
    if all(tokens):
        yield "GITHUB_TOKEN_FILE and GITHUB_TOKEN_PARAMETER are both set; leave one of them out"
    if s.github_app_id is not None and any(tokens):
        yield "GITHUB_APP_ID and a token for GitHub are both set; leave one of them out"
