"""GitHub's API over real HTTP: what its responses mean, what they cost, and that a hostile one does no harm."""

import base64
import json
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

import pytest
from cryptography.hazmat.primitives.asymmetric import ec, padding
from cryptography.hazmat.primitives.hashes import SHA256

from holdfast.adapters.github.api import GitHubApi
from holdfast.adapters.github.calls import Called, GitHubCalls
from holdfast.adapters.github.identity import AppIdentity, Identity, TokenIdentity, secret_in, signed_jwt
from holdfast.adapters.http_calls import HttpEndpoint, HttpLimits
from holdfast.jobs.sweep.live_run import ListsPendingDeployments
from holdfast.kernel.errors import BadSetting, HoldfastError, NeedsOperator
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, JobSeen, RateLimited, RunSeen
from tests.clocks import START, StillClock
from tests.servers.certificates import Authority, new_authority
from tests.servers.processes import HOST
from tests.servers.scripted_http import Asked, Reply, Reset, ScriptedServer, serving
from tests.support.github_app import KEY, KEY_PEM, delivery_json, pem

INSTALLATION: Final = InstallationId(7)
RUN: Final = RunId(42)
RUN_PATH: Final = "/repos/acme/shop/actions/runs/42"
APP_ID: Final = 99
TOKEN: Final = "ghs_canary-5f1c"


def reply(content: Any, status: int = 200, **headers: str) -> Reply:
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    return Reply(json.dumps(content).encode(), status, {"Content-Type": "application/json", **named})


def run_json(**changed: Any) -> dict[str, Any]:
    given = {"id": 42, "run_attempt": 1, "status": "in_progress", "conclusion": None}
    return {**given, "updated_at": START.iso_seconds(), "new_field": [{}], **changed}


def job_json(number: int = 1, **changed: Any) -> dict[str, Any]:
    return {"id": number, "run_id": 42, "run_attempt": 1, "status": "queued", "labels": ["linux"], **changed}


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("tls"))


@dataclass
class Stage:
    """A scripted GitHub, and our client."""

    github: GitHub
    clock: StillClock
    server: ScriptedServer
    replies: list[Reply | type[Exception]] = field(default_factory=list)

    @property
    def asked(self) -> list[Asked]:
        return self.server.asked

    def run(self) -> RunSeen | None:
        return self.github.run(INSTALLATION, "acme/shop", RUN)

    def jobs(self) -> list[JobSeen]:
        return list(self.github.jobs_of_run(INSTALLATION, "acme/shop", RUN, 1))


@contextmanager
def staged(
    authority: Authority,
    *replies: Reply | type[Exception],
    identity: Callable[[GitHubCalls, StillClock], Identity] | None = None,
    limits: HttpLimits | None = None,
    called: Called | None = None,
) -> Iterator[Stage]:
    """The replies in order; the last one is repeated."""
    waiting = list(replies)

    def script(_: Asked) -> Reply:
        given = waiting.pop(0) if len(waiting) > 1 else waiting[0]
        if isinstance(given, Reply):
            return given
        raise given

    context: ssl.SSLContext = authority.server_context(HOST)
    with serving(script, context) as server:
        clock = StillClock()
        place = HttpEndpoint(
            f"{server.url}/api/v3",
            clock,
            setting="GITHUB_API_URL",
            ca_file=authority.file,
            limits=limits,
            https_only=True,
        )
        calls = GitHubCalls(place, clock, called) if called else GitHubCalls(place, clock)
        who = identity(calls, clock) if identity else TokenIdentity(lambda: TOKEN)
        yield Stage(GitHubApi(calls, who), clock, server, waiting)


def as_app(calls: GitHubCalls, clock: StillClock) -> Identity:
    return AppIdentity(APP_ID, lambda: KEY_PEM, calls, clock)


def granted(token: str, seconds: float = 3600) -> Reply:
    return reply({"token": token, "expires_at": START.plus(seconds).iso_seconds()}, 201)


# Requests and responses


def test_a_run_is_requested_with_token_and_version(authority: Authority) -> None:
    with staged(authority, reply(run_json(run_attempt=2, status="completed", conclusion="failure"))) as stage:
        assert stage.run() == RunSeen(RUN, 2, "completed", "failure", START)
    [asked] = stage.asked
    assert (asked.method, asked.path) == ("GET", f"/api/v3{RUN_PATH}")
    assert asked.headers["authorization"] == f"Bearer {TOKEN}"
    assert asked.headers["x-github-api-version"] == "2022-11-28"


def test_the_repositories_of_an_installation_say_which_may_have_runs(authority: Authority) -> None:
    given = [
        {"full_name": "acme/shop"},
        {"full_name": "acme/old", "archived": True},
        {"full_name": "a/b", "disabled": True},
    ]
    with staged(authority, reply({"total_count": 3, "repositories": given})) as stage:
        found = stage.github.repositories(INSTALLATION, 2)
    assert [(each.name, each.is_active) for each in found] == [("acme/shop", True), ("acme/old", False), ("a/b", False)]
    assert stage.asked[0].path == "/api/v3/installation/repositories?per_page=100&page=2"


def test_the_runs_of_a_repository_are_requested_by_status(authority: Authority) -> None:
    given = run_json(status="in_progress", created_at=START.plus(-60).iso_seconds())
    with staged(authority, reply({"total_count": 1, "workflow_runs": [given]})) as stage:
        found = stage.github.runs_of_repository(INSTALLATION, "acme/shop", "in_progress")
    assert found == [RunSeen(RUN, 1, "in_progress", None, START, START.plus(-60))]
    path = "/api/v3/repos/acme/shop/actions/runs?per_page=100&page=1&exclude_pull_requests=true&status=in_progress"
    assert stage.asked[0].path == path


def test_a_repository_that_is_gone_has_no_runs(authority: Authority) -> None:
    with staged(authority, reply({"message": "Not Found"}, 404)) as stage:
        assert stage.github.runs_of_repository(INSTALLATION, "acme/gone") == []
        with pytest.raises(GitHubRefused, match="not the name of a repository"):
            stage.github.runs_of_repository(INSTALLATION, "acme/../..")
    assert len(stage.asked) == 1


def test_jobs_are_read_and_unknown_fields_are_skipped(authority: Authority) -> None:
    given = job_json(5, name="build", runner_name="r", runner_id=3, steps=[{"number": 1}], labels=None)
    with staged(authority, reply({"total_count": 1, "jobs": [given]})) as stage:
        expected = JobSeen(JobId(5), RUN, 1, "queued", name="build", runner_id=3, runner_name="r")
        assert stage.jobs() == [expected]
    assert stage.asked[0].path.endswith("/attempts/1/jobs?per_page=100&page=1")


@pytest.mark.parametrize("status", [404, 410, 451])
def test_a_missing_run_is_none_and_has_no_jobs(authority: Authority, status: int) -> None:
    with staged(authority, reply({"message": "Not Found"}, status)) as stage:
        assert stage.run() is None
        assert stage.jobs() == []
        with pytest.raises(GitHubRefused, match=f"{status}: Not Found"):
            stage.github.rerun_failed_jobs(INSTALLATION, "acme/shop", RUN)


def test_pending_deployments_are_read_with_reviewers_and_timer(authority: Authority) -> None:
    given = [
        {
            "environment": {"id": 1, "name": "production", "url": "https://api.example.com"},
            "wait_timer": 30,
            "wait_timer_started_at": "2026-01-15T10:00:00Z",
            "current_user_can_approve": True,
            "reviewers": [
                {"type": "User", "reviewer": {"login": "octocat", "id": 1}},
                {"type": "Team", "reviewer": {"slug": "payments", "id": 2}},
                {"type": "Other", "reviewer": None},
            ],
        },
        {"environment": {"name": "staging"}},
    ]
    with staged(authority, reply(given)) as stage:
        github = stage.github
        assert isinstance(github, ListsPendingDeployments)
        production, staging = github.pending_deployments(INSTALLATION, "acme/shop", RUN)
        assert (production.environment, production.wait_minutes) == ("production", 30)
        assert (list(production.reviewers), production.wait_began_at) == (
            ["octocat", "payments"],
            "2026-01-15T10:00:00Z",
        )
        assert (staging.environment, staging.wait_minutes, list(staging.reviewers)) == ("staging", 0, [])
        assert stage.asked[-1].path == f"/api/v3/repos/acme/shop/actions/runs/{RUN}/pending_deployments"


def test_a_run_that_github_does_not_know_waits_for_nothing(authority: Authority) -> None:
    with staged(authority, reply({"message": "Not Found"}, 404)) as stage:
        assert isinstance(stage.github, ListsPendingDeployments)
        assert stage.github.pending_deployments(INSTALLATION, "acme/shop", RUN) == []


def test_a_rerun_is_posted_and_a_refusal_has_githubs_message(authority: Authority) -> None:
    with staged(authority, reply({}, 201), reply({"message": "This workflow is already running"}, 403)) as stage:
        stage.github.rerun_failed_jobs(INSTALLATION, "acme/shop", RUN)
        with pytest.raises(GitHubRefused, match="already running") as refused:
            stage.github.rerun_failed_jobs(INSTALLATION, "acme/shop", RUN)
    assert refused.value.status == 403
    assert [(a.method, a.path) for a in stage.asked] == [("POST", f"/api/v3{RUN_PATH}/rerun-failed-jobs")] * 2


@pytest.mark.parametrize(
    "name", ["", "shop", "acme/../shop", "acme/..", "../app", "acme/shop?x=1", "acme/shop/x", "a b/c"]
)
def test_a_name_that_would_change_the_path_is_not_requested(authority: Authority, name: str) -> None:
    with staged(authority, reply(run_json())) as stage:
        assert stage.github.run(INSTALLATION, name, RUN) is None
        assert stage.github.jobs_of_run(INSTALLATION, name, RUN, 1) == []
        with pytest.raises(GitHubRefused, match="nothing was sent"):
            stage.github.rerun_failed_jobs(INSTALLATION, name, RUN)
    assert stage.asked == []


# Pages


def test_the_log_of_deliveries_is_read_page_by_page(authority: Authority) -> None:
    first = [delivery_json(9, status_code=502, redelivery=True), delivery_json(8, status_code=None)]
    with staged(authority, Reply(), identity=as_app) as stage:
        address = f"{stage.server.url}/api/v3/app/hook/deliveries?per_page=100&cursor=v1_8"
        stage.replies[:] = [reply(first, Link=f'<{address}>; rel="next", <x>; rel="first"'), reply([])]
        page = stage.github.deliveries()
        assert [(r.id, r.guid, r.is_redelivery, r.status_code) for r in page.records] == [
            (9, "guid-9", True, 502),
            (8, "guid-8", False, 0),
        ]
        assert page.cursor == "v1_8"
        assert stage.github.deliveries(page.cursor).cursor is None
    assert [a.path for a in stage.asked] == [
        "/api/v3/app/hook/deliveries?per_page=100",
        "/api/v3/app/hook/deliveries?per_page=100&cursor=v1_8",
    ]


@pytest.mark.parametrize(
    "address",
    [
        "https://evil.example/api/v3/app/hook/deliveries?cursor=1",
        "http://{host}/api/v3/app/hook/deliveries?cursor=1",
        "https://x@{host}/api/v3/app/hook/deliveries?cursor=1",
        "https://{host}/elsewhere?cursor=1",
        "https://{host}/api/v3/../x?cursor=1",
        "https://{host}/api/v3/app/hook/deliveries?cursor=1%0a",
        "https://{host}/api/v3/app/hook/deliveries",
        "/api/v3/app/hook/deliveries?cursor=1",
    ],
)
def test_a_next_page_at_another_address_is_an_error_and_not_the_end(authority: Authority, address: str) -> None:
    with staged(authority, Reply(), identity=as_app) as stage:
        link = address.format(host=stage.server.url.removeprefix("https://"))
        stage.replies[:] = [reply([], Link=f'<{link}>; rel="next"')]
        with pytest.raises(GitHubUnavailable, match="next page"):
            stage.github.deliveries()


def test_a_redelivery_is_requested_by_its_id(authority: Authority) -> None:
    with staged(authority, reply({}, 202), identity=as_app) as stage:
        stage.github.redeliver(12)
    assert [(a.method, a.path) for a in stage.asked] == [("POST", "/api/v3/app/hook/deliveries/12/attempts")]


# ETags


def test_an_unchanged_response_comes_from_the_cache(authority: Authority) -> None:
    with staged(authority, reply(run_json(), ETag='W/"abc"'), Reply(status=304)) as stage:
        first = stage.run()
        assert stage.run() == first == RunSeen(RUN, 1, "in_progress", None, START)
    assert [a.headers.get("if-none-match") for a in stage.asked] == [None, 'W/"abc"']


def test_one_installations_cached_response_is_not_used_for_another(authority: Authority) -> None:
    with staged(authority, reply(run_json(), ETag='"a"')) as stage:
        stage.run()
        stage.github.run(InstallationId(8), "acme/shop", RUN)
    assert [a.headers.get("if-none-match") for a in stage.asked] == [None, None]


def test_an_unexpected_304_is_an_error(authority: Authority) -> None:
    with staged(authority, Reply(status=304)) as stage, pytest.raises(GitHubUnavailable, match="without an ETag"):
        stage.run()


def test_an_invalid_etag_is_not_sent_back(authority: Authority) -> None:
    with staged(authority, reply(run_json(), ETag="x y")) as stage:
        stage.run()
        stage.run()
    assert "if-none-match" not in stage.asked[1].headers


# Limits


def limited(status: int, message: str = "", **headers: str) -> Reply:
    return reply({"message": message}, status, **headers)


RESET: Final = str(START.plus(900).epoch_seconds)


@pytest.mark.parametrize(
    ("given", "seconds"),
    [
        (limited(429, Retry_After="30"), 30),
        (limited(403, Retry_After="30", X_RateLimit_Remaining="4000", X_RateLimit_Reset=RESET), 30),
        (limited(403, X_RateLimit_Remaining="0", X_RateLimit_Reset=RESET), 900),
        (
            limited(
                403, "You have exceeded a secondary rate limit", X_RateLimit_Remaining="4", X_RateLimit_Reset=RESET
            ),
            60,
        ),
        (limited(429), 60),
        (limited(429, Retry_After="Thu, 01 Jan 2099 00:00:00 GMT"), 60),
        (limited(429, Retry_After="999999999"), 3600),
        (limited(403, X_RateLimit_Remaining="0", X_RateLimit_Reset="1"), 1),
    ],
)
def test_after_a_rate_limit_calls_wait_as_long_as_github_says(
    authority: Authority, given: Reply, seconds: float
) -> None:
    with staged(authority, given, reply(run_json())) as stage:
        with pytest.raises(RateLimited) as limit:
            stage.run()
        assert limit.value.until == START.plus(seconds)
        stage.clock.advance(seconds - 0.5)
        with pytest.raises(RateLimited, match="no calls until"):
            stage.run()
        assert len(stage.asked) == 1
        stage.clock.advance(1)
        assert stage.run() is not None


def test_the_last_tenth_of_the_calls_is_left_to_others(authority: Authority) -> None:
    given = reply(run_json(), X_RateLimit_Limit="5000", X_RateLimit_Remaining="499", X_RateLimit_Reset=RESET)
    with staged(authority, given, reply(run_json())) as stage:
        assert stage.run() is not None
        with pytest.raises(RateLimited) as limit:
            stage.run()
        assert limit.value.until == START.plus(900)
        stage.github.run(InstallationId(8), "acme/shop", RUN)  # another installation has its own calls
    assert len(stage.asked) == 2


# Signing in


def decoded(part: str) -> Any:
    return json.loads(base64.urlsafe_b64decode(part + "=" * (-len(part) % 4)))


def test_an_app_signs_in_with_its_key() -> None:
    head, claims, signature = signed_jwt(APP_ID, KEY_PEM, START).split(".")
    assert decoded(head) == {"alg": "RS256", "typ": "JWT"}
    now = START.epoch_seconds
    assert decoded(claims) == {"iat": now - 60, "exp": now + 540, "iss": "99"}
    signed = base64.urlsafe_b64decode(signature + "=" * (-len(signature) % 4))
    KEY.public_key().verify(signed, f"{head}.{claims}".encode(), padding.PKCS1v15(), SHA256())


def test_an_installations_token_is_cached_until_shortly_before_it_expires(authority: Authority) -> None:
    given = [granted("one"), reply(run_json()), reply(run_json()), granted("two", 7200), reply(run_json())]
    with staged(authority, *given, identity=as_app) as stage:
        stage.run()
        stage.clock.advance(3299)
        stage.run()
        stage.clock.advance(1)
        stage.run()
    sent = [(a.method, a.headers["authorization"].removeprefix("Bearer ")[:3]) for a in stage.asked]
    assert sent == [("POST", "eyJ"), ("GET", "one"), ("GET", "one"), ("POST", "eyJ"), ("GET", "two")]
    assert stage.asked[0].path == "/api/v3/app/installations/7/access_tokens"


def test_a_refused_token_is_renewed_once(authority: Authority) -> None:
    given = [granted("one"), limited(401), granted("two"), reply(run_json())]
    with staged(authority, *given, identity=as_app) as stage:
        assert stage.run() is not None
    assert stage.asked[-1].headers["authorization"] == "Bearer two"


@pytest.mark.parametrize("identity", [None, as_app])
def test_a_second_refusal_needs_an_operator(authority: Authority, identity: Any) -> None:
    with staged(authority, limited(401, "Bad credentials"), identity=identity) as stage:
        with pytest.raises(NeedsOperator, match=r"authentication failed \(401: Bad credentials"):
            stage.run()
        assert len(stage.asked) == 2


def test_an_installation_that_is_gone_is_a_refusal(authority: Authority) -> None:
    with staged(authority, limited(404, "Not Found"), identity=as_app) as stage, pytest.raises(GitHubRefused):
        stage.github.rerun_failed_jobs(INSTALLATION, "acme/shop", RUN)


@pytest.mark.parametrize(
    "key",
    ["", "no key", pem(ec.generate_private_key(ec.SECP256R1())), KEY_PEM[:200]],
    ids=["nothing", "no key", "another kind of key", "half a key"],
)
def test_an_invalid_key_needs_an_operator_and_is_not_shown(key: str) -> None:
    with pytest.raises(NeedsOperator, match="not an RSA private key") as error:
        signed_jwt(APP_ID, key, START)
    assert "BEGIN" not in str(error.value)


def test_a_file_is_read_on_each_use(tmp_path: Path) -> None:
    file = tmp_path / "token"
    identity = TokenIdentity(secret_in(file, "GITHUB_TOKEN_FILE"))
    with pytest.raises(NeedsOperator, match=r"GITHUB_TOKEN_FILE=.*cannot be read: No such file"):
        identity.bearer(INSTALLATION)
    file.write_text("one\n")
    assert identity.bearer(INSTALLATION) == "one"
    file.write_text("two\n")
    assert identity.bearer(INSTALLATION) == "two"
    file.write_text("two\r\nX-Evil: 1")
    with pytest.raises(NeedsOperator, match="the GitHub token is empty or invalid"):
        identity.bearer(INSTALLATION)
    with pytest.raises(NeedsOperator, match="only an App can read"):
        identity.bearer(None)


def test_a_token_is_never_sent_over_plain_http() -> None:
    clock = StillClock()
    with pytest.raises(BadSetting, match="unencrypted"):
        GitHubCalls(HttpEndpoint("http://github.example", clock, setting="GITHUB_API_URL"), clock)


# Errors and hostile responses


@pytest.mark.parametrize(
    "given",
    [
        limited(500),
        limited(502, "Bad gateway"),
        Reset,
        Reply(b"{", missing_bytes=5),
        Reply(b""),
        Reply(b"<html>"),
        Reply(b"[" * 100_000),
        Reply(b"\xff\xfe"),
        reply([]),
        reply({"id": 42}),
        reply(run_json(id=41)),
        reply(run_json(id="42")),
        reply(run_json(id=2**64)),
        reply(run_json(run_attempt=0)),
        reply(run_json(status=7)),
        reply(run_json(updated_at="yesterday")),
        reply(run_json(updated_at="9" * 5000)),
    ],
    ids=lambda given: repr(given)[:60],
)
def test_an_unusable_response_is_an_error(authority: Authority, given: Reply | type[Exception]) -> None:
    with staged(authority, given) as stage, pytest.raises(GitHubUnavailable) as error:
        stage.run()
    assert len(str(error.value)) < 400


@pytest.mark.parametrize(
    "jobs",
    [
        [job_json(run_id=41)],
        [job_json(-1)],
        [job_json(1.5)],  # type: ignore[arg-type]
        [job_json(labels=[7])],
        [job_json(status=None)],
        [job_json(number) for number in range(101)],
        None,
        {"1": job_json()},
    ],
    ids=lambda jobs: repr(jobs)[:60],
)
def test_jobs_of_the_wrong_shape_are_an_error(authority: Authority, jobs: Any) -> None:
    with staged(authority, reply({"jobs": jobs})) as stage, pytest.raises(GitHubUnavailable):
        stage.jobs()


def test_a_huge_response_is_not_read_completely(authority: Authority) -> None:
    huge, limits = Reply(b" " * 200_000), HttpLimits(body_bytes=10_000)
    with (
        staged(authority, huge, limits=limits) as stage,
        pytest.raises(GitHubUnavailable, match="larger than 10000 bytes"),
    ):
        stage.run()


def test_a_renamed_repository_is_followed_on_the_same_host(authority: Authority) -> None:
    with staged(authority, Reply()) as stage:
        there = f"{stage.server.url}/api/v3/repositories/1/actions/runs/42"
        stage.replies[:] = [Reply(status=301, headers={"Location": there}), reply(run_json())]
        assert stage.run() is not None
    assert stage.asked[1].path == "/api/v3/repositories/1/actions/runs/42"


def test_no_redirect_leads_to_another_host(authority: Authority) -> None:
    with (
        serving(lambda _: reply(run_json()), authority.server_context(HOST)) as other,
        staged(authority, Reply()) as stage,
    ):
        for place in (f"{other.url}/api/v3{RUN_PATH}", "", "//evil.example/x", f"{stage.server.url}/outside"):
            stage.replies[:] = [Reply(status=307, headers={"Location": place})]
            with pytest.raises(GitHubRefused, match="redirects to another server; not followed"):
                stage.run()
        assert other.asked == []


def test_a_redirect_loop_ends(authority: Authority) -> None:
    with staged(authority, Reply()) as stage:
        there = f"{stage.server.url}/api/v3{RUN_PATH}"
        stage.replies[:] = [Reply(status=302, headers={"Location": there})]
        with pytest.raises(GitHubRefused, match="too many redirects"):
            stage.run()
    assert len(stage.asked) == 3


def test_a_redirect_does_not_change_the_method_of_a_post(authority: Authority) -> None:
    moved = Reply(status=302, headers={"Location": "https://x.example/"})
    with staged(authority, moved) as stage, pytest.raises(GitHubRefused, match="302"):
        stage.github.rerun_failed_jobs(INSTALLATION, "acme/shop", RUN)
    assert len(stage.asked) == 1


@pytest.mark.parametrize("status", [400, 401, 403, 422, 429, 500])
def test_no_message_and_no_log_line_contains_a_secret(
    authority: Authority, status: int, caplog: pytest.LogCaptureFixture
) -> None:
    """Not even when the server echoes the request."""
    caplog.set_level(logging.DEBUG)

    def mirror(asked: Asked) -> Reply:
        if asked.method == "POST" and asked.path.endswith("access_tokens"):
            return granted(TOKEN)
        return limited(status, f"you sent {asked.headers['authorization']} " + "x" * 1000)

    with staged(authority, Reply(), identity=as_app) as stage:
        stage.server.script = mirror
        with pytest.raises(HoldfastError) as error:
            stage.github.rerun_failed_jobs(INSTALLATION, "acme/shop", RUN)
    shown = f"{error.value!r} {error.value.__cause__!r} {caplog.text} {stage.github!r}"
    assert TOKEN not in shown
    assert "eyJ" not in shown


def test_each_call_is_reported_with_its_installation_and_the_remaining_limit(authority: Authority) -> None:
    reported: list[tuple[str, int, int | None]] = []
    left = reply(run_json(), x_ratelimit_remaining="4321", x_ratelimit_limit="5000")
    with staged(authority, left, reply({}, 404), Reset, called=lambda *call: reported.append(call)) as stage:
        stage.run()
        stage.run()
        with pytest.raises(GitHubUnavailable):
            stage.run()
    scope = f"installation {INSTALLATION}"
    assert reported == [(scope, 200, 4321), (scope, 404, None), (scope, 0, None)]
