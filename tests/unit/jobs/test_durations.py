"""How long each stage of a job took, in whatever order its events arrived."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.model.durations import Moments, is_carried_over
from tests.clocks import START

SECONDS = {
    "created": 0,
    "received": 2,
    "scheduled": 5,
    "attached": 20,
    "booted": 40,
    "registered": 50,
    "started": 52,
    "completed": 100,
}
NAMES = (*SECONDS, "waiting", "queued", "terminated")


def moments(**seconds: int | None) -> Moments:
    known = {name: None if at is None else START.plus(at) for name, at in seconds.items()}
    return Moments(**{name: known.get(name) for name in NAMES}, has_gate=True)


def stages(**changed: int | None) -> dict[str, float]:
    found = moments(**{**SECONDS, **changed}).stages_ms()
    return {name: ms / 1000 for name, ms in found.items() if ms is not None}


def test_a_job_whose_events_arrived_in_order_has_every_stage() -> None:
    assert stages() == {"webhook_lag": 2, "decision": 3, "launch": 15, "boot": 20, "register": 10, "assign": 2}


def test_a_late_webhook_counts_only_until_the_next_stage() -> None:
    """A runner started it before its first webhook arrived: it did not wait for us."""
    assert stages(received=300) == {**stages(), "webhook_lag": 5, "decision": 0}


def test_a_webhook_after_the_start_of_a_job_that_was_never_scheduled() -> None:
    missing = dict.fromkeys(("scheduled", "attached", "booted", "registered"))
    assert stages(received=300, **missing) == {"webhook_lag": 52}


def test_an_unreported_stage_counts_for_the_next_one() -> None:
    whole = stages()
    without_boot = stages(booted=None)
    assert (without_boot["register"], "boot" in without_boot) == (whole["boot"] + whole["register"], False)
    without_registration = stages(registered=None)
    assert without_registration["assign"] == whole["register"] + whole["assign"]
    assert "register" not in without_registration


def test_approval_time_is_in_no_other_stage() -> None:
    found = stages(waiting=1, queued=30, scheduled=33, attached=35, started=60)
    assert (found["approval"], found["decision"]) == (29, 3)
    assert not {"webhook_lag", "held"} & set(found)


def test_a_wait_without_a_deployment_is_not_called_approval() -> None:
    """A concurrency limit holds a job back as well; its time is in no queue time either."""
    job = replace(moments(**SECONDS | {"waiting": 1, "queued": 30, "started": 60}), has_gate=False)
    assert (job.approval_ms, job.held_ms, job.overall_queue_ms) == (None, 29_000, 31_000)
    assert (job.stages_ms()["approval"], job.stages_ms()["held"]) == (None, 29_000)


CARRIED = {
    "created_at": "2026-01-15T11:00:00Z",
    "started_at": "2026-01-15T10:00:10Z",
    "completed_at": "2026-01-15T10:00:20Z",
    "runner_name": "runner 7",
    "GSI3-PK": "1#2#2",
}


def test_a_job_that_an_earlier_attempt_executed_is_carried_over() -> None:
    assert is_carried_over(CARRIED)


@pytest.mark.parametrize(
    "changed",
    [
        {"GSI3-PK": "1#2#1"},
        {"completed_at": "2026-01-15T11:00:00Z"},
        {"runner_name": ""},
        {"completed_at": None},
        {"created_at": None},
    ],
)
def test_a_job_that_its_own_attempt_executed_is_not(changed: dict[str, str | None]) -> None:
    """Of a first attempt; ended after it was created; skipped, so that no runner had it; not ended yet."""
    assert not is_carried_over({name: value for name, value in (CARRIED | changed).items() if value is not None})


@given(st.fixed_dictionaries({name: st.none() | st.integers(0, 500) for name in NAMES}))
def test_the_sum_of_the_stages_never_exceeds_the_wait(seconds: dict[str, int | None]) -> None:
    """Whatever was reported, and when: outside of the approval, no second is counted twice."""
    job = moments(**{**seconds, "created": 0, "waiting": None})
    found = [ms for ms in job.stages_ms().values() if ms is not None]
    assert all(ms >= 0 for ms in found)
    ended = job.started or job.completed
    if ended is not None:
        assert sum(found) <= ended.epoch_ms - START.epoch_ms
