"""EC2's events: checked, stored once, and handled at once."""

from typing import Any

import pytest

from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot.events import take_event
from holdfast.cluster.tick import run_ticks
from holdfast.fleet.ec2_events import Ec2EventKind, parse_ec2_event
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
    parsed = parse_ec2_event(given)
    return "other" if parsed is None else take_event(stage.cluster(), parsed)


def test_an_interruption_is_stored_once_and_handled_in_the_same_invocation() -> None:
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


def test_an_invocation_stops_before_its_time_is_up_and_the_next_one_continues() -> None:
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


def test_an_event_for_a_foreign_or_on_demand_machine_is_ignored() -> None:
    """Otherwise anyone who can put events on the bus could empty the cluster."""
    stage = Stage()
    stage.tick()
    on_demand = stage.alive[0]
    assert handle(stage, event(on_demand.id)) == "not ours"
    assert handle(stage, event("i-0123456789abcdef0")) == "not ours"
    assert stage.store.get(STATE, Key("cluster#spots")) is None


@pytest.mark.parametrize(
    "tags", [{}, {"Role": "worker"}, {"Cluster": "k3s"}, {"Cluster": "another", "Role": "worker"}], ids=str
)
def test_an_interruption_of_a_stranger_s_spot_machine_buys_nothing(tags: dict[str, str]) -> None:
    """Every event of the account comes to us, and other clusters in it use spot as well."""
    stage = Stage()
    stranger = stage.world.add_worker("eu-west-1a", tags, market="spot")
    stage.clock.sleep(30)
    stage.tick()
    stage.world.ec2.interrupt(stranger.id)
    assert handle(stage, event(stranger.id)) == "not ours"
    assert not stage.open_notices
    for _ in range(5):
        stage.tick()
    assert len(stage.alive) == 2


@pytest.mark.parametrize(("kind", "believed_seconds"), [(INTERRUPTION, 900), (REBALANCE, 3600)])
def test_an_event_that_is_too_old_launches_no_replacement(kind: str, believed_seconds: int) -> None:
    """It waited in a queue, or was replayed: the machine is still there, so EC2 did not take it."""
    stage = Stage(policy=Policy(rebalance=Rebalance.REPLACE))
    machine = spot_worker(stage)
    old = stage.clock.now().plus(-believed_seconds)
    assert handle(stage, event(machine.id, kind, old.iso())) == "too old"
    assert handle(stage, event(machine.id, kind, "1000-01-01T00:00:00Z")) == "too old"
    assert stage.store.get(STATE, Key("cluster#spots")) is None
    assert handle(stage, event(machine.id, kind, old.plus(1).iso())) == "noted"


@pytest.mark.parametrize(("ahead_seconds", "is_believed"), [(0, True), (1800, True), (3600, True), (3601, False)])
def test_the_time_of_an_event_is_accepted_when_our_clock_may_be_behind(ahead_seconds: int, is_believed: bool) -> None:
    """Stored with the time of a clock that is behind, it would seem old to all others, and its node be uncordoned."""
    stage = Stage()
    machine = spot_worker(stage)
    now = stage.clock.now()
    at = now.plus(ahead_seconds)
    assert handle(stage, event(machine.id, INTERRUPTION, at.iso())) == "noted"
    notice = stage.store.get(STATE, Key(f"spot#{machine.id}")) or {}
    assert notice["noticeEpoch"] == (at if is_believed else now).epoch_seconds


def test_an_overlong_event_time_is_shortened_in_the_message() -> None:
    with pytest.raises(BadRequest) as refused:
        parse_ec2_event(event("i-0123456789abcdef0", time="1" * 100_000))
    assert len(str(refused.value)) < 250


def test_a_hint_can_be_ignored_by_policy() -> None:
    stage = Stage(policy=Policy(rebalance=Rebalance.IGNORE))
    machine = spot_worker(stage)
    assert handle(stage, event(machine.id, REBALANCE)) == "ignored"
    assert handle(stage, event(machine.id)) == "noted"


def test_other_ec2_events_are_ignored() -> None:
    assert parse_ec2_event(event("i-0123456789abcdef0", "EC2 Instance State-change Notification")) is None
    parsed = parse_ec2_event(event("i-0123456789abcdef0", REBALANCE))
    assert parsed is not None
    assert parsed.kind is Ec2EventKind.REBALANCE


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
def test_a_malformed_event_is_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(BadRequest):
        parse_ec2_event(bad)
