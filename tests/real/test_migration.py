"""The migration on real servers: moto's S3, DynamoDB Local, and `holdfast migrate` as processes that are killed."""

import json
import os
import random
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.aws.s3 import S3Objects, s3_client
from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.wiring.stores import open_store, opened_tables
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.migration.backfill_progress import last_backfill
from holdfast.jobs.migration.differences import DifferenceKind
from holdfast.jobs.migration.dual import Bucket, DualTracker
from holdfast.jobs.migration.layout import ObjectLayout
from holdfast.jobs.migration.phases import Phase, PhaseWatch, StoredPhase, move, stored_phase
from holdfast.jobs.model.keys import DeploymentKey, JobKey, RunKey
from holdfast.kernel.errors import Retryable
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.kernel.settings import load_settings
from holdfast.ports.store import Query, Store, attr, every_item
from holdfast.ports.store.tables import DEPLOYMENTS, JOB_EVENTS, JOBS, RUNS
from tests.servers import moto_filled
from tests.servers.processes import RunningServer
from tests.support.migration_world import life
from tests.support.server_process import environment

pytestmark = [pytest.mark.real, pytest.mark.slow]

ONE = InstallationId(1)
BUCKET = "older-system"
LAYOUT = "webhooks/{installation_id}/{job_id}/{status}.json"
KILLS = 4
LOOK_EVERY_SECONDS = 0.05  # polling its progress without a pause would take its CPU time
LIVE_EVERY_SECONDS = 0.4  # between a job's webhooks; faster, and the bucket would grow faster than it is read


@dataclass
class Account:
    """S3 as the older system left it, and empty tables."""

    settings: dict[str, str]
    store: Store
    objects: S3Objects
    jobs: int
    clock: SystemClock

    def command(self, *arguments: str) -> "subprocess.Popen[str]":
        command = [sys.executable, "-m", "holdfast.cli.main", "migrate", *arguments]
        pipes: dict[str, Any] = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
        return subprocess.Popen(command, env=environment(**self.settings), **pipes)

    def migrate(self, *arguments: str, code: int = 0) -> dict[str, Any]:
        process = self.command(*arguments, "--json")
        output, errors = process.communicate()
        assert process.returncode == code, errors
        found: dict[str, Any] = json.loads(output)
        return found

    def receiver(self) -> DualTracker:
        watch = PhaseWatch(self.store, self.clock, StoredPhase())
        tracker = Tracker(self.store, self.clock, "live")
        return DualTracker(tracker, Bucket(self.objects, ObjectLayout(LAYOUT)), watch, self.clock, lambda _: None)


@pytest.fixture
def account(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    dynamodb_server: RunningServer,
    monkeypatch: pytest.MonkeyPatch,
) -> Iterator[Account]:
    jobs = int(request.param)
    moto = moto_filled.start(tmp_path, BUCKET, jobs)
    settings = {
        "AWS_ENDPOINT_URL_S3": moto.url,
        "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_server.url,
        "AWS_ACCESS_KEY_ID": f"migration{jobs}",  # each key has its own tables
        "AWS_SECRET_ACCESS_KEY": "b",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "HOLDFAST_STORE": "dynamodb:",
        "HOLDFAST_DATA": str(tmp_path / "data"),
        "S3_BUCKET": BUCKET,
        "S3_WEBHOOK_LAYOUT": LAYOUT,
    }
    for name, value in settings.items():
        monkeypatch.setenv(name, value)
    loaded = load_settings(os.environ)
    clock = SystemClock()
    with opened_tables(loaded, clock, writable=True) as tables:
        for _ in tables.create():
            pass
    with closing(open_store(loaded, clock)) as store, closing(S3Objects(BUCKET, s3_client())) as objects:
        yield Account(settings, store, objects, jobs, clock)
    moto.stop()


def begin(account: Account) -> None:
    """Into dual_write, long enough ago that every instance has followed."""
    move(account.store, stored_phase(account.store), Phase.DUAL_WRITE, account.clock.now().plus(-60), "test")


class Live:
    """Webhooks that arrive meanwhile: for new jobs, and for jobs in S3."""

    def __init__(self, account: Account, chance: random.Random) -> None:
        self._account = account
        self._chance = chance
        self._over = threading.Event()
        self._failed: list[BaseException] = []
        self.received = 0
        self._thread = threading.Thread(target=self._run)

    def __enter__(self) -> "Live":
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._thread.join()
        assert self._failed == []

    def _run(self) -> None:
        receiver = self._account.receiver()
        jobs = self._account.jobs
        try:
            while not self._over.wait(LIVE_EVERY_SECONDS):
                known = self._chance.randint(1, jobs) if self._chance.random() < 0.3 else None
                sent = life(known or jobs + 1 + self.received, failed=known is not None and known % 7 == 0)
                for webhook in self._chance.sample(sent, self._chance.randint(1, len(sent))):
                    self._deliver(receiver, webhook)
        except BaseException as error:  # reported by the thread that waits for this one
            self._failed.append(error)

    def _deliver(self, receiver: DualTracker, webhook: Delivery) -> None:
        """An unacknowledged webhook is sent again."""
        for _ in range(20):
            with suppress(Retryable):
                receiver.receive(webhook)
                self.received += 1
                return
        raise AssertionError(f"{webhook} was never acknowledged")


def backfill_and_kill(account: Account, chance: random.Random) -> int:
    """Run it to its end, killing it each time it has made some progress; returns the number of kills."""
    kills = 0
    while True:
        process = account.command("backfill", "--json")
        before = last_backfill(account.store)
        start = before.objects if before else 0
        # Also within the first batch, and within the count.
        goal = start + chance.choice([0, 0, chance.randint(1, max(1, account.jobs // KILLS))])
        while process.poll() is None and kills < KILLS:
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_EVERY_SECONDS)
            place = last_backfill(account.store)
            if place is not None and place.objects >= goal and place is not before:
                process.kill()
                kills += 1
                break
        output, errors = process.communicate()
        if process.returncode == 0:
            assert json.loads(output)["finished"]
            return kills
        # A server that is too slow for its clients ends a run as well as a kill does.
        assert process.returncode == -9 or "retried later" in errors, errors


@pytest.mark.parametrize(
    "account",
    [
        200,
        pytest.param(10_000, marks=pytest.mark.timeout(1800)),
        pytest.param(100_000, marks=[pytest.mark.prove, pytest.mark.timeout(14_400)]),
    ],
    indirect=True,
)
def test_a_backfill_during_live_webhooks_and_random_kills_leaves_no_difference(account: Account) -> None:
    chance = random.Random(account.jobs)
    begin(account)
    with Live(account, chance) as live:
        kills = backfill_and_kill(account, chance)
    assert live.received > 0
    assert kills > 0
    compared = account.migrate("compare", "--workers", "8")
    assert compared["items"] == []
    assert compared["jobs"] >= account.jobs
    assert compared["share"] == 1
    if account.jobs < 1000:  # it takes as long as the first one
        again = account.migrate("backfill")
        assert (again["written"], again["unusable"]) == (0, 0)
    status = account.migrate("status")
    assert (status["phase"], status["unstored"]) == ("dual_write", 0)


def plant_all(account: Account) -> dict[int | None, str]:
    """A difference of every kind, each in its own job."""
    store, objects = account.store, account.objects

    def job(number: int) -> JobKey:
        return JobKey(ONE, JobId(number))

    def run_of(number: int) -> RunKey:
        return RunKey(ONE, RunId(number // 3 + 1), 1)

    store.delete(JOBS, job(11).item)
    store.update(JOBS, job(22).item, attr("conclusion").set_to("cancelled"))
    store.update(JOBS, job(33).item, attr("dl").set_to(frozenset({"AAAAAAAA"})))
    for entry in every_item(store, Query(JOB_EVENTS, job(44).partition)):
        store.delete(JOB_EVENTS, JOB_EVENTS.key_of(entry))
    store.delete(RUNS, run_of(55).job_item(JobId(55)))
    store.delete(DEPLOYMENTS, DeploymentKey(ONE, DeploymentId(10_000_100)).item)
    objects.put("webhooks/1/66/queued.json", b"{")
    objects.delete("webhooks/1/77/completed.json")
    kinds: dict[int | None, str] = {
        11: DifferenceKind.MISSING,
        22: DifferenceKind.FIELD,
        33: DifferenceKind.WEBHOOK,
        44: DifferenceKind.HISTORY,
        55: DifferenceKind.RUN,
        100: DifferenceKind.DEPLOYMENT,
    }
    return {**kinds, None: DifferenceKind.UNUSABLE, 77: DifferenceKind.ONLY_IN_TABLE}


@pytest.mark.parametrize("account", [120], indirect=True)
def test_a_planted_difference_of_every_kind_is_found(account: Account) -> None:
    begin(account)
    account.migrate("backfill")
    assert account.migrate("compare")["items"] == []
    planted = plant_all(account)
    assert set(planted.values()) == set(DifferenceKind)
    found = account.migrate("compare", code=1)
    assert {(one["job_id"], one["kind"]) for one in found["items"]} >= set(planted.items())
    assert {one["job_id"] for one in found["items"]} == set(planted)
    refused = account.command("advance")
    _, errors = refused.communicate()
    assert (refused.returncode, "the comparison found" in errors) == (1, True)
