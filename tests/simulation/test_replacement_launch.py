"""A replacement launches by the same rules as a scale-up: its pool's back-off, and an unreachable EC2."""

from holdfast.cluster.spot.notice import Replacement, SpotKind
from holdfast.fleet.capacity_memory import capacity_key
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError
from holdfast.ports.store import set_all
from holdfast.ports.store.tables import STATE
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.spot_case import SpotCase


def pools_of(case: SpotCase) -> set[str]:
    item = case.stage.store.get(STATE, capacity_key(case.stage.name)) or {}
    return {name for name in item if "|" in name}


def remember_every_pool(case: SpotCase, until: Instant) -> None:
    zones = {machine.zone for machine in case.stage.alive}
    failure = {"failures": 3, "untilEpoch": until.epoch_seconds}
    pools = [f"t3.medium|{zone}|{market}" for zone in zones for market in ("spot", "on-demand")]
    case.stage.store.update(STATE, capacity_key(case.stage.name), set_all(dict.fromkeys(pools, failure)))


def test_a_replacement_that_launches_clears_the_back_off_of_its_pool() -> None:
    """Otherwise its pool's next failure would count as the fourth in a row."""
    case = SpotCase()
    remember_every_pool(case, case.stage.clock.now().plus(-1))
    before = pools_of(case)
    case.receive_notice(SpotKind.INTERRUPTION)
    case.stage.tick()
    assert case.notice.replacement is Replacement.LAUNCHED
    assert case.notice.slot is not None
    assert before - pools_of(case) == {case.notice.slot.pool}


def test_an_unreachable_ec2_holds_back_the_steps_after_a_replacement() -> None:
    """Two machines leave: the second replacement is not tried while EC2 throttles the first."""
    case = SpotCase()
    calls: list[str] = []

    def throttled(call: PortCall, point: CallPoint) -> None:
        if (call.method, point) == ("launch", CallPoint.BEFORE):
            calls.append(call.method)
            raise MachineError("RequestLimitExceeded", "slow down")

    other = next(machine.id for machine in case.stage.alive if machine.id != case.victim)
    for victim in (case.victim, other):
        case.victim = victim
        case.receive_notice(SpotKind.INTERRUPTION)
    case.stage.tick(gate=CallGate(throttled))
    assert calls == ["launch"]
