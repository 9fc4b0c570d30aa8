# ruff: noqa: RUF009  setting() returns a new dataclass field each time
"""Settings for calling GitHub's API: credentials, the sweep for lost webhooks, and automatic re-runs."""

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.kernel.settings.bootstrap import PARAMETER
from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Flag, Kind, Location, Maybe, Text, Whole, WholeSeconds, WordList

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
        Text("an https:// URL without a trailing slash", r"https://[!->@-~]{0,199}[!-.0->@-~]"),
        default="https://api.github.com",
        example="https://github.example.com/api/v3",
        group="GitHub",
        help_text="The URL of GitHub's API.",
    )
    github_ca_file: Path | None = _maybe(
        _FILE, "/etc/holdfast/github-ca.crt", "The CA certificate for GITHUB_API_URL. If not set, the system's."
    )
    github_app_id: int | None = _maybe(
        Maybe(Whole(1, 2**53)),
        "123456",
        "The GitHub App to authenticate as. Without an App or a token, Holdfast does not call GitHub.",
    )
    github_app_key_file: Path | None = _maybe(
        _FILE, "/etc/holdfast/github-app.pem", "A file with the App's private key in PEM format; read at each use."
    )
    github_app_key_parameter: str | None = _maybe(
        _PARAMETER, "/holdfast/github-app-key", "The SSM parameter with the App's private key in PEM format."
    )
    github_token_file: Path | None = _maybe(
        _FILE,
        "/etc/holdfast/github-token",
        "A file with a token, for use without an App. It can read and re-run runs, but not redeliver webhooks.",
    )
    github_token_parameter: str | None = _maybe(
        _PARAMETER, "/holdfast/github-token", "The SSM parameter with a token, for use without an App."
    )
    github_sweep_sec: int = _of(
        WholeSeconds(60, 86_400), 300, "How often the daemon sweeps GitHub for lost webhooks.", "seconds"
    )
    github_sweep_calls: int = _of(
        Whole(50, 5000),
        200,
        "The maximum number of GitHub API calls per sweep, without redeliveries after an outage. GitHub allows 5,000 "
        "per hour.",
    )
    github_installations: tuple[str, ...] | None = _maybe(
        Maybe(WordList("a list of installation ids; 0 stands for webhooks without one", "[0-9]{1,19}")),
        "12345678,87654321",
        "The installations whose webhooks are accepted. If not set, those of every installation that signs with the "
        "secret.",
    )
    webhook_oldest_sec: int = _of(
        WholeSeconds(86_400, 90 * 86_400),
        8 * 86_400,
        "Ignore webhooks older than this. GitHub can redeliver for three days, GitHub Enterprise Server for seven.",
        "seconds",
    )
    auto_retry: bool = _of(
        Flag(), True, "Whether to re-run failed jobs when EC2 interrupted the machines of all of them."
    )
    auto_retry_attempts: int = _of(
        Whole(1, 50), 3, "The number of attempts after which a run is no longer re-run automatically."
    )
    auto_retry_daily: int = _of(Whole(0, 10_000), 20, "The maximum number of automatic re-runs per repository and day.")
    auto_retry_deployments: bool = _of(Flag(), False, "Whether to re-run jobs that belong to a deployment, too.")


def contradictions(settings: GitHubSettings) -> Iterator[str]:
    """One line per contradiction."""
    s = settings
    keys = [s.github_app_key_file, s.github_app_key_parameter]
    tokens = [s.github_token_file, s.github_token_parameter]
    if s.github_app_id is None and any(keys):
        yield "a GitHub App key is set, but GITHUB_APP_ID is not; for example GITHUB_APP_ID=123456"
    if s.github_app_id is not None and not any(keys):
        yield (
            f"GITHUB_APP_ID={s.github_app_id} needs the App's private key; "
            "for example GITHUB_APP_KEY_FILE=/etc/holdfast/github-app.pem"
        )
    if all(keys):
        yield "GITHUB_APP_KEY_FILE and GITHUB_APP_KEY_PARAMETER are both set; leave one out"
    if all(tokens):
        yield "GITHUB_TOKEN_FILE and GITHUB_TOKEN_PARAMETER are both set; leave one out"
    if s.github_app_id is not None and any(tokens):
        yield "GITHUB_APP_ID and a GitHub token are both set; leave one out"
