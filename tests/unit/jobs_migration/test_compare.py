"""S3 compared with the tables: every difference is found, and nothing else."""

from collections.abc import Callable
from typing import Any

import pytest

from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.migration.compare import last_compare
from holdfast.jobs.migration.differences import DifferenceKind
from holdfast.jobs.migration.phases import Phase
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.ports.store import Query, Table, attr, every_item, remove_all, set_all
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS
from holdfast.views.migration_answers import comparison_answer
from tests.payloads import CREATED
from tests.support import answer_schemas
from tests.support.migration_world import World, fill_older, life

ONE = InstallationId(1)
# One with a deployment, that failed.
JOB = JobKey(ONE, JobId(35))
RUN = RunKey(ONE, RunId(12), 1)
DEPLOYMENT = DeploymentKey(ONE, DeploymentId(900_035))


@pytest.fixture
def world() -> World:
    world = World()
    fill_older(world, range(30, 41))
    world.go_to(Phase.DUAL_WRITE)
    world.backfill()
    for sent in life(50):
        world.dual.receive(sent)
    return world


def changed(table: Table, key: Any, **values: Any) -> Callable[[World], None]:
    return lambda world: world.store.update(table, key, set_all(values))


def removed(table: Table, key: Any, *names: str) -> Callable[[World], None]:
    return lambda world: world.store.update(table, key, remove_all(*names))


def without_mark(world: World) -> None:
    mark = min(world.store.get(JOBS, JOB.item)["dl"])
    world.store.update(JOBS, JOB.item, attr("dl").drop_elements({mark}))


def without_history(world: World) -> None:
    entry = next(iter(every_item(world.store, Query(JOB_EVENTS, JOB.partition))))
    world.store.delete(JOB_EVENTS, JOB_EVENTS.key_of(entry))


def without_objects(world: World) -> None:
    for status in ("queued", "in_progress", "completed"):
        world.objects.delete(f"webhooks/1/32/{status}.json")


FIELDS = {
    "status": "in_progress",
    "rk": 1,
    "GSI1-PK": "1#queued",
    "GSI2-PK": "1#other/repo",
    "GSI3-PK": "1#99#1",
    "conclusion": "success",
    "created_at": "2026-01-01T00:00:00Z",
    "started_at": "2026-01-01T00:00:00Z",
    "completed_at": "2026-01-01T00:00:00Z",
    "runner_id": 1,
    "runner_name": "another",
    "runner_group_id": 77,
    "deployment_id": 5,
    "labels": ["another"],
    "workflow_name": "another",
    "job_name": "another",
    "head_sha": "0",
    "default_branch": "another",
    "repo_id": 7,
    "repo_is_private": False,
    "custom_properties": {"team": "another"},
    "queued_ms": 1,
    "waiting_ms": 1,
}
PLANTED: dict[str, tuple[DifferenceKind, str, Callable[[World], Any]]] = {
    "job": (DifferenceKind.MISSING, "job 1#35", lambda world: world.store.delete(JOBS, JOB.item)),
    "mark": (DifferenceKind.WEBHOOK, "webhooks/1/35/", without_mark),
    "history": (DifferenceKind.HISTORY, "webhooks/1/35/", without_history),
    "run": (DifferenceKind.RUN, "run 1#12#1", lambda world: world.store.delete(RUNS, RUN.job_item(JOB.job_id))),
    "deployment": (
        DifferenceKind.DEPLOYMENT,
        "deployment 1#900035",
        lambda world: world.store.delete(DEPLOYMENTS, DEPLOYMENT.item),
    ),
    "deployment without the job": (
        DifferenceKind.DEPLOYMENT,
        "deployment 1#900035",
        removed(DEPLOYMENTS, DEPLOYMENT.item, "job_ids"),
    ),
    "no webhook": (
        DifferenceKind.UNUSABLE,
        "webhooks/1/35/queued.json",
        lambda world: world.objects.put("webhooks/1/35/queued.json", b"{"),
    ),
    "another's key": (DifferenceKind.UNUSABLE, "webhooks/1/x", lambda world: world.objects.put("webhooks/1/x", b"{}")),
    "object gone": (
        DifferenceKind.ONLY_IN_TABLE,
        "job 1#32",
        lambda world: without_objects(world),
    ),
    **{
        f"field {name}": (DifferenceKind.FIELD, name, changed(JOBS, JOB.item, **{name: value}))
        for name, value in FIELDS.items()
    },
    **{
        f"no {name}": (DifferenceKind.FIELD, name, removed(JOBS, JOB.item, name))
        for name in FIELDS
        if not name.startswith("GSI1")
    },
    "too far": (DifferenceKind.FIELD, "status", lambda world: too_far(world)),
}


def too_far(world: World) -> None:
    """In the tables the job is completed, in S3 it has only started."""
    world.objects.delete("webhooks/1/35/completed.json")
    webhooks = sorted(world.store.get(JOBS, JOB.item)["dl"])
    assert len(webhooks) == 4
    # Without the end's mark, nothing explains the end.
    end = next(e for e in every_item(world.store, Query(JOB_EVENTS, JOB.partition)) if "completed" in e["event_type"])
    world.store.update(JOBS, JOB.item, attr("dl").drop_elements({end["SK"].rpartition("#")[2]}))


def test_without_differences_nothing_is_found(world: World) -> None:
    done, found = world.compare()
    assert found == []
    assert (done.jobs, done.differences) == (12, 0)
    assert last_compare(world.store) == done


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_difference_of_every_kind_is_found(world: World, name: str) -> None:
    kind, what, plant = PLANTED[name]
    plant(world)
    done, found = world.compare()
    assert [one for one in found if one.kind is kind and one.what.startswith(what)], found
    assert done.differences == len(found)
    answer_schemas.check("migrate-compare", comparison_answer(done, found))
    others = {one.job.job_id for one in found if one.job is not None} - {32, 33, 34, 35}  # jobs of the same run
    assert others == set()


def test_every_kind_is_planted() -> None:
    assert {kind for kind, _, _ in PLANTED.values()} == set(DifferenceKind)


def test_every_attribute_that_webhooks_set_is_compared(world: World) -> None:
    """A new attribute must be planted here, or be left out on purpose."""
    item = world.store.get(JOBS, JOB.item)
    assert item.keys() - {"PK", "SK", "dl", "labels_hash", "received_at", "ttl"} == set(FIELDS)


def test_a_backfill_adds_what_is_missing(world: World) -> None:
    for name in ("job", "history", "run", "deployment"):
        PLANTED[name][2](world)
        assert world.compare()[1]
        world.backfill()
        assert world.compare()[1] == [], name


def test_events_of_the_runner_fleet_are_not_differences(world: World) -> None:
    """S3 has no object for them, and the tables are ahead."""
    job = JobKey(ONE, JobId(70))
    queued, begun, _ = life(70)
    world.dual.receive(queued)
    world.tracker.record_event(InternalEvent(job, InternalType.SCHEDULED, CREATED.plus(100), 1, None))
    assert (world.store.get(JOBS, job.item))["status"] == "scheduled"
    assert world.compare()[1] == []
    world.dual.receive(begun)
    assert world.compare()[1] == []


def test_a_webhook_that_arrives_between_two_checks_is_not_a_difference(world: World) -> None:
    """The bucket was read before it arrived, the tables after."""
    live = iter(life(60))
    world.dual.receive(next(live))

    def meet(call: str, when: str) -> None:
        if (call, when) == ("get", "before") and (sent := next(live, None)) is not None:
            world.dual.receive(sent)

    world.store.meet = meet
    assert world.compare()[1] == []
    assert next(live, None) is None


def test_another_seed_chooses_another_sample(world: World) -> None:
    fill_older(world, range(100, 200))
    world.backfill()
    halves = [world.compare(0.5, seed)[0].jobs for seed in (1, 2)]
    assert all(30 < jobs < 80 for jobs in halves)
    assert world.compare(0.5, 1)[0].jobs == halves[0]
    world.store.delete(JOBS, JobKey(ONE, JobId(150)).item)
    found = {seed: bool(world.compare(0.5, seed)[1]) for seed in range(12)}
    assert set(found.values()) == {True, False}


def test_jobs_of_the_last_phase_are_only_in_the_tables(world: World) -> None:
    """It is reported, but does not block the next step."""
    world.go_to(Phase.DYNAMODB_ONLY)
    for sent in life(80):
        world.dual.receive(sent)
    world.clock.advance(1)
    done, found = world.compare()
    assert [(one.kind, one.what) for one in found] == [(DifferenceKind.ONLY_IN_TABLE, "job 1#80")]
    assert (done.differences, done.lacking) == (1, 0)
