"""Two GitHub servers number their runs and jobs alike: each installation keeps its own."""

import random

from holdfast.adapters.memory import memory_store
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import verified_delivery
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.polling import poll_runs
from holdfast.jobs.sweep.repositories import walk_repositories
from holdfast.kernel.ids import InstallationId
from holdfast.ports.store import Store
from holdfast.ports.store.tables import JOBS
from holdfast.simulator.world.github_objects import JobPlan, SimRun
from holdfast.simulator.world.timeline import Timeline
from tests.payloads import CREATED
from tests.support.recovery_stage import SECRETS
from tests.support.simulated_github import GitHubHabits, UnreliableGitHub

ONE, OTHER = InstallationId(7), InstallationId(8)


def statuses(store: Store, run: SimRun) -> list[tuple[str | None, str | None]]:
    items = store.batch_get(JOBS, [JobKey(run.installation, job.id).item for job in run.jobs])
    return [((item or {}).get("status"), (item or {}).get("conclusion")) for item in items]


def test_equal_ids_of_two_installations_are_kept_apart_by_webhooks_and_sweeps() -> None:
    clock = Timeline(CREATED)
    store = memory_store(clock)
    tracker = Tracker(store, clock, "here")

    def deliver(headers: object, body: bytes) -> int:
        tracker.receive(verified_delivery(headers, body, SECRETS))  # type: ignore[arg-type]
        return 200

    servers = {
        installation: UnreliableGitHub(clock, random.Random(seed), SECRETS.signature_of, deliver)
        for seed, installation in enumerate((ONE, OTHER))
    }
    plans = [JobPlan("a"), JobPlan("b"), JobPlan("c")]
    runs = {each: [github.start_run(each, "a/b", plans) for _ in range(5)] for each, github in servers.items()}
    assert [job.id for run in runs[ONE] for job in run.jobs] == [job.id for run in runs[OTHER] for job in run.jobs]
    clock.sleep(60)
    for github in servers.values():
        github._habits = GitHubHabits(lost_share=0.4, repeated_share=0.3, late_share=0.3)
    for installation, conclusion in ((ONE, "success"), (OTHER, "failure")):
        for run in runs[installation]:
            for job in run.jobs[: 3 if installation == ONE else 2]:
                servers[installation].start(job, "runner")
                servers[installation].finish(job, conclusion)
    clock.sleep(1200)
    for _ in range(6):
        for installation, github in servers.items():
            poll_runs(store, github, installation, clock.now(), CallBudget(100), "here")
            walk_repositories(store, github, installation, clock.now(), CallBudget(100), "here")
    for run in runs[ONE]:
        assert statuses(store, run) == [("completed", "success")] * 3
        assert len((queries.run(store, RunKey(ONE, run.id, 1)) or {})["done"]) == 3
    for run in runs[OTHER]:
        assert statuses(store, run) == [("completed", "failure")] * 2 + [("queued", None)]
        assert len((queries.run(store, RunKey(OTHER, run.id, 1)) or {})["failed"]) == 2
