"""The fold: any order, any repetition, one job."""

from collections.abc import Iterable, Sequence
from decimal import Decimal
from itertools import permutations

import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.jobs.cost.prices import Cost, cost_of, shipped_prices
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType, internal_event
from holdfast.jobs.intake.item_writes import changed
from holdfast.jobs.intake.payloads import JobPayload, UnusablePayload, WorkflowJob, decoded
from holdfast.jobs.model.durations import moments_of
from holdfast.jobs.model.facts import JobEvent, Status, job_event, reported_status
from holdfast.jobs.model.job import EARLIER_MOST, MARKS_MOST, folded, quick
from holdfast.jobs.read.item_views import Viewing, job_view
from holdfast.jobs.sweep.retry import failed_by_interruption
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from holdfast.ports.store.values import item_bytes
from tests.payloads import CREATED, delivery, job_payload
from tests.unit.jobs.stories import DEPLOYMENT_ID, KEY, STORIES, TAKEN, internal, received, webhook

VIEWING = Viewing(shipped_prices())
ARRIVALS = [CREATED.plus(3600 + number) for number in range(60)]


def job_after(events: Iterable[JobEvent]) -> Item:
    """The job after these events, which arrived one per second whatever their own times are."""
    job: Item | None = None
    for event, arrived in zip(events, ARRIVALS, strict=False):
        job = folded(job, received(event, arrived))
    assert job is not None
    return job


def without_arrival(job: Item) -> Item:
    """Everything except the arrival of its first webhook, which is our own time."""
    return {name: value for name, value in job.items() if name not in ("received_at", "ttl")}


@pytest.mark.parametrize("name", STORIES)
def test_every_order_of_a_jobs_events_ends_in_the_same_job(name: str) -> None:
    events = STORIES[name]()
    expected = without_arrival(job_after(events))
    for order in permutations(events):
        assert without_arrival(job_after(order)) == expected


@pytest.mark.parametrize("name", STORIES)
def test_every_order_with_every_single_duplicate_ends_in_the_same_job(name: str) -> None:
    """Each event once more, at each later position of each order. Positions that only repeat a fold are skipped."""
    events = STORIES[name]()
    expected = without_arrival(job_after(events))
    for order in permutations(events):
        job: Item | None = None
        for place, event in enumerate(order):
            job = folded(job, received(event, ARRIVALS[place]))
            # A duplicate of an earlier event leaves the job unchanged, so what follows stays the same.
            for earlier in order[: place + 1]:
                assert folded(job, earlier) is job
        assert job is not None
        assert without_arrival(job) == expected


@pytest.mark.parametrize("name", STORIES)
def test_a_status_never_goes_back(name: str) -> None:
    for order in permutations(STORIES[name]()):
        job: Item | None = None
        last = 0
        for event in order:
            job = folded(job, event)
            assert job.get("rk", 0) >= last
            last = job.get("rk", 0)
            if "status" in job:
                assert job["GSI1-PK"] == f"12345678#{job['status']}"


def test_the_final_attributes_of_a_plain_job() -> None:
    job = job_after(STORIES["plain"]())
    expected = {
        "status": "completed",
        "conclusion": "success",
        "GSI1-PK": "12345678#completed",
        "GSI2-PK": "12345678#acme-corporation/backend-service",
        "GSI3-PK": "12345678#17123456789#1",
        "created_at": "2026-01-15T10:00:00Z",
        "started_at": "2026-01-15T10:00:31Z",
        "completed_at": "2026-01-15T10:01:30Z",
        "scheduled_at": "2026-01-15T10:00:02.000Z",
        "attached_ms": CREATED.plus(4).epoch_ms,
        "instance_id": "i-0123456789abcde01",
        "instance_type": "m7i.xlarge",
        "pool_name": "small-x64",
        "runner_id": 4711,
        "queued_ms": CREATED.plus(0.4).epoch_ms,
        "scheduling_attempt": 1,
        "custom_properties": {"team": "payments", "tier": "1"},
    }
    assert {name: job[name] for name in expected} == expected
    assert len(job["dl"]) == 5


def test_nothing_set_by_scheduling_is_lost_when_webhooks_come_first_or_late() -> None:
    queued, scheduled, attached, started, completed = STORIES["plain"]()
    for order in ([completed, started, queued, attached, scheduled], [scheduled, attached, queued, started, completed]):
        job = job_after(order)
        assert job["instance_lifecycle"] == "spot"
        assert job["instance_id"] == "i-0123456789abcde01"
        assert job["scheduled_at"]


def test_a_higher_scheduling_attempt_replaces_the_lower_and_interruptions_stay() -> None:
    job = job_after(STORIES["interrupted"]())
    assert job["instance_lifecycle"] == "on-demand"
    assert job["instance_id"] == "i-0123456789abcde02"
    assert (job["was_interrupted"], job["interrupted_attempt"], job["scheduling_attempt"]) == (True, 1, 2)


def test_a_job_has_the_machine_that_its_runner_names() -> None:
    """Any idle runner may get the job: the type and price of the machine that was launched for it say nothing."""
    job = {"PK": "1#2", "SK": "v", **job_after(STORIES["stolen"]())}
    view = job_view(job, VIEWING)
    assert (view.instance_id, view.instance_type, view.pool_name, view.usage_in_dollars) == (TAKEN, None, None, None)
    assert (view.was_interrupted, failed_by_interruption(job)) == (True, True)
    assert moments_of(job).terminated is None


def test_a_job_is_not_interrupted_with_a_machine_that_ran_another_job() -> None:
    events = [
        *STORIES["plain"](),
        webhook("completed", 91, started=32, conclusion="failure", runner_name="x i-0badc0de"),
    ]
    lost = [*events, internal(InternalType.INTERRUPTED, 50)]
    for order in (lost, lost[::-1]):
        job = {"PK": "1#2", "SK": "v", **job_after(order)}
        assert job["conclusion"] == "failure"
        assert (job_view(job, VIEWING).was_interrupted, failed_by_interruption(job)) == (False, False)
    own = {"PK": "1#2", "SK": "v", **job_after([*STORIES["plain"](), internal(InternalType.INTERRUPTED, 50)])}
    assert job_view(own, VIEWING).was_interrupted


def test_every_attempts_machine_is_paid_for() -> None:
    """Half an hour on a machine that EC2 reclaimed, ten minutes on the next: at 8 cents an hour."""
    events = [
        webhook("queued", 0),
        internal(InternalType.SCHEDULED, 0, spot_price_usd_per_hour="0.08"),
        internal(InternalType.ATTACHED, 0),
        internal(InternalType.INTERRUPTED, 1800),
        internal(InternalType.RESCHEDULED, 1800, 2, spot_price_usd_per_hour="0.08"),
        internal(InternalType.ATTACHED, 1800, 2),
        webhook("completed", 2400, started=1810, runner_name="i-0123456789abcde02"),
    ]
    for order in permutations(events):
        cost = cost_of(job_after(order), shipped_prices())
        assert cost == Cost(Decimal("0.053333"), is_estimate=True)  # the end of the first machine was not reported
    ended = [*events, internal(InternalType.TERMINATED, 1920), internal(InternalType.TERMINATED, 2400, 2)]
    assert cost_of(job_after(ended[::-1]), shipped_prices()) == Cost(Decimal("0.056000"), is_estimate=False)


def test_an_attempt_without_a_machine_costs_nothing() -> None:
    """EC2 had no capacity."""
    events = [internal(InternalType.SCHEDULED, 0), internal(InternalType.RESCHEDULED, 60, 2), webhook("completed", 660)]
    last = internal(InternalType.RESCHEDULED, 60, 2)
    alone = cost_of(job_after([last, webhook("completed", 660)]), shipped_prices())
    assert alone is not None
    assert cost_of(job_after(events), shipped_prices()) == alone


def test_of_many_attempts_the_latest_are_kept_in_any_order() -> None:
    events = [internal(InternalType.RESCHEDULED, number, number) for number in range(1, EARLIER_MOST + 4)]
    jobs = [job_after(order) for order in permutations(events)]
    assert all(without_arrival(job) == without_arrival(jobs[0]) for job in jobs)
    assert (sorted(jobs[0]["attempts"]), jobs[0]["attempts_cut"]) == (["3", "4"], True)


def test_later_facts_of_a_machine_are_added_and_the_earlier_of_two_times_wins() -> None:
    """A machine boots after its launch; and an event whose response was lost may be sent again with another time."""
    events = [
        internal(InternalType.SCHEDULED, 2),
        internal(InternalType.SCHEDULED, 3),
        internal(InternalType.ATTACHED, 5),
        internal(InternalType.ATTACHED, 4, booted_at=CREATED.plus(20).iso()),
        internal(InternalType.TERMINATED, 80, registered_at=CREATED.plus(30).iso()),
        internal(InternalType.TERMINATED, 81),
    ]
    expected = {
        "scheduled_at": CREATED.plus(2).iso(),
        "attached_ms": CREATED.plus(4).epoch_ms,
        "booted_ms": CREATED.plus(20).epoch_ms,
        "registered_ms": CREATED.plus(30).epoch_ms,
        "terminated_ms": CREATED.plus(80).epoch_ms,
    }
    for order in permutations(events):
        job = job_after(order)
        assert {name: job[name] for name in expected} == expected


@pytest.mark.parametrize("kind", [InternalType.ATTACHED, InternalType.INTERRUPTED, InternalType.TERMINATED])
def test_a_second_machine_in_one_attempt_is_refused(kind: InternalType) -> None:
    """Otherwise the last event would decide the machine of the job, and its cost."""
    job = job_after([internal(InternalType.SCHEDULED, 2), internal(InternalType.ATTACHED, 4)])
    key, other = internal(kind, 5).key, InstanceId("i-0fedcba9876543210")
    second = internal_event(InternalEvent(key, kind, CREATED.plus(5), 1, other), CREATED)
    assert not quick(second)[1].holds(job)
    with pytest.raises(BadRequest, match=r"attempt 1 has machine i-0123456789abcde01, not i-0fedcba9876543210"):
        folded(job, second)
    third = internal_event(InternalEvent(key, kind, CREATED.plus(5), 2, other), CREATED)
    assert folded(job, third)["scheduling_attempt"] == 2


@pytest.mark.parametrize("year", ["1999", "2501", "5139", "9999"])
def test_a_time_that_would_outrank_the_end_of_a_job_is_refused(year: str) -> None:
    """A rank is a phase and a time: one with that many digits would count as a later phase for ever."""
    at = Instant.from_iso(f"{year}-12-31T23:59:59Z")
    key = internal(InternalType.SCHEDULED, 0).key
    with pytest.raises(BadRequest, match="expected a time such as"):
        internal_event(InternalEvent(key, InternalType.SCHEDULED, at), CREATED)
    with pytest.raises(BadRequest, match="booted_at"):
        internal(InternalType.ATTACHED, 1, booted_at=at.iso())


def test_a_job_that_queues_again_after_an_approval_is_queued() -> None:
    first, waits, again = STORIES["gated"]()[:3]
    assert job_after([first])["status"] == "queued"
    assert job_after([first, waits])["status"] == "waiting"
    assert job_after([again, waits, first])["status"] == "queued"
    job = job_after([again, waits, first])
    assert job["queued_ms"] - job["waiting_ms"] == 178_200
    assert job["deployment_id"] == DEPLOYMENT_ID


def test_at_the_same_millisecond_waiting_outranks_queued() -> None:
    """Ids without a time, and payloads with the same second: when in doubt, no machine is launched."""
    queued, waits = webhook("queued", 1), webhook("waiting", 1, number=1)
    assert job_after([queued, waits])["status"] == job_after([waits, queued])["status"] == "waiting"


def test_a_job_without_a_runner_has_no_start() -> None:
    """GitHub sets started_at to the time of creation while a job is still queued."""
    job = job_after([webhook("queued", 0.4), webhook("completed", 9, conclusion="cancelled")])
    assert "started_at" not in job
    assert "runner_id" not in job


def test_an_unannounced_start_is_taken_from_the_completion() -> None:
    job = job_after([webhook("queued", 0.4), webhook("completed", 90, started=31)])
    assert job["started_at"] == "2026-01-15T10:00:31Z"
    assert job["runner_name"].startswith("runs-on--i-")


@pytest.mark.parametrize(
    ("action", "status", "fields", "expected"),
    [
        ("queued", "queued", {}, Status.QUEUED),
        ("queued", None, {}, Status.QUEUED),
        ("queued", "waiting", {}, Status.WAITING),
        ("queued", "pending", {}, Status.WAITING),
        ("queued", "novelty", {}, Status.WAITING),
        ("queued", "in_progress", {}, Status.WAITING),
        ("queued", "in_progress", {"runner_id": 5}, Status.IN_PROGRESS),
        ("queued", "completed", {}, Status.WAITING),
        ("queued", "completed", {"conclusion": "cancelled"}, Status.COMPLETED),
        ("waiting", "waiting", {}, Status.WAITING),
        ("waiting", "queued", {}, Status.WAITING),
        ("in_progress", "queued", {}, Status.IN_PROGRESS),
        ("in_progress", "in_progress", {}, Status.IN_PROGRESS),
        ("in_progress", "completed", {"conclusion": "success"}, Status.COMPLETED),
        ("completed", "in_progress", {}, Status.COMPLETED),
        ("completed", "completed", {"conclusion": "novelty"}, Status.COMPLETED),
    ],
)
def test_where_action_and_status_disagree(
    action: str, status: str | None, fields: dict[str, object], expected: Status
) -> None:
    job = WorkflowJob(id=1, run_id=1, status=status, **fields)  # type: ignore[arg-type]
    assert reported_status(action, job) is expected


@pytest.mark.parametrize("action", ["", "novelty", "\x00", "scheduled"])
def test_an_unknown_action_is_unusable(action: str) -> None:
    with pytest.raises(UnusablePayload):
        webhook(action, 1)


def test_a_null_job_is_unusable() -> None:
    sent = delivery("workflow_job", job_payload("queued") | {"workflow_job": None}, CREATED)
    with pytest.raises(UnusablePayload, match="null"):
        job_event(sent, decoded(sent.body, JobPayload), CREATED)


@pytest.mark.parametrize("name", ["../x", "a/b/c", "a#b/c", "a", "", "a/b\x00", "a/" + "b" * 101, "ü/b"])
def test_an_invalid_repository_is_unusable(name: str) -> None:
    payload = job_payload("queued")
    payload["repository"]["full_name"] = name
    sent = delivery("workflow_job", payload, CREATED)
    with pytest.raises(UnusablePayload):
        job_event(sent, decoded(sent.body, JobPayload), CREATED)


def test_the_same_body_under_another_delivery_id_changes_nothing() -> None:
    """The id is not signed: an attacker could replay a body under a new one."""
    payload = job_payload("waiting", at=CREATED.plus(2), deployment=DEPLOYMENT_ID)
    first = delivery("workflow_job", payload, CREATED.plus(2))
    again = replace(delivery("workflow_job", payload, CREATED.plus(500)), body=first.body)
    facts = [job_event(sent, decoded(sent.body, JobPayload), CREATED) for sent in (first, again)]
    job = job_after([facts[0], webhook("queued", 180, deployment=DEPLOYMENT_ID)])
    assert folded(job, facts[1]) is job


def test_queued_and_waiting_under_one_delivery_id_are_two_events() -> None:
    """The id is not signed: a webhook under the id of another must not hide it."""
    events = [webhook("queued", 1), webhook("waiting", 1)]
    assert events[0].delivery == events[1].delivery
    for order in permutations(events):
        job = job_after(order)
        assert (job["status"], "queued_ms" in job, "waiting_ms" in job) == ("waiting", True, True)


def test_two_hooks_that_were_sent_the_same_event_do_not_hide_each_other() -> None:
    sent = [delivery("workflow_job", job_payload("queued"), CREATED, target=target) for target in ("1", "2")]
    assert sent[0].id == sent[1].id
    assert sent[0].mark != sent[1].mark


@pytest.mark.parametrize("character", ["x", "ü", "\U0001f600", "\x00"])
def test_an_item_stays_under_4_kb_whatever_a_webhook_contains(character: str) -> None:
    text = character * 2000
    payload = job_payload("completed", started=CREATED, deployment=DEPLOYMENT_ID)
    payload["workflow_job"] |= dict.fromkeys(("name", "workflow_name", "head_sha", "runner_name", "conclusion"), text)
    payload["workflow_job"]["labels"] = [text] * 100
    payload["repository"] |= {
        "full_name": "o" * 39 + "/" + "r" * 100,
        "default_branch": text,
        "custom_properties": {f"{number}{text[:100]}": text for number in range(9)},
    }
    sent = delivery("workflow_job", payload, CREATED)
    made: Item = folded(None, job_event(sent, decoded(sent.body, JobPayload), CREATED))
    made = folded(made, webhook("waiting", 1, deployment=DEPLOYMENT_ID))
    made = folded(made, webhook("queued", 2, deployment=DEPLOYMENT_ID))
    long = dict.fromkeys(("pool_name", "fleet_id", "region", "instance_type"), text)
    long |= {"spot_price_usd_per_hour": "9999.999999", "booted_at": CREATED.iso(), "registered_at": CREATED.iso()}
    for number in range(1, 2 * MARKS_MOST):
        machine = InstanceId(f"i-{number:032x}")
        for kind in sorted(set(InternalType) - {InternalType.SCHEDULED}):
            said = InternalEvent(KEY, kind, CREATED.plus(99), number, machine, attributes=long)
            made = folded(made, internal_event(said, CREATED))
    assert 2000 < item_bytes({"PK": "9" * 30, "SK": "v", **made}) < 4096
    assert made["labels"][-1] == "…"
    assert "…" in made["custom_properties"]


def test_a_repositorys_properties_get_the_room_that_the_item_has_left() -> None:
    payload = job_payload("queued")
    payload["repository"]["custom_properties"] = {f"property-{number}": "x" * 100 for number in range(12)}
    sent = delivery("workflow_job", payload, CREATED)
    kept = job_event(sent, decoded(sent.body, JobPayload), CREATED).identity["custom_properties"]
    assert kept == payload["repository"]["custom_properties"]  # 1.3 KB


def any_events() -> st.SearchStrategy[list[JobEvent]]:
    seconds = st.integers(0, 5)
    webhooks = st.builds(
        lambda action, second, number, started, conclusion, deployment, runner: webhook(
            action,
            second,
            number=number,
            started=started,
            conclusion=conclusion,
            deployment=deployment,
            node_id=f"{second} {number}",  # another delivery has another body
            **runner,
        ),
        st.sampled_from(["queued", "waiting", "in_progress", "completed"]),
        seconds,
        st.integers(0, 3),
        st.integers(0, 5),
        st.sampled_from(["success", "failure", "cancelled"]),
        st.sampled_from([None, DEPLOYMENT_ID]),
        st.sampled_from(
            [{}, {}, {"runner_name": "other"}, {"runner_id": 0, "runner_name": "b"}, {"runner_group_id": 9}]
        ),
    )
    internals = st.builds(
        lambda kind, second, attempt, later: internal(kind, second, attempt, **later),
        st.sampled_from(list(InternalType)),
        seconds,
        st.integers(1, 3),
        st.sampled_from([{}, {"booted_at": CREATED.plus(20).iso()}, {"booted_at": CREATED.plus(21).iso()}]),
    )
    return st.lists(webhooks | internals, min_size=1, max_size=7)


@given(any_events(), st.randoms(use_true_random=False))
def test_arbitrary_events_end_in_the_same_job_in_any_order(events: list[JobEvent], chance: object) -> None:
    """Even those that GitHub never sends: two completions, two starts, the same millisecond."""
    shuffled = list(events) + [event for event in events if chance.random() < 0.3]  # type: ignore[attr-defined]
    chance.shuffle(shuffled)  # type: ignore[attr-defined]
    assert without_arrival(job_after(shuffled)) == without_arrival(job_after(events))


@given(any_events())
def test_the_fast_path_equals_the_fold_where_its_condition_holds(events: Sequence[JobEvent]) -> None:
    job: Item | None = None
    for event in events:
        update, condition = quick(event)
        expected = folded(job, event)
        if condition.holds(job):
            assert update.applied(job or {}) == expected
        elif job is not None:
            assert event.mark in job["dl"] or changed(job, expected).applied(job) == expected
        job = expected


@pytest.mark.parametrize("field", ["runner_id", "runner_name", "runner_group_id"])
def test_of_two_runners_that_started_at_the_same_time_one_is_stored_in_any_order(field: str) -> None:
    first = {"runner_id": 0, "runner_name": "z"} if field == "runner_id" else {field: "z" if "name" in field else 9}
    second = {"runner_id": 0} if field == "runner_id" else {}
    start = webhook("in_progress", 31, started=31, **first)
    end = webhook("completed", 90, started=31, **second)
    assert start.runner is not None
    assert end.runner is not None
    assert start.runner.started_at == end.runner.started_at
    for events in ((start, end), (end, start)):
        job = folded(None, events[0])
        update, condition = quick(events[1])
        stored = update.applied(job) if condition.holds(job) else folded(job, events[1])
        assert stored["runner_name"] == max(start.runner, end.runner).runner_name
        assert stored.get("runner_group_id") == max(start.runner, end.runner).runner_group_id


@pytest.mark.parametrize("name", STORIES)
def test_events_in_order_take_the_fast_path(name: str) -> None:
    """No read, no second write: the fast path is the usual one. Only a second machine needs the fold."""
    job: Item | None = None
    for event in STORIES[name]():
        assert quick(event)[1].holds(job) or event.type == InternalType.RESCHEDULED, event.type
        job = folded(job, event)


def test_times_before_1970_or_in_the_far_future_do_not_break_the_fold() -> None:
    for text in ("0001-01-01T00:00:00Z", "9999-12-31T23:59:59Z", "not a time", "2026-01-15T10:00:00"):
        event = webhook("completed", 1, created_at=text, completed_at=text, started_at=text)
        assert folded(None, event)["status"] == "completed"


def test_events_are_ordered_by_the_senders_time_unless_it_is_impossible() -> None:
    sane = webhook("queued", 5)
    assert sane.at == CREATED.plus(5)
    payload = job_payload("queued")
    for at in (Instant.from_iso("1999-01-01T00:00:00Z"), Instant.from_iso("2100-01-01T00:00:00Z")):
        sent = delivery("workflow_job", payload, at)
        assert job_event(sent, decoded(sent.body, JobPayload), CREATED).at == CREATED


def test_an_item_of_an_older_deployment_does_not_go_back() -> None:
    """It has no rank and no marks: its status gives its rank."""
    legacy: Item = {
        "PK": "1#2",
        "SK": "v",
        "status": "completed",
        "conclusion": "success",
        "created_at": "2026-01-15T10:00:00Z",
    }
    late = webhook("in_progress", 31)
    assert not quick(late)[1].holds(legacy)
    assert folded(legacy, late)["status"] == "completed"
    assert folded(legacy, webhook("completed", 40, conclusion="failure"))["conclusion"] == "failure"
