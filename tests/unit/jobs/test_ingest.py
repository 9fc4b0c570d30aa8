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
from holdfast.jobs.deployment import REVIEWS_MOST, is_held_back
from holdfast.jobs.ingest import INSTALLATIONS, Tracker, installations
from holdfast.jobs.internal import InternalEvent, InternalType
from holdfast.jobs.job import MARKS_MOST
from holdfast.jobs.keys import DeploymentKey, JobKey, RunKey
from holdfast.jobs.receipts import Result
from holdfast.jobs.webhook import Delivery, Refused
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.ids import DeploymentId, InstallationId, InstanceId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Query, Store
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, LOGS, RUNS, STATE, TABLES
from holdfast.simulator.gate import Gate, Killed, Moment, PortCall
from tests.clocks import StillClock
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, RUN_ID, delivery, job_payload, sample
from tests.unit.jobs.tables import Tables, tables

INSTALLATION = InstallationId(INSTALLATION_ID)
JOB = JobKey(INSTALLATION, JobId(JOB_ID))
RUN = RunKey(INSTALLATION, RunId(RUN_ID), 1)
DEPLOYMENT = DeploymentKey(INSTALLATION, DeploymentId(1_600_000_001))

Said = Delivery | InternalEvent


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


def job(action: str, seconds: float, number: int = 0, **fields: Any) -> Delivery:
    at = CREATED.plus(seconds)
    started = CREATED.plus(fields.pop("started")) if "started" in fields else None
    return delivery("workflow_job", job_payload(action, at=at, started=started, **fields), at, number)


def run(action: str, seconds: float, conclusion: str | None = None, **fields: Any) -> Delivery:
    payload = sample("workflow_run")
    at = CREATED.plus(seconds)
    payload["action"] = action
    payload["workflow_run"] |= {"status": action, "conclusion": conclusion, "updated_at": at.iso_seconds(), **fields}
    return delivery("workflow_run", payload, at)


def review(action: str, seconds: float, **fields: Any) -> Delivery:
    return delivery(
        "deployment_review", sample("deployment_review") | {"action": action, **fields}, CREATED.plus(seconds)
    )


def internal(kind: InternalType, seconds: float, attempt: int = 1, key: JobKey = JOB) -> InternalEvent:
    instance = InstanceId(f"i-0123456789abcde{attempt:02d}")
    attributes = {"instance_type": "m7i.xlarge", "instance_lifecycle": "spot"} if kind is InternalType.SCHEDULED else {}
    return InternalEvent(key, kind, CREATED.plus(seconds), attempt, instance, attributes)


def plain() -> list[Said]:
    return [
        run("requested", -2),
        job("queued", 0.4),
        internal(InternalType.SCHEDULED, 2),
        internal(InternalType.ATTACHED, 4),
        job("in_progress", 31.2),
        job("completed", 90.9, started=31, conclusion="failure"),
        run("completed", 95, "failure"),
    ]


def gated() -> list[Said]:
    gate = DEPLOYMENT.deployment_id
    return [
        job("queued", 0.4, deployment=gate),
        job("waiting", 1.9, deployment=gate),
        review("approved", 180),
        job("queued", 180.1, deployment=gate),
        job("in_progress", 211.2, deployment=gate),
        job("completed", 270.9, started=211, deployment=gate),
    ]


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


def say(tracker: Tracker, said: Said) -> None:
    if isinstance(said, Delivery):
        tracker.receive(said)
    else:
        tracker.tell(said)


def held(store: Store) -> Tables:
    jobs = [JOB, replace(JOB, job_id=JobId(JOB_ID + 1))]
    return tables(store, jobs, [RUN], [DEPLOYMENT])


def told(store: Store, scenario: Sequence[Said]) -> Tables:
    tracker = tracker_on(store)
    for said in scenario:
        say(tracker, said)
    return held(store)


def item(store: Store, table: Any, key: Key) -> Item:
    found = store.get(table, key)
    assert found is not None
    return found


@pytest.mark.parametrize("name", SCENARIOS)
def test_every_order_of_deliveries_ends_in_the_same_tables(name: str) -> None:
    """All of them: 5,040 of seven events."""
    check_orders(name, permutations(SCENARIOS[name]()))


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", [pytest.param("linked by status", marks=pytest.mark.slow), "never started"])
def test_every_order_with_a_duplicate_and_a_crash_ends_in_the_same_tables(name: str) -> None:
    """Each order, its first or its last delivery once more at the end, and dead after each call to the store."""
    scenario = SCENARIOS[name]()
    expected = uncounted(told(memory_store(StillClock()), scenario))
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
    """Without what tells how often a delivery came, and what a crash made unknowable."""
    told_again = ("deliveries", "changes", "changes_lost")
    found = without_order(found)
    events = [{name: value for name, value in event.items() if name not in told_again} for event in found["events"]]
    return {**found, "events": events}


def check_orders(name: str, orders: Iterable[Sequence[Said]]) -> None:
    expected = without_order(told(memory_store(StillClock()), SCENARIOS[name]()))
    for order in orders:
        assert without_order(told(memory_store(StillClock()), order)) == expected


def without_order(found: Tables) -> Tables:
    """A history entry's status is the job's at that time, and a run keeps the reviews that came too early."""
    events = [{name: value for name, value in event.items() if name != "status"} for event in found["events"]]
    runs = [{name: value for name, value in run.items() if name != "reviews"} for run in found["runs"]]
    return {**found, "events": events, "runs": runs}


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
    """Sends until it is acknowledged. One call goes wrong; each try is another process, and calls count over all."""

    def __init__(self, store: Store, victim: int | None, how: str) -> None:
        self.store = store
        self.calls = 0
        self._victim = victim
        self._moment = Moment.BEFORE if how == "killed before" else Moment.AFTER
        self._error: BaseException = StoreUnavailable("no answer") if how == "answer lost" else Killed()

    def send(self, said: Said) -> None:
        for _ in range(2):
            try:
                return say(tracker_on(Gate(self._hook).wrapped(self.store, "store")), said)
            except (Killed, StoreUnavailable):
                self._victim = None
        raise AssertionError("a second try failed as well")

    def _hook(self, call: PortCall, moment: Moment) -> None:
        if moment is self._moment and self.calls == self._victim:
            raise self._error
        self.calls += moment is Moment.AFTER


def test_a_delivery_is_stored_once_and_repetitions_are_told(store: Store) -> None:
    tracker = tracker_on(store)
    results = [tracker.receive(job("queued", 0.4)).result for _ in range(3)]
    assert results == [Result.STORED, Result.DUPLICATE, Result.DUPLICATE]
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    assert entry["deliveries"] == 3
    assert entry["changes"]["status"] == {"from": None, "to": "queued"}


def test_a_flood_of_one_delivery_is_not_written_down_for_ever(store: Store) -> None:
    gate = Gate(lambda _call, _moment: None)
    tracker = tracker_on(gate.wrapped(store, "store"))
    for _ in range(50):
        tracker.receive(job("queued", 0.4))
    assert len(gate.calls) < 20


def test_another_body_under_an_id_that_keeps_coming_is_taken(store: Store) -> None:
    """The id is not signed: whoever sends one again and again must not shut out what GitHub sends under it."""
    tracker = tracker_on(store)
    flood = job("queued", 0.4)
    for _ in range(50):
        tracker.receive(flood)
    assert tracker.receive(replace(job("in_progress", 5), id=flood.id)).result is Result.STORED


def test_more_deliveries_than_an_item_has_room_for_marks_are_all_taken(store: Store) -> None:
    """Of a full set only the largest marks stay: an event may then change nothing at all."""
    tracker = tracker_on(store)
    results = {tracker.receive(job("queued", 5, number)).result for number in range(3 * MARKS_MOST)}
    assert results == {Result.STORED}
    found = store.get(JOBS, JOB.item) or {}
    assert (len(found["dl"]), found["status"]) == (MARKS_MOST, "queued")
    assert (store.get(RUNS, RUN.item) or {})["open"] == {JOB_ID}


def test_counters_are_exact(store: Store) -> None:
    tracker = tracker_on(store)
    for number, conclusion in enumerate(("success", "failure", "timed_out", "cancelled")):
        done = job("completed", 9, number, job_id=number, conclusion=conclusion)
        for said in (done, job("queued", 0, number + 10, job_id=number), done):
            tracker.receive(said)
    tracker.receive(job("queued", 0, 99, job_id=77))
    found = item(store, RUNS, RUN.item)
    assert (found["open"], found["done"], found["failed"]) == ({77}, {0, 1, 2, 3}, {1, 2})


def test_installations_with_the_same_job_id_do_not_meet(store: Store) -> None:
    tracker = tracker_on(store)
    for installation in (1, 2):
        tracker.receive(job("queued", 0.4, installation, installation=installation))
    tracker.receive(job("completed", 5, installation=1))
    keys = [JobKey(InstallationId(number), JobId(JOB_ID)) for number in (1, 2)]
    assert [item(store, JOBS, key.item)["status"] for key in keys] == ["completed", "queued"]
    assert installations(store) == [1, 2]


def test_attempts_of_a_run_do_not_meet(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 1, job_id=2, run_attempt=2))
    tracker.receive(job("completed", 9, job_id=1, run_attempt=1, conclusion="failure"))
    assert item(store, RUNS, RUN.item)["done"] == {1}
    assert item(store, RUNS, replace(RUN, run_attempt=2).item)["open"] == {2}


def test_a_gated_job_has_its_deployment_approved_once(store: Store) -> None:
    told(store, gated())
    found = item(store, DEPLOYMENTS, DEPLOYMENT.item)
    assert (found["status"], found["requires_approval"]) == ("approved", True)
    assert found["approved_at"] == CREATED.plus(180).iso()
    assert found["job_ids"] == {JOB_ID}
    tracker_on(store).receive(review("rejected", 200))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"


def test_a_review_that_comes_first_is_kept_until_its_deployment_does(store: Store) -> None:
    tracker = tracker_on(store)
    assert tracker.receive(review("approved", 180)).result is Result.STORED
    assert store.get(DEPLOYMENTS, DEPLOYMENT.item) is None
    tracker.receive(job("waiting", 2, deployment=DEPLOYMENT.deployment_id))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"


def test_a_review_of_names_that_are_stored_in_part_finds_its_deployment(store: Store) -> None:
    """An environment's name may have 255 characters, and a matrix makes long names of jobs."""
    name, environment = "test (" + "x" * 300 + ")", "e" * 255
    tracker = tracker_on(store)
    payload = job_payload("waiting", deployment=DEPLOYMENT.deployment_id, name=name)
    payload["deployment"]["environment"] = environment
    tracker.receive(delivery("workflow_job", payload, CREATED.plus(2)))
    named = [{"name": name, "environment": environment}]
    tracker.receive(review("approved", 9, environment=environment, workflow_job_runs=named))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"


def test_a_review_of_more_jobs_than_a_run_keeps_decides_all_of_the_environment(store: Store) -> None:
    tracker = tracker_on(store)
    named = [{"name": f"other {number:03}", "environment": "production"} for number in range(REVIEWS_MOST)]
    named += [{"name": sample("workflow_job")["workflow_job"]["name"], "environment": "production"}]
    tracker.receive(review("approved", 9, environment="production", workflow_job_runs=named))
    tracker.receive(job("waiting", 2, deployment=DEPLOYMENT.deployment_id))
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"
    assert len(item(store, RUNS, RUN.item)["reviews"]) == 1


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
    assert item(store, RUNS, RUN.item)["failed"] == {JOB_ID}
    assert "open" not in item(store, RUNS, RUN.item)


def test_what_github_says_of_a_job_counts_for_more_than_what_its_run_implies(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(job("queued", 0.4))
    tracker.receive(run("completed", 4, "startup_failure"))
    tracker.receive(job("completed", 2, conclusion="cancelled"))
    assert item(store, JOBS, JOB.item)["conclusion"] == "cancelled"
    assert "failed" not in item(store, RUNS, RUN.item)


@pytest.mark.parametrize(
    ("event", "payload", "result"),
    [
        ("push", {}, Result.IGNORED),
        ("ping", {"zen": "Keep it logically awesome."}, Result.IGNORED),
        ("installation", {"installation": {"id": 5}, "action": "created"}, Result.STORED),
        ("workflow_job", job_payload("queued") | {"workflow_job": None}, Result.UNUSABLE),
        ("workflow_job", {}, Result.UNUSABLE),
        ("workflow_job", [], Result.UNUSABLE),
        ("workflow_run", sample("workflow_run") | {"workflow_run": None}, Result.UNUSABLE),
        ("deployment", sample("deployment") | {"deployment": None}, Result.UNUSABLE),
        ("deployment_review", sample("deployment_review") | {"action": "novelty"}, Result.UNUSABLE),
        ("deployment_review", sample("deployment_review") | {"action": "requested"}, Result.IGNORED),
    ],
)
def test_what_becomes_of_other_events(store: Store, event: str, payload: Any, result: Result) -> None:
    assert tracker_on(store).receive(delivery(event, payload, CREATED)).result is result
    assert store.get(JOBS, JOB.item) is None


def test_an_unusable_delivery_is_kept_to_be_looked_at(store: Store) -> None:
    tracker = tracker_on(store)
    tracker.receive(delivery("workflow_job", {"workflow_job": None}, CREATED))
    [kept] = store.query(Query(LOGS, f"github#{tracker.clock.now().date()}")).items
    assert kept["event"] == "workflow_job"
    assert kept["reason"]


def test_a_signed_body_that_is_no_json_is_refused_whatever_the_event(store: Store) -> None:
    for event in ("push", "workflow_job", "ping"):
        with pytest.raises(Refused):
            tracker_on(store).receive(replace(delivery(event, {}, CREATED), body=b"{"))


def test_nothing_is_acknowledged_while_the_store_is_away(store: Store) -> None:
    def away(call: PortCall, moment: Moment) -> None:
        raise StoreUnavailable("no answer")

    tracker = tracker_on(Gate(away).wrapped(store, "store"))
    with pytest.raises(StoreUnavailable):
        tracker.receive(job("queued", 0.4))
    assert store.get(STATE, INSTALLATIONS) is None


def test_what_a_crash_made_unknowable_is_marked() -> None:
    """Where job and history are two writes. On SQLite they are one."""
    store = memory_store(StillClock())

    def die_before_history(call: PortCall, moment: Moment) -> None:
        if call.method == "put":
            raise Killed

    with pytest.raises(Killed):
        tracker_on(Gate(die_before_history).wrapped(store, "store")).receive(job("queued", 0.4))
    assert tracker_on(store).receive(job("queued", 0.4)).result is Result.DUPLICATE
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    assert entry["changes_lost"] is True


@pytest.mark.parametrize("seed", range(5))
def test_many_senders_at_once_end_as_one_after_the_other_would(open_store: Callable[[], Store], seed: int) -> None:
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
    told(oracle, said)
    chance.shuffle(said)
    store = open_store()
    trackers = [tracker_on(store, "a"), tracker_on(store, "b")]
    with ThreadPoolExecutor(8) as pool:
        list(pool.map(lambda pair: say(trackers[pair[0] % 2], pair[1]), enumerate(said)))
    assert without_order(tables(store, keys, [RUN])) == without_order(tables(oracle, keys, [RUN]))
    entries = [event for key in keys for event in store.query(Query(JOB_EVENTS, key.partition)).items]
    assert sum(event["deliveries"] for event in entries) == len(said)


def test_a_repetition_that_overtakes_is_counted_and_loses_nothing() -> None:
    """The first has written the job and not yet the history when the second comes. On SQLite they are one write."""
    store = memory_store(StillClock())
    sent = job("queued", 0.4)
    overtaken: list[Result] = []

    def overtake(call: PortCall, moment: Moment) -> None:
        if call.method == "put" and moment is Moment.BEFORE and not overtaken:
            overtaken.append(tracker_on(store, "second").receive(sent).result)

    tracker_on(Gate(overtake).wrapped(store, "store"), "first").receive(sent)
    assert overtaken == [Result.DUPLICATE]
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    assert entry["deliveries"] == 2
    assert entry["changes"]["status"] == {"from": None, "to": "queued"}
    assert "changes_lost" not in entry


def test_what_github_would_no_longer_send_is_not_taken_in(store: Store) -> None:
    clock = StillClock(CREATED.plus(9 * 86_400))
    tracker = Tracker(store, clock, "here", oldest_seconds=8 * 86_400)
    assert tracker.receive(job("queued", 0.4)).result is Result.UNUSABLE
    assert store.get(JOBS, JOB.item) is None
    assert tracker.receive(job("queued", 2 * 86_400)).result is Result.STORED


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
def test_no_machine_is_launched_for_a_job_that_waits(
    store: Store, said: list[str], deployment: Item | None, expected: bool
) -> None:
    tracker = tracker_on(store)
    for number, action in enumerate(said):
        tracker.receive(job(action, number, number))
    assert is_held_back(item(store, JOBS, JOB.item), deployment) is expected


def test_items_of_an_older_deployment_are_carried_on(store: Store) -> None:
    """The seed's own layout: a list of jobs, counters that are numbers, no marks, no rank."""
    store.put(JOBS, {"PK": JOB.partition, "SK": "v", "status": "queued", "labels": frozenset({"b", "a"})})
    store.put(DEPLOYMENTS, {"PK": DEPLOYMENT.item.partition, "SK": "v", "status": "pending", "job_ids": [7]})
    store.put(RUNS, {"PK": RUN.partition, "SK": "v", "status": "queued", "total_jobs": 3, "completed_jobs": 1})
    told(store, gated())
    assert item(store, JOBS, JOB.item)["status"] == "completed"
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["job_ids"] == {7, JOB_ID}
    assert item(store, DEPLOYMENTS, DEPLOYMENT.item)["status"] == "approved"
    assert item(store, RUNS, RUN.item)["done"] == {JOB_ID}


def test_hostile_text_is_stored_as_text(store: Store) -> None:
    name = "'; DROP TABLE workflow_jobs; --\u202e\x00<script>"
    tracker_on(store).receive(job("queued", 0.4, name=name))
    assert item(store, JOBS, JOB.item)["job_name"] == name


def test_every_index_names_a_job_that_a_webhook_named(store: Store) -> None:
    told(store, plain())
    found = item(store, JOBS, JOB.item)
    for index in JOBS.indexes:
        [entry] = store.query(Query(JOBS, found[index.partition], index=index.name)).items
        assert entry["PK"] == JOB.partition


def test_a_body_may_be_any_json(store: Store) -> None:
    for body in (b"null", b"1", b'""', b"[]", b"{}", b'{"workflow_job":[]}', b'{"repository":1}'):
        for event in ("workflow_job", "workflow_run", "deployment", "deployment_review", "installation"):
            sent = replace(delivery(event, {}, CREATED), body=body)
            assert tracker_on(store).receive(sent).result is Result.UNUSABLE, (event, json.loads(body))


def test_times_of_the_sender_key_the_history(store: Store) -> None:
    tracker_on(store).receive(job("queued", 0.4))
    [entry] = store.query(Query(JOB_EVENTS, JOB.partition)).items
    at, kind, _mark = entry["SK"].split("#")
    assert (Instant.from_iso(at), kind) == (CREATED.plus(0.4), "webhook_queued")
