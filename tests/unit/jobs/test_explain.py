"""The state of a job, and what happens next, in words."""

import pytest

from holdfast.jobs.intake.internal_events import InternalType
from holdfast.jobs.model.facts import JobEvent
from holdfast.jobs.model.job import folded
from holdfast.jobs.read.explain import explanation_of
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from tests.payloads import CREATED
from tests.unit.jobs.stories import DEPLOYMENT_ID, STORIES, internal, webhook


def job_after(*events: JobEvent) -> Item:
    job: Item | None = None
    for event in events:
        job = folded(job, event)
    assert job is not None
    return job


SOON = CREATED.plus(60)


def explanation(job: Item, deployment: Item | None = None, now: Instant = SOON, run: Item | None = None) -> str:
    return " ".join(explanation_of(job, deployment, now, StuckLimits(), run).lines())


def test_a_queued_job() -> None:
    text = explanation(job_after(webhook("queued", 1)))
    assert "queued since 2026-01-15T10:00:01Z" in text
    assert "runner=4cpu-linux-x64" in text


def test_a_stuck_job_is_called_stuck() -> None:
    assert "(stuck)" in explanation(job_after(webhook("queued", 1)), now=CREATED.plus(3600))


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        (None, "may not queue yet"),
        ({"status": "pending", "environment": "production"}, "production waits for approval"),
        ({"status": "approved", "approved_at": "noon"}, "approved at noon"),
        ({"status": "rejected", "rejected_at": "noon"}, "rejected at noon"),
    ],
)
def test_a_waiting_job(deployment: Item | None, words: str) -> None:
    assert words in explanation(job_after(webhook("waiting", 1, deployment=DEPLOYMENT_ID)), deployment)


def test_a_scheduled_job() -> None:
    queued, scheduled, attached = STORIES["plain"]()[:3]
    assert "A machine (spot m7i.xlarge) was requested." in explanation(job_after(queued, scheduled))
    assert "it is i-0123456789abcde01" in explanation(job_after(queued, scheduled, attached))
    assert "EC2 is reclaiming it" in explanation(job_after(queued, scheduled, internal(InternalType.INTERRUPTED, 9)))


def test_a_running_job() -> None:
    events = STORIES["gated"]()
    text = explanation(job_after(*events[:-1]), now=CREATED.plus(300))
    assert "32 s after it was created (plus 2 min 58 s of waiting for approval)" in text


def test_a_completed_job() -> None:
    assert "ended with success after running for 59 s" in explanation(job_after(*STORIES["plain"]()))
    assert "ended with skipped without running" in explanation(job_after(*STORIES["skipped"]()))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (None, "may be rerun"),
        ({"open": {9}}, "Next: once the other jobs of its run have ended"),
        ({"done": {1}}, "Next: the failed jobs may be rerun on on-demand machines"),
        ({"retry": {"state": "intended"}}, "on on-demand machines is being requested"),
        ({"retry": {"state": "requested"}}, "Next: nothing; a rerun of the failed jobs on on-demand machines"),
        ({"retry": {"state": "refused", "because": "the day is full"}}, "it is not rerun: the day is full"),
    ],
)
def test_an_interrupted_job_says_what_happens_to_its_run(run: Item | None, words: str) -> None:
    queued, scheduled, attached, started = STORIES["plain"]()[:4]
    taken = internal(InternalType.INTERRUPTED, 40)
    lost = job_after(
        queued, scheduled, attached, started, taken, webhook("completed", 90, started=31, conclusion="failure")
    )
    assert words in explanation(lost, run=run)
    well = job_after(queued, scheduled, attached, started, taken, webhook("completed", 90, started=31))
    assert "Next: nothing; " in explanation(well, run=run)


def test_a_job_without_a_webhook() -> None:
    assert "has sent no webhook" in explanation(job_after(internal(InternalType.SCHEDULED, 1)))


def test_a_hostile_name_cannot_start_a_new_line() -> None:
    text = explanation(job_after(webhook("queued", 1, labels=["a\nb\x1b[31m"])))
    assert "\n" not in text
    assert "\x1b" not in text
