"""The doctor and GitHub, over real HTTPS: a server that responds as GitHub's documentation says."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.doctor import github
from holdfast.entrypoints.doctor.aws import ServerTime
from holdfast.entrypoints.doctor.findings import Check, Finding, run_checks
from holdfast.jobs.intake.tracker import EVENTS
from holdfast.kernel.settings import Settings, load_settings
from tests.servers.certificates import Authority, new_authority
from tests.servers.processes import HOST
from tests.servers.scripted_http import Asked, Reply, ScriptedServer, serving
from tests.support.github_app import KEY_PEM, delivery_json

CLOCK: Final = SystemClock()
FUTURE: Final = "Thu, 15 Jan 2099 10:00:00 GMT"
TOKEN: Final = "ghs_canary-77aa"
APP: Final = {"slug": "holdfast", "permissions": {"actions": "write", "metadata": "read"}, "events": list(EVENTS)}
INSTALLATION: Final = {"id": 7, "account": {"login": "acme"}, "permissions": {"actions": "write"}, "suspended_at": None}
HOOK: Final = {"url": "https://h.example/webhooks/github", "content_type": "json", "insecure_ssl": "0", "secret": "***"}
GRANTED: Final = {"token": TOKEN, "expires_at": "2100-01-15T11:00:00Z"}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("tls"))


def answers(**changed: Any) -> dict[str, Any]:
    """GitHub's response at each path."""
    return {
        "/app": APP,
        "/app/installations": [INSTALLATION],
        "/app/installations/7/access_tokens": GRANTED,
        "/app/hook/config": HOOK,
        "/app/hook/deliveries": [delivery_json(number) for number in range(1, 21)],
        "/rate_limit": {"resources": {}},
        **{f"/{name.replace('__', '/')}": value for name, value in changed.items()},
    }


@contextmanager
def hub(authority: Authority, responses: dict[str, Any], **headers: str) -> Iterator[ScriptedServer]:
    def script(asked: Asked) -> Reply:
        answer = responses[asked.path.partition("?")[0]]
        if isinstance(answer, Reply):
            return answer
        return Reply(json.dumps(answer).encode(), headers={"Content-Type": "application/json", **headers})

    with serving(script, authority.server_context(HOST)) as server:
        yield server


def settings_for(server: ScriptedServer, authority: Authority, tmp_path: Path, *, app: bool = True) -> Settings:
    file = tmp_path / "secret"
    file.write_text(KEY_PEM if app else TOKEN)
    who = {"GITHUB_APP_ID": "99", "GITHUB_APP_KEY_FILE": str(file)} if app else {"GITHUB_TOKEN_FILE": str(file)}
    place = {"GITHUB_API_URL": server.url, "GITHUB_CA_FILE": str(authority.file)}
    return load_settings({"HOLDFAST_WORLD": "aws", **place, **who})


def looked_at(settings: Settings) -> list[Finding]:
    checks = [
        Check(github.SIGNED_IN, lambda: github.signed_in(settings, CLOCK, ServerTime())),
        Check("GitHub webhooks", lambda: github.webhooks(settings, CLOCK), (github.SIGNED_IN,)),
    ]
    return list(run_checks(checks))


def found_with(authority: Authority, tmp_path: Path, **changed: Any) -> dict[str, Finding]:
    with hub(authority, answers(**changed)) as server:
        return {each.check: each for each in looked_at(settings_for(server, authority, tmp_path))}


def test_a_correctly_configured_app_is_ok(authority: Authority, tmp_path: Path) -> None:
    found = found_with(authority, tmp_path)
    assert {check: str(each.outcome) for check, each in found.items()} == dict.fromkeys(
        [
            "GitHub",
            "GitHub permissions: the App",
            "GitHub events",
            "GitHub permissions: installation 7 (acme)",
            "GitHub installation 7 (acme)",
            "GitHub webhook",
            "GitHub deliveries",
        ],
        "ok",
    )
    assert found["GitHub deliveries"].seen == "the last 20 succeeded"
    assert TOKEN not in str(found)


@pytest.mark.parametrize(
    ("granted", "outcome"), [({}, "failed"), ({"actions": "read"}, "failed"), ({"actions": "admin"}, "ok")]
)
def test_missing_permissions_are_named(
    authority: Authority, tmp_path: Path, granted: dict[str, str], outcome: str
) -> None:
    found = found_with(authority, tmp_path, app={**APP, "permissions": granted})["GitHub permissions: the App"]
    assert str(found.outcome) == outcome
    assert outcome == "ok" or found.seen == "lacks actions: write"


def test_an_installation_that_did_not_accept_or_is_suspended_is_named(authority: Authority, tmp_path: Path) -> None:
    """And the other installations are still checked."""
    behind = {**INSTALLATION, "permissions": {"actions": "read"}}
    suspended = {**INSTALLATION, "id": 8, "account": {"login": "x\x1b[2J"}, "suspended_at": "2026-01-01T00:00:00Z"}
    found = found_with(authority, tmp_path, app__installations=[suspended, behind])
    assert found["GitHub permissions: installation 7 (acme)"].seen == "lacks actions: write"
    assert found["GitHub installation 8 (x\\x1b[2J)"].seen == "suspended"
    assert str(found["GitHub installation 7 (acme)"].outcome) == "ok"


@pytest.mark.parametrize(("missing", "outcome"), [("workflow_job", "failed"), ("deployment_review", "warning")])
def test_events_without_a_subscription_are_named(
    authority: Authority, tmp_path: Path, missing: str, outcome: str
) -> None:
    events = [event for event in EVENTS if event not in (missing, "ping", "installation")]
    found = found_with(authority, tmp_path, app={**APP, "events": events})["GitHub events"]
    assert (str(found.outcome), missing in found.seen) == (outcome, True)
    assert "ping" not in found.seen


@pytest.mark.parametrize(
    ("changed", "outcome", "words"),
    [
        ({"url": ""}, "failed", "no webhook URL"),
        ({"secret": ""}, "failed", "no webhook secret"),
        ({"content_type": "form"}, "failed", "as form data"),
        ({"insecure_ssl": "1"}, "warning", "does not verify our certificate"),
    ],
)
def test_the_webhook_configuration_is_checked(
    authority: Authority, tmp_path: Path, changed: dict[str, str], outcome: str, words: str
) -> None:
    with hub(authority, answers(app__hook__config={**HOOK, **changed})) as server:
        found = looked_at(settings_for(server, authority, tmp_path))
    hooks = [each for each in found if each.check == "GitHub webhook"]
    assert (str(hooks[0].outcome), words in hooks[0].seen) == (outcome, True)


@pytest.mark.parametrize(("lost", "outcome"), [(0, "ok"), (2, "warning"), (3, "failed")])
def test_failed_deliveries_are_counted(authority: Authority, tmp_path: Path, lost: int, outcome: str) -> None:
    deliveries = [delivery_json(number, status_code=502 if number <= lost else 200) for number in range(1, 21)]
    found = found_with(authority, tmp_path, app__hook__deliveries=deliveries)["GitHub deliveries"]
    assert str(found.outcome) == outcome
    assert outcome == "ok" or found.seen.startswith(f"{lost} of the last 20 failed (502)")


@pytest.mark.parametrize("codes", [(200, 0), (502, 200)])
def test_a_delivery_that_arrived_at_any_attempt_counts_as_arrived(
    authority: Authority, tmp_path: Path, codes: tuple[int, int]
) -> None:
    """The newest comes first: it was requested again, or sent twice by mistake."""
    tries = [delivery_json(9 - number, guid="g", status_code=code) for number, code in enumerate(codes)]
    found = found_with(authority, tmp_path, app__hook__deliveries=tries)["GitHub deliveries"]
    assert (str(found.outcome), found.seen) == ("ok", "the last 1 succeeded")


def test_an_app_without_webhooks_is_a_warning(authority: Authority, tmp_path: Path) -> None:
    none = found_with(authority, tmp_path, app__hook__deliveries=[])["GitHub deliveries"]
    assert str(none.outcome) == "warning"


def test_a_refused_app_is_a_failure_and_its_webhooks_are_not_checked(authority: Authority, tmp_path: Path) -> None:
    refused = Reply(b'{"message": "A JSON web token could not be decoded"}', 401)
    found = found_with(authority, tmp_path, app=refused)
    assert str(found["GitHub"].outcome) == "failed"
    assert "could not be decoded" in found["GitHub"].seen
    assert str(found["GitHub webhooks"].outcome) == "not asked"


@pytest.mark.parametrize(
    ("scopes", "outcomes"), [("repo, read:org", ["ok"]), ("gist", ["ok", "warning"]), (None, ["ok"])]
)
def test_a_token_is_checked_by_its_scopes_if_it_has_any(
    authority: Authority, tmp_path: Path, scopes: str | None, outcomes: list[str]
) -> None:
    headers = {} if scopes is None else {"X-OAuth-Scopes": scopes}
    with hub(authority, answers(), **headers) as server:
        found = looked_at(settings_for(server, authority, tmp_path, app=False))
    assert [str(each.outcome) for each in found] == [*outcomes, "not asked"]


def test_without_access_github_is_not_called() -> None:
    assert "no App or token" in github.why_not(load_settings({"HOLDFAST_WORLD": "aws"}))


def test_the_required_events_are_among_those_that_are_processed() -> None:
    assert set(github._NEEDED_EVENTS + github._AUTOMATIC_EVENTS) <= set(EVENTS)


@pytest.mark.parametrize(
    "answer", [{"resources": {}}, Reply(b"{}", 401, headers={"Date": "Thu, 15 Jan 2099 10:00:00 GMT"})]
)
def test_githubs_time_is_compared_if_no_other_server_has_told_its_time(
    authority: Authority, tmp_path: Path, answer: Any
) -> None:
    aws, unknown = ServerTime("AWS", CLOCK.now(), CLOCK.now()), ServerTime()
    with hub(authority, answers(rate_limit=answer), Date=FUTURE) as server:
        settings = settings_for(server, authority, tmp_path, app=False)
        for time in (aws, unknown):
            list(run_checks([Check(github.SIGNED_IN, partial(github.signed_in, settings, CLOCK, time))]))
    assert (aws.who, unknown.who) == ("AWS", "GitHub")
    assert unknown.theirs
    assert unknown.theirs.date() == "2099-01-15"
