"""A bucket and a store, both in memory, and webhooks to put into them."""

import json
import random
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Any

from holdfast.adapters.memory import memory_store
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.migration.backfill import Backfill, BackfillOptions
from holdfast.jobs.migration.backfill_progress import BackfillProgress
from holdfast.jobs.migration.compare import ComparisonResult, S3Comparison
from holdfast.jobs.migration.counts import StorageCall
from holdfast.jobs.migration.differences import JobDifference
from holdfast.jobs.migration.dual import Bucket, DualReads, DualTracker
from holdfast.jobs.migration.layout import ObjectLayout
from holdfast.jobs.migration.phases import Phase, PhaseWatch, StoredPhase, move, stored_phase
from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.store import Store
from tests.clocks import StillClock
from tests.payloads import CREATED, delivery, job_payload
from tests.simulated_objects import SimulatedObjects

LAYOUT = ObjectLayout("webhooks/{installation_id}/{job_id}/{status}.json")
NOW = CREATED.plus(3600)


class Killed(BaseException):
    """The process is gone: nothing catches this."""


class Faulty:
    """A store whose calls fail when `fails` says so of their name. `meet` is called before and after each."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.fails: Callable[[str], bool] = lambda _: False
        self.meet: Callable[[str, str], object] = lambda _call, _when: None

    def __getattr__(self, name: str) -> Any:
        found = getattr(self._store, name)

        def call(*given: Any, **named: Any) -> Any:
            self.meet(name, "before")
            if self.fails(name):
                raise StoreUnavailable(f"test: {name}")
            answer = found(*given, **named)
            self.meet(name, "after")
            return answer

        return call


class Death:
    """Kills at the given port call, and at every later one: a dead process does nothing more."""

    def __init__(self, at: int | None = None) -> None:
        self.at = at
        self.met = 0

    def __call__(self, _call: str, _when: str) -> bool:
        self.met += 1
        if self.at is not None and self.met > self.at:
            raise Killed
        return False


@dataclass
class World:
    clock: StillClock = field(default_factory=lambda: StillClock(NOW))
    calls: list[StorageCall] = field(default_factory=list)
    layout: ObjectLayout = LAYOUT

    def __post_init__(self) -> None:
        self.objects = SimulatedObjects(self.clock)
        self.store: Any = Faulty(memory_store(self.clock))
        self.bucket = Bucket(self.objects, self.layout)
        self.tracker = Tracker(self.store, self.clock, "test")
        self.watch = PhaseWatch(self.store, self.clock, StoredPhase())
        self.dual = DualTracker(self.tracker, self.bucket, self.watch, self.clock, self.calls.append)
        self.reads = DualReads(self.store, self.bucket, self.watch, self.clock, self.calls.append)

    def mortal(self, death: Death) -> None:
        self.store.meet = self.objects.fault = death

    def go_to(self, phase: Phase) -> None:
        """Step by step, until all instances have followed."""
        while (stored := stored_phase(self.store)).phase is not phase:
            step = 1 if phase.number > stored.phase.number else -1
            move(self.store, stored, list(Phase)[stored.phase.number + step], self.clock.now(), "test")
        self.clock.advance(30)

    def older(self, delivery: Delivery, status: str, installation: int, job: int) -> str:
        """An object as the older system wrote it: only the body."""
        key = self.layout.template.format(installation_id=installation, job_id=job, status=status)
        self.objects.put(key, delivery.body)
        return key

    def backfill(self, manner: BackfillOptions | None = None) -> BackfillProgress:
        return Backfill(
            self.store, self.bucket, self.clock, manner or BackfillOptions(workers=1), chance=random.Random(1)
        ).run()

    def compare(self, share: float = 1.0, seed: int = 0) -> tuple[ComparisonResult, list[JobDifference]]:
        found: list[JobDifference] = []
        done = S3Comparison(
            self.store, self.bucket, self.clock, found.append, share=share, sample_seed=seed, workers=1
        ).run()
        return done, found


def life(job: int, installation: int = 1, *, failed: bool = False, deployment: int | None = None) -> list[Delivery]:
    """The webhooks of one job, in their order."""
    start = CREATED.plus(job % 1000)

    def sent(action: str, seconds: float, number: int, **fields: Any) -> Delivery:
        at = start.plus(seconds)
        payload = job_payload(
            action,
            at=at,
            job_id=job,
            run_id=job // 3 + 1,
            installation=installation,
            deployment=deployment,
            created_at=start.iso_seconds(),
            **fields,
        )
        return delivery("workflow_job", payload, at, number)

    conclusion = "failure" if failed else "success"
    began = start.plus(20)
    ends = [sent("in_progress", 20.2, 3), sent("completed", 60.3, 4, started=began, conclusion=conclusion)]
    if deployment is None:
        return [sent("queued", 0.4, 1), *ends]
    return [sent("queued", 0.4, 1), sent("waiting", 0.9, 2), sent("queued", 10.1, 5), *ends]


def statuses(deliveries: Iterable[Delivery]) -> list[tuple[str, Delivery]]:
    """Each with the status under which the older system stores it."""
    return [(json.loads(each.body)["action"], each) for each in deliveries]


def fill_older(world: World, jobs: Iterable[int], installation: int = 1) -> None:
    for job in jobs:
        deployment = 900_000 + job if job % 5 == 0 else None
        for status, sent in statuses(life(job, installation, failed=job % 7 == 0, deployment=deployment)):
            world.older(sent, status, installation, job)
