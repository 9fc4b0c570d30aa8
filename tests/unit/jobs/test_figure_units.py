"""What counting costs on DynamoDB: at most three units a job, those of the larger projection included."""

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.figure_counts import ON_DYNAMODB_SECONDS
from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.figures.reading import counted_figures
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.ids import JobId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Consumed, Item, Store
from holdfast.ports.store.tables import JOBS
from tests.clocks import StillClock
from tests.payloads import CREATED
from tests.support.figure_stories import INSTALLATION, Life, count_until_done, tell

HOUR, DAY = 3600, 86_400
COUNTING_MOST = 1.0
# The entry in the index by status changes when the machine is attached, and when it is terminated.
INDEX_UNITS = 2
RUN_SECONDS = 300


def _sample() -> Item:
    """An ended job of the usual size."""
    clock = StillClock(CREATED)
    store = memory_store(clock)
    life = Life(1, job_name="integration tests (postgres-16, 001)")
    tell(store, clock, life.events())
    found = store.get(JOBS, life.key.item)
    assert found is not None
    return found


def _store_job(store: Store, sample: Item, number: int, created: Instant, *, has_ended: bool) -> None:
    status = "completed" if has_ended else "in_progress"
    changed = {
        "PK": JobKey(INSTALLATION, JobId(number)).partition,
        "GSI1-PK": f"{INSTALLATION}#{status}",
        "created_at": created.iso_seconds(),
        "completed_at": created.plus(RUN_SECONDS).iso_seconds(),
        "job_name": f"integration tests (postgres-16, {number % 20:03d})",
        "ttl": 10**11,
    }
    store.put(JOBS, sample | changed)


def _units_of_passes(jobs: int, every_seconds: int) -> float:
    """Of all passes in which the jobs of one hour are counted, up to the last checkpoint."""
    clock, consumed, sample = StillClock(CREATED), list[Consumed](), _sample()
    store = memory_store(clock, consumed.append)
    counting = Counting(store, clock, INSTALLATION)
    counting.run_pass()
    units, passed = 0.0, 0
    for now in [*range(every_seconds, 4 * HOUR + 1, every_seconds), *range(5 * HOUR, 37 * DAY, 12 * HOUR)]:
        clock.advance(now - passed)
        for number in range(jobs):
            created = number * HOUR // jobs
            if created <= now and created + RUN_SECONDS > passed - every_seconds:
                _store_job(store, sample, number + 1, CREATED.plus(created), has_ended=created + RUN_SECONDS <= now)
        passed = now
        consumed.clear()
        counting.run_pass()
        units += sum(each.read_units + each.write_units for each in consumed)
    return units


def test_counting_a_job_stays_within_its_budget() -> None:
    """Without what a pass costs in which there is nothing to count."""
    jobs = 1000
    per_job = (_units_of_passes(jobs, ON_DYNAMODB_SECONDS) - _units_of_passes(0, ON_DYNAMODB_SECONDS)) / jobs
    assert 0.1 < per_job <= COUNTING_MOST
    assert per_job + INDEX_UNITS <= 3


def test_reading_figures_costs_no_more_for_many_jobs_than_for_few() -> None:
    """The same workflows, forty times as many jobs: a day's slice has the same groups."""
    units = {jobs: _units_of_reading(jobs) for jobs in (100, 4000)}
    assert units[4000] <= units[100] * 1.5


def _units_of_reading(jobs: int) -> float:
    clock, consumed, sample = StillClock(CREATED.plus(4 * DAY)), list[Consumed](), _sample()
    store = memory_store(clock, consumed.append)
    for number in range(jobs):
        _store_job(store, sample, number + 1, CREATED.plus(number * 3 * DAY // jobs), has_ended=True)
    count_until_done(Counting(store, clock, INSTALLATION))
    consumed.clear()
    now = clock.now()
    found = counted_figures(store, INSTALLATION, CREATED.plus(-10 * HOUR), now, now, None)
    assert sum(figures.total().jobs for figures in found.days.values()) == jobs
    return sum(each.read_units for each in consumed)
