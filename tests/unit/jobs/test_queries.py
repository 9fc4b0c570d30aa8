"""Queries about jobs: by index, page by page, within the limit of examined items."""

from collections.abc import Iterator
from decimal import Decimal
from itertools import permutations
from pathlib import Path

import pytest
from msgspec import structs

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.figures.contribution import figures_of, team_of, with_all_it_needs
from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.payloads import RunPayload, decoded
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.jobs.model.run import folded_run, run_event
from holdfast.jobs.read import queries, statistics
from holdfast.jobs.read.explain import explanation_of
from holdfast.jobs.read.item_views import Viewing, event_view, job_view
from holdfast.jobs.read.queries import EXAMINED_MOST, Filter, FoundItems, Paging, Span
from holdfast.jobs.read.run_views import DeploymentView, deployment_view, run_view
from holdfast.jobs.read.statistics import DayFigures
from holdfast.jobs.read.stuck import StuckLimits, stuck_jobs
from holdfast.kernel.errors import BadRequest, NotFound
from holdfast.kernel.ids import DeploymentId, InstallationId, InstanceId, JobId, RunId
from holdfast.ports.store import Consumed, Item, Store
from holdfast.ports.store.tables import JOBS, TABLES
from holdfast.views.job_views import JobViews
from tests.call_gate import CallGate
from tests.clocks import StillClock
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, REPOSITORY, RUN_ID, delivery, job_payload, sample
from tests.support.figure_stories import count_until_done
from tests.support.job_deliveries import DEPLOYMENT, gated, plain, run, say

INSTALLATION = InstallationId(INSTALLATION_ID)
NOW = CREATED.plus(7 * 3600)
VIEWING = Viewing(shipped_prices())


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    clock = StillClock(NOW)
    opened = memory_store(clock) if request.param == "memory" else sqlite_store(tmp_path / "s.db", clock, tables=TABLES)
    yield opened
    opened.close()


def tracker_on(store: Store) -> Tracker:
    return Tracker(store, StillClock(NOW), "here")


def add(
    store: Store, job_id: int, *actions: str, created: float = 0, pool: str | None = None, **fields: object
) -> None:
    tracker = tracker_on(store)
    begin = CREATED.plus(created)
    for number, action in enumerate(actions):
        at = begin.plus(10 * number)
        started = begin.plus(10) if action == "completed" else None
        times = {"created_at": begin.iso_seconds()}
        payload = job_payload(action, at=at, job_id=job_id, started=started, **times | fields)  # type: ignore[arg-type]
        tracker.receive(delivery("workflow_job", payload, at, job_id))
    if pool:
        key = JobKey(INSTALLATION, JobId(job_id))
        tracker.record_event(
            InternalEvent(
                key, InternalType.SCHEDULED, begin.plus(1), attributes={"pool_name": pool, "instance_type": "m7i.large"}
            )
        )


def ids(found: FoundItems) -> list[int]:
    return [int(item["PK"].partition("#")[2]) for item in found.items]


def test_jobs_by_status_newest_first_and_in_a_span_of_time(store: Store) -> None:
    for number in range(5):
        add(store, number, "queued", created=60 * number)
    add(store, 9, "queued", "in_progress")
    found = queries.jobs_by_status(store, INSTALLATION, "queued")
    assert ids(found) == [4, 3, 2, 1, 0]
    span = Span(CREATED.plus(60), CREATED.plus(180))
    assert ids(queries.jobs_by_status(store, INSTALLATION, "queued", span)) == [3, 2, 1]
    assert ids(queries.jobs_by_status(store, INSTALLATION, "in_progress")) == [9]


def test_pages_contain_every_job_once(store: Store) -> None:
    for number in range(23):
        add(store, number, "queued", created=number // 3)
    seen: list[int] = []
    cursor = None
    while True:
        page = queries.jobs_by_repository(store, INSTALLATION, REPOSITORY, paging=Paging(4, cursor))
        assert len(page.items) <= 4
        seen += ids(page)
        cursor = page.cursor
        if cursor is None:
            break
    assert sorted(seen) == list(range(23))
    assert len(seen) == 23


def test_filtered_pages_say_how_far_they_searched(store: Store) -> None:
    for number in range(12):
        add(
            store, number, "queued", created=number, pool="small" if number % 4 == 0 else "large", labels=[f"n{number}"]
        )
    found = queries.jobs_by_repository(store, INSTALLATION, REPOSITORY, wanted=Filter({"pool": "small"}))
    assert (ids(found), found.examined, found.cursor) == ([8, 4, 0], 12, None)
    first = queries.jobs_by_repository(
        store, INSTALLATION, REPOSITORY, paging=Paging(2), wanted=Filter({"pool": "small"})
    )
    assert (ids(first), first.examined) == ([8, 4], 8)
    paging = Paging(2, first.cursor)
    rest = queries.jobs_by_repository(store, INSTALLATION, REPOSITORY, paging=paging, wanted=Filter({"pool": "small"}))
    assert (ids(rest), rest.cursor) == ([0], None)
    by_label = queries.jobs_by_status(store, INSTALLATION, "scheduled", wanted=Filter({"label": "n7"}))
    assert ids(by_label) == [7]


def test_no_page_examines_more_than_a_thousand_items(store: Store) -> None:
    for number in range(EXAMINED_MOST + 50):
        item = {
            "PK": f"{INSTALLATION}#{number}",
            "SK": "v",
            "GSI1-PK": f"{INSTALLATION}#queued",
            "GSI2-PK": f"{INSTALLATION}#a/b",
            "created_at": CREATED.plus(number).iso_seconds(),
        }
        store.put(JOBS, item)
    found = queries.jobs_by_repository(store, INSTALLATION, "a/b", wanted=Filter({"pool": "none such"}))
    assert (found.items, found.examined) == ([], EXAMINED_MOST)
    assert found.cursor is not None
    paging = Paging(cursor=found.cursor)
    rest = queries.jobs_by_repository(store, INSTALLATION, "a/b", paging=paging, wanted=Filter({"pool": "none such"}))
    assert (rest.examined, rest.cursor) == (50, None)
    gathered = queries.gathered(
        lambda paging: queries.jobs_by_repository(store, INSTALLATION, "a/b", paging=paging), 2000
    )
    assert (len(gathered.items), gathered.cursor) == (EXAMINED_MOST + 50, None)


def test_no_query_scans_a_table(store: Store) -> None:
    """All use keys or indexes: no other call is made."""
    for said in plain():
        say(tracker_on(store), said)
    gate = CallGate(lambda _call, _moment: None)
    watched = gate.wrapped(store, "store")
    queries.jobs_by_run(watched, RunKey(INSTALLATION, RunId(RUN_ID), 1))
    queries.events(watched, JobKey(INSTALLATION, JobId(JOB_ID)))
    stuck_jobs(watched, INSTALLATION, Status.QUEUED, NOW, StuckLimits(), Paging())
    assert {call.method for call in gate.calls} == {"query", "batch_get"}


def test_an_unfiltered_page_reads_no_more_than_it_shows() -> None:
    consumed: list[Consumed] = []
    store = memory_store(StillClock(NOW)).metered(consumed.append)
    for number in range(30):
        add(store, number, "queued", created=number)
    consumed.clear()
    queries.jobs_by_repository(store, INSTALLATION, REPOSITORY, paging=Paging(5))
    assert sum(each.read_units for each in consumed) == 0.5 + 5 * 0.5


def test_a_run_names_its_jobs_and_another_attempt_does_not(store: Store) -> None:
    add(store, 1, "queued")
    add(store, 2, "queued", run_attempt=2)
    assert ids(queries.jobs_by_run(store, RunKey(INSTALLATION, RunId(RUN_ID), 1))) == [1]


def test_another_installation_sees_nothing(store: Store) -> None:
    add(store, 1, "queued")
    assert ids(queries.jobs_by_status(store, InstallationId(1), "queued")) == []
    assert ids(queries.jobs_by_repository(store, InstallationId(1), REPOSITORY)) == []
    add(store, 2, "queued")
    paging = Paging(1, queries.jobs_by_status(store, INSTALLATION, "queued", paging=Paging(1)).cursor)
    with pytest.raises(BadRequest):
        queries.jobs_by_status(store, InstallationId(1), "queued", paging=paging)


def test_history_by_day_and_by_type(store: Store) -> None:
    for said in gated():
        say(tracker_on(store), said)
    key = JobKey(INSTALLATION, JobId(JOB_ID))
    queued = queries.events(store, key, event_type="webhook_queued")
    assert [event_view(entry).timestamp for entry in queued.items] == [
        "2026-01-15T10:03:00.100Z",
        "2026-01-15T10:00:00.400Z",
    ]
    assert len(queries.events(store, key, day="2026-01-15").items) == 5
    assert queries.events(store, key, day="2026-01-16").items == []


def test_stuck_jobs_are_found_by_the_time_in_their_status(store: Store) -> None:
    add(store, 1, "queued", "in_progress")
    add(store, 2, "queued", created=6 * 3600 + 3000)
    add(store, 3, "queued")
    add(store, 4, "queued", "waiting", deployment=4)
    tracker_on(store).receive(
        delivery("workflow_job", job_payload("queued", job_id=4, deployment=4, at=NOW.plus(-5)), NOW.plus(-5))
    )

    def stuck(status: Status) -> list[int]:
        return ids(stuck_jobs(store, INSTALLATION, status, NOW, StuckLimits(), Paging()))

    assert stuck(Status.IN_PROGRESS) == [1]
    assert stuck(Status.QUEUED) == [3]
    assert stuck(Status.WAITING) == []
    with pytest.raises(BadRequest):
        stuck(Status.COMPLETED)


def test_a_view_has_every_attribute_of_the_seed(store: Store) -> None:
    for said in plain():
        say(tracker_on(store), said)
    job = queries.job(store, JobKey(INSTALLATION, JobId(JOB_ID)))
    assert job is not None
    view = job_view(job, VIEWING)
    expected = {
        "installation_id": INSTALLATION_ID,
        "job_id": JOB_ID,
        "run_id": RUN_ID,
        "run_attempt": 1,
        "org_name": "acme-corporation",
        "repo_full_name": REPOSITORY,
        "repo_is_private": True,
        "job_html_url": f"https://github.com/{REPOSITORY}/actions/runs/{RUN_ID}/job/{JOB_ID}",
        "status": "completed",
        "conclusion": "failure",
        "was_interrupted": False,
        "usage_in_seconds": 59,
        "overall_queue_duration_in_ms": 31_000,
        "last_updated_at": "2026-01-15T10:01:30.900Z",
        "usage_in_dollars": Decimal("0.001926"),
    }
    shown = structs.asdict(view)
    assert {name: shown[name] for name in expected} == expected
    seed = """installation_id job_id run_id run_attempt org_name repo_full_name repo_is_private workflow_id
        workflow_name job_name head_sha default_branch job_html_url status conclusion created_at received_at
        scheduled_at started_at completed_at instance_id instance_type instance_lifecycle fleet_id pool_name
        was_interrupted runner_id runner_name runner_group_id labels deployment_id usage_in_seconds
        usage_in_dollars internal_queue_duration_in_ms overall_queue_duration_in_ms custom_properties
        last_updated_at ttl"""
    assert set(seed.split()) <= set(shown)


def test_an_index_entry_can_be_shown_too(store: Store) -> None:
    add(store, 1, "queued", "in_progress")
    [entry] = queries.jobs_by_status(store, INSTALLATION, "in_progress").items
    view = job_view(entry, VIEWING)
    assert (view.repo_full_name, view.status, view.run_id) == (REPOSITORY, "in_progress", None)


def test_a_runs_view_counts(store: Store) -> None:
    key = RunKey(INSTALLATION, RunId(RUN_ID), 1)
    add(store, 1, "queued", "in_progress", "completed")
    add(store, 2, "queued", "in_progress", "completed", conclusion="failure")
    found = queries.run(store, key)
    assert found is not None
    view = run_view(found, VIEWING)
    assert (view.total_jobs, view.completed_jobs, view.failed_jobs) == (2, 2, 1)
    assert (view.status, view.conclusion, view.is_complete) == ("completed", None, True)
    add(store, 3, "queued")
    view = run_view(queries.run(store, key) or {}, VIEWING)
    assert (view.total_jobs, view.is_complete, view.conclusion) == (3, False, None)


@pytest.mark.parametrize("conclusion", ["success", "failure", "cancelled", "skipped", "stale", "neutral", "unheard_of"])
def test_a_runs_conclusion_is_unknown_until_github_reports_it(store: Store, conclusion: str) -> None:
    """A failed job may be allowed to fail, and another stage may follow: the jobs do not imply the conclusion."""
    add(store, 1, "queued", "in_progress", "completed", conclusion=conclusion)
    key = RunKey(INSTALLATION, RunId(RUN_ID), 1)
    assert run_view(queries.run(store, key) or {}, VIEWING).conclusion is None
    say(tracker_on(store), run("in_progress", 1))
    view = run_view(queries.run(store, key) or {}, VIEWING)
    assert (view.status, view.conclusion, view.is_complete) == ("in_progress", None, True)
    say(tracker_on(store), run("completed", 99, "neutral"))
    view = run_view(queries.run(store, key) or {}, VIEWING)
    assert (view.status, view.conclusion) == ("completed", "neutral")


def test_an_unreported_approval_is_inferred_from_the_job(store: Store) -> None:
    add(store, 1, "waiting", "queued", deployment=7)
    found = queries.deployment(store, DeploymentKey(INSTALLATION, DeploymentId(7)))
    assert found is not None
    view = deployment_view(*found)
    assert (view.status, view.is_inferred, view.approved_at) == ("approved", True, "2026-01-15T10:00:10.000Z")
    assert queries.deployment(store, DEPLOYMENT) is None


def shown_deployment(store: Store, number: int = 7) -> DeploymentView:
    found = queries.deployment(store, DeploymentKey(INSTALLATION, DeploymentId(number)))
    assert found is not None
    return deployment_view(*found)


def test_a_deployment_without_a_rule_never_waits(store: Store) -> None:
    add(store, 1, "queued", deployment=7)
    assert shown_deployment(store).status == "pending"
    add(store, 1, "queued", "in_progress", deployment=7)
    view = shown_deployment(store)
    assert (view.status, view.is_inferred, view.approved_at) == ("not_required", True, None)


@pytest.mark.parametrize(("conclusion", "status"), [("failure", "rejected"), ("cancelled", "cancelled")])
def test_a_deployment_whose_jobs_have_ended_is_not_pending(store: Store, conclusion: str, status: str) -> None:
    """Without an App no review is reported: the end of the jobs says what became of their deployment."""
    for number in (1, 2):
        add(store, number, "waiting", deployment=7)
    ends = {"at": CREATED.plus(60), "conclusion": conclusion, "deployment": 7, "runner_name": None}
    for number in (1, 2):
        assert shown_deployment(store).status == "pending"
        payload = job_payload("completed", job_id=number, **ends)  # type: ignore[arg-type]
        payload["workflow_job"]["started_at"] = None
        tracker_on(store).receive(delivery("workflow_job", payload, CREATED.plus(60), number))
    view = shown_deployment(store)
    assert (view.status, view.is_inferred) == (status, True)
    assert (view.rejected_at is not None) == (status == "rejected")


def test_a_deployment_that_no_workflow_made_is_ignored(store: Store) -> None:
    payload = sample("deployment") | {"workflow_run": None, "workflow": None}
    receipt = tracker_on(store).receive(delivery("deployment", payload, CREATED))
    assert (receipt.result, receipt.reason) == ("ignored", "no workflow made this deployment, so no job waits for it")
    assert queries.deployment(store, DeploymentKey(INSTALLATION, payload["deployment"]["id"])) is None


def test_a_job_that_was_carried_over_is_not_counted_again(store: Store) -> None:
    add(store, 1, "queued", "in_progress", "completed", pool="small")
    add(
        store,
        2,
        "completed",
        created=3600,
        run_attempt=2,
        started_at=CREATED.iso_seconds(),
        completed_at=CREATED.plus(20).iso_seconds(),
        pool="small",
    )
    first, again = (queries.job(store, JobKey(INSTALLATION, JobId(number))) or {} for number in (1, 2))
    assert (job_view(first, VIEWING).is_carried_over, job_view(again, VIEWING).is_carried_over) == (False, True)
    assert job_view(first, VIEWING).usage_in_dollars
    assert job_view(again, VIEWING).usage_in_dollars is None
    assert statistics.whole(DayFigures({"2026-01-15": figures_of([first, again])})).jobs == 1
    entries = queries.jobs_by_status(store, INSTALLATION, "completed").items
    assert [job["PK"] for job in with_all_it_needs(store, entries)] == [first["PK"]]
    found = explanation_of(again, None, CREATED.plus(7200), StuckLimits())
    assert found.because == "It was carried over: an earlier attempt of its run had executed it, with success."


def test_jobs_of_the_same_second_are_in_the_order_of_their_ids(store: Store) -> None:
    """DynamoDB and SQLite return them in different orders; text would put 10 before 9."""
    for number in (10, 9, 100):
        add(store, number, "queued")
    assert ids(queries.jobs_by_status(store, INSTALLATION, "queued")) == [100, 10, 9]
    oldest = Paging(is_newest_first=False)
    assert ids(queries.jobs_by_status(store, INSTALLATION, "queued", paging=oldest)) == [9, 10, 100]


def test_figures_of_a_repository(store: Store) -> None:
    for number in range(10):
        add(store, number, "queued", "in_progress", "completed", conclusion="failure" if number < 2 else "success")
    add(store, 77, "completed", conclusion="skipped")
    jobs = queries.jobs_by_repository(store, INSTALLATION, REPOSITORY).items
    figures = DayFigures({"2026-01-15": figures_of(jobs)})
    group = statistics.whole(figures)
    assert (group.jobs, group.success_rate) == (11, 0.8)
    assert group.run_seconds == {"p50": 10, "p95": 10, "p99": 10}
    assert group.queue_seconds["p50"] == 10.0
    assert [each.jobs for each in statistics.by_workflow_and_job(figures)] == [11]
    assert statistics.daily_counts(figures) == {"2026-01-15": {"failure": 2, "skipped": 1, "success": 8}}


def test_approval_time_is_not_queue_time(store: Store) -> None:
    for said in gated():
        say(tracker_on(store), said)
    job: Item = queries.job(store, JobKey(INSTALLATION, JobId(JOB_ID))) or {}
    view = job_view(job, VIEWING)
    assert view.approval_duration_in_ms == 178_200
    assert view.overall_queue_duration_in_ms == 211_000 - 178_200
    assert statistics.whole(DayFigures({"2026-01-15": figures_of([job])})).approval_seconds["p50"] == 178.2


def test_pools_and_costs(store: Store) -> None:
    key = JobKey(INSTALLATION, JobId(1))
    add(store, 1, "queued", "in_progress", "completed", pool="small")
    tracker = tracker_on(store)
    tracker.record_event(
        InternalEvent(key, InternalType.ATTACHED, CREATED.plus(2), instance_id=InstanceId("i-0123456789abcde01"))
    )
    tracker.record_event(InternalEvent(key, InternalType.TERMINATED, CREATED.plus(42)))
    add(store, 2, "queued", "in_progress", "completed")
    jobs = queries.jobs_by_repository(store, INSTALLATION, REPOSITORY).items
    figures = DayFigures({"2026-01-15": figures_of(jobs, team_property="team")})
    pools = statistics.pool_utilisation(figures)
    assert pools["small"] == {
        "jobs": 1,
        "running": 0,
        "machine_seconds": 40.0,
        "busy_seconds": 10.0,
        "utilisation": 0.25,
    }
    [small, none] = statistics.costs(figures, "pool", shipped_prices())
    assert (small.name, small.usd, none.usd) == ("small", Decimal("0.001120"), Decimal(0))
    assert [group.name for group in statistics.costs(figures, "team", shipped_prices())] == ["payments"]
    assert [group.name for group in statistics.costs(figures, "day", shipped_prices())] == ["2026-01-15"]
    days = DayFigures({f"2026-01-{day}": figures_of(jobs) for day in (14, 16, 15)})
    assert [group.name[-2:] for group in statistics.costs(days, "day", shipped_prices())] == ["16", "15", "14"]
    with pytest.raises(BadRequest, match="cost by 'planet'"):
        statistics.costs(figures, "planet", shipped_prices())


@pytest.mark.parametrize(
    "wanted", [{"pool": "SMALL"}, {"label": "gpu"}, {"workflow": "CONTINUOUS INTEGRATION"}, {"conclusion": "Success"}]
)
def test_filters_ignore_case(store: Store, wanted: dict[str, str]) -> None:
    add(store, 1, "queued", "in_progress", "completed", pool="Small", labels=["GPU"])
    add(store, 2, "queued", "in_progress", "completed", conclusion="failure", workflow_name="other", labels=["x"])
    found = queries.jobs_by_status(store, INSTALLATION, "completed", wanted=Filter(wanted))
    assert ids(found) == [1]


def test_costs_are_grouped_by_the_property_that_names_the_team(store: Store) -> None:
    add(store, 1, "queued", "in_progress", "completed", pool="small")
    jobs = queries.jobs_by_repository(store, INSTALLATION, REPOSITORY).items
    figures = DayFigures({"2026-01-15": figures_of(jobs, team_property="tier")})
    assert [group.name for group in statistics.costs(figures, "team", shipped_prices())] == ["1"]
    assert team_of({"custom_properties": {"owners": ["a", "b"]}}, "owners") == "a, b"


def test_a_run_of_a_fork_goes_on_when_it_is_approved(store: Store) -> None:
    """GitHub reports it as completed until then, and the attempt stays the same."""
    reports = [run("completed", 1, "action_required"), run("in_progress", 300), run("completed", 400, "success")]
    key = RunKey(INSTALLATION, RunId(RUN_ID), 1)
    seen = []
    for sent in reports:
        say(tracker_on(store), sent)
        view = run_view(queries.run(store, key) or {}, VIEWING)
        seen.append((view.status, view.conclusion))
    assert seen == [("completed", "action_required"), ("in_progress", None), ("completed", "success")]


def test_the_reports_of_an_approved_run_may_arrive_in_any_order() -> None:
    reports = [run("completed", 1, "action_required"), run("in_progress", 300), run("requested", 0)]
    events = [run_event(sent, decoded(sent.body, RunPayload), NOW) for sent in reports]
    for order in permutations(events):
        item: Item | None = None
        for event in order:
            item = folded_run(item, event)
        assert item is not None
        assert (item["status"], "conclusion" in item) == ("in_progress", False)
    held: Item = {"PK": "1#2#1", "status": "completed", "conclusion": "action_required", "rk": 3 * 10**14 + 1}
    assert folded_run(held | {"repo_full_name": REPOSITORY}, events[1])["status"] == "in_progress"


@pytest.mark.parametrize("limit", [0, 1001, -1])
def test_an_invalid_page_size_is_refused(limit: int) -> None:
    with pytest.raises(BadRequest):
        Paging(limit)


def test_invalid_queries_are_refused(store: Store) -> None:
    with pytest.raises(BadRequest, match="planet"):
        Filter({"planet": "x"})
    with pytest.raises(BadRequest, match="after until"):
        queries.jobs_by_status(store, INSTALLATION, "queued", Span(NOW, CREATED))


def test_items_of_an_older_deployment_can_be_shown() -> None:
    job: Item = {"PK": "1#2", "SK": "v", "GSI2-PK": "1#a/b", "GSI3-PK": "1#3#1", "labels": frozenset({"b", "a"})}
    assert job_view(job, VIEWING).labels == ["a", "b"]
    run: Item = {
        "PK": "1#3#1",
        "SK": "v",
        "status": "completed",
        "total_jobs": 3,
        "completed_jobs": 3,
        "failed_jobs": 1,
    }
    view = run_view(run, VIEWING)
    assert (view.total_jobs, view.completed_jobs, view.failed_jobs) == (3, 3, 1)


def test_jobs_of_a_machine_are_found_with_and_without_a_status_or_repository(store: Store) -> None:
    """The indexes do not contain the machine, so the items themselves are read. The runner's name decides."""
    for number in (1, 2, 3):
        machine = f"i-0000000000000000{number % 2}"
        add(store, number, "queued", "in_progress", runner_name=f"runner-{number}" if number == 3 else f"hf-{machine}")
        launched = InstanceId(machine if number == 3 else "i-00000000000000008")
        attached = InternalEvent(
            JobKey(INSTALLATION, JobId(number)), InternalType.ATTACHED, CREATED.plus(5), instance_id=launched
        )
        tracker_on(store).record_event(attached)
    for others in ({}, {"status": "in_progress"}, {"repo": REPOSITORY}):
        found = tracking_on(store).jobs(asked(instance_id="i-00000000000000001", **others))
        assert sorted(job.job_id for job in found.items) == [1, 3]
    assert tracking_on(store).jobs(asked(instance_id="i-00000000000000008")).items == [], "it ran none of them"


# Statistics


def tracking_on(store: Store) -> JobViews:
    return JobViews(store, StillClock(NOW), VIEWING, StuckLimits())


def asked(**given: object) -> dict[str, str]:
    return {"installation_id": str(INSTALLATION)} | {name: str(value) for name, value in given.items()}


def test_figures_are_counted_by_day_and_open_jobs_are_read_as_they_are(store: Store) -> None:
    for number in range(6):
        add(store, number, "queued", "in_progress", "completed", created=-number * 86_400, pool="small")
    add(store, 10, "queued", "in_progress", pool="large")
    add(store, 11, "queued")
    gate = CallGate(lambda _call, _moment: None)
    tracking = tracking_on(gate.wrapped(store, "store"))
    assert tracking.stats(asked()).counted_at is None
    count_until_done(Counting(store, StillClock(NOW), INSTALLATION))
    figures = tracking.stats(asked(repo=REPOSITORY))
    assert (figures.total.jobs, figures.examined, figures.cursor) == (8, 2, None)
    everywhere = tracking.stats(asked())
    assert everywhere.days["2026-01-15"] == {"in_progress": 1, "queued": 1, "success": 1}
    assert (len(everywhere.days), everywhere.jobs, everywhere.cursor) == (6, 8, None)
    assert (everywhere.counted_at, everywhere.unknown_days) == (NOW.iso(), [])
    pools = everywhere.pools
    assert {name: pool.jobs for name, pool in pools.items()} == {"large": 1, "none": 1, "small": 6}
    assert pools["large"].running == 1
    costs = tracking.costs(asked(by="repo"))
    assert [(group.name, group.jobs) for group in costs.items] == [(REPOSITORY, 8)]
    assert [(group.name, group.jobs) for group in tracking.costs(asked(by="team")).items] == [("payments", 8)]
    assert tracking.stats(asked(repo="acme/other")).jobs == 0
    assert {call.method for call in gate.calls} <= {"get", "query", "batch_get"}


def test_figures_cover_every_job_and_a_limit_cuts_nothing(store: Store) -> None:
    """12,000 jobs of which most failed once read as 100 % success: only the newest thousand were counted."""
    for number in range(1200):
        item = {
            "PK": f"{INSTALLATION}#{number}",
            "SK": "v",
            "GSI1-PK": f"{INSTALLATION}#completed",
            "GSI2-PK": f"{INSTALLATION}#a/b",
            "created_at": CREATED.plus(number).iso_seconds(),
            "conclusion": "success" if number >= 1100 else "failure",
        }
        store.put(JOBS, item)
    count_until_done(Counting(store, StillClock(NOW), INSTALLATION))
    for params in (asked(), asked(limit=3), asked(repo="a/b")):
        found = tracking_on(store).stats(params)
        assert (found.jobs, found.cursor) == (1200, None)
        assert found.total.success_rate == pytest.approx(1 / 12)
    assert tracking_on(store).costs(asked(limit=3)).jobs == 1200


def test_figures_of_a_part_of_a_day_are_of_whole_hours_and_say_so(store: Store) -> None:
    for number, hour in enumerate((0, 1, 1, 2, 5)):
        add(store, number, "queued", "in_progress", "completed", created=hour * 3600)
    count_until_done(Counting(store, StillClock(NOW), INSTALLATION))
    exact = tracking_on(store).stats(asked(since="2026-01-15T11:00:00Z", until="2026-01-15T13:00:00Z"))
    assert (exact.jobs, exact.notes) == (3, [])
    rough = tracking_on(store).stats(asked(since="2026-01-15T11:20:00Z", until="2026-01-15T12:40:00Z"))
    assert rough.jobs == 3
    assert [note.partition(":")[0] for note in rough.notes] == [
        "figures begin at 2026-01-15T11",
        "figures end at 2026-01-15T13",
    ]


def test_a_job_is_explained_with_its_deployment(store: Store) -> None:
    add(store, 1, "waiting", deployment=7)
    found = tracking_on(store).explain(str(INSTALLATION), "1", {})
    assert "production waits for approval" in found.because
    with pytest.raises(NotFound):
        tracking_on(store).explain(str(INSTALLATION), "2", {})
