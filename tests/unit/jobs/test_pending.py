"""What a run waits for: from the store, and from GitHub where nobody named the deployment."""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.github_loops import FreshRuns, GitHubSweeps
from holdfast.entrypoints.tracking import Tracking
from holdfast.jobs.budget import Budget
from holdfast.jobs.cost import shipped_prices
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.keys import RunKey
from holdfast.jobs.pending import GATES_MOST, pending_gates
from holdfast.jobs.retry import RetryPolicy
from holdfast.jobs.stuck import Patience
from holdfast.jobs.views import Viewing
from holdfast.kernel.errors import StoreRefused
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.ports.github import GitHubRefused, GitHubUnavailable, RunSeen
from holdfast.ports.store import Item, Store
from holdfast.ports.store.tables import RUNS
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
class AskedGitHub:
    """Answers about one run, and counts how often it is asked what that waits for."""

    told: Sequence[Pending] = ()
    asked: int = 0
    trouble: Exception | None = None
    clock: StillClock = field(default_factory=StillClock)

    def pending_deployments(self, installation: InstallationId, repository: str, run_id: RunId) -> Sequence[Pending]:
        assert (installation, repository, run_id) == (RUN.installation_id, REPOSITORY, RUN.run_id)
        self.asked += 1
        if self.trouble is not None:
            raise self.trouble
        return self.told

    def run(self, _installation: InstallationId, _repository: str, run_id: RunId) -> RunSeen | None:
        return RunSeen(run_id, 1, "in_progress", None, CREATED)

    def __getattr__(self, name: str) -> Callable[..., Any]:
        raise AssertionError(f"{name} is not to be asked")


class Stage:
    def __init__(self, *told: Pending) -> None:
        self.github = AskedGitHub(told)
        self.clock = self.github.clock
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        sweeps = GitHubSweeps(self.store, self.github, self.clock, RetryPolicy(), None, "here")
        self.fresh = FreshRuns(sweeps)
        self.tracking = Tracking(self.store, self.clock, Viewing(shipped_prices()), Patience(), self.fresh)

    def tell(self, action: str, **fields: Any) -> None:
        self.tracker.receive(delivery("workflow_job", job_payload(action, **fields), CREATED))

    def waits(self) -> list[dict[str, Any]]:
        found: list[dict[str, Any]] = self.tracking.run(str(INSTALLATION_ID), str(RUN_ID), "1", {})[
            "pending_deployments"
        ]
        return found

    def run(self) -> Item:
        return self.store.get(RUNS, RUN.item) or {}


def test_a_job_that_waits_for_nobody_knows_what_is_asked_about_once_in_a_while() -> None:
    stage = Stage(Pending("production", 30, "2026-01-15T10:00:00Z", ["octocat"]))
    stage.tell("waiting")
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


def test_what_the_store_knows_is_not_asked_for() -> None:
    stage = Stage(Pending("another"))
    stage.tell("waiting", deployment=GATED)
    [gate] = stage.waits()
    assert (gate["source"], stage.github.asked) == ("store", 0)
    stage.tell("completed", started=CREATED, deployment=GATED)
    assert stage.waits() == []


def test_a_run_of_which_nothing_waits_is_not_asked_about() -> None:
    stage = Stage(Pending("production"))
    stage.tell("queued")
    assert (stage.waits(), stage.github.asked) == ([], 0)


@pytest.mark.parametrize("trouble", [GitHubUnavailable("away"), GitHubRefused("no", 403)])
def test_without_an_answer_the_rest_is_told(trouble: Exception) -> None:
    stage = Stage()
    stage.github.trouble = trouble
    stage.tell("waiting")
    assert (stage.waits(), stage.github.asked) == ([], 1)


def test_the_last_answer_is_better_than_none() -> None:
    stage = Stage(Pending("production"))
    stage.tell("waiting")
    assert len(stage.waits()) == 1
    stage.clock.sleep(60)
    stage.github.trouble = GitHubUnavailable("away")
    assert len(stage.waits()) == 1


def test_without_budget_nobody_is_asked() -> None:
    stage = Stage(Pending("production"))
    stage.tell("waiting")
    assert pending_gates(stage.store, stage.github, RUN, stage.run(), stage.clock.now(), Budget(0)) is None
    assert stage.github.asked == 0


def test_what_github_says_is_cut_before_it_is_stored() -> None:
    stage = Stage(*(Pending("e" * 5000, reviewers=["r" * 500] * 50) for _ in range(500)))
    stage.tell("waiting")
    stage.waits()
    kept = stage.run()["gates"]
    assert len(kept) == GATES_MOST
    assert all(len(gate["environment"].encode()) <= 200 and len(gate["reviewers"]) == 6 for gate in kept)


def test_who_may_only_read_the_store_is_told_all_the_same() -> None:
    stage = Stage(Pending("production"))
    stage.tell("waiting")
    run = stage.run()

    class ReadOnly:
        def update(self, *_: object) -> None:
            raise StoreRefused("opened for reading only")

    store: Store = ReadOnly()  # type: ignore[assignment]
    found = pending_gates(store, stage.github, RUN, run, stage.clock.now(), Budget(1))
    assert found is not None
    assert [gate["environment"] for gate in found] == ["production"]


def test_a_deployment_that_waits_tells_whether_github_still_does() -> None:
    stage = Stage(Pending("production"))
    stage.tell("waiting", deployment=GATED)

    def is_pending() -> object:
        return stage.tracking.deployment(str(INSTALLATION_ID), str(GATED), {})["is_pending_at_github"]

    environment = stage.tracking.deployment(str(INSTALLATION_ID), str(GATED), {})["environment"]
    stage.github.told = [Pending(environment)]
    stage.clock.sleep(60)
    assert is_pending() is True
    stage.github.told = []
    stage.clock.sleep(60)
    assert is_pending() is False
    stage.tell("completed", started=CREATED, deployment=GATED)
    stage.clock.sleep(60)
    asked = stage.github.asked
    assert is_pending() is None
    assert stage.github.asked == asked
