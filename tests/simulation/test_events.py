"""EC2's events: checked, noted once, and acted on at once."""

from typing import Any

import pytest

from holdfast.cluster.events import spot_event, take_event
from holdfast.cluster.loop import run_ticks
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot import SpotKind
from holdfast.kernel.errors import BadRequest
from holdfast.ports.machines import Machine
from holdfast.ports.store import Key
from holdfast.ports.store.tables import STATE
from tests.simulation.harness import TAGS, Stage

INTERRUPTION = "EC2 Spot Instance Interruption Warning"
REBALANCE = "EC2 Instance Rebalance Recommendation"


def event(machine: str, kind: str = INTERRUPTION, time: str = "2026-01-15T08:05:00Z", **other: Any) -> dict[str, Any]:
    detail = {"instance-id": machine, "instance-action": "terminate"}
    return {"source": "aws.ec2", "detail-type": kind, "time": time, "detail": detail, **other}


def spot_worker(stage: Stage) -> Machine:
    machine = stage.world.add_worker("eu-west-1a", TAGS, market="spot")
    stage.clock.sleep(30)
    return machine


def handle(stage: Stage, given: dict[str, Any]) -> str:
    told = spot_event(given)
    return "other" if told is None else take_event(stage.cluster(), told)


def test_an_interruption_is_noted_once_and_dealt_with_in_the_same_invocation() -> None:
    stage = Stage()
    machine = spot_worker(stage)
    stage.world.ec2.interrupt(machine.id)
    assert handle(stage, event(machine.id)) == "noted"
    assert handle(stage, event(machine.id)) == "known"
    ran = run_ticks(stage.cluster(), "event", 600)
    assert ran.ticks > 5
    assert ran.last is not None
    assert not ran.last.seen.notices
    assert machine.id not in {one.id for one in stage.alive}
    assert len(stage.alive) == 3


def test_an_invocation_ends_before_its_time_is_over_and_another_carries_on() -> None:
    stage = Stage()
    machine = spot_worker(stage)
    stage.world.ec2.interrupt(machine.id)
    handle(stage, event(machine.id))
    began = stage.clock.monotonic_seconds()
    ran = run_ticks(stage.cluster(), "event", 60)
    assert stage.clock.monotonic_seconds() - began <= 60
    assert ran.last is not None
    assert ran.last.seen.notices
    stage.tick_until(lambda: not (stage.store.get(STATE, Key("cluster#spots")) or {}).get("open"))
    assert len(stage.alive) == 3


def test_an_event_of_another_machine_or_of_one_that_is_not_spot_is_not_taken() -> None:
    """Anybody who can put events on the bus could otherwise empty the cluster."""
    stage = Stage()
    stage.tick()
    on_demand = stage.alive[0]
    assert handle(stage, event(on_demand.id)) == "not ours"
    assert handle(stage, event("i-0123456789abcdef0")) == "not ours"
    assert stage.store.get(STATE, Key("cluster#spots")) is None


@pytest.mark.parametrize(("kind", "believed_seconds"), [(INTERRUPTION, 900), (REBALANCE, 3600)])
def test_an_event_as_old_as_a_notice_that_is_given_up_buys_no_machine(kind: str, believed_seconds: int) -> None:
    """From a queue that nobody read, or replayed: the machine is still there, so nobody took it."""
    stage = Stage(policy=Policy(rebalance=Rebalance.REPLACE))
    machine = spot_worker(stage)
    old = stage.clock.now().plus(-believed_seconds)
    assert handle(stage, event(machine.id, kind, old.iso())) == "too old"
    assert handle(stage, event(machine.id, kind, "1000-01-01T00:00:00Z")) == "too old"
    assert stage.store.get(STATE, Key("cluster#spots")) is None
    assert handle(stage, event(machine.id, kind, old.plus(1).iso())) == "noted"


@pytest.mark.parametrize(("ahead_seconds", "is_believed"), [(0, True), (1800, True), (3600, True), (3601, False)])
def test_the_time_of_an_event_is_believed_where_our_clock_may_be_behind(ahead_seconds: int, is_believed: bool) -> None:
    """Noted with the time of a clock that is behind, it would be long ago for all others, and its node be opened."""
    stage = Stage()
    machine = spot_worker(stage)
    now = stage.clock.now()
    at = now.plus(ahead_seconds)
    assert handle(stage, event(machine.id, INTERRUPTION, at.iso())) == "noted"
    notice = stage.store.get(STATE, Key(f"spot#{machine.id}")) or {}
    assert notice["noticeEpoch"] == (at if is_believed else now).epoch_seconds


def test_a_time_of_any_length_is_told_in_short() -> None:
    with pytest.raises(BadRequest) as refused:
        spot_event(event("i-0123456789abcdef0", time="1" * 100_000))
    assert len(str(refused.value)) < 250


def test_a_hint_can_be_ignored_by_policy() -> None:
    stage = Stage(policy=Policy(rebalance=Rebalance.IGNORE))
    machine = spot_worker(stage)
    assert handle(stage, event(machine.id, REBALANCE)) == "ignored"
    assert handle(stage, event(machine.id)) == "noted"


def test_other_events_of_ec2_are_none_of_our_business() -> None:
    assert spot_event(event("i-0123456789abcdef0", "EC2 Instance State-change Notification")) is None
    told = spot_event(event("i-0123456789abcdef0", REBALANCE))
    assert told is not None
    assert told.kind is SpotKind.REBALANCE


@pytest.mark.parametrize(
    "bad",
    [
        {},
        {"source": "aws.s3", "detail": {}},
        event("i-0123456789abcdef0", source="elsewhere"),
        event("../../etc/passwd"),
        event("i-0123456789abcdef0\n"),
        event("I-0123456789ABCDEF0"),
        event("i-0123456789abcdef0", time="yesterday"),
        {**event("i-0123456789abcdef0"), "detail": "text"},
        {**event("i-0123456789abcdef0"), "detail": {"instance-id": 7}},
    ],
    ids=["empty", "another service", "another source", "a path", "a newline", "capitals", "no time", "text", "number"],
)
def test_what_is_no_event_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        spot_event(bad)
