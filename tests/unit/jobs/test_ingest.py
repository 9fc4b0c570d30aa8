"""Deliveries in any order, any number of times, with the process dying anywhere: the same tables in the end."""

import json
import random
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import count as count_from
from itertools import permutations
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.jobs.intake.internal_events import InternalType
from holdfast.jobs.intake.tracker import INSTALLATIONS, Tracker, installations
from holdfast.jobs.intake.webhook import ReceiptResult, WebhookRefusal, WebhookRefused
from holdfast.jobs.model.deployment import REVIEWS_MOST, is_held_back, place_of
from holdfast.jobs.model.job import MARKS_MOST
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read import queries
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Consumed, Item, Key, Query, Store
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, LOGS, RUNS, STATE, TABLES
from holdfast.simulator.proof.processes import Killed
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.clocks import StillClock
from tests.payloads import CREATED, JOB_ID, REPOSITORY, RUN_ID, delivery, job_payload, sample
from tests.support.job_deliveries import (
    DEPLOYMENT,
    INSTALLATION,
    JOB,
    Said,
    gated,
    internal,
    job,
    plain,
    review,
    run,
    say,
)
from tests.support.job_tables import Tables, tables

RUN = RunKey(INSTALLATION, RunId(RUN_ID), 1)


@pytest.fixture(params=["memory", "sqlite"])
def open_store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Callable[[], Store]]:
    opened: list[Store] = []

    def make() -> Store:
        clock = StillClock()
        store = (
            memory_store(clock)
            if request.param == "memory"
            else sqlite_store(tmp_path / f"{len(opened)}.db", clock, tables=TABLES)
        )
        opened.append(store)
        return store

    yield make
    for store in opened:
        store.close()


@pytest.fixture
def store(open_store: Callable[[], Store]) -> Store:
    return open_store()


def tracker_on(store: Store, received_by: str = "here") -> Tracker:
    return Tracker(store, StillClock(), received_by)


def linked_by_status() -> list[Said]:
    """The waiting webhook names no deployment: deployment_status does, by the job's check run."""
    payload = sample("deployment") | {
        "deployment_status": {"state": "waiting"},
        "check_run": {"id": JOB_ID, "name": "integration tests (postgres-16, 2)"},
    }
    return [
        job("waiting", 0.5),
        delivery("deployment_status", payload, CREATED.plus(0.6)),
        delivery("deployment", sample("deployment"), CREATED.plus(0.3)),
        review("rejected", 180),
        job("completed", 181, conclusion="failure"),
    ]


def never_started() -> list[Said]:
    return [job("queued", 0.4), job("queued", 0.5, 1, job_id=JOB_ID + 1), run("completed", 4, "startup_failure")]


SCENARIOS = {"plain": plain, "gated": gated, "linked by status": linked_by_status, "never started": never_started}


def held(store: Store) -> Tables:
    jobs = [JOB, replace(JOB, job_id=JobId(JOB_ID + 1))]
    return tables(store, jobs, [RUN], [DEPLOYMENT])


def tables_after(store: Store, scenario: Sequence[Said]) -> Tables:
    tracker = tracker_on(store)
    for said in scenario:
        say(tracker, said)
    return held(store)


def item(store: Store, table: Any, key: Key) -> Item:
    found = store.get(table, key)
    assert found is not None
    return found


def run_of(store: Store, key: RunKey = RUN) -> Item:
    found = queries.run(store, key)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_order_of_deliveries_ends_in_the_same_tables(name: str) -> None:
    """All 5,040 orders of seven events."""
    check_orders(name, permutations(SCENARIOS[name]()))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [pytest.param("linked by status", marks=pytest.mark.slow), "never started"])
def test_every_order_with_a_duplicate_and_a_crash_ends_in_the_same_tables(name: str) -> None:
    """Each order, its first or last delivery repeated at the end, and killed after each call to the store."""
    scenario = SCENARIOS[name]()
    expected = uncounted(tables_after(memory_store(StillClock()), scenario))
    count = 0
    for order in permutations(scenario):
        for again in (order[0], order[-1]):
            for victim in count_from(0):
                sender = Sender(memory_store(StillClock()), victim, "killed after")
                for said in (*order, again):
                    sender.send(said)
                assert uncounted(held(sender.store)) == expected, f"{order}, again {again}, killed at call {victim}"
                count += 1
                if sender.calls <= victim:
                    break
    assert count > 50


def uncounted(found: Tables) -> Tables:
    """Without the number of deliveries and what a crash makes unknown."""
    told_again = ("deliveries", "changes", "changes_lost")
    found = without_order(found)
    events = [{name: value for name, value in event.items() if name not in told_again} for event in found["events"]]
    return {**found, "events": events}


def check_orders(name: str, orders: Iterable[Sequence[Said]]) -> None:
    expected = without_order(tables_after(memory_store(StillClock()), SCENARIOS[name]()))
    for order in orders:
        assert without_order(tables_after(memory_store(StillClock()), order)) == expected


def without_order(found: Tables) -> Tables:
    """A history entry's status is the job's at that time, and a run keeps the reviews that arrived too early."""
    events = [{name: value for name, value in event.items() if name != "status"} for event in found["events"]]
    runs = [{name: value for name, value in run.items() if name != "reviews"} for run in found["runs"]]
    return {**found, "events": events, "runs": [run for run in runs if run.keys() != {"PK", "SK"}]}


@pytest.mark.parametrize("how", ["killed before", "killed after", "answer lost"])
@pytest.mark.parametrize("name", SCENARIOS)
def test_a_crash_at_any_call_and_a_redelivery_end_in_the_same_tables(
    name: str, how: str, open_store: Callable[[], Store]
) -> None:
    scenario = SCENARIOS[name]()
    undisturbed = Sender(open_store(), None, how)
    for said in scenario:
        undisturbed.send(said)
    expected = held(undisturbed.store)
    assert undisturbed.calls >= len(scenario)
    for victim in range(undisturbed.calls):
        sender = Sender(open_store(), victim, how)
        for said in scenario:
            sender.send(said)
        assert held(sender.store) == expected, f"{how} at call {victim}"


class Sender:
    """Sends until it is acknowledged. One call fails; each attempt is another process, and calls count over all."""

    def __init__(self, store: Store, victim: int | None, how: str) -> None:
        self.store = store
        self.calls = 0
        self._victim = victim
        self._moment = CallPoint.BEFORE if how == "killed before" else CallPoint.AFTER
        self._error: BaseException = StoreUnavailable("no answer") if how == "answer lost" else Killed()

    def send(self, said: Said) -> None:
        for _ in range(2):
            try:
                return say(tracker_on(CallGate(self._hook).wrapped(self.store, "store")), said)
            except (Killed, StoreUnavailable):
                self._victim = None
        raise AssertionError("a second try failed as well")

    def _hook(self, call: PortCall, moment: CallPoint) -> None:
        if moment is self._moment and self.calls == self._victim:
            raise self._error
        self.calls += moment is CallPoint.AFTER


def test_a_delivery_is_stored_once_and_repetitions_are_duplicates(store: Store) -> None:
    tracker = tracker_on(store)
    results = [tracker.receive(job("queued", 0.4)).result for _ in range(3)]
    assert results == [ReceiptResult.STORED, ReceiptResult.DUPLICATE, ReceiptResult.DUPLICATE]
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    assert entry["deliveries"] == 3
    assert entry["changes"]["status"] == {"from": None, "to": "queued"}


def test_a_flood_of_one_delivery_stops_causing_writes(store: Store) -> None:
    gate = CallGate(lambda _call, _moment: None)
    tracker = tracker_on(gate.wrapped(store, "store"))
    for _ in range(50):
        tracker.receive(job("queued", 0.4))
    assert len(gate.calls) < 20


def test_another_body_under_a_repeated_id_is_stored(store: Store) -> None:
    """The id is not signed: an attacker who repeats one must not block what GitHub sends under it."""
    tracker = tracker_on(store)
    flood = job("queued", 0.4)
    for _ in range(50):
        tracker.receive(flood)
    assert tracker.receive(replace(job("in_progress", 5), id=flood.id)).result is ReceiptResult.STORED


def test_more_deliveries_than_an_item_can_mark_are_all_stored(store: Store) -> None:
    """Of a full set only the largest marks stay: an event may then change nothing at all."""
    tracker = tracker_on(store)
    results = {tracker.receive(job("queued", 5, number)).result for number in range(3 * MARKS_MOST)}
    assert results == {ReceiptResult.STORED}
    found = store.get(JOBS, JOB.item) or {}
    assert (len(found["dl"]), found["status"]) == (MARKS_MOST, "queued")
    assert run_of(store)["open"] == {JOB_ID}


def test_counters_are_exact(store: Store) -> None:
    tracker = tracker_on(store)
    for number, conclusion in enumerate(("success", "failure", "timed_out", "cancelled")):
        done = job("completed", 9, number, job_id=number, conclusion=conclusion)
        for said in (done, job("queued", 0, number + 10, job_id=number), done):
            tracker.receive(said)
    tracker.receive(job("queued", 0, 99, job_id=77))
    found = run_of(store)
    assert (found["open"], found["done"], found["failed"]) == ({77}, {0, 1, 2, 3}, {1, 2})


def test_installations_with_the_same_job_id_are_separate(store: Store) -> None:
    tracker = tracker_on(store)
    for installation in (1, 2):
        tracker.receive(job("queued", 0.4, installation, installation=installation))
    tracker.receive(job("completed", 5, installation=1))
    keys = [JobKey(InstallationId(number), JobId(JOB_ID)) for number in (1, 2)]
    assert [item(store, JOBS, key.item)["status"] for key in keys] == ["completed", "queued"]
    assert installations(store) == [1, 2]


def test_attempts_of_a_run_are_separate(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 1, job_id=2, run_attempt=2))
    tracker.receive(job("completed", 9, job_id=1, run_attempt=1, conclusion="failure"))
    assert run_of(store)["done"] == {1}
    assert run_of(store, replace(RUN, run_attempt=2))["open"] == {2}


def test_the_deployment_of_a_gated_job_is_approved_once(store: Store) -> None:
    tables_after(store, gated())
    found = item(store, DEPLOYMENTS, DEPLOYMENT.item)
    assert (found["status"], found["requires_approval"]) == ("approved", True)
    assert found["approved_at"] == CREATED.plus(180).iso()
    assert found["job_ids"] == {JOB_ID}
    tracker_on(store).receive(review("rejected", 200))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"


def test_an_early_review_is_kept_until_its_deployment_arrives(store: Store) -> None:
    tracker = tracker_on(store)
    assert tracker.receive(review("approved", 180)).result is ReceiptResult.STORED
    assert store.get(DEPLOYMENTS, DEPLOYMENT.item) is None
    tracker.receive(job("waiting", 2, deployment=DEPLOYMENT.deployment_id))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"


def test_a_review_with_truncated_names_finds_its_deployment(store: Store) -> None:
    """An environment's name may have 255 characters, and a matrix makes long job names."""
    name, environment = "test (" + "x" * 300 + ")", "e" * 255
    tracker = tracker_on(store)
    payload = job_payload("waiting", deployment=DEPLOYMENT.deployment_id, name=name)
    payload["deployment"]["environment"] = environment
    tracker.receive(delivery("workflow_job", payload, CREATED.plus(2)))
    named = [{"name": name, "environment": environment}]
    tracker.receive(review("approved", 9, environment=environment, workflow_job_runs=named))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"


def test_a_review_of_too_many_jobs_decides_for_the_whole_environment(store: Store) -> None:
    tracker = tracker_on(store)
    named = [{"name": f"other {number:03}", "environment": "production"} for number in range(REVIEWS_MOST)]
    named += [{"name": sample("workflow_job")["workflow_job"]["name"], "environment": "production"}]
    tracker.receive(review("approved", 9, environment="production", workflow_job_runs=named))
    tracker.receive(job("waiting", 2, deployment=DEPLOYMENT.deployment_id))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"
    assert len(item(store, RUNS, RUN.item)["reviews"]) == 1


@pytest.mark.parametrize("order", list(permutations(("early", "review", "late"))), ids="-".join)
def test_a_review_that_names_no_job_concerns_the_jobs_that_waited_then(store: Store, order: Sequence[str]) -> None:
    """Whatever arrives first. A job of a later stage that waits for the same environment needs its own review."""
    said = {"review": review("approved", 60, environment="production", workflow_job_runs=[])}
    for number, (name, seconds) in enumerate((("early", 2), ("late", 90))):
        at = CREATED.plus(seconds)
        payload = job_payload("waiting", at=at, job_id=JOB_ID + number, deployment=DEPLOYMENT.deployment_id + number)
        payload["deployment"] |= {"environment": "production", "created_at": at.iso_seconds()}
        said[name] = delivery("workflow_job", payload, at, number)
    tracker = tracker_on(store)
    for name in order:
        tracker.receive(said[name])
    keys = [replace(DEPLOYMENT, deployment_id=DeploymentId(DEPLOYMENT.deployment_id + number)) for number in (0, 1)]
    assert [item(store, DEPLOYMENTS, key.item)["status"] for key in keys] == ["approved", "pending"]


def test_jobs_and_gates_in_the_sets_of_an_older_version_are_read_with_the_new_items(store: Store) -> None:
    """Stored by version 1: ids in the run's item. What the jobs' own items say counts; without one, the sets do."""
    gate = f"{DEPLOYMENT.deployment_id}#{place_of('production', sample('workflow_job')['workflow_job']['name'])}"
    sets = {"open": {JOB_ID, 5}, "done": {6, 7}, "failed": {7}, "deployments": {gate}}
    store.put(RUNS, {"PK": RUN.partition, "SK": "v", "repo_full_name": REPOSITORY, **sets})
    store.put(DEPLOYMENTS, {"PK": DEPLOYMENT.item.partition, "SK": "v", "status": "pending", "job_ids": {JOB_ID}})
    tracker = tracker_on(store)
    tracker.receive(job("completed", 9, job_id=5, conclusion="failure"))
    tracker.receive(job("queued", 9, job_id=8))
    tracker.receive(review("approved", 180))
    found = run_of(store)
    assert (found["open"], found["done"], found["failed"]) == ({JOB_ID, 8}, {5, 6, 7}, {5, 7})
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"
    tracker.receive(run("completed", 200, "startup_failure"))
    assert run_of(store)["failed"] >= {8}


def test_a_job_whose_first_process_died_before_it_was_counted_is_counted_by_the_other_hook(store: Store) -> None:
    """Seed 102: two hooks send the event under two ids, so neither is a repetition of the other."""
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0.4, 1))
    store.delete(RUNS, RUN.job_item(JOB.job_id))
    # If nothing else arrives, the index by run still leads to it.
    assert run_of(store)["open"] == {JOB_ID}
    tracker.receive(job("queued", 0.4, 2))
    assert store.get(RUNS, RUN.job_item(JOB.job_id)) is not None


@pytest.mark.parametrize("jobs", [1, 300])
def test_an_event_writes_the_same_in_a_run_of_any_size(jobs: int) -> None:
    """One small item among those of its run, whatever else the run has."""
    consumed: list[Consumed] = []
    tracker = tracker_on(memory_store(StillClock(), consumed.append))
    for number in range(jobs):
        consumed.clear()
        tracker.receive(job("queued", 0, number, job_id=number, deployment=7000 + number))
        tracker.receive(job("waiting", 1, number, job_id=number, deployment=7000 + number))
        tracker.receive(job("completed", 9, number, job_id=number, deployment=7000 + number))
    runs = [(each.call, each.write_units, each.read_units) for each in consumed if each.table == RUNS.name]
    assert runs == [("update", 1, 0), ("get", 0, 1)]


def test_a_review_of_another_job_or_environment_decides_nothing(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("waiting", 2, deployment=DEPLOYMENT.deployment_id))
    tracker.receive(review("approved", 9, workflow_job_runs=[{"name": "another", "environment": "production"}]))
    tracker.receive(review("approved", 9, environment="staging", workflow_job_runs=[]))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "pending"


@pytest.mark.parametrize("order", ["job first", "run first"])
def test_a_run_that_never_started_ends_its_jobs(store: Store, order: str) -> None:
    said = [job("queued", 0.4), run("completed", 4, "startup_failure")]
    tracker = tracker_on(store)
    for one in said if order == "job first" else reversed(said):
        tracker.receive(one)
    assert item(store, JOBS, JOB.item)["conclusion"] == "startup_failure"
    assert (run_of(store)["failed"], run_of(store)["open"]) == ({JOB_ID}, set())


def test_a_jobs_own_webhook_outranks_what_its_run_implies(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0.4))
    tracker.receive(run("completed", 4, "startup_failure"))
    tracker.receive(job("completed", 2, conclusion="cancelled"))
    assert item(store, JOBS, JOB.item)["conclusion"] == "cancelled"
    assert run_of(store)["failed"] == set()


@pytest.mark.parametrize(
    ("event", "payload", "result"),
    [
        ("push", {}, ReceiptResult.IGNORED),
        ("ping", {"zen": "Keep it logically awesome."}, ReceiptResult.IGNORED),
        ("installation", {"installation": {"id": 5}, "action": "created"}, ReceiptResult.STORED),
        ("workflow_job", job_payload("queued") | {"workflow_job": None}, ReceiptResult.UNUSABLE),
        ("workflow_job", {}, ReceiptResult.UNUSABLE),
        ("workflow_job", [], ReceiptResult.UNUSABLE),
        ("workflow_run", sample("workflow_run") | {"workflow_run": None}, ReceiptResult.UNUSABLE),
        ("deployment", sample("deployment") | {"deployment": None}, ReceiptResult.UNUSABLE),
        ("deployment_review", sample("deployment_review") | {"action": "novelty"}, ReceiptResult.UNUSABLE),
        ("deployment_review", sample("deployment_review") | {"action": "requested"}, ReceiptResult.IGNORED),
    ],
)
def test_other_events_are_stored_ignored_or_unusable_and_create_no_job(
    store: Store, event: str, payload: Any, result: ReceiptResult
) -> None:
    assert tracker_on(store).receive(delivery(event, payload, CREATED)).result is result
    assert store.get(JOBS, JOB.item) is None


def test_an_unusable_delivery_is_kept_for_inspection(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(delivery("workflow_job", {"workflow_job": None}, CREATED))
    [kept] = store.query(Query(LOGS, f"github#{tracker.clock.now().date()}")).items
    assert kept["event"] == "workflow_job"
    assert kept["reason"]


def test_a_signed_body_that_is_not_json_is_refused_whatever_the_event(store: Store) -> None:
    for event in ("push", "workflow_job", "ping"):
        with pytest.raises(WebhookRefused):
            tracker_on(store).receive(replace(delivery(event, {}, CREATED), body=b"{"))


def test_nothing_is_acknowledged_while_the_store_is_unavailable(store: Store) -> None:
    def away(call: PortCall, moment: CallPoint) -> None:
        raise StoreUnavailable("no answer")

    tracker = tracker_on(CallGate(away).wrapped(store, "store"))
    with pytest.raises(StoreUnavailable):
        tracker.receive(job("queued", 0.4))
    assert store.get(STATE, INSTALLATIONS) is None


def test_a_value_lost_in_a_crash_is_marked_as_unknown() -> None:
    """When job and history are two writes. On SQLite they are one."""
    store = memory_store(StillClock())

    def die_before_history(call: PortCall, moment: CallPoint) -> None:
        if call.method == "put":
            raise Killed

    with pytest.raises(Killed):
        tracker_on(CallGate(die_before_history).wrapped(store, "store")).receive(job("queued", 0.4))
    assert tracker_on(store).receive(job("queued", 0.4)).result is ReceiptResult.DUPLICATE
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    assert entry["changes_lost"] is True


@pytest.mark.parametrize("seed", range(5))
def test_many_concurrent_senders_end_as_sequential_ones_would(open_store: Callable[[], Store], seed: int) -> None:
    """Two trackers, eight threads, every delivery up to three times and shuffled."""
    chance = random.Random(seed)
    said: list[Said] = []
    for number in range(12):
        life: list[Said] = [
            job("queued", 0.4, number, job_id=number),
            job("in_progress", 30, number, job_id=number),
            job("completed", 60, number, job_id=number, started=30, conclusion=chance.choice(["success", "failure"])),
            internal(InternalType.SCHEDULED, 2, key=JobKey(INSTALLATION, JobId(number))),
        ]
        said += [one for one in life for _ in range(chance.randint(1, 3))]
    keys = [JobKey(INSTALLATION, JobId(number)) for number in range(12)]
    oracle = open_store()
    tables_after(oracle, said)
    chance.shuffle(said)
    store = open_store()
    trackers = [tracker_on(store, "a"), tracker_on(store, "b")]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: say(trackers[pair[0] % 2], pair[1]), enumerate(said)))
    assert without_order(tables(store, keys, [RUN])) == without_order(tables(oracle, keys, [RUN]))
    entries = [event for key in keys for event in store.query(Query(JOB_EVENTS, key.partition)).items]
    assert sum(event["deliveries"] for event in entries) == len(said)


def test_a_concurrent_duplicate_is_counted_and_loses_nothing() -> None:
    """The first has written the job but not the history when the second arrives. On SQLite they are one write."""
    store = memory_store(StillClock())
    sent = job("queued", 0.4)
    overtaken: list[ReceiptResult] = []

    def overtake(call: PortCall, moment: CallPoint) -> None:
        if call.method == "put" and moment is CallPoint.BEFORE and not overtaken:
            overtaken.append(tracker_on(store, "second").receive(sent).result)

    tracker_on(CallGate(overtake).wrapped(store, "store"), "first").receive(sent)
    assert overtaken == [ReceiptResult.DUPLICATE]
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    assert entry["deliveries"] == 2
    assert entry["changes"]["status"] == {"from": None, "to": "queued"}
    assert "changes_lost" not in entry


def test_a_delivery_too_old_to_be_redelivered_is_refused_and_not_acknowledged(store: Store) -> None:
    """If our clock is ahead, every delivery looks old: GitHub's log must show a failure, so that it is sent again."""
    clock = StillClock(CREATED.plus(9 * 86_400))
    tracker = Tracker(store, clock, "here", oldest_seconds=8 * 86_400)
    for _ in range(5):
        with pytest.raises(WebhookRefused) as caught:
            tracker.receive(job("queued", 0.4))
        assert caught.value.refusal is WebhookRefusal.TOO_OLD
    (refused,) = tracker.receive_all([job("queued", 0.4)])
    assert isinstance(refused, WebhookRefused)
    assert store.get(JOBS, JOB.item) is None
    assert tracker.receive(job("queued", 2 * 86_400)).result is ReceiptResult.STORED


@pytest.mark.parametrize("event", ["workflow_job", "workflow_run"])
def test_a_clock_that_is_years_behind_stores_nothing_that_has_expired(event: str) -> None:
    clock = StillClock(CREATED.plus(-50 * 365 * 86_400))
    store = memory_store(clock)
    sent = job("queued", 0.4) if event == "workflow_job" else run("requested", 0.4)
    assert Tracker(store, clock, "here").receive(sent).result is ReceiptResult.STORED
    item = store.get(JOBS, JOB.item) if event == "workflow_job" else store.get(RUNS, RUN.item)
    assert item is not None
    assert item["ttl"] >= CREATED.plus(89 * 86_400).epoch_seconds


@pytest.mark.parametrize(
    ("said", "deployment", "expected"),
    [
        (["queued"], None, False),
        (["queued", "waiting"], None, True),
        (["queued", "waiting"], {"status": "pending"}, True),
        (["queued", "waiting"], {"status": "approved"}, False),
        (["queued", "waiting", "queued"], {"status": "pending"}, False),
        (["waiting"], {"status": "rejected"}, True),
    ],
)
def test_no_machine_is_launched_for_a_waiting_job(
    store: Store, said: list[str], deployment: Item | None, expected: bool
) -> None:
    tracker = tracker_on(store)
    for number, action in enumerate(said):
        tracker.receive(job(action, number, number))
    assert is_held_back(item(store, JOBS, JOB.item), deployment) is expected


def test_items_of_an_older_deployment_are_continued(store: Store) -> None:
    """The seed's own layout: a list of jobs, counters that are numbers, no marks, no rank."""
    store.put(JOBS, {"PK": JOB.partition, "SK": "v", "status": "queued", "labels": frozenset({"b", "a"})})
    store.put(DEPLOYMENTS, {"PK": DEPLOYMENT.item.partition, "SK": "v", "status": "pending", "job_ids": [7]})
    store.put(RUNS, {"PK": RUN.partition, "SK": "v", "status": "queued", "total_jobs": 3, "completed_jobs": 1})
    tables_after(store, gated())
    assert item(store, JOBS, JOB.item)["status"] == "completed"
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["job_ids"] == {7, JOB_ID}
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"
    assert run_of(store)["done"] == {JOB_ID}


def test_hostile_text_is_stored_as_text(store: Store) -> None:
    name = "'; DROP TABLE workflow_jobs; --\u202e\x00<script>"
    tracker_on(store).receive(job("queued", 0.4, name=name))
    assert item(store, JOBS, JOB.item)["job_name"] == name


def test_a_job_with_a_webhook_is_in_every_index(store: Store) -> None:
    tables_after(store, plain())
    found = item(store, JOBS, JOB.item)
    for index in JOBS.indexes:
        [entry] = store.query(Query(JOBS, found[index.partition], index=index.name)).items
        assert entry["PK"] == JOB.partition


def test_a_body_may_be_any_json(store: Store) -> None:
    for body in (b"null", b"1", b'""', b"[]", b"{}", b'{"workflow_job":[]}', b'{"repository":1}'):
        for event in ("workflow_job", "workflow_run", "deployment", "deployment_review", "installation"):
            sent = replace(delivery(event, {}, CREATED), body=body)
            assert tracker_on(store).receive(sent).result is ReceiptResult.UNUSABLE, (event, json.loads(body))


def test_the_senders_times_are_the_keys_of_the_history(store: Store) -> None:
    tracker_on(store).receive(job("queued", 0.4))
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    at, kind, _mark = entry["SK"].split("#")
    assert (Instant.from_iso(at), kind) == (CREATED.plus(0.4), "webhook_queued")
