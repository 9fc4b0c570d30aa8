"""A process whose clock is wrong by minutes begins nothing; one that is off by seconds works."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.spot.events import take_event
from holdfast.cluster.tick import Cluster, tick
from holdfast.control.clock_check import OFF_SECONDS_MOST, WrongClock, check_clock
from holdfast.fleet.ec2_events import parse_ec2_event
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Key
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.timeline import Timeline
from tests.simulation.harness import TAGS, Stage


class OffClock:
    """A clock that differs from the world's."""

    def __init__(self, right: Timeline, ahead_seconds: float) -> None:
        self._right = right
        self._ahead_seconds = ahead_seconds

    def now(self) -> Instant:
        return self._right.now().plus(self._ahead_seconds)

    def monotonic_seconds(self) -> float:
        return self._right.monotonic_seconds()

    def sleep(self, seconds: float) -> None:
        self._right.sleep(seconds)


def off(stage: Stage, seconds: float) -> Cluster:
    cluster = stage.cluster()
    return replace(cluster, writes=replace(cluster.writes, clock=OffClock(stage.clock, seconds)))


def interrupted(stage: Stage, at: Instant) -> dict[str, object]:
    machine = stage.world.add_worker("eu-west-1a", TAGS, market="spot")
    stage.clock.sleep(30)
    stage.world.ec2.interrupt(machine.id)
    kind = "EC2 Spot Instance Interruption Warning"
    return {"source": "aws.ec2", "detail-type": kind, "time": at.iso(), "detail": {"instance-id": machine.id}}


@pytest.mark.parametrize("seconds", [-1800, -61, 61, 1800])
def test_a_wrong_clock_takes_no_lease_and_changes_nothing(seconds: float) -> None:
    stage = Stage(workers=0)  # below the minimum, so a machine is launched
    stage.clock.sleep(60)
    before = stage.store.get(STATE, Key(stage.name))
    way = "ahead of" if seconds > 0 else "behind"
    with pytest.raises(WrongClock, match=rf"{abs(seconds)} s {way} EC2's; nothing is begun until it is set"):
        tick(off(stage, seconds), "wrong")
    assert stage.store.get(STATE, Key(stage.name)) == before
    assert not stage.world.ec2.launches
    tick(off(stage, 0), "right")
    assert stage.world.ec2.launches


@pytest.mark.parametrize("seconds", [-OFF_SECONDS_MOST, -5, 5, OFF_SECONDS_MOST])
def test_a_clock_that_is_off_by_seconds_is_used(seconds: float) -> None:
    stage = Stage(workers=0)
    stage.clock.sleep(60)
    tick(off(stage, seconds), "nearly right")
    assert stage.world.ec2.launches


def test_without_ec2s_time_nothing_is_known_about_the_clock() -> None:
    stage = Stage(workers=0)
    stage.world.ec2.is_dated = False
    stage.clock.sleep(60)
    tick(off(stage, 1800), "unknown")
    assert stage.world.ec2.launches


@pytest.mark.parametrize("server", ["DynamoDB", "GitHub"])
def test_without_ec2s_time_another_servers_decides(server: str) -> None:
    stage = Stage(workers=0)
    stage.world.ec2.is_dated = False
    stage.clock.sleep(60)
    cluster = off(stage, 1800)
    cluster = replace(cluster, reads=replace(cluster.reads, other_times=lambda: {server: stage.clock.now()}))
    with pytest.raises(WrongClock, match=f"1800 s ahead of {server}'s"):
        tick(cluster, "wrong")
    assert not stage.world.ec2.launches


@pytest.mark.parametrize("seconds", [-1800, 1800])
def test_a_wrong_clock_stores_a_fresh_interruption_for_others(seconds: float) -> None:
    """By a clock that is ahead, the event would be too old, and dropped."""
    stage = Stage()
    event = parse_ec2_event(interrupted(stage, stage.clock.now()))
    assert event is not None
    assert take_event(off(stage, seconds), event) == "noted"
    with pytest.raises(WrongClock):
        tick(off(stage, seconds), "wrong")
    stage.tick_until(lambda: not (stage.store.get(STATE, Key("cluster#spots")) or {}).get("open"))


def test_a_server_without_a_time_proves_nothing() -> None:
    check_clock(Instant(0), None, "EC2")
