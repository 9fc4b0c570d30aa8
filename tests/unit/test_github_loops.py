"""The sweep: lost webhooks are found, interrupted runs are run again, and one trouble stops no other."""

import json
import random
from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any, Final

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints import lambda_handlers
from holdfast.entrypoints.github_loops import (
    NOT_ASKED,
    FreshRuns,
    GitHubSweeps,
    Swept,
    Unwatched,
    github_sweeps,
    is_configured,
    retry_policy,
    swept_once,
)
from holdfast.entrypoints.job_wiring import oldest_webhook_seconds
from holdfast.jobs import queries
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.internal import InternalEvent, InternalType
from holdfast.jobs.interrupted import RETRY_CALLS_MOST
from holdfast.jobs.keys import JobKey, RunKey
from holdfast.jobs.recovery import cursor_key
from holdfast.jobs.retry import NOTE_KEPT_SECONDS, RetryPolicy
from holdfast.jobs.webhook import WebhookSecrets, admitted
from holdfast.kernel.errors import BadSetting, NeedsOperator
from holdfast.kernel.ids import InstallationId, InstanceId, RunId
from holdfast.kernel.settings import Settings, load_settings
from holdfast.ports.github import GitHubRefused, GitHubUnavailable
from holdfast.ports.store import Query, set_all
from holdfast.ports.store.tables import LOGS, STATE
from holdfast.simulator.github import SimulatedGitHub
from holdfast.simulator.github_objects import JobPlan, SimJob, SimRun
from holdfast.simulator.timeline import Timeline
from tests.clocks import START, StillClock
from tests.payloads import CREATED
from tests.servers.certificates import new_authority
from tests.servers.processes import HOST
from tests.servers.scripted_http import Asked, Reply, serving
from tests.unit.test_github import KEY_PEM

ONE: Final = InstallationId(7)
TWO: Final = InstallationId(8)
SECRETS: Final = WebhookSecrets.from_text("secret")
APP: Final = 99


class Stage:
    """A tracker, a GitHub that sends to it, and sweeps that ask it. Calls named in `trouble` fail instead."""

    def __init__(self, policy: RetryPolicy | None = None) -> None:
        self.clock = Timeline(CREATED)
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        self.is_up = True
        self.github = SimulatedGitHub(self.clock, random.Random(1), SECRETS.signature_of, self.deliver)
        self.sweeps = GitHubSweeps(self.store, self.github, self.clock, policy or RetryPolicy(), APP, "sweep")

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        if not self.is_up:
            return 503
        self.tracker.receive(admitted(headers, body, SECRETS))
        return 200

    def start(self, installation: InstallationId = ONE, *names: str) -> tuple[SimRun, list[SimJob]]:
        run = self.github.start_run(installation, "a/b", [JobPlan(name) for name in names or ("one",)])
        self.clock.sleep(10)
        return run, self.github.jobs_of(run)

    def tell(self, installation: InstallationId, job: SimJob, kind: InternalType) -> None:
        key = JobKey(installation, job.id)
        self.tracker.tell(InternalEvent(key, kind, self.clock.now(), 1, InstanceId(f"i-{job.id:016x}")))

    def take_down(self, job: SimJob, installation: InstallationId = ONE) -> None:
        self.tell(installation, job, InternalType.SCHEDULED)
        self.github.start(job, "runner")
        self.clock.sleep(30)
        self.tell(installation, job, InternalType.INTERRUPTED)
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


def test_what_was_lost_is_delivered_again_and_what_was_never_logged_is_found() -> None:
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


def test_an_interrupted_run_is_run_again_once_and_its_note_goes() -> None:
    stage = Stage()
    run, [one, two] = stage.start(ONE, "one", "two")
    stage.take_down(one)
    assert stage.sweep().runs_retried == []  # the other job runs on
    stage.take_down(two)
    assert stage.notes() == 2
    assert stage.sweep().runs_retried == [f"{ONE}#{run.id}#1"]
    assert run.attempt == 2
    assert stage.notes() == 0
    assert stage.sweep().runs_retried == []
    assert run.attempt == 2


def test_a_job_that_ended_well_after_all_leaves_no_note() -> None:
    stage = Stage()
    run, [job] = stage.start()
    stage.tell(ONE, job, InternalType.INTERRUPTED)
    stage.github.finish(job, "success")
    stage.clock.sleep(30)
    stage.sweep()
    assert (stage.notes(), run.attempt) == (0, 1)


def test_a_note_of_a_job_that_nobody_knows_expires() -> None:
    stage = Stage()
    _, [job] = stage.start()
    stage.tell(TWO, job, InternalType.INTERRUPTED)
    stage.sweep()
    assert stage.notes(TWO) == 1
    stage.clock.sleep(NOTE_KEPT_SECONDS + 1)
    assert stage.notes(TWO) == 0


def test_nothing_is_run_again_where_that_is_switched_off() -> None:
    stage = Stage(RetryPolicy(is_enabled=False))
    run, [job] = stage.start()
    stage.take_down(job)
    assert stage.sweep().runs_retried == []
    assert run.attempt == 1


def test_no_answer_keeps_the_note_and_the_next_sweep_asks_once() -> None:
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


def test_without_calls_for_it_nothing_is_run_again() -> None:
    stage = Stage()
    run, [job] = stage.start()
    stage.take_down(job)
    assert stage.sweep(RETRY_CALLS_MOST - 1).runs_retried == []
    assert (stage.notes(), run.attempt) == (1, 1)


def test_a_sweep_makes_no_more_calls_than_it_may() -> None:
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


def test_a_sweep_ends_when_its_time_is_over() -> None:
    stage = Stage()
    stage.start()
    stage.clock.sleep(200)
    before = len(stage.github._calls)
    stage.sweeps.sweep(200, 0)
    assert len(stage.github._calls) == before


@pytest.mark.parametrize("closed", [ONE, TWO])
def test_one_installation_that_refuses_does_not_stop_the_other(closed: InstallationId) -> None:
    """Whichever is the first."""
    stage = Stage()
    stage.start(ONE)
    stage.start(TWO)
    stage.clock.sleep(200)
    stage.fail("jobs_of_run", GitHubRefused("suspended", 403), lambda installation, *_: installation == closed)
    swept = stage.sweep()
    assert (swept.runs_asked, swept.problems) == (2, ["suspended"])


def test_a_place_in_the_log_that_github_has_forgotten_is_left() -> None:
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


def test_a_delivery_that_cannot_be_sent_again_does_not_stop_the_sweep() -> None:
    stage = Stage()
    stage.is_up = False
    stage.start()
    stage.is_up = True
    stage.fail("redeliver", GitHubRefused("gone", 404))
    stage.sweep()
    place = stage.store.get(STATE, cursor_key(APP)) or {}
    assert place["high"] == max(record.id for record in stage.github.log)


def test_trouble_is_told_in_the_log_and_the_loop_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    stage = Stage()
    stage.start()
    stage.fail("deliveries", GitHubUnavailable("no answer in time"))
    assert swept_once(stage.sweeps, 100) == 300
    assert "GitHub: no answer in time" in caplog.text
    stage.fail("deliveries", NeedsOperator("does not accept who we are"))
    assert swept_once(stage.sweeps, 100) == 300
    assert "GitHub: does not accept who we are" in caplog.text


def test_whoever_watches_is_told_what_a_sweep_did() -> None:
    class Counting(Unwatched):
        redelivered = 0

        def swept(self, swept: Swept) -> None:
            self.redelivered += swept.redelivered

    stage = Stage()
    stage.is_up = False
    stage.start()
    stage.is_up = True
    watch = Counting()
    swept_once(replace(stage.sweeps, watch=watch), 100)
    assert watch.redelivered == len({record.guid for record in stage.github.log if not record.is_redelivery}) > 0


def test_a_run_is_shown_as_github_has_it_at_a_few_calls_a_minute() -> None:
    stage = Stage()
    run, [job] = stage.start()
    key = RunKey(ONE, run.id, 1)
    known = queries.run(stage.store, key) or {}
    stage.is_up = False
    stage.github.start(job, "runner")
    stage.github.finish(job, "success")
    stage.clock.sleep(60)
    assert FreshRuns(stage.sweeps, per_minute=0)(key, known)["status"] == "queued"
    assert FreshRuns(stage.sweeps)(key, known)["status"] == "completed"
    stage.fail("run", NeedsOperator("401"))
    assert FreshRuns(stage.sweeps)(key, known)["status"] == "completed"


# Settings


def configured(**given: str) -> Settings:
    return load_settings({"HOLDFAST_WORLD": "aws", **given})


def test_without_access_there_is_no_sweep_and_that_is_said_once(caplog: pytest.LogCaptureFixture) -> None:
    clock = StillClock()
    assert github_sweeps(configured(), memory_store(clock), clock, "here") is None
    assert [record.getMessage() for record in caplog.records] == [NOT_ASKED]


def test_the_simulated_world_asks_no_github(caplog: pytest.LogCaptureFixture) -> None:
    settings = load_settings({"GITHUB_APP_ID": "1", "GITHUB_APP_KEY_FILE": "/k"})
    assert not is_configured(settings)
    assert github_sweeps(settings, memory_store(StillClock()), StillClock(), "here") is None
    assert caplog.records == []
    assert oldest_webhook_seconds(settings) is None
    assert oldest_webhook_seconds(configured()) == 8 * 86_400


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"GITHUB_APP_ID": "1"}, "GITHUB_APP_ID=1 needs the key of the App"),
        ({"GITHUB_APP_KEY_FILE": "/k"}, "GITHUB_APP_ID is not set"),
        ({"GITHUB_TOKEN_FILE": "/t", "GITHUB_TOKEN_PARAMETER": "/t"}, "GITHUB_TOKEN_PARAMETER are both set"),
        ({"GITHUB_APP_ID": "1", "GITHUB_APP_KEY_FILE": "/k", "GITHUB_TOKEN_FILE": "/t"}, "token for GitHub are both"),
        (
            {"GITHUB_APP_ID": "1", "GITHUB_APP_KEY_FILE": "/k", "GITHUB_APP_KEY_PARAMETER": "/k"},
            "GITHUB_APP_KEY_PARAMETER are both set",
        ),
        ({"GITHUB_API_URL": "http://api.github.com"}, "not an https:// address"),
        ({"GITHUB_API_URL": "https://api.github.com/"}, "without a slash at its end"),
        ({"GITHUB_API_URL": "https://api.github.com/?x"}, "not an https:// address"),
    ],
)
def test_settings_that_do_not_go_together_are_refused(given: dict[str, str], problem: str) -> None:
    with pytest.raises(BadSetting, match=problem):
        configured(**given)


def test_the_policy_is_as_set() -> None:
    given = {
        "AUTO_RETRY": "false",
        "AUTO_RETRY_ATTEMPTS": "2",
        "AUTO_RETRY_DAILY": "5",
        "AUTO_RETRY_DEPLOYMENTS": "true",
    }
    assert retry_policy(configured(**given)) == RetryPolicy(False, 2, 5, with_deployments=True)


@pytest.mark.parametrize("is_app", [False, True])
def test_what_settings_name_is_what_is_asked(tmp_path: Path, is_app: bool) -> None:
    """By an App with its key, or with a token; at the address, and trusting the authority, that are set."""
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
    assert lambda_handlers.github_sweep({}, Call()) == {"stopped": NOT_ASKED}


@pytest.mark.usefixtures("fresh_process")
def test_lambda_sweeps_once_a_call(monkeypatch: pytest.MonkeyPatch) -> None:
    stage = Stage()
    stage.is_up = False
    stage.start()
    stage.is_up = True
    process = cache(lambda: (stage.sweeps, 100))
    monkeypatch.setattr(lambda_handlers, "_github_process", process)
    told = lambda_handlers.github_sweep({}, Call())
    assert told["redelivered"] > 0
    assert told["problems"] == []
