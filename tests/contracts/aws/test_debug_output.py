"""With LOG_LEVEL=debug, no command and no Lambda handler prints a secret.

Secrets come from SSM (over HTTP, from moto's server), and from settings. Each contains the word `canary`.
"""

import os
from pathlib import Path
from typing import Any, Final

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.entrypoints import lambda_handlers
from holdfast.kernel.settings import SETTINGS
from tests.servers.processes import RunningServer
from tests.support.commands import ARGUMENTS, REFUSED

CANARY: Final = "canary"
PARAMETERS: Final = ("/debug/kube-token", "/debug/github-token", "/debug/k3s-token")
NOWHERE: Final = "https://127.0.0.1:1"  # refuses every connection
SETTING_SECRETS: Final = {
    "AWS_SECRET_ACCESS_KEY": f"{CANARY}/aws",
    "GITHUB_WEBHOOK_SECRET": f"{CANARY}-webhook-secret",
    "EVENTS_SECRET": f"{CANARY}-events-secret-1",
    "CONSOLE_TOKEN": f"{CANARY}-operator-token",
    "CONSOLE_READ_TOKEN": f"{CANARY}-reader-token",
    "SLACK_WEBHOOK_URL": f"{NOWHERE}/services/{CANARY}",
    "NOTIFY_WEBHOOK_URL": f"{NOWHERE}/{CANARY}",
}


class Invocation:
    """Lambda's context."""

    aws_request_id: Final = "request-1"

    def get_remaining_time_in_millis(self) -> int:
        return 1_000  # one look, and no loop


@pytest.fixture(autouse=True)
def account(moto_server: RunningServer, raw: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name in [*os.environ]:
        if name.startswith(("HOLDFAST_", "AWS_")) or name in {row.name for row in SETTINGS}:
            monkeypatch.delenv(name)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # boto3 keeps the first credentials it saw
    monkeypatch.chdir(tmp_path)
    for name in PARAMETERS:
        raw("ssm").put_parameter(Name=name, Value=f"{CANARY}-{name}", Type="SecureString", Overwrite=True)
    for name, value in {
        **SETTING_SECRETS,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "AWS_ENDPOINT_URL": moto_server.url,
        "LOG_LEVEL": "debug",
        "HOLDFAST_WORLD": "aws",
        "LAUNCH_TEMPLATE": "lt-0abc:3",
        "SUBNETS": raw("ec2").describe_subnets()["Subnets"][0]["SubnetId"],
        "PROMETHEUS_URL": NOWHERE,
        "KUBE_SERVER": NOWHERE,
        "KUBE_TOKEN_PARAMETER": "/debug/kube-token",
        "K3S_URL": NOWHERE,
        "K3S_TOKEN_PARAMETER": "/debug/k3s-token",
        "GITHUB_API_URL": NOWHERE,
        "GITHUB_TOKEN_PARAMETER": "/debug/github-token",
    }.items():
        monkeypatch.setenv(name, value)


@pytest.mark.parametrize("path", sorted([*ARGUMENTS, *REFUSED]))
def test_no_command_prints_a_secret(path: str) -> None:
    result = CliRunner().invoke(cli, [*path.split(), *ARGUMENTS.get(path, "").split()], prog_name="holdfast")
    assert CANARY not in result.output
    assert CANARY not in str(result.exception)


@pytest.mark.parametrize("handler", ["scheduled_tick", "ec2_event", "github_webhook", "github_sweep"])
def test_no_lambda_handler_prints_a_secret(handler: str, capfd: pytest.CaptureFixture[str]) -> None:
    for built in (lambda_handlers._process, lambda_handlers._webhook_process, lambda_handlers._github_process):
        built.cache_clear()
    answer = ""
    try:
        answer = str(getattr(lambda_handlers, handler)(_event(handler), Invocation()))
    except Exception as error:  # nothing can be reached here: a failed invocation is the usual case
        answer = repr(error)
    assert CANARY not in answer
    assert CANARY not in "".join(capfd.readouterr())


def _event(handler: str) -> dict[str, Any]:
    if handler == "ec2_event":
        detail = {"instance-id": "i-0123456789abcdef0"}
        kind = "EC2 Spot Instance Interruption Warning"
        return {"source": "aws.ec2", "detail-type": kind, "time": "2026-01-15T10:00:00Z", "detail": detail}
    if handler == "github_webhook":
        return {"requestContext": {"http": {"method": "POST"}}, "headers": {}, "body": "{}", "isBase64Encoded": False}
    return {}
