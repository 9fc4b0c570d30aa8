"""Fifty senders and a server that is killed again and again: the tables end as if each delivery had arrived once.

The server is `holdfast serve` as a separate process. A sender repeats a delivery until it is acknowledged, as
the sweep of GitHub's log of deliveries does. What was acknowledged before a kill must still be there after it.
"""

import http.client
import os
import random
import signal
import sys
import threading
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import pytest

from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport, boto3_client
from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.model.keys import DeploymentKey, JobKey
from holdfast.jobs.read import queries
from holdfast.ports.store import Item, Query, Store, Table, every_item
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, TABLES
from tests.real.storm_deliveries import Storm, storm
from tests.servers import processes
from tests.servers.processes import RunningServer
from tests.support.job_tables import Tables, plain
from tests.support.webhook_app import SECRET, signed

SENDERS = 50
COUNT = 10_000
KILLS = 10
PROVE_COUNT = 100_000
PROVE_KILLS = 60
_TRIES_MOST = 200
_WAIT_SECONDS = 120

Environment = dict[str, str]


class ServerFailed(Exception):
    """The server died without being killed, or sent a wrong response."""


class Victim:
    """`holdfast serve`, killed and restarted. Senders wait while there is none."""

    def __init__(self, environment: Environment, directory: Path) -> None:
        self._environment = environment
        self._directory = directory
        self._changed = threading.Condition()
        self._server: RunningServer | None = None
        self._acknowledged = 0
        self._failure: BaseException | None = None

    def start(self) -> None:
        """From the main thread: the server lives no longer than the thread that started it."""
        named = [f"{name}={value}" for name, value in self._environment.items()]
        program = ["env", *named, str(Path(sys.executable).with_name("holdfast")), "serve", "--port"]
        server = processes.start("holdfast", lambda port: [*program, str(port)], self._directory)
        with self._changed:
            self._server = server
            self._changed.notify_all()

    def kill(self) -> None:
        with self._changed:
            server, self._server = self._server, None
        assert server is not None
        assert server.process.poll() is None, "it died before it was killed"
        os.kill(server.process.pid, signal.SIGKILL)
        server.process.wait()
        server.stop()

    def stop(self) -> None:
        with self._changed:
            server, self._server = self._server, None
        if server is not None:
            server.stop()

    def port(self) -> int:
        """Of the current server, or of the next one."""
        with self._changed:
            if not self._changed.wait_for(lambda: self._server or self._failure, _WAIT_SECONDS):
                raise ServerFailed("none was started")
            if self._server is None:
                raise ServerFailed("the storm is over") from self._failure
            return self._server.port

    def acknowledge(self) -> None:
        with self._changed:
            self._acknowledged += 1
            self._changed.notify_all()

    def fail(self, error: BaseException) -> None:
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def wait_for(self, acknowledged: int) -> None:
        """Until that many are acknowledged, or a sender has failed."""
        with self._changed:
            self._changed.wait_for(lambda: self._acknowledged >= acknowledged or self._failure)
            if self._failure is not None:
                raise self._failure


class Sender:
    """One of the fifty, with its own connection."""

    def __init__(self, victim: Victim) -> None:
        self._victim = victim
        self._connection: http.client.HTTPConnection | None = None

    def run(self, todo: Iterator[Delivery], lock: threading.Lock) -> None:
        try:
            while True:
                with lock:
                    delivery = next(todo, None)
                if delivery is None:
                    break
                self._send(delivery)
                self._victim.acknowledge()
        except BaseException as error:
            self._victim.fail(error)
            raise
        finally:
            self._hang_up()

    def _send(self, delivery: Delivery) -> None:
        for _ in range(_TRIES_MOST):
            try:
                status, text = self._answer(delivery)
            except (OSError, http.client.HTTPException):
                self._hang_up()  # killed, or about to be
                continue
            if status == 200:
                return
            if status != 503:
                raise ServerFailed(f"{delivery}: {status} {text!r}")
        raise ServerFailed(f"{delivery}: not acknowledged in {_TRIES_MOST} tries")

    def _answer(self, delivery: Delivery) -> tuple[int, bytes]:
        if self._connection is None:
            self._connection = http.client.HTTPConnection(processes.HOST, self._victim.port(), timeout=_WAIT_SECONDS)
        headers = signed(delivery.body, event=delivery.event, delivery=delivery.id)
        self._connection.request("POST", "/webhooks/github", delivery.body, headers)
        answer = self._connection.getresponse()
        return answer.status, answer.read()

    def _hang_up(self) -> None:
        if self._connection is not None:
            self._connection.close()
            self._connection = None


def rage(victim: Victim, sent: Storm, kills: int, chance: random.Random) -> None:
    """Send everything in any order, and kill the server that many times meanwhile."""
    shuffled = chance.sample(sent.deliveries, len(sent.deliveries))
    todo, lock = iter(shuffled), threading.Lock()
    victim.start()
    with ThreadPoolExecutor(SENDERS) as pool:
        running = [pool.submit(Sender(victim).run, todo, lock) for _ in range(SENDERS)]
        try:
            for moment in sorted(chance.sample(range(len(shuffled) - SENDERS), kills)):
                victim.wait_for(moment)
                victim.kill()
                victim.start()
            victim.wait_for(len(shuffled))
        except BaseException as error:
            victim.fail(error)  # releases the senders
            raise
    for each in running:
        each.result()
    victim.stop()


def held(store: Store, sent: Storm) -> Tables:
    """What is stored about all of them, without what depends on the order of arrival.

    An entry's status is the job's at that time. Reviews are kept in the run only if they come before their deployment:
    what they decided is in the deployment either way.
    """
    histories = [every_item(store, Query(JOB_EVENTS, job.partition, consistent=True)) for job in sent.jobs]
    return {
        "jobs": [plain(item) for item in _all(store, JOBS, sent.jobs)],
        "events": [_without("status", plain(entry)) for history in histories for entry in history],
        "runs": [_without("reviews", plain(queries.run(store, run) or {})) for run in sent.runs],
        "deployments": [plain(item) for item in _all(store, DEPLOYMENTS, sent.deployments)],
    }


def _all(store: Store, table: Table, keys: Sequence[JobKey] | Sequence[DeploymentKey]) -> list[Item]:
    found = store.batch_get(table, [key.item for key in keys], consistent=True)
    assert None not in found, f"{table.name}: an acknowledged item is missing"
    return [item for item in found if item is not None]


def _without(order_dependent: str, item: Item) -> Item:
    return {name: value for name, value in item.items() if name != order_dependent}


def expected(sent: Storm) -> Tables:
    """The result of sequential delivery, in the order in which GitHub created the deliveries."""
    clock = SystemClock()
    store = memory_store(clock)
    tracker = Tracker(store, clock, "oracle")
    for delivery in sent.deliveries:
        tracker.receive(delivery)
    return held(store, sent)


def check(victim: Victim, opened: Callable[[], Store], count: int, kills: int, seed: int) -> None:
    sent = storm(count, seed)
    assert len(sent.deliveries) >= count
    rage(victim, sent, kills, random.Random(seed))
    with closing(opened()) as store:
        found, wanted = held(store, sent), expected(sent)
    for name, items in wanted.items():
        assert found[name] == items, name
    done = sum(len(run["done"]) for run in found["runs"])
    assert done == len(sent.jobs)
    assert not any(run["open"] for run in found["runs"])


@pytest.fixture(params=["sqlite", pytest.param("dynamodb", marks=pytest.mark.real)])
def backend(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[Victim, Callable[[], Store]]]:
    common = {"HOLDFAST_DATA": str(tmp_path), "GITHUB_WEBHOOK_SECRET": SECRET}
    if request.param == "sqlite":
        path = tmp_path / "holdfast.db"
        victim = Victim({**common, "HOLDFAST_STORE": f"sqlite:{path}"}, tmp_path)
        yield victim, lambda: sqlite_store(path, SystemClock(), tables=TABLES)
    else:
        server: RunningServer = request.getfixturevalue("dynamodb_server")
        # Each access key has its own database.
        key = f"storm{os.getpid()}{request.node.name.encode().hex()[:16]}"
        calls = _calls(server.url, key)
        for table in TABLES:
            DynamoTables(calls).carry_out(CreateTable(table))
        victim = Victim({**common, "HOLDFAST_STORE": "dynamodb:", **_credentials(server.url, key)}, tmp_path)
        yield victim, lambda: DynamoStore(calls)
    victim.stop()


def _credentials(url: str, key: str) -> Environment:
    return {
        "AWS_ENDPOINT_URL_DYNAMODB": url,
        "AWS_ACCESS_KEY_ID": key,
        "AWS_SECRET_ACCESS_KEY": "storm",
        "AWS_DEFAULT_REGION": "eu-west-1",
    }


def _calls(url: str, key: str) -> DynamoCalls:
    client = boto3_client(
        endpoint_url=url, region_name="eu-west-1", aws_access_key_id=key, aws_secret_access_key="storm"
    )
    return DynamoCalls(Boto3Transport(client), SystemClock())


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_ten_thousand_deliveries_and_a_server_that_is_killed(backend: tuple[Victim, Callable[[], Store]]) -> None:
    check(*backend, count=COUNT, kills=KILLS, seed=1)


@pytest.mark.prove
@pytest.mark.timeout(7200)
def test_a_hundred_thousand_deliveries_and_a_server_that_is_killed(
    backend: tuple[Victim, Callable[[], Store]],
) -> None:
    check(*backend, count=PROVE_COUNT, kills=PROVE_KILLS, seed=2)
