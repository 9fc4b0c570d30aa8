"""Where a job's time went: the stages are parts of one wait, in whatever order we were told of them."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.durations import Moments
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
    return Moments(**{name: known.get(name) for name in NAMES})


def stages(**changed: int | None) -> dict[str, float]:
    found = moments(**{**SECONDS, **changed}).stages_ms()
    return {name: ms / 1000 for name, ms in found.items() if ms is not None}


def test_a_job_that_was_told_in_order_has_every_stage() -> None:
    assert stages() == {"webhook_lag": 2, "decision": 3, "launch": 15, "boot": 20, "register": 10, "assign": 2}


def test_a_webhook_that_came_late_took_no_longer_than_until_the_next_stage() -> None:
    """A runner was there before we heard of the job: it did not wait for us."""
    assert stages(received=300) == {**stages(), "webhook_lag": 5, "decision": 0}


def test_a_webhook_that_came_after_the_start_of_a_job_that_nobody_scheduled() -> None:
    missing = dict.fromkeys(("scheduled", "attached", "booted", "registered"))
    assert stages(received=300, **missing) == {"webhook_lag": 52}


def test_what_was_not_told_falls_to_the_stage_after_it() -> None:
    whole = stages()
    without_boot = stages(booted=None)
    assert (without_boot["register"], "boot" in without_boot) == (whole["boot"] + whole["register"], False)
    without_registration = stages(registered=None)
    assert without_registration["assign"] == whole["register"] + whole["assign"]
    assert "register" not in without_registration


def test_the_time_for_an_approval_is_no_one_elses() -> None:
    found = stages(waiting=1, queued=30, scheduled=33, attached=35, started=60)
    assert (found["approval"], found["decision"]) == (29, 3)
    assert "webhook_lag" not in found


@given(st.fixed_dictionaries({name: st.none() | st.integers(0, 500) for name in NAMES}))
def test_the_stages_are_never_more_than_the_wait(seconds: dict[str, int | None]) -> None:
    """Whatever was told, and when: of what is no part of an approval, no second is counted twice."""
    job = moments(**{**seconds, "created": 0, "waiting": None})
    found = [ms for ms in job.stages_ms().values() if ms is not None]
    assert all(ms >= 0 for ms in found)
    ended = job.started or job.completed
    if ended is not None:
        assert sum(found) <= ended.epoch_ms - START.epoch_ms
