"""Which jobs want a runner."""

import pytest
from msgspec.structs import replace

from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.instants import Instant
from holdfast.runners.demand import Demand, QueuedJob, demand_of

NOW = Instant.from_iso("2026-03-02T09:00:00Z")
QUEUED_MS = NOW.epoch_ms - 5_000
JOB = QueuedJob(
    InstallationId(1), JobId(7), "acme/web", ("build",), "queued", queued_ms=QUEUED_MS, received_ms=QUEUED_MS + 1_000
)
DAY_MS = 86_400_000


@pytest.mark.parametrize("status", ["queued", "scheduled"])
def test_a_queued_job_wants_a_runner(status: str) -> None:
    assert demand_of(replace(JOB, status=status), NOW) is Demand.WANTED


@pytest.mark.parametrize("status", ["waiting", "in_progress", "completed", "requested", ""])
def test_a_job_in_any_other_status_wants_none(status: str) -> None:
    assert demand_of(replace(JOB, status=status), NOW) is Demand.NOT_QUEUED


@pytest.mark.parametrize("after_ms", [0, 1, 60_000])
def test_a_job_that_waits_for_approval_gets_no_machine_even_if_it_is_already_scheduled(after_ms: int) -> None:
    """`scheduled` outranks a late `waiting`. At the same millisecond, in doubt no machine is launched."""
    waiting = replace(JOB, status="scheduled", waiting_ms=QUEUED_MS + after_ms)
    assert demand_of(waiting, NOW) is Demand.NEEDS_APPROVAL


def test_an_approved_job_that_queues_again_wants_a_runner() -> None:
    assert demand_of(replace(JOB, waiting_ms=QUEUED_MS - 1), NOW) is Demand.WANTED


@pytest.mark.parametrize(("queued_ms", "found"), [(DAY_MS - 1, Demand.WANTED), (DAY_MS, Demand.TOO_OLD)])
def test_a_job_stops_wanting_a_runner_after_a_day(queued_ms: int, found: Demand) -> None:
    at = NOW.epoch_ms - queued_ms
    assert demand_of(replace(JOB, queued_ms=at, received_ms=at), NOW) is found


@pytest.mark.parametrize(("queued_ms", "found"), [(2_999, Demand.SETTLING), (3_000, Demand.WANTED)])
def test_a_job_with_a_deployment_waits_three_seconds_for_its_gate(queued_ms: int, found: Demand) -> None:
    at = NOW.epoch_ms - queued_ms
    assert demand_of(replace(JOB, queued_ms=at, received_ms=at, names_deployment=True), NOW) is found


@pytest.mark.parametrize(("late_ms", "found"), [(30_000, Demand.WANTED), (30_001, Demand.ASK_GITHUB)])
def test_a_job_announced_late_counts_only_after_github_was_asked(late_ms: int, found: Demand) -> None:
    """Its runner may have come and gone."""
    late = replace(JOB, queued_ms=NOW.epoch_ms - 60_000, received_ms=NOW.epoch_ms - 60_000 + late_ms)
    assert demand_of(late, NOW) is found
    assert demand_of(replace(late, is_asked=True), NOW) is Demand.WANTED


def test_what_is_unknown_is_asked_about() -> None:
    assert demand_of(replace(JOB, received_ms=None), NOW) is Demand.ASK_GITHUB
    assert demand_of(replace(JOB, queued_ms=None), NOW) is Demand.ASK_GITHUB
    assert demand_of(replace(JOB, queued_ms=None, waiting_ms=1, is_asked=True), NOW) is Demand.NEEDS_APPROVAL
