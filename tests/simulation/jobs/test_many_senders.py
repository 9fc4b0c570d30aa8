"""Fifty concurrent senders, duplicates, shuffles and kills: the tables end as after sequential delivery."""

import json
import random
import threading
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.kernel.errors import Retryable
from holdfast.kernel.ids import InstallationId, JobId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import TABLES
from holdfast.simulator.proof.processes import Killed
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.clocks import StillClock
from tests.contracts import backends
from tests.payloads import CREATED, delivery_id, job_payload, sample
from tests.servers.processes import RunningServer
from tests.support.job_tables import Tables, tables

SENDERS = 50
JOBS_PER_RUN = 25
INSTALLATIONS = (1, 2)
_NUMBERS = count(1)


@pytest.fixture(params=["memory", "sqlite", pytest.param("dynamodb", marks=pytest.mark.real)])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    clock = StillClock()
    with ExitStack() as opened:
        match request.param:
            case "memory":
                yield memory_store(clock)
            case "sqlite":
                found = sqlite_store(tmp_path / "jobs.db", clock, tables=TABLES)
                opened.callback(found.close)
                yield found
            case "dynamodb":
                server: RunningServer = request.getfixturevalue("dynamodb_server")
                transport = backends.dynamodb_calls(server.url, clock).transport
                opened.callback(transport.close)
                calls = DynamoCalls(transport, clock)
                names = {table.setting: f"{table.name}-senders-{next(_NUMBERS)}" for table in TABLES}
                for table in TABLES:
                    DynamoTables(calls, names).carry_out(CreateTable(table))
                yield DynamoStore(calls, names)


def deliveries(number: int, chance: random.Random) -> list[Delivery]:
    """About that many, in the order in which GitHub would send them; one in ten is sent twice."""
    sent: list[Delivery] = []
    for job in range(number // 4 + 1):
        installation = chance.choice(INSTALLATIONS)
        run = job // JOBS_PER_RUN
        began = CREATED.plus(job)
        for action, seconds in (("queued", 0.4), ("in_progress", 30.2), ("completed", 60.7)):
            conclusion = chance.choice(["success", "failure", "cancelled"])
            payload = job_payload(
                action,
                at=began.plus(seconds),
                job_id=job,
                run_id=run,
                installation=installation,
                started=began.plus(30),
                conclusion=conclusion,
                created_at=began.iso_seconds(),
            )
            sent.append(_delivery("workflow_job", payload, began.plus(seconds), job))
        if job % JOBS_PER_RUN == 0:
            sent += [_run(run, each) for each in INSTALLATIONS]
    return sent + [again for again in sent if chance.random() < 0.1]


def _run(run: int, installation: int) -> Delivery:
    payload = sample("workflow_run") | {"installation": {"id": installation}}
    payload["workflow_run"] |= {"id": run}
    return _delivery("workflow_run", payload, CREATED, 100_000 + run * 2 + installation)


def _delivery(event: str, payload: dict[str, Any], at: Instant, number: int) -> Delivery:
    return Delivery(event, delivery_id(at, number), "99", json.dumps(payload).encode())


class Server:
    """Processes that die at one call in thirty, before or after it; each sender retries until it is acknowledged."""

    def __init__(self, store: Store, seed: int) -> None:
        self._store = store
        self._seed = seed
        self._local = threading.local()
        self._numbers = count()
        self.kills = 0

    def send(self, delivery: Delivery) -> None:
        while not self._is_acknowledged(delivery):
            pass

    def _is_acknowledged(self, delivery: Delivery) -> bool:
        try:
            self._tracker().receive(delivery)
        except Killed:
            self.kills += 1
            self._local.tracker = None
            return False
        except Retryable:
            return False
        return True

    def _tracker(self) -> Tracker:
        found: Tracker | None = getattr(self._local, "tracker", None)
        if found is None:
            chance = random.Random(self._seed * 1_000_003 + next(self._numbers))

            def hook(call: PortCall, moment: CallPoint) -> None:
                if chance.random() < 0.03:
                    raise Killed

            found = Tracker(CallGate(hook).wrapped(self._store, "store"), StillClock(), "server")
            self._local.tracker = found
        return found


def held(store: Store, sent: Sequence[Delivery]) -> Tables:
    payloads = [json.loads(each.body) for each in sent]
    pairs = sorted(
        {(each["installation"]["id"], each["workflow_job"]["id"]) for each in payloads if "workflow_job" in each}
    )
    jobs = [JobKey(InstallationId(installation), JobId(job)) for installation, job in pairs]
    runs = sorted({RunKey(key.installation_id, RunId(key.job_id // JOBS_PER_RUN), 1) for key in jobs})
    found = tables(store, jobs, runs)
    return {**found, "events": [_timeless(entry) for entry in found["events"]]}


def _timeless(entry: Item) -> Item:
    """A history entry's status is the job's at that time, which depends on the order."""
    return {name: value for name, value in entry.items() if name != "status"}


def check(store: Store, number: int, seed: int) -> None:
    chance = random.Random(seed)
    sent = deliveries(number, chance)
    oracle = memory_store(StillClock())
    tracker = Tracker(oracle, StillClock(), "oracle")
    for each in sent:
        tracker.receive(each)
    chance.shuffle(sent)
    server = Server(store, seed)
    with ThreadPoolExecutor(SENDERS) as pool:
        list(pool.map(server.send, sent))
    assert server.kills > number / 100
    assert held(store, sent) == held(oracle, sent)


def test_three_hundred_deliveries(store: Store) -> None:
    check(store, 300, seed=1)


@pytest.mark.slow
def test_ten_thousand_deliveries(store: Store) -> None:
    check(store, 10_000, seed=2)


@pytest.mark.prove
@pytest.mark.timeout(3600)
def test_a_hundred_thousand_deliveries(store: Store) -> None:
    check(store, 100_000, seed=3)
