"""Jobs, runs and deployments over HTTP: responses, refusals, and hostile requests."""

import json
import re
from collections.abc import Iterator
from contextlib import closing, contextmanager
from itertools import count
from pathlib import Path
from typing import Any

import pytest
from jsonschema import Draft202012Validator

from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.console.http.access import Access
from holdfast.console.http.guard import Guard
from holdfast.console.http.jobs_api import EVENT_BYTES_MOST
from holdfast.console.schema.api_calls import CALLS
from holdfast.console.schema.documents import document
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.ports.store import PutItem, Store, attr
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import JOBS, RUNS, TABLES
from tests.clocks import StillClock
from tests.contracts.backends import dynamodb_calls
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, REPOSITORY, RUN_ID, delivery, job_payload, sample
from tests.servers.processes import RunningServer
from tests.support.job_world import HOSTILE, NOW, TOKEN, JobWorld

JOB = f"/api/jobs/{INSTALLATION_ID}/{JOB_ID}"
RUN = f"/api/runs/{INSTALLATION_ID}/{RUN_ID}/1"
DEPLOYMENT = 1_600_000_001
_NUMBERS = count(1)
PLAN = {
    "type": "runner_scheduled",
    "at": "2026-01-15T10:00:02Z",
    "attempt": 1,
    "attributes": {"instance_type": "m7i.xlarge", "instance_lifecycle": "spot", "pool_name": "small"},
}


@contextmanager
def opened(backend: str, clock: StillClock, request: pytest.FixtureRequest) -> Iterator[Store]:
    if backend == "dynamodb":
        server: RunningServer = request.getfixturevalue("dynamodb_server")
        with tables_of(server, clock) as store:
            yield store
        return
    path: Path = request.getfixturevalue("tmp_path")
    store = memory_store(clock) if backend == "memory" else sqlite_store(path / "s.db", clock, tables=TABLES)
    with closing(store):
        yield store


@contextmanager
def tables_of(server: RunningServer, clock: StillClock) -> Iterator[Store]:
    """Separate tables, which are deleted afterwards."""
    transport = dynamodb_calls(server.url, clock).transport
    calls = DynamoCalls(transport, clock)
    names = {table.setting: f"{table.name}-api-{next(_NUMBERS)}" for table in TABLES}
    for table in TABLES:
        DynamoTables(calls, names).carry_out(CreateTable(table))
    with closing(transport):
        yield DynamoStore(calls, names)
        for name in names.values():
            calls.call("DeleteTable", {"TableName": name})


@pytest.fixture(params=["memory", "sqlite"])
def world(request: pytest.FixtureRequest) -> Iterator[JobWorld]:
    clock = StillClock(NOW)
    with opened(request.param, clock, request) as store:
        yield JobWorld(store, clock)


@pytest.fixture(params=["memory", "sqlite", pytest.param("dynamodb", marks=pytest.mark.real)])
def any_world(request: pytest.FixtureRequest) -> Iterator[JobWorld]:
    """Also on DynamoDB, for tests of its pages and cursors. Far ahead of its own clock."""
    clock = StillClock()
    with opened(request.param, clock, request) as store:
        yield JobWorld(store, clock)


def checked(name: str, answer: tuple[int, Any]) -> Any:
    status, body = answer
    assert status == 200, body
    Draft202012Validator(document(name)).validate(body)
    return body


def ids(page: dict[str, Any]) -> list[int]:
    return [job["job_id"] for job in page["items"]]


def every_page(world: JobWorld, path: str, **query: object) -> list[dict[str, Any]]:
    """All pages, as a client that follows the cursors sees them."""
    pages = [world.get(path, **query)[1]]
    while pages[-1]["cursor"] is not None:
        status, page = world.get(path, cursor=pages[-1]["cursor"], **query)
        assert status == 200, page
        assert len(pages) < 100
        pages.append(page)
    return pages


def refused(answer: tuple[int, Any], status: int = 400) -> str:
    found, body = answer
    assert found == status, body
    Draft202012Validator(document("error")).validate(body)
    message: str = body["error"]["message"]
    assert message.isprintable()
    assert len(message) < 400
    return message


# Lists


def test_jobs_of_every_status_are_listed_newest_first(world: JobWorld) -> None:
    world.job(1, "queued")
    world.job(2, "queued", "in_progress", "completed", after=60)
    world.job(3, "queued", "in_progress", after=120)
    page = checked("jobs", world.get("/api/jobs"))
    assert ids(page) == [3, 2, 1]
    assert (page["cursor"], page["examined"]) == (None, 3)
    [newest, _, oldest] = page["items"]
    assert (newest["status"], newest["repo_full_name"], newest["run_id"]) == ("in_progress", REPOSITORY, RUN_ID)
    assert (oldest["status"], oldest["labels"], oldest["created_at"]) == (
        "queued",
        sample("workflow_job")["workflow_job"]["labels"],
        CREATED.iso_seconds(),
    )


def test_pages_of_all_jobs_contain_each_once_and_in_order(any_world: JobWorld) -> None:
    """Whatever the status and the size of a page; several have the same second."""
    stories = (["queued"], ["queued", "in_progress"], ["queued", "in_progress", "completed"], ["waiting"])
    for number in range(30):
        any_world.job(number, *stories[number * 7 % 4], after=number // 3)
    for limit in (1, 3, 7, 50):
        pages = every_page(any_world, "/api/jobs", limit=limit)
        found = [job for page in pages for job in page["items"]]
        assert sorted(job["job_id"] for job in found) == list(range(30))
        assert [job["created_at"] for job in found] == sorted((job["created_at"] for job in found), reverse=True)
        assert all(len(page["items"]) <= limit for page in pages)
        assert sum(page["examined"] for page in pages) == 30


def test_filters_work_on_every_path(any_world: JobWorld) -> None:
    world = any_world
    for number in range(8):
        world.job(number, "queued", after=number, labels=["linux", f"n{number % 2}"], workflow_name=f"w{number % 4}")
        if number % 4 == 0:
            world.schedule(number, after=number + 2.0)
    for also in ({}, {"repo": REPOSITORY}):
        assert ids(world.get("/api/jobs", pool="small", **also)[1]) == [4, 0]
        assert ids(world.get("/api/jobs", label="n1", **also)[1]) == [7, 5, 3, 1]
        assert ids(world.get("/api/jobs", workflow="w2", **also)[1]) == [6, 2]
        assert ids(world.get("/api/jobs", status="scheduled", **also)[1]) == [4, 0]
        assert ids(world.get("/api/jobs", status="queued", label="n0", **also)[1]) == [6, 2]
        assert ids(world.get("/api/jobs", pool="none such", **also)[1]) == []
    assert ids(world.get("/api/jobs", repo="acme/other")[1]) == []


def test_text_filters_match_by_part_and_ignore_case(any_world: JobWorld) -> None:
    """A whole owner/name is that repository alone, though another's name begins with it."""
    world = any_world
    for number, name in enumerate((REPOSITORY, f"{REPOSITORY}-docs", "other/Site")):
        fields: dict[str, Any] = {
            "created_at": CREATED.plus(number).iso(),
            "labels": ["Linux"],
            "workflow_name": "Nightly Build",
        }
        payload = job_payload("queued", at=CREATED.plus(number), job_id=number, **fields)
        payload["repository"]["full_name"] = name
        world.take(delivery("workflow_job", payload, CREATED.plus(number), number))
    owner, _, part = REPOSITORY.partition("/")
    for also in ({}, {"status": "queued"}):
        assert ids(world.get("/api/jobs", repo=REPOSITORY, **also)[1]) == [0]
        assert ids(world.get("/api/jobs", repo=f"{owner}/{part[:-1]}", **also)[1]) == [1, 0]
        assert ids(world.get("/api/jobs", repo="SITE", **also)[1]) == [2]
        first = world.get("/api/jobs", repo=part, limit="1", **also)[1]
        assert ids(first) == [1]
        assert ids(world.get("/api/jobs", repo=part, cursor=first["cursor"], **also)[1]) == [0]
        for filters in ({"label": "linu"}, {"workflow": "BUILD"}):
            assert ids(world.get("/api/jobs", **filters, **also)[1]) == [2, 1, 0]
    assert ids(world.get("/api/jobs", repo=REPOSITORY, workflow="night")[1]) == [0]


def test_a_time_range_includes_both_ends(world: JobWorld) -> None:
    for number in range(5):
        world.job(number, "queued", after=60 * number)
    span = {"since": CREATED.plus(60).iso(), "until": CREATED.plus(180).iso_seconds()}
    for also in ({}, {"status": "queued"}, {"repo": REPOSITORY}):
        assert ids(world.get("/api/jobs", **span, **also)[1]) == [3, 2, 1]


def test_a_filter_that_finds_nothing_stops_after_a_thousand_items_and_says_so(world: JobWorld) -> None:
    items = [
        {
            "PK": f"{INSTALLATION_ID}#{number}",
            "SK": "v",
            "GSI1-PK": f"{INSTALLATION_ID}#queued",
            "GSI2-PK": f"{INSTALLATION_ID}#a/b",
            "created_at": CREATED.plus(number).iso_seconds(),
            "status": "queued",
        }
        for number in range(1100)
    ]
    for start in range(0, 1100, 100):
        world.store.transact([PutItem(JOBS, item) for item in items[start : start + 100]])
    for query in ({"repo": "a/b"}, {"status": "queued"}, {}):
        pages = every_page(world, "/api/jobs", installation_id=INSTALLATION_ID, pool="none", **query)
        assert [page["items"] for page in pages] == [[]] * len(pages)
        assert sum(page["examined"] for page in pages) == 1100
        assert max(page["examined"] for page in pages) <= 1000
        assert len(pages) > 1


def test_a_job_that_changed_since_its_index_entry_is_left_out(world: JobWorld) -> None:
    """DynamoDB's indexes lag behind their table: a job that is listed as queued is queued."""
    world.job(1, "queued")
    world.job(2, "queued")
    read = world.store.batch_get
    news = [delivery("workflow_job", job_payload("in_progress", job_id=2), CREATED.plus(9), 2)]

    def read_later(table: Any, keys: Any, **options: Any) -> Any:
        while news:
            world.take(news.pop())
        return read(table, keys, **options)

    setattr(world.store, "batch_get", read_later)  # noqa: B010  to mypy, a method is not to be replaced
    assert ids(world.get("/api/jobs", status="queued")[1]) == [1]
    assert ids(world.get("/api/jobs", status="in_progress")[1]) == [2]


def test_the_installation_may_be_omitted_if_there_is_only_one(world: JobWorld) -> None:
    assert "no installation is known yet" in refused(world.get("/api/jobs"), 404)
    world.job(1, "queued")
    assert ids(world.get("/api/jobs")[1]) == [1]
    world.take(delivery("workflow_job", job_payload("queued", job_id=1, installation=7), CREATED))
    assert f"7, {INSTALLATION_ID}" in refused(world.get("/api/jobs"))
    assert [job["installation_id"] for job in world.get("/api/jobs", installation_id=7)[1]["items"]] == [7]
    assert ids(world.get("/api/jobs", installation_id=8)[1]) == []


def test_stuck_jobs_of_every_status_page_by_page(world: JobWorld) -> None:
    for number in range(4):
        world.job(number, "queued", after=number)
    world.job(10, "queued", "in_progress")
    world.job(11, "queued", "in_progress", after=2 * 3600)
    world.job(12, "queued", after=6 * 3600 + 3000)
    page = checked("stuck-jobs", world.get("/api/jobs/stuck"))
    assert ids(page) == [10, 0, 1, 2, 3]
    assert (page["items"][0]["seconds_there"], page["items"][0]["limit_seconds"]) == (7 * 3600 - 10, 6 * 3600)
    assert [ids(page) for page in every_page(world, "/api/jobs/stuck", limit=2)][:3] == [[10, 0], [1, 2], [3]]
    assert ids(world.get("/api/jobs/stuck", status="queued")[1]) == [0, 1, 2, 3]
    assert "never stuck" in refused(world.get("/api/jobs/stuck", status="completed"))


# Single things


def test_a_job_has_every_attribute_of_the_seed(world: JobWorld) -> None:
    world.run()
    world.job(JOB_ID, "queued")
    world.schedule()
    job = checked("job", world.get(JOB))
    assert (job["job_id"], job["pool_name"], job["instance_id"]) == (JOB_ID, "small", "i-0123456789abcde01")
    assert job["workflow_id"] == sample("workflow_run")["workflow_run"]["workflow_id"]
    assert job["custom_properties"]["team"] == "payments"


def test_money_is_a_number(world: JobWorld) -> None:
    world.job(JOB_ID, "queued", "in_progress", "completed")
    world.schedule()
    job = checked("job", world.get(JOB))
    assert isinstance(job["usage_in_dollars"], float)
    assert job["usage_in_dollars_is_estimate"] is True


def test_an_unknown_item_is_404(world: JobWorld) -> None:
    world.job(1, "queued")
    for path in (
        JOB,
        f"{JOB}/events",
        f"{JOB}/explain",
        RUN.replace("/1", "/2"),
        f"/api/deployments/{INSTALLATION_ID}/1",
    ):
        assert "not found" in refused(world.get(path), 404)
    assert world.get("/api/jobs/1")[0] == 404


def test_the_largest_accepted_id_can_be_queried(world: JobWorld) -> None:
    largest = 2**63 - 1
    world.take(delivery("workflow_job", job_payload("queued", job_id=largest), CREATED))
    assert world.get(f"/api/jobs/{INSTALLATION_ID}/{largest}")[1]["job_id"] == largest
    assert "is not a number" in refused(world.get(f"/api/jobs/{INSTALLATION_ID}/{largest + 1}"), 400)


def test_a_jobs_history_is_in_order(world: JobWorld) -> None:
    world.job(JOB_ID, "queued", "in_progress")
    world.schedule()
    page = checked("job-events", world.get(f"{JOB}/events"))
    assert [event["event_type"] for event in page["items"]] == [
        "webhook_queued",
        "runner_scheduled",
        "runner_attached",
        "webhook_in_progress",
    ]
    assert page["items"][0]["changes"]["status"] == {"from": None, "to": "queued"}
    pages = every_page(world, f"{JOB}/events", limit=3)
    assert [len(page["items"]) for page in pages] == [3, 1]
    only = world.get(f"{JOB}/events", event_type="runner_attached", day="2026-01-15")[1]
    assert [event["changes"]["instance_id"]["to"] for event in only["items"]] == ["i-0123456789abcde01"]
    assert world.get(f"{JOB}/events", day="2026-01-16") == (200, {"items": [], "cursor": None, "examined": 0})


def test_a_job_is_explained_in_words(world: JobWorld) -> None:
    world.job(JOB_ID, "queued", "waiting", deployment=DEPLOYMENT)
    body = checked("job-explained", world.get(f"{JOB}/explain"))
    assert body["lines"][0] == "waiting since 2026-01-15T10:00:10Z"
    assert "waits for approval" in body["because"]
    assert body["is_stuck"] is False


def test_an_interrupted_job_is_explained_with_the_outcome_of_its_run(world: JobWorld) -> None:
    key = JobKey(InstallationId(INSTALLATION_ID), JobId(JOB_ID))
    world.job(JOB_ID, "queued", "in_progress", "completed", conclusion="failure")
    world.schedule()
    world.tracker.record_event(InternalEvent(key, InternalType.INTERRUPTED, CREATED.plus(15)))
    refused_for_today = {"state": "refused", "because": "today's cap is reached"}
    run = RunKey(InstallationId(INSTALLATION_ID), RunId(RUN_ID), 1)
    world.store.update(RUNS, run.item, attr("retry").set_to(refused_for_today))
    body = checked("job-explained", world.get(f"{JOB}/explain"))
    assert body["next"] == "nothing; it is not rerun: today's cap is reached"


def test_a_run_has_its_jobs_page_by_page(world: JobWorld) -> None:
    world.run()
    for number in range(5):
        world.job(number, "queued", "in_progress", "completed", after=number)
    world.job(9, "queued", run_attempt=2)
    run = checked("run", world.get(RUN, limit=3))
    assert (run["total_jobs"], run["completed_jobs"], ids(run["jobs"])) == (5, 5, [4, 3, 2])
    assert ids(world.get(RUN, limit=3, cursor=run["jobs"]["cursor"])[1]["jobs"]) == [1, 0]


def test_a_deployment_has_the_jobs_that_wait_for_it(world: JobWorld) -> None:
    world.job(JOB_ID, "queued", "waiting", deployment=DEPLOYMENT)
    found = checked("deployment", world.get(f"/api/deployments/{INSTALLATION_ID}/{DEPLOYMENT}"))
    assert (found["status"], found["job_ids"], ids(found["jobs"])) == ("pending", [JOB_ID], [JOB_ID])


# Figures


def test_figures_of_jobs(world: JobWorld) -> None:
    for number in range(10):
        conclusion = "failure" if number < 2 else "success"
        world.job(number, "queued", "in_progress", "completed", after=number, conclusion=conclusion)
    world.job(20, "queued")
    world.schedule(20)
    world.count()
    for also in ({}, {"repo": REPOSITORY}):
        stats = checked("job-stats", world.get("/api/jobs/stats", **also))
        assert (stats["jobs"], stats["total"]["success_rate"], stats["cursor"]) == (11, 0.8, None)
        assert stats["total"]["run_seconds"] == {"p50": 10, "p95": 10, "p99": 10}
        assert stats["days"] == {"2026-01-15": {"failure": 2, "scheduled": 1, "success": 8}}
        assert stats["pools"]["small"]["jobs"] == 1
        assert [group["jobs"] for group in stats["items"]] == [11]
    assert world.get("/api/jobs/stats", since=NOW.iso())[1]["jobs"] == 0


def test_figures_cover_all_jobs_whatever_the_limit(world: JobWorld) -> None:
    for number in range(12):
        world.job(number, "queued", after=number)
    for also in ({}, {"repo": REPOSITORY}):
        for limit in (5, 10_000):
            found = checked("job-stats", world.get("/api/jobs/stats", limit=limit, **also))
            assert (found["jobs"], found["cursor"]) == (12, None)


def test_days_that_are_not_counted_yet_are_named(world: JobWorld) -> None:
    world.job(1, "queued", "in_progress", "completed")
    before = checked("costs", world.get("/api/costs", since="2026-01-14T00:00:00Z"))
    assert (before["jobs"], before["counted_at"]) == (0, None)
    assert before["unknown_days"] == ["2026-01-14", "2026-01-15"]
    world.count()
    after = checked("costs", world.get("/api/costs", since="2026-01-14T00:00:00Z"))
    assert (after["jobs"], after["counted_at"], after["unknown_days"]) == (1, NOW.iso(), [])


@pytest.mark.parametrize(
    ("by", "names"),
    [
        ("repo", [REPOSITORY]),
        ("team", ["payments"]),
        ("pool", ["small", "none"]),
        ("day", ["2026-01-15"]),
    ],
)
def test_costs_can_be_grouped_by_each_attribute(world: JobWorld, by: str, names: list[str]) -> None:
    world.job(1, "queued", "in_progress", "completed")
    world.schedule(1)
    world.job(2, "queued")
    world.count()
    costs = checked("costs", world.get("/api/costs", by=by))
    assert [group["name"] for group in costs["items"]] == names
    assert costs["usd"] == pytest.approx(sum(group["usd"] for group in costs["items"]))
    assert costs["usd"] > 0
    assert (costs["jobs"], costs["items"][0]["is_estimate"]) == (2, True)


# The runner fleet's events


def send_event(world: JobWorld, event: Any, path: str = f"{JOB}/events", token: str | None = TOKEN) -> tuple[int, Any]:
    return world.call("POST", path, event if isinstance(event, bytes) else json.dumps(event).encode(), token=token)


def test_an_event_is_stored_once_however_often_it_is_sent(world: JobWorld) -> None:
    assert checked("event-told", send_event(world, PLAN)) == {
        "result": "stored",
        "installation_id": INSTALLATION_ID,
        "job_id": JOB_ID,
        "status": "scheduled",
        "scheduling_attempt": 1,
    }
    assert checked("event-told", send_event(world, PLAN))["result"] == "duplicate"
    world.job(JOB_ID, "queued")
    job = world.get(JOB)[1]
    assert (job["status"], job["pool_name"], job["repo_full_name"]) == ("scheduled", "small", REPOSITORY)
    [event] = world.get(f"{JOB}/events", event_type="runner_scheduled")[1]["items"]
    assert event["deliveries"] == 2


def test_later_attributes_are_sent_with_the_same_event(world: JobWorld) -> None:
    given = PLAN | {"type": "runner_attached", "instance_id": "i-0123456789abcde01", "at": "2026-01-15T10:00:04Z"}
    assert send_event(world, given | {"attributes": {}})[1]["result"] == "stored"
    booted = given | {"attributes": {"booted_at": "2026-01-15T10:00:24Z"}}
    assert send_event(world, booted)[1]["result"] == "stored"
    assert send_event(world, booted)[1]["result"] == "duplicate"
    assert world.get(JOB)[1]["stages_in_ms"]["boot"] == 20_000


def test_a_second_machine_of_one_attempt_is_refused_and_changes_nothing(world: JobWorld) -> None:
    given = PLAN | {"type": "runner_attached", "instance_id": "i-0123456789abcde01", "attributes": {}}
    send_event(world, given)
    assert "another attempt" in refused(send_event(world, given | {"instance_id": "i-0123456789abcdef1"}))
    assert world.get(JOB)[1]["instance_id"] == "i-0123456789abcde01"
    assert len(world.get(f"{JOB}/events")[1]["items"]) == 1


def test_a_fleet_on_another_machine_uses_the_operators_token(world: JobWorld) -> None:
    """The process's own token is in a file on its machine, and changes at each start."""
    operator, reader = "o" * 32, "r" * 32
    access = Access(world.clock, "0.0.0.0", TOKEN, operator_token=operator, reader_token=reader)  # noqa: S104
    world.app = Guard(world.app, access)
    assert send_event(world, PLAN, token=reader)[0] == 403
    assert send_event(world, PLAN, token="wrong")[0] == 401
    assert send_event(world, PLAN, token=operator)[1]["result"] == "stored"
    assert send_event(world, PLAN, token=TOKEN)[1]["result"] == "duplicate"


@pytest.mark.parametrize("token", [None, "", "wrong", TOKEN[:-1], "ü" * 43])
def test_an_event_needs_the_token(world: JobWorld, token: str | None) -> None:
    assert "Authorization" in refused(send_event(world, PLAN, token=token), 401)
    assert world.get(JOB)[0] == 404


@pytest.mark.parametrize(
    "event",
    [
        b"",
        b"[]",
        b"{",
        b"\xff",
        b'{"a":' * 3000,
        {},
        PLAN | {"type": "runner_exploded"},
        PLAN | {"type": 1},
        PLAN | {"at": "yesterday"},
        PLAN | {"at": ""},
        PLAN | {"at": "9999-12-31T23:59:59-23:59"},
        PLAN | {"at": "1969-12-31T23:59:59Z"},
        PLAN | {"at": "9999-12-31T23:59:59Z"},
        PLAN | {"attributes": {"booted_at": "9999-12-31T23:59:59Z"}},
        PLAN | {"attempt": 0},
        PLAN | {"attempt": 10**30},
        PLAN | {"attempt": True},
        PLAN | {"force": True},
        PLAN | {"instance_id": "i-<script>"},
        PLAN | {"type": "runner_attached", "attributes": {}},
        PLAN | {"attributes": {"planet": "mars"}},
        PLAN | {"attributes": {"pool_name": 7}},
        PLAN | {"attributes": {"instance_lifecycle": "\u202espot"}},
        PLAN | {"attributes": {"spot_price_usd_per_hour": "NaN"}},
        PLAN | {"attributes": {"booted_at": "soon"}},
        b'{"type": "runner_scheduled", "at": "2026-01-15T10:00:02Z", "attributes": {"pool_name": "\\ud800"}}',
    ],
    ids=lambda event: str(event)[-60:],
)
def test_a_malformed_event_is_refused_and_leaves_nothing(world: JobWorld, event: Any) -> None:
    refused(send_event(world, event))
    assert world.get(JOB)[0] == 404


def test_an_oversized_event_is_refused(world: JobWorld) -> None:
    assert "exceeds" in refused(send_event(world, b" " * (EVENT_BYTES_MOST + 1)), 413)


def test_an_event_takes_no_query_parameters(world: JobWorld) -> None:
    assert "unknown parameter" in refused(
        world.call("POST", f"{JOB}/events", json.dumps(PLAN).encode(), query=b"force=1", token=TOKEN)
    )
    assert world.get(JOB)[0] == 404


# Hostile requests

NUMBERS = [
    "-1",
    "1.5",
    "1e3",
    "x",
    " 1",
    "1 ",
    "٣",
    "\uff11\uff12",
    "9" * 19,
    "9" * 5000,
    "\x00",
    "1\x00",
    "<script>",
    "+1",
    "0x1",
]
QUERIES = [
    b"planet=mars",
    b"statu=queued",
    b"status=queued&status=waiting",
    b"status=",
    b"status=%00",
    b"status=QUEUED",
    b"limit=0",
    b"limit=-1",
    b"limit=10001",
    b"limit=" + b"9" * 5000,
    b"limit=%D9%A3",
    b"since=yesterday",
    b"since=2026-01-15",
    b"since=9999-12-31T23:59:59-23:59",
    b"since=0001-01-01T00:00:00Z",
    b"since=2026-01-16T00:00:00Z&until=2026-01-15T00:00:00Z",
    b"repo=" + b"a" * 70_000,
    b"pool=",
    b"pool=" + b"a" * 70_000,
    b"cursor=",
    b"cursor=x",
    b"cursor=e30",
    b"cursor=W10",
    b"cursor=bnVsbA",
    b"cursor=eyJxdWV1ZWQiOjF9",
    b"cursor=eyJxdWV1ZWQiOiJ4In0",
    b"cursor=%FF%FE",
    b"cursor=" + b"W1tb" * 15_000,
    b"installation_id=-1",
    b"installation_id=%D9%A3",
    b"installation_id=1%00",
    b"installation_id=" + b"9" * 5000,
]


@pytest.mark.parametrize("name", ["noslash", "a/b/c", "a/..", "%00/%00", "a%23b/c"])
def test_what_is_no_repository_is_refused_by_figures_and_a_part_for_lists(world: JobWorld, name: str) -> None:
    world.job(1, "queued")
    query = f"repo={name}".encode()
    for path in ("/api/jobs/stats", "/api/costs"):
        assert world.call("GET", path, query=query)[0] == 400
    status, found = world.call("GET", "/api/jobs", query=query)
    assert (status, found["items"]) == (200, [])


@pytest.mark.parametrize("path", ["/api/jobs", "/api/jobs/stuck", "/api/jobs/stats", "/api/costs"])
def test_an_invalid_query_is_refused(world: JobWorld, path: str) -> None:
    world.job(1, "queued")
    answers = {query[:40]: world.call("GET", path, query=query) for query in QUERIES}
    assert [query for query, (status, _) in answers.items() if status != 400] == []
    for answer in answers.values():
        refused(answer)


@pytest.mark.parametrize(
    "path",
    [
        f"/api/jobs/%s/{JOB_ID}",
        f"/api/jobs/{INSTALLATION_ID}/%s",
        f"/api/jobs/{INSTALLATION_ID}/%s/events",
        f"/api/jobs/{INSTALLATION_ID}/%s/explain",
        f"/api/runs/{INSTALLATION_ID}/%s/1",
        f"/api/runs/{INSTALLATION_ID}/{RUN_ID}/%s",
        "/api/deployments/%s/1",
    ],
)
def test_a_path_with_an_invalid_number_is_refused(world: JobWorld, path: str) -> None:
    answers = {number[:20]: world.get(path % number) for number in NUMBERS}
    assert [number for number, (status, _) in answers.items() if status != 400] == []
    for answer in answers.values():
        refused(answer)
    if path.endswith("events"):
        assert [number for number in NUMBERS if send_event(world, PLAN, path % number)[0] != 400] == []


@pytest.mark.parametrize("path", [JOB, f"{JOB}/explain", f"{JOB}/events", RUN])
def test_single_items_accept_no_filter(world: JobWorld, path: str) -> None:
    world.job(JOB_ID, "queued")
    assert "unknown parameter 'status'" in refused(world.get(path, status="queued"))


def test_a_cursor_of_another_query_is_refused(world: JobWorld) -> None:
    for number in range(3):
        world.job(number, "queued", after=number)
    world.take(delivery("workflow_job", job_payload("queued", job_id=1, installation=7), CREATED))
    mine = {"installation_id": INSTALLATION_ID, "limit": 1}
    cursors = {
        name: world.get("/api/jobs", **mine, **query)[1]["cursor"]
        for name, query in {"all": {}, "status": {"status": "queued"}, "repo": {"repo": REPOSITORY}}.items()
    }
    assert None not in cursors.values()
    refused(world.get("/api/jobs", **mine, cursor=cursors["status"]))
    refused(world.get("/api/jobs", **mine, cursor=cursors["all"], repo=REPOSITORY))
    refused(world.get("/api/jobs", **mine, cursor=cursors["repo"], status="queued"))
    refused(world.get("/api/jobs", installation_id=7, cursor=cursors["all"]))
    refused(world.get("/api/jobs/stuck", **mine, cursor=cursors["all"]))


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_hostile_names_are_returned_as_data(world: JobWorld, name: str) -> None:
    world.job(JOB_ID, "queued", "in_progress", name=name, workflow_name=name, labels=[name], runner_name=name)
    job = checked("job", world.get(JOB))
    assert len(job["job_name"].encode()) <= 200
    assert name.startswith(job["job_name"].removesuffix("…"))
    for path in ("/api/jobs", f"{JOB}/events", f"{JOB}/explain", "/api/jobs/stats", "/api/costs", RUN):
        assert world.get(path)[0] == 200
    assert ids(world.get("/api/jobs", workflow=job["workflow_name"])[1]) == [JOB_ID]


def test_an_unavailable_store_is_503_everywhere(world: JobWorld) -> None:
    world.job(JOB_ID, "queued")

    def away(*_: Any, **__: Any) -> Any:
        raise StoreUnavailable("no answer in 8 s")

    for name in ("get", "query", "batch_get", "update"):
        setattr(world.store, name, away)
    for path in ("/api/jobs", "/api/jobs/stuck", "/api/jobs/stats", "/api/costs", JOB, f"{JOB}/events", RUN):
        assert refused(world.get(path), 503) == "no answer in 8 s"
    refused(send_event(world, PLAN), 503)


def test_every_call_is_routed_and_described() -> None:
    """Both ways: everything that is documented exists."""
    world = JobWorld(memory_store(StillClock(NOW)), StillClock(NOW))
    asked = (call for call in CALLS if re.search("/(jobs|runs|costs)", call.path))
    for call in (call for call in asked if call.path != "/api/jobs/queue"):  # that one comes with the console
        path = call.path
        for part in ("installation_id", "job_id", "run_id", "run_attempt", "deployment_id"):
            path = path.replace(f"{{{part}}}", "1")
        status, body = world.call(call.method.upper(), path)
        assert status in call.errors, (call.path, body)
        assert "no page at" not in body["error"]["message"]
