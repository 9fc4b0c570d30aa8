"""A whole migration under faults: both sides fail, responses are lost, phases move; no acknowledged webhook is lost.

Each seed draws what GitHub sends, through which of three instances, what fails, and when an operator moves forward
(as far as `status` allows) or back. Between two steps every instance follows.
"""

import random

import pytest

from holdfast.jobs.migration.dual import DualReads, DualTracker
from holdfast.jobs.migration.phases import ORDER, Phase, PhaseWatch, StoredPhase, move, stored_phase
from holdfast.jobs.migration.status import migration_status
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.job import rank
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.errors import HoldfastError, StoreUnavailable
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.ports.store.tables import JOBS
from tests.support.migration_world import World, fill_older, life, statuses

SENT = range(1, 17)
OLDER = range(14, 22)


class Storm:
    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.world = World()
        fill_older(self.world, OLDER)
        watches = [PhaseWatch(self.world.store, self.world.clock, StoredPhase()) for _ in range(3)]
        parts = (self.world.bucket,)
        self.instances = [
            DualTracker(self.world.tracker, *parts, watch, self.world.clock, lambda _: None) for watch in watches
        ]
        self.reads = DualReads(self.world.store, *parts, watches[0], self.world.clock, lambda _: None)
        self.waiting = [(job, status, sent) for job in SENT for status, sent in statuses(life(job))]
        self.chance.shuffle(self.waiting)
        self.acknowledged: dict[int, int] = {}  # job → the highest phase of its life that was acknowledged

    def weather(self, share: float) -> None:
        """How much fails: before a call takes effect, or after it, with its response lost."""
        world, chance = self.world, self.chance
        world.objects.fault = lambda _call, _when: chance.random() < share

        def meet(call: str, when: str) -> None:
            if call in ("update", "put") and chance.random() < share:
                raise StoreUnavailable(f"storm: {call} {when}")

        world.store.meet = meet

    def send(self) -> None:
        if not self.waiting:
            return
        job, status, sent = self.waiting.pop()
        try:
            self.chance.choice(self.instances).receive(sent)
        except HoldfastError:
            self.waiting.insert(0, (job, status, sent))  # not acknowledged: it is sent again
            return
        if self.chance.random() < 0.2:
            self.waiting.insert(0, (job, status, sent))  # it is sent again anyway
        self.acknowledged[job] = max(self.acknowledged.get(job, 0), rank(Status(status), 0))

    def step(self) -> None:
        """By an operator who checks `status` first; a failed step is retried later."""
        world = self.world
        self.weather(0)
        it = migration_status(world.store, world.objects, Phase.DUAL_WRITE, world.clock.now())
        forward = it.next if self.chance.random() < 0.7 else None
        if forward is not None and it.against_next() and it.stored.phase is not Phase.OFF:
            world.backfill()
            world.clock.advance(1)
            world.compare()
            it = migration_status(world.store, world.objects, Phase.DUAL_WRITE, world.clock.now())
        if forward is not None and not it.against_next():
            move(world.store, it.stored, forward, world.clock.now(), "test")
        elif it.stored.phase is not Phase.OFF and forward is None:
            before = ORDER[it.stored.phase.number - 1]
            if it.against_back(before):
                world.backfill()
            move(world.store, it.stored, before, world.clock.now(), "test")
        world.clock.advance(30)

    def check(self) -> None:
        """Acknowledged webhooks are visible in every phase once the faults stop."""
        self.weather(0)
        for job, known in self.acknowledged.items():
            item = self.reads.get(JOBS, JobKey(InstallationId(1), JobId(job)).item)
            assert item is not None, (job, stored_phase(self.world.store).phase)
            assert item["rk"] >= known, (job, item["status"], stored_phase(self.world.store).phase)


@pytest.mark.parametrize("seed", [*range(12), *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(12, 60))])
def test_nothing_that_was_acknowledged_is_lost(seed: int) -> None:
    storm = Storm(seed)
    for _ in range(12):
        storm.weather(storm.chance.choice([0, 0.02, 0.1, 0.4]))
        for _ in range(storm.chance.randint(1, 12)):
            storm.send()
        storm.check()
        storm.step()
    world = storm.world
    world.go_to(Phase.DUAL_WRITE)
    while storm.waiting:
        storm.send()
    storm.check()
    world.backfill()
    assert [one for one in world.compare()[1] if one.kind != "only_in_table"] == []
    world.clock.advance(1)
    world.go_to(Phase.DYNAMODB_ONLY)
    storm.check()
    for job in OLDER:
        item = world.store.get(JOBS, JobKey(InstallationId(1), JobId(job)).item)
        assert item["status"] == "completed"


def test_the_storms_reach_every_phase() -> None:
    """Otherwise they would prove less than they seem to."""
    seen: set[Phase] = set()
    noted = refused = 0
    for seed in range(12):
        storm = Storm(seed)
        for _ in range(12):
            storm.weather(0.2)
            before = len(storm.waiting)
            for _ in range(5):
                storm.send()
            refused += len(storm.waiting) > before - 5
            storm.weather(0)
            noted += bool(storm.world.objects.page("holdfast/unstored/").entries)
            storm.step()
            seen.add(stored_phase(storm.world.store).phase)
    assert seen == set(Phase)
    assert noted > 5
    assert refused > 5
