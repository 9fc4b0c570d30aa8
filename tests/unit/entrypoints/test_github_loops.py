"""The sweep: lost webhooks are found, interrupted runs are retried, and one failure stops nothing else."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.adapters.server_date import ServerTimes
from holdfast.control.clock_check import WrongClock
from holdfast.entrypoints import lambda_handlers
from holdfast.entrypoints.figure_counts import FigureCounter
from holdfast.entrypoints.github_loops import (
    NO_GITHUB_ACCESS,
    RunRefresher,
    github_sweeps,
    is_configured,
    retry_policy,
    run_sweep,
)
from holdfast.entrypoints.wiring.jobs import oldest_webhook_seconds
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets, verified_delivery
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps, NoSweepObserver, SweepCounts
from holdfast.jobs.sweep.interrupted_jobs import RETRY_CALLS_MOST
from holdfast.jobs.sweep.lost_webhooks import cursor_key
from holdfast.jobs.sweep.retry import NOTE_KEPT_SECONDS, RetryPolicy
from holdfast.kernel.errors import BadSetting, NeedsOperator
from holdfast.kernel.ids import InstallationId, InstanceId, RunId
from holdfast.kernel.settings import Settings, load_settings
from holdfast.ports.github import GitHubRefused, GitHubUnavailable
from holdfast.ports.store import Query, set_all
from holdfast.ports.store.tables import LOGS, STATE
from holdfast.simulator.world.github_objects import JobPlan, SimJob, SimRun
from holdfast.simulator.world.timeline import Timeline
from tests.clocks import START, StillClock
from tests.payloads import CREATED
from tests.servers.certificates import new_authority
from tests.servers.processes import HOST
from tests.servers.scripted_http import Asked, Reply, serving
from tests.support.github_app import KEY_PEM
from tests.support.simulated_github import UnreliableGitHub

ONE: Final = InstallationId(7)
TWO: Final = InstallationId(8)
SECRETS: Final = WebhookSecrets.from_text("secret")
APP: Final = 99


class Stage:
    """A tracker, a GitHub that sends to it, and sweeps that query GitHub. Calls named in `trouble` fail."""

    def __init__(self, policy: RetryPolicy | None = None) -> None:
        self.clock = Timeline(CREATED)
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        self.is_up = True
        self.github = UnreliableGitHub(self.clock, random.Random(1), SECRETS.signature_of, self.deliver)
        self.sweeps = GitHubSweeps(self.store, self.github, self.clock, policy or RetryPolicy(), APP, "sweep")

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        if not self.is_up:
            return 503
        self.tracker.receive(verified_delivery(headers, body, SECRETS))
        return 200

    def start(self, installation: InstallationId = ONE, *names: str) -> tuple[SimRun, list[SimJob]]:
        run = self.github.start_run(installation, "a/b", [JobPlan(name) for name in names or ("one",)])
        self.clock.sleep(10)
        return run, self.github.jobs_of(run)

    def send_job_event(self, installation: InstallationId, job: SimJob, kind: InternalType) -> None:
        key = JobKey(installation, job.id)
        self.tracker.record_event(InternalEvent(key, kind, self.clock.now(), 1, InstanceId(f"i-{job.id:016x}")))

    def take_down(self, job: SimJob, installation: InstallationId = ONE) -> None:
        self.send_job_event(installation, job, InternalType.SCHEDULED)
        self.github.start(job, "runner")
        self.clock.sleep(30)
        self.send_job_event(installation, job, InternalType.INTERRUPTED)
        self.github.finish(job, "failure")
        self.clock.sleep(30)

    def sweep(self, calls: int = 200) -> Any:
        swept = self.sweeps.sweep(calls, 300)
        self.clock.sleep(60)
        return swept

    def notes(self, installation: InstallationId = ONE) -> int:
        return len(self.store.query(Query(LOGS, f"github#interrupted#{installation}")).items)

    def fail(self, method: str, error: Exception, when: Callable[..., bool] = lambda *_: True) -> None:
        real = getattr(self.github, method)

        def call(*arguments: Any) -> Any:
            if when(*arguments):
                raise error
            return real(*arguments)

        setattr(self.github, method, call)


def test_lost_deliveries_are_redelivered_and_unlogged_ones_are_found() -> None:
    stage = Stage()
    stage.start()
    stage.is_up = False
    _, [job] = stage.start()
    stage.is_up = True
    assert stage.sweep().redelivered > 0
    assert queries.job(stage.store, JobKey(ONE, job.id)) is not None
    _, [lost] = stage.start()
    stage.is_up = False
    stage.github.start(lost, "runner")
    stage.clock.sleep(200)
    stage.github.log.clear()
    stage.is_up = True
    assert stage.sweep().jobs_found == 1
    found = queries.job(stage.store, JobKey(ONE, lost.id))
    assert found is not None
    assert found["status"] == "in_progress"


def test_an_interrupted_run_is_retried_once_and_its_note_removed() -> None:
    stage = Stage()
    run, [one, two] = stage.start(ONE, "one", "two")
    stage.take_down(one)
    assert stage.sweep().runs_retried == []  # the other job is still running
    stage.take_down(two)
    assert stage.notes() == 2
    assert stage.sweep().runs_retried == [f"{ONE}#{run.id}#1"]
    assert run.attempt == 2
    assert stage.notes() == 0
    assert stage.sweep().runs_retried == []
    assert run.attempt == 2


def test_a_job_that_succeeded_after_all_leaves_no_note() -> None:
    stage = Stage()
    run, [job] = stage.start()
    stage.send_job_event(ONE, job, InternalType.INTERRUPTED)
    stage.github.finish(job, "success")
    stage.clock.sleep(30)
    stage.sweep()
    assert (stage.notes(), run.attempt) == (0, 1)


def test_the_note_of_an_unknown_job_expires() -> None:
    stage = Stage()
    _, [job] = stage.start()
    stage.send_job_event(TWO, job, InternalType.INTERRUPTED)
    stage.sweep()
    assert stage.notes(TWO) == 1
    stage.clock.sleep(NOTE_KEPT_SECONDS + 1)
    assert stage.notes(TWO) == 0


def test_nothing_is_retried_when_retries_are_switched_off() -> None:
    stage = Stage(RetryPolicy(is_enabled=False))
    run, [job] = stage.start()
    stage.take_down(job)
    assert stage.sweep().runs_retried == []
    assert run.attempt == 1


def test_a_lost_response_keeps_the_note_and_the_next_sweep_retries_once() -> None:
    stage = Stage()
    run, [job] = stage.start()
    stage.take_down(job)
    rerun = stage.github.rerun_failed_jobs
    stage.fail("rerun_failed_jobs", GitHubUnavailable("no answer"))
    assert stage.sweep().runs_retried == []
    assert (stage.notes(), run.attempt) == (1, 1)
    stage.github.rerun_failed_jobs = rerun  # type: ignore[method-assign]
    assert stage.sweep().runs_retried == [f"{ONE}#{run.id}#1"]
    assert run.attempt == 2


def test_without_remaining_calls_nothing_is_retried() -> None:
    stage = Stage()
    run, [job] = stage.start()
    stage.take_down(job)
    assert stage.sweep(RETRY_CALLS_MOST - 1).runs_retried == []
    assert (stage.notes(), run.attempt) == (1, 1)


def test_a_sweep_stays_within_its_call_limit() -> None:
    stage = Stage()
    stage.start()
    stage.is_up = False
    for installation in (ONE, TWO):
        for _ in range(30):
            stage.start(installation)
    stage.is_up = True
    stage.clock.sleep(200)
    before = len(stage.github._calls)
    stage.sweep(50)
    assert 25 <= len(stage.github._calls) - before <= 50


def test_a_sweep_stops_when_its_time_is_up() -> None:
    stage = Stage()
    stage.start()
    stage.clock.sleep(200)
    before = len(stage.github._calls)
    stage.sweeps.sweep(200, 0)
    assert len(stage.github._calls) == before


@pytest.mark.parametrize("closed", [ONE, TWO])
def test_one_installation_that_refuses_does_not_stop_the_other(closed: InstallationId) -> None:
    """Whichever comes first."""
    stage = Stage()
    stage.start(ONE)
    stage.start(TWO)
    stage.clock.sleep(200)
    stage.fail("jobs_of_run", GitHubRefused("suspended", 403), lambda installation, *_: installation == closed)
    swept = stage.sweep()
    assert (swept.runs_asked, swept.problems) == (2, ["suspended"])


def test_a_cursor_that_github_has_forgotten_is_dropped() -> None:
    stage = Stage()
    stage.start()
    stage.store.update(STATE, cursor_key(APP), set_all({"top": 5, "cursor": "gone", "high": 3, "n": 2}))
    deliveries = stage.github.deliveries
    stage.fail("deliveries", GitHubRefused("no such cursor", 422))
    assert stage.sweep().problems == ["no such cursor"]
    place = stage.store.get(STATE, cursor_key(APP)) or {}
    assert (place.get("cursor"), place["high"]) == (None, 3)
    stage.github.deliveries = deliveries  # type: ignore[method-assign]
    assert stage.sweep().problems == []


def test_a_delivery_that_cannot_be_redelivered_does_not_stop_the_sweep() -> None:
    stage = Stage()
    stage.is_up = False
    stage.start()
    stage.is_up = True
    stage.fail("redeliver", GitHubRefused("gone", 404))
    stage.sweep()
    place = stage.store.get(STATE, cursor_key(APP)) or {}
    assert place["high"] == max(record.id for record in stage.github.log)


def right_clock() -> None:
    """It is not wrong."""


def test_a_failure_is_logged_and_the_loop_continues(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.start()
    stage.fail("deliveries", GitHubUnavailable("timed out"))
    assert run_sweep(stage.sweeps, 100, right_clock) == 300
    assert "GitHub: timed out" in caplog.text
    stage.fail("deliveries", NeedsOperator("authentication failed"))
    assert run_sweep(stage.sweeps, 100, right_clock) == 300
    assert "GitHub: authentication failed" in caplog.text


def test_with_a_wrong_clock_no_sweep_begins(caplog: pytest.LogCaptureFixture) -> None:
    def wrong_clock() -> None:
        raise WrongClock("this machine's clock is 90 s ahead of GitHub's")

    stage = Stage()
    stage.is_up = False
    stage.start()
    stage.is_up = True
    assert run_sweep(stage.sweeps, 100, wrong_clock) == 300
    assert "GitHub: this machine's clock is 90 s ahead" in caplog.text
    assert not any(record.is_redelivery for record in stage.github.log)
    assert stage.store.get(STATE, cursor_key(APP)) is None


def test_observers_get_the_counts_of_a_sweep() -> None:
    class Counting(NoSweepObserver):
        redelivered = 0

        def swept(self, swept: SweepCounts) -> None:
            self.redelivered += swept.redelivered

    stage = Stage()
    stage.is_up = False
    stage.start()
    stage.is_up = True
    watch = Counting()
    run_sweep(replace(stage.sweeps, watch=watch), 100, right_clock)
    assert watch.redelivered == len({record.guid for record in stage.github.log if not record.is_redelivery}) > 0


def test_a_run_page_is_refreshed_from_github_within_a_few_calls_a_minute() -> None:
    stage = Stage()
    run, [job] = stage.start()
    key = RunKey(ONE, run.id, 1)
    known = queries.run(stage.store, key) or {}
    stage.is_up = False
    stage.github.start(job, "runner")
    stage.github.finish(job, "success")
    stage.clock.sleep(60)
    assert RunRefresher(stage.sweeps, per_minute=0)(key, known)["status"] == "queued"
    assert RunRefresher(stage.sweeps)(key, known)["status"] == "completed"
    stage.fail("run", NeedsOperator("401"))
    assert RunRefresher(stage.sweeps)(key, known)["status"] == "completed"


# Settings


def configured(**given: str) -> Settings:
    return load_settings({"HOLDFAST_WORLD": "aws", **given})


def test_without_access_there_is_no_sweep_and_one_log_line_says_so(caplog: pytest.LogCaptureFixture) -> None:
    clock = StillClock()
    assert github_sweeps(configured(), memory_store(clock), clock, "here") is None
    assert [record.getMessage() for record in caplog.records] == [NO_GITHUB_ACCESS]


def test_the_simulated_world_does_not_call_github(caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings({"GITHUB_APP_ID": "1", "GITHUB_APP_KEY_FILE": "/k"})
    assert not is_configured(settings)
    assert github_sweeps(settings, memory_store(StillClock()), StillClock(), "here") is None
    assert caplog.records == []
    assert oldest_webhook_seconds(settings) is None
    assert oldest_webhook_seconds(configured()) == 8 * 86_400


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"GITHUB_APP_ID": "1"}, "GITHUB_APP_ID=1 needs the App's private key"),
        ({"GITHUB_APP_KEY_FILE": "/k"}, "GITHUB_APP_ID is not; for example"),
        ({"GITHUB_TOKEN_FILE": "/t", "GITHUB_TOKEN_PARAMETER": "/t"}, "GITHUB_TOKEN_PARAMETER are both set"),
        ({"GITHUB_APP_ID": "1", "GITHUB_APP_KEY_FILE": "/k", "GITHUB_TOKEN_FILE": "/t"}, "a GitHub token are both"),
        (
            {"GITHUB_APP_ID": "1", "GITHUB_APP_KEY_FILE": "/k", "GITHUB_APP_KEY_PARAMETER": "/k"},
            "GITHUB_APP_KEY_PARAMETER are both set",
        ),
        ({"GITHUB_API_URL": "http://api.github.com"}, "not an https:// URL"),
        ({"GITHUB_API_URL": "https://api.github.com/"}, "without a trailing slash"),
        ({"GITHUB_API_URL": "https://api.github.com/?x"}, "not an https:// URL"),
    ],
)
def test_contradictory_settings_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(BadSetting, match=problem):
        configured(**given)


def test_the_policy_follows_the_settings() -> None:
    given = {
        "AUTO_RETRY": "false",
        "AUTO_RETRY_ATTEMPTS": "2",
        "AUTO_RETRY_DAILY": "5",
        "AUTO_RETRY_DEPLOYMENTS": "true",
    }
    assert retry_policy(configured(**given)) == RetryPolicy(False, 2, 5, with_deployments=True)


@pytest.mark.parametrize("is_app", [False, True])
def test_calls_use_the_address_and_credentials_of_the_settings(tmp_path: Path, is_app: bool) -> None:
    """As an App with its key, or with a token; at the address, and trusting the authority, of the settings."""
    authority = new_authority(tmp_path)
    secret = tmp_path / "secret"
    secret.write_text(KEY_PEM if is_app else "t0ken\n")
    access = {"GITHUB_APP_ID": "99", "GITHUB_APP_KEY_FILE": str(secret)}
    if not is_app:
        access = {"GITHUB_TOKEN_FILE": str(secret)}

    def script(asked: Asked) -> Reply:
        if asked.method == "POST":
            return Reply(json.dumps({"token": "t0ken", "expires_at": START.plus(3600).iso_seconds()}).encode(), 201)
        return Reply(json.dumps({"jobs": []}).encode())

    with serving(script, authority.server_context(HOST)) as server:
        given = {"GITHUB_API_URL": f"{server.url}/api/v3", "GITHUB_CA_FILE": str(authority.file)}
        found = github_sweeps(configured(**access, **given), memory_store(StillClock()), StillClock(), "here")
        assert found is not None
        assert found.app_id == (99 if is_app else None)
        assert found.github.jobs_of_run(ONE, "a/b", RunId(1), 1) == []
    assert server.asked[-1].headers["authorization"] == "Bearer t0ken"
    assert server.asked[-1].path.startswith("/api/v3/repos/a/b/")


# Lambda


class Call:
    aws_request_id = "7a3c-1"

    def get_remaining_time_in_millis(self) -> int:
        return 300_000


@pytest.fixture
def fresh_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    monkeypatch.setenv("HOLDFAST_WORLD", "aws")
    lambda_handlers._github_process.cache_clear()
    yield
    lambda_handlers._github_process.cache_clear()


@pytest.mark.usefixtures("fresh_process")
def test_lambda_without_access_says_so_and_does_nothing() -> None:
    counted = {"hours": 0, "days": 0, "isBehind": False, "problems": []}
    assert lambda_handlers.github_sweep({}, Call()) == {"stopped": NO_GITHUB_ACCESS, "figures": counted}


@pytest.mark.usefixtures("fresh_process")
def test_lambda_sweeps_once_per_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.is_up = False
    stage.start()
    stage.is_up = True
    counter = FigureCounter(stage.sweeps.store, stage.sweeps.clock, "team", 60)
    process = cache(lambda: (stage.sweeps, 100, counter, ServerTimes()))
    monkeypatch.setattr(lambda_handlers, "_github_process", process)
    result = lambda_handlers.github_sweep({}, Call())
    assert result["redelivered"] > 0
    assert result["problems"] == []
    assert result["figures"]["problems"] == []


@pytest.mark.usefixtures("fresh_process")
def test_lambda_with_a_wrong_clock_sweeps_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    stage, times = Stage(), ServerTimes()
    counter = FigureCounter(stage.sweeps.store, stage.sweeps.clock, "team", 60)
    times.dynamodb.note("Thu, 15 Jan 2099 10:00:00 GMT")
    monkeypatch.setattr(lambda_handlers, "_github_process", cache(lambda: (stage.sweeps, 100, counter, times)))
    with pytest.raises(WrongClock, match="behind DynamoDB's"):
        lambda_handlers.github_sweep({}, Call())
    assert stage.store.get(STATE, cursor_key(APP)) is None
