"""Every run in progress gets its turn, whatever the others do meanwhile, and whatever GitHub responds."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from holdfast.jobs.intake.record import register
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.polling import poll_runs, polled_event, position_key
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.ports.github import GitHub, GitHubUnavailable, JobSeen, RateLimited
from holdfast.ports.store import Item, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.github_objects import JobPlan, SimRun
from tests.support.recovery_stage import INSTALLATION, Stage
from tests.support.simulated_github import GitHubHabits

QUEUED = 0  # its number in the stored cursor


def begun_unheard(runs: int) -> tuple[Stage, list[SimRun]]:
    """Runs of one job each, queued as far as we know, and started at GitHub."""
    stage = Stage(habits=GitHubHabits(calls_per_hour=10**6))
    started = [stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")]) for _ in range(runs)]
    stage.clock.sleep(60)
    stage.is_up = False
    for run in started:
        stage.github.start(stage.github.jobs_of(run)[0], "runner")
    stage.clock.sleep(600)
    return stage, started


def sweep(stage: Stage, calls: int = 100, github: GitHub | None = None) -> int:
    """How many runs were polled."""
    return poll_runs(
        stage.store, github or stage.github, INSTALLATION, stage.clock.now(), CallBudget(calls), "here"
    ).runs


def known(stage: Stage, runs: Sequence[SimRun]) -> list[str | None]:
    return [stage.status(stage.github.jobs_of(run)[0].id) for run in runs]


def place_of(stage: Stage) -> Item:
    return stage.store.get(STATE, position_key(INSTALLATION)) or {}


def test_runs_that_leave_the_page_do_not_make_the_sweep_skip_others() -> None:
    """The first five are in progress once polled, and no longer on the page of queued jobs."""
    stage, runs = begun_unheard(20)
    assert [sweep(stage, 5), sweep(stage)] == [5, 15]
    assert known(stage, runs) == [Status.IN_PROGRESS] * 20
    assert "next" not in place_of(stage), "the page is finished"


def test_a_sweep_whose_next_run_is_gone_restarts_the_page() -> None:
    stage, runs = begun_unheard(4)
    sweep(stage, 1)
    assert place_of(stage)["next"] == f"7#{runs[1].id}#1"
    stage.is_up = True
    stage.github.finish(stage.github.jobs_of(runs[1])[0], "success")
    stage.clock.sleep(200)
    sweep(stage)
    assert known(stage, runs) == [Status.IN_PROGRESS, Status.COMPLETED, Status.IN_PROGRESS, Status.IN_PROGRESS]


def test_an_invalid_cursor_is_forgotten_with_the_next_run() -> None:
    stage, runs = begun_unheard(4)
    lost = {"status": QUEUED, "cursor": "nonsense", "next": f"7#{runs[2].id}#1", "skip": 2}
    stage.store.update(STATE, position_key(INSTALLATION), set_all(lost))
    assert [sweep(stage, 1), sweep(stage)] == [1, 3]
    assert known(stage, runs) == [Status.IN_PROGRESS] * 4
    assert not {"next", "skip"} & place_of(stage).keys()


class Silent:
    """A GitHub that always fails to list the jobs of one run."""

    def __init__(self, stage: Stage, run: SimRun) -> None:
        self._github = stage.github
        self._run = run.id

    def jobs_of_run(self, installation: InstallationId, repository: str, run: RunId, *which: int) -> list[JobSeen]:
        if run == self._run:
            raise GitHubUnavailable("502")
        return list(self._github.jobs_of_run(installation, repository, run, *which))


@pytest.mark.parametrize("bad", [0, 1, 4])
def test_a_run_that_github_cannot_list_does_not_stop_the_others(bad: int) -> None:
    stage, runs = begun_unheard(5)
    github: Any = Silent(stage, runs[bad])
    with pytest.raises(GitHubUnavailable):
        sweep(stage, github=github)
    for _ in range(4):
        with suppress(GitHubUnavailable):  # each status gets its turn, and then it is polled again
            sweep(stage, github=github)
    others = [run for number, run in enumerate(runs) if number != bad]
    assert known(stage, others) == [Status.IN_PROGRESS] * 4


def test_after_the_last_run_of_a_status_the_next_status_gets_its_turn_although_github_failed() -> None:
    stage, runs = begun_unheard(2)
    github: Any = Silent(stage, runs[1])
    with pytest.raises(GitHubUnavailable):
        sweep(stage, github=github)
    assert known(stage, runs) == [Status.IN_PROGRESS, Status.QUEUED]
    assert place_of(stage)["status"] == QUEUED + 1


class Stingy:
    """A GitHub that allows a few calls per hour."""

    def __init__(self, stage: Stage) -> None:
        self._github = stage.github
        self._clock = stage.clock
        self.left = 0

    def jobs_of_run(self, *which: Any) -> list[JobSeen]:
        if self.left == 0:
            raise RateLimited("used up", self._clock.now().plus(3600))
        self.left -= 1
        return list(self._github.jobs_of_run(*which))


def test_a_sweep_out_of_calls_resumes_at_the_run_it_did_not_poll() -> None:
    """Starting over each time, the same few runs would always use up the calls."""
    stage, runs = begun_unheard(5)
    # Polling two of them finds nothing new, so they stay on the page.
    for run in runs[:2]:
        stage.github.jobs_of(run)[0].status = "queued"
    github: Any = Stingy(stage)
    for _ in range(3):
        github.left = 2
        with suppress(RateLimited):
            sweep(stage, github=github)
    assert known(stage, runs[2:]) == [Status.IN_PROGRESS] * 3


def test_a_job_that_ended_meanwhile_is_not_opened_again_by_what_was_read_before() -> None:
    """GitHub's answer and the run were read before the webhook of the end came."""
    stage, (run,) = begun_unheard(1)
    key = RunKey(INSTALLATION, run.id, 1)
    (seen,) = stage.github.jobs_of_run(INSTALLATION, "a/b", run.id, 1)
    event = polled_event(key, "a/b", seen, stage.clock.now())
    stage.is_up = True
    stage.github.finish(stage.github.jobs_of(run)[0], "success")
    stage.clock.sleep(60)
    register(stage.store, event)
    item = queries.run(stage.store, key) or {}
    assert (item["open"], item["done"]) == (set(), {seen.id})
