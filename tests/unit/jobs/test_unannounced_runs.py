"""Runs and jobs that no webhook announced, or whose end was lost, are found; runs that are gone are given up."""

from collections.abc import Sequence
from typing import Any

import pytest

from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import RunKey
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps
from holdfast.jobs.sweep.polling import GIVE_UP_SECONDS, GONE, poll_runs
from holdfast.jobs.sweep.repositories import is_unheard, walk_key, walk_repositories
from holdfast.jobs.sweep.retry import RetryPolicy
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.ports.github import GitHubRefused, GitHubUnavailable, RepositorySeen, RunSeen
from holdfast.ports.store.tables import RUNS, STATE
from holdfast.simulator.world.github_objects import JobPlan, SimRun
from tests.payloads import CREATED
from tests.support.recovery_stage import APP, INSTALLATION, Stage
from tests.support.simulated_github import GitHubHabits


def stage_with_a_known_job() -> Stage:
    """An installation is known from its first webhook."""
    stage = Stage(habits=GitHubHabits(calls_per_hour=10**6))
    stage.github.start_run(INSTALLATION, "a/known", [JobPlan("known")])
    stage.clock.sleep(60)
    return stage


def sweep(stage: Stage, calls: int = 200, github: Any = None) -> list[str]:
    """A sweep without the delivery log's help: GitHub never tried to deliver. Returns the problems."""
    stage.github.log.clear()
    sweeps = GitHubSweeps(stage.store, github or stage.github, stage.clock, RetryPolicy(), APP, "here")
    return sweeps.sweep(calls, 300).problems


def run_item(stage: Stage, run: SimRun) -> dict[str, Any]:
    return dict(stage.store.get(RUNS, RunKey(INSTALLATION, run.id, run.attempt).item) or {})


def test_a_job_of_a_later_stage_that_was_never_announced_is_found() -> None:
    """All known jobs of its run have completed, so none of them leads to it."""
    stage = stage_with_a_known_job()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("build")], later=[[JobPlan("deploy")]])
    stage.clock.sleep(60)
    send = stage.github.send
    stage.github.send = lambda webhook: None if webhook.job and webhook.job.name == "deploy" else send(webhook)  # type: ignore[method-assign]
    stage.github.start(run.jobs[0], "runner")
    stage.github.finish(run.jobs[0], "success")
    hidden = run.jobs[1]
    stage.clock.sleep(600)
    assert stage.status(hidden.id) is None
    sweep(stage)
    assert stage.status(hidden.id) == Status.QUEUED


@pytest.mark.parametrize("is_over", [False, True])
def test_a_run_that_was_never_announced_is_found(is_over: bool) -> None:
    stage = stage_with_a_known_job()
    stage.is_up = False
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one"), JobPlan("two")])
    for job in run.jobs if is_over else ():
        stage.github.start(job, "runner")
        stage.github.finish(job, "success")
    stage.clock.sleep(600)
    stage.is_up = True
    sweep(stage)
    assert [stage.status(job.id) for job in run.jobs] == [Status.COMPLETED if is_over else Status.QUEUED] * 2
    assert run_item(stage, run)["status"] == ("completed" if is_over else "queued")


def test_a_run_that_failed_to_start_ends_its_jobs_even_if_its_webhook_was_lost() -> None:
    stage = stage_with_a_known_job()
    run = stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")])
    stage.clock.sleep(60)
    stage.is_up = False
    stage.github.fail_to_start(run)
    stage.clock.sleep(3600)
    stage.is_up = True
    for _ in range(4):
        # Without an App there is only the poll.
        poll_runs(stage.store, stage.github, INSTALLATION, stage.clock.now(), CallBudget(50), "here")
    assert stage.status(run.jobs[0].id) == Status.COMPLETED


def test_a_run_of_a_deleted_repository_is_given_up_with_the_reason() -> None:
    stage = stage_with_a_known_job()
    run = stage.github.start_run(INSTALLATION, "a/gone", [JobPlan("one")])
    stage.clock.sleep(600)
    stage.github.forget(run)
    calls: list[RunId] = []
    jobs_of_run = stage.github.jobs_of_run

    def counted(installation: InstallationId, repository: str, run_id: RunId, *which: int) -> Sequence[Any]:
        calls.append(run_id)
        return jobs_of_run(installation, repository, run_id, *which)

    stage.github.jobs_of_run = counted  # type: ignore[method-assign,assignment]
    assert sweep(stage) == []
    assert run.id in calls
    stage.clock.sleep(GIVE_UP_SECONDS + 60)
    assert [problem for problem in sweep(stage) if GONE in problem] == [f"run 7#{run.id}#1: {GONE}; not polled again"]
    assert run_item(stage, run)["given_up"] == GONE
    calls.clear()
    assert sweep(stage) == []
    assert run.id not in calls


def test_a_webhook_for_a_run_that_was_given_up_makes_it_polled_again() -> None:
    stage = stage_with_a_known_job()
    run = stage.github.start_run(INSTALLATION, "a/gone", [JobPlan("one"), JobPlan("two")])
    stage.clock.sleep(600)
    del stage.github.runs[run.id]
    sweep(stage)
    stage.clock.sleep(GIVE_UP_SECONDS + 60)
    sweep(stage)
    stage.clock.sleep(60)
    stage.github.runs[run.id] = run  # the repository is back
    run.status = "in_progress"
    stage.github._send_run(run, "in_progress")
    stage.clock.sleep(60)
    stage.is_up = False
    stage.github.start(run.jobs[0], "runner")
    stage.clock.sleep(600)
    stage.is_up = True
    for _ in range(4):
        sweep(stage)
    assert stage.status(run.jobs[0].id) == Status.IN_PROGRESS


class Repositories:
    """Two hundred and fifty repositories without runs; `problem` is raised at one of them."""

    def __init__(self, at: str = "", problem: Exception | None = None) -> None:
        self.visited: list[str] = []
        self._at, self._problem = at, problem

    def repositories(self, _installation: InstallationId, page: int = 1) -> list[RepositorySeen]:
        names = [RepositorySeen(f"a/{number:03}", number % 50 != 49) for number in range(250)]
        return names[100 * (page - 1) : 100 * page]

    def runs_of_repository(self, _installation: InstallationId, repository: str, *_which: Any) -> list[RunSeen]:
        self.visited.append(repository)
        if repository == self._at and self._problem is not None:
            raise self._problem
        return []


def walk(stage: Stage, github: Any, calls: int) -> None:
    walk_repositories(stage.store, github, INSTALLATION, stage.clock.now(), CallBudget(calls), "here")


def test_every_repository_has_its_turn_and_archived_ones_cost_no_call() -> None:
    stage, github = Stage(), Repositories()
    while len(github.visited) < 245:
        walk(stage, github, 20)
    assert sorted(set(github.visited)) == [f"a/{number:03}" for number in range(250) if number % 50 != 49]
    assert stage.store.get(STATE, walk_key(INSTALLATION)) is not None


def test_a_repository_that_fails_does_not_stop_the_others() -> None:
    for problem in (GitHubRefused("403", 403), GitHubUnavailable("502")):
        stage, github = Stage(), Repositories("a/001", problem)
        for _ in range(3):
            try:
                walk(stage, github, 100)
            except GitHubUnavailable:
                continue
        assert {"a/002", "a/098"} <= set(github.visited)


def test_what_differs_from_github_is_unheard_once_webhooks_can_no_longer_arrive() -> None:
    def seen(status: str, seconds_ago: float) -> RunSeen:
        at = CREATED.plus(-seconds_ago)
        return RunSeen(RunId(1), 1, status, "success" if status == "completed" else None, at, at)

    assert not is_unheard(seen("queued", 60), None, CREATED)
    assert is_unheard(seen("queued", 600), None, CREATED)
    assert is_unheard(seen("waiting", 20 * 86_400), None, CREATED)
    assert is_unheard(seen("completed", 600), None, CREATED)
    assert not is_unheard(seen("completed", 20 * 86_400), None, CREATED)
    assert is_unheard(seen("completed", 600), {"status": "in_progress", "open": {1}}, CREATED)
    assert not is_unheard(seen("completed", 600), {"status": "completed"}, CREATED)
    assert not is_unheard(seen("in_progress", 600), {"status": "in_progress", "open": {1}}, CREATED)
    assert is_unheard(seen("in_progress", 600), {"status": "in_progress", "done": {1}}, CREATED)
    assert not is_unheard(seen("in_progress", 60), {"status": "in_progress", "done": {1}}, CREATED)
