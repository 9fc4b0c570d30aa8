"""Every run that is under way has its turn: whatever the others do meanwhile, and whatever GitHub says of them."""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any

import pytest

from holdfast.jobs.budget import Budget
from holdfast.jobs.facts import Status
from holdfast.jobs.polling import place_key, poll_runs
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.ports.github import GitHub, GitHubUnavailable, JobSeen, RateLimited
from holdfast.ports.store import Item, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.github_objects import GitHubHabits, JobPlan, SimRun
from tests.unit.jobs.test_recovery import INSTALLATION, Stage

QUEUED = 0  # its number in the place


def begun_unheard(runs: int) -> tuple[Stage, list[SimRun]]:
    """Runs of one job each, queued for all that we know, and begun at GitHub."""
    stage = Stage(habits=GitHubHabits(calls_per_hour=10**6))
    started = [stage.github.start_run(INSTALLATION, "a/b", [JobPlan("one")]) for _ in range(runs)]
    stage.clock.sleep(60)
    stage.is_up = False
    for run in started:
        stage.github.start(stage.github.jobs_of(run)[0], "runner")
    stage.clock.sleep(600)
    return stage, started


def sweep(stage: Stage, calls: int = 100, github: GitHub | None = None) -> int:
    """How many runs were asked about."""
    return poll_runs(stage.store, github or stage.github, INSTALLATION, stage.clock.now(), Budget(calls), "here").runs


def known(stage: Stage, runs: Sequence[SimRun]) -> list[str | None]:
    return [stage.status(stage.github.jobs_of(run)[0].id) for run in runs]


def place_of(stage: Stage) -> Item:
    return stage.store.get(STATE, place_key(INSTALLATION)) or {}


def test_runs_that_leave_the_page_do_not_make_the_sweep_pass_others_by() -> None:
    """The first five are in progress once they were asked about, and no longer on the page of those that are queued."""
    stage, runs = begun_unheard(20)
    assert [sweep(stage, 5), sweep(stage)] == [5, 15]
    assert known(stage, runs) == [Status.IN_PROGRESS] * 20
    assert "next" not in place_of(stage), "the page is done with"


def test_a_sweep_whose_next_run_is_gone_begins_the_page_again() -> None:
    stage, runs = begun_unheard(4)
    sweep(stage, 1)
    assert place_of(stage)["next"] == f"7#{runs[1].id}#1"
    stage.is_up = True
    stage.github.finish(stage.github.jobs_of(runs[1])[0], "success")
    stage.clock.sleep(200)
    sweep(stage)
    assert known(stage, runs) == [Status.IN_PROGRESS, Status.COMPLETED, Status.IN_PROGRESS, Status.IN_PROGRESS]


def test_a_place_that_is_no_more_is_forgotten_with_the_run_that_was_next() -> None:
    stage, runs = begun_unheard(4)
    lost = {"status": QUEUED, "cursor": "nonsense", "next": f"7#{runs[2].id}#1", "skip": 2}
    stage.store.update(STATE, place_key(INSTALLATION), set_all(lost))
    assert [sweep(stage, 1), sweep(stage)] == [1, 3]
    assert known(stage, runs) == [Status.IN_PROGRESS] * 4
    assert not {"next", "skip"} & place_of(stage).keys()


class Silent:
    """GitHub, which never gets the jobs of one run together."""

    def __init__(self, stage: Stage, run: SimRun) -> None:
        self._github = stage.github
        self._run = run.id

    def jobs_of_run(self, installation: InstallationId, repository: str, run: RunId, *which: int) -> list[JobSeen]:
        if run == self._run:
            raise GitHubUnavailable("502")
        return list(self._github.jobs_of_run(installation, repository, run, *which))


@pytest.mark.parametrize("bad", [0, 1, 4])
def test_a_run_that_github_never_gets_together_does_not_stop_the_others(bad: int) -> None:
    stage, runs = begun_unheard(5)
    github: Any = Silent(stage, runs[bad])
    with pytest.raises(GitHubUnavailable):
        sweep(stage, github=github)
    for _ in range(4):
        with suppress(GitHubUnavailable):  # each status has its turn, and then it is asked about again
            sweep(stage, github=github)
    others = [run for number, run in enumerate(runs) if number != bad]
    assert known(stage, others) == [Status.IN_PROGRESS] * 4


def test_after_the_last_run_of_a_status_the_next_status_has_its_turn_although_github_said_nothing() -> None:
    stage, runs = begun_unheard(2)
    github: Any = Silent(stage, runs[1])
    with pytest.raises(GitHubUnavailable):
        sweep(stage, github=github)
    assert known(stage, runs) == [Status.IN_PROGRESS, Status.QUEUED]
    assert place_of(stage)["status"] == QUEUED + 1


class Stingy:
    """GitHub, which lets us ask a few times an hour."""

    def __init__(self, stage: Stage) -> None:
        self._github = stage.github
        self._clock = stage.clock
        self.left = 0

    def jobs_of_run(self, *which: Any) -> list[JobSeen]:
        if self.left == 0:
            raise RateLimited("used up", self._clock.now().plus(3600))
        self.left -= 1
        return list(self._github.jobs_of_run(*which))


def test_a_sweep_whose_calls_are_used_up_goes_on_with_the_run_that_was_not_told_of() -> None:
    """From the beginning each time, the same few runs would use the calls up for good."""
    stage, runs = begun_unheard(5)
    # Two of them begin to no effect: what is asked about them says nothing new, and they stay on the page.
    for run in runs[:2]:
        stage.github.jobs_of(run)[0].status = "queued"
    github: Any = Stingy(stage)
    for _ in range(3):
        github.left = 2
        with suppress(RateLimited):
            sweep(stage, github=github)
    assert known(stage, runs[2:]) == [Status.IN_PROGRESS] * 3
