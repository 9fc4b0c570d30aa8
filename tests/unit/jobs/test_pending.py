"""The approvals that a run waits for: from the store, and from GitHub if no event named the deployment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.github_loops import RunRefresher
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.model.keys import RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps
from holdfast.jobs.sweep.live_run import GATES_MOST, pending_gates
from holdfast.jobs.sweep.retry import RetryPolicy
from holdfast.kernel.errors import StoreRefused
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.ports.github import GitHubRefused, GitHubUnavailable, RunSeen
from holdfast.ports.store import Item, Store
from holdfast.views.job_views import JobViews
from holdfast.views.plain_json import json_object
from tests.clocks import StillClock
from tests.payloads import CREATED, INSTALLATION_ID, REPOSITORY, RUN_ID, delivery, job_payload

RUN = RunKey(InstallationId(INSTALLATION_ID), RunId(RUN_ID), 1)
GATED = 1_600_000_001


@dataclass
class Pending:
    environment: str
    wait_minutes: int = 0
    wait_began_at: str | None = None
    reviewers: Sequence[str] = ()


@dataclass
class CountingGitHub:
    """Knows one run, and counts the requests for its pending deployments."""

    pending: Sequence[Pending] = ()
    asked: int = 0
    trouble: Exception | None = None
    clock: StillClock = field(default_factory=StillClock)

    def pending_deployments(self, installation: InstallationId, repository: str, run_id: RunId) -> Sequence[Pending]:
        assert (installation, repository, run_id) == (RUN.installation_id, REPOSITORY, RUN.run_id)
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return self.pending

    def run(self, _installation: InstallationId, _repository: str, run_id: RunId) -> RunSeen | None:
        return RunSeen(run_id, 1, "in_progress", None, CREATED)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AssertionError(f"{name} is not to be asked")


class Stage:
    def __init__(self, *pending: Pending) -> None:
        self.github = CountingGitHub(pending)
        self.clock = self.github.clock
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        sweeps = GitHubSweeps(self.store, self.github, self.clock, RetryPolicy(), None, "here")
        self.fresh = RunRefresher(sweeps)
        self.tracking = JobViews(self.store, self.clock, Viewing(shipped_prices()), StuckLimits(), self.fresh)

    def send(self, action: str, **fields: Any) -> None:
        self.tracker.receive(delivery("workflow_job", job_payload(action, **fields), CREATED))

    def waits(self) -> list[dict[str, Any]]:
        found = self.tracking.run(str(INSTALLATION_ID), str(RUN_ID), "1", {}).pending_deployments
        return [json_object(each) for each in found]

    def run(self) -> Item:
        return queries.run(self.store, RUN) or {}


def test_github_is_queried_at_intervals_for_a_job_with_an_unknown_reason_to_wait() -> None:
    stage = Stage(Pending("production", 30, "2026-01-15T10:00:00Z", ["octocat"]))
    stage.send("waiting")
    expected = {
        "environment": "production",
        "wait_minutes": 30,
        "wait_began_at": "2026-01-15T10:00:00Z",
        "reviewers": ["octocat"],
        "source": "github",
    }
    assert stage.waits() == [expected]
    assert stage.waits() == [expected]
    assert stage.github.asked == 1
    stage.clock.sleep(60)
    assert stage.waits() == [expected]
    assert stage.github.asked == 2


def test_known_approvals_are_not_requested() -> None:
    stage = Stage(Pending("another"))
    stage.send("waiting", deployment=GATED)
    [gate] = stage.waits()
    assert (gate["source"], stage.github.asked) == ("store", 0)
    stage.send("completed", started=CREATED, deployment=GATED)
    assert stage.waits() == []


def test_approvals_of_a_run_without_waiting_jobs_are_not_requested() -> None:
    stage = Stage(Pending("production"))
    stage.send("queued")
    assert (stage.waits(), stage.github.asked) == ([], 0)


@pytest.mark.parametrize("trouble", [GitHubUnavailable("away"), GitHubRefused("no", 403)])
def test_without_a_response_the_rest_is_shown(trouble: Exception) -> None:
    stage = Stage()
    stage.github.trouble = trouble
    stage.send("waiting")
    assert (stage.waits(), stage.github.asked) == ([], 1)


def test_without_a_response_the_previous_one_is_used() -> None:
    stage = Stage(Pending("production"))
    stage.send("waiting")
    assert len(stage.waits()) == 1
    stage.clock.sleep(60)
    stage.github.trouble = GitHubUnavailable("away")
    assert len(stage.waits()) == 1


def test_without_budget_github_is_not_called() -> None:
    stage = Stage(Pending("production"))
    stage.send("waiting")
    assert pending_gates(stage.store, stage.github, RUN, stage.run(), stage.clock.now(), CallBudget(0)) is None
    assert stage.github.asked == 0


def test_long_text_from_github_is_cut_before_it_is_stored() -> None:
    stage = Stage(*(Pending("e" * 5000, reviewers=["r" * 500] * 50) for _ in range(500)))
    stage.send("waiting")
    stage.waits()
    kept = stage.run()["gates"]
    assert len(kept) == GATES_MOST
    assert all(len(gate["environment"].encode()) <= 200 and len(gate["reviewers"]) == 6 for gate in kept)


def test_a_process_that_may_only_read_the_store_gets_the_approvals() -> None:
    stage = Stage(Pending("production"))
    stage.send("waiting")
    run = stage.run()

    class ReadOnly:
        def update(self, *_: object) -> None:
            raise StoreRefused("opened for reading only")

    store: Store = ReadOnly()  # type: ignore[assignment]
    found = pending_gates(store, stage.github, RUN, run, stage.clock.now(), CallBudget(1))
    assert found is not None
    assert [gate["environment"] for gate in found] == ["production"]


def test_a_pending_deployment_shows_whether_it_is_still_pending_on_github() -> None:
    stage = Stage(Pending("production"))
    stage.send("waiting", deployment=GATED)

    def is_pending() -> object:
        return stage.tracking.deployment(str(INSTALLATION_ID), str(GATED), {}).is_pending_at_github

    environment = stage.tracking.deployment(str(INSTALLATION_ID), str(GATED), {}).environment or ""
    stage.github.pending = [Pending(environment)]
    stage.clock.sleep(60)
    assert is_pending() is True
    stage.github.pending = []
    stage.clock.sleep(60)
    assert is_pending() is False
    stage.send("completed", started=CREATED, deployment=GATED)
    stage.clock.sleep(60)
    asked = stage.github.asked
    assert is_pending() is None
    assert stage.github.asked == asked
