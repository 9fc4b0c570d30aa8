"""Where a job is, and what happens next, in words."""

import pytest

from holdfast.jobs.explain import explained
from holdfast.jobs.facts import JobEvent
from holdfast.jobs.internal import InternalType
from holdfast.jobs.job import folded
from holdfast.jobs.stuck import Patience
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from tests.payloads import CREATED
from tests.unit.jobs.stories import DEPLOYMENT_ID, STORIES, internal, webhook


def told(*events: JobEvent) -> Item:
    job: Item | None = None
    for event in events:
        job = folded(job, event)
    assert job is not None
    return job


SOON = CREATED.plus(60)


def said(job: Item, deployment: Item | None = None, now: Instant = SOON, run: Item | None = None) -> str:
    return " ".join(explained(job, deployment, now, Patience(), run).lines())


def test_a_queued_job() -> None:
    text = said(told(webhook("queued", 1)))
    assert "queued since 2026-01-15T10:00:01Z" in text
    assert "runner=4cpu-linux-x64" in text


def test_a_job_that_is_stuck_says_so() -> None:
    assert "(stuck)" in said(told(webhook("queued", 1)), now=CREATED.plus(3600))


@pytest.mark.parametrize(
    ("deployment", "words"),
    [
        (None, "held back"),
        ({"status": "pending", "environment": "production"}, "production waits for an approval"),
        ({"status": "approved", "approved_at": "noon"}, "approved at noon"),
        ({"status": "rejected", "rejected_at": "noon"}, "rejected at noon"),
    ],
)
def test_a_job_that_waits(deployment: Item | None, words: str) -> None:
    assert words in said(told(webhook("waiting", 1, deployment=DEPLOYMENT_ID)), deployment)


def test_a_scheduled_job() -> None:
    queued, scheduled, attached = STORIES["plain"]()[:3]
    assert "A spot m7i.xlarge was asked for." in said(told(queued, scheduled))
    assert "it is i-0123456789abcde01" in said(told(queued, scheduled, attached))
    assert "taken away by EC2" in said(told(queued, scheduled, internal(InternalType.INTERRUPTED, 9)))


def test_a_running_job() -> None:
    events = STORIES["gated"]()
    assert "32 s after it was created (and 2 min 58 s of approval)" in said(told(*events[:-1]), now=CREATED.plus(300))


def test_a_job_that_ended() -> None:
    assert "ended as success after running for 59 s" in said(told(*STORIES["plain"]()))
    assert "ended as skipped without ever running" in said(told(*STORIES["skipped"]()))


@pytest.mark.parametrize(
    ("run", "words"),
    [
        (None, "may be run again"),
        ({"open": {9}}, "Next: when the other jobs of its run have ended"),
        ({"done": {1}}, "Next: what failed of its run may be run again, on on-demand machines"),
        ({"retry": {"state": "intended"}}, "Next: GitHub is asked to run what failed again"),
        ({"retry": {"state": "requested"}}, "Next: nothing; GitHub was asked to run what failed again"),
        ({"retry": {"state": "refused", "because": "the day is full"}}, "it is not run again: the day is full"),
    ],
)
def test_a_job_that_spot_took_down_says_what_becomes_of_its_run(run: Item | None, words: str) -> None:
    queued, scheduled, attached, started = STORIES["plain"]()[:4]
    taken = internal(InternalType.INTERRUPTED, 40)
    lost = told(queued, scheduled, attached, started, taken, webhook("completed", 90, started=31, conclusion="failure"))
    assert words in said(lost, run=run)
    well = told(queued, scheduled, attached, started, taken, webhook("completed", 90, started=31))
    assert "Next: nothing; " in said(well, run=run)


def test_a_job_that_no_webhook_has_named() -> None:
    assert "no webhook has" in said(told(internal(InternalType.SCHEDULED, 1)))


def test_a_strangers_name_cannot_break_out_of_its_line() -> None:
    text = said(told(webhook("queued", 1, labels=["a\nb\x1b[31m"])))
    assert "\n" not in text
    assert "\x1b" not in text
