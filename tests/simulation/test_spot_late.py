"""Successive notices for one machine, and a late handler of the first: what model/Opening.tla checks."""

from collections.abc import Callable

import pytest

from holdfast.cluster.memory import spots_key
from holdfast.cluster.seen import SPOT_ANNOTATION
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotPhase
from holdfast.cluster.steps import CloseNotice, CordonInterrupted, EnterSpotPhase, OpenInterrupted
from holdfast.control.steps import NotDone
from holdfast.kernel.errors import WriteConflict
from holdfast.ports.store.tables import STATE
from holdfast.simulator.proof.processes import Killed
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.spot_case import SpotCase


def hinted(case: SpotCase | None = None) -> SpotCase:
    """EC2 gives a hint about the machine; its replacement is stored directly."""
    case = case or SpotCase()
    assert case.receive_notice(SpotKind.REBALANCE)
    case.overwrite(replacement=str(Replacement.ACCEPTED))
    return case


def once(port: str, method: str, moment: CallPoint, happens: Callable[[], None]) -> CallGate:
    """Something happens once, while this call is under way."""
    waiting = [happens]

    def hook(call: PortCall, at: CallPoint) -> None:
        if (call.port, call.method, at) == (port, method, moment) and waiting:
            waiting.pop()()

    return CallGate(hook)


def test_a_late_uncordon_leaves_the_cordon_of_the_next_notice() -> None:
    """Otherwise pods would be scheduled to it while the next notice's handler takes it for empty and terminates it."""
    case = hinted()
    case.carry_out(CordonInterrupted)

    def meanwhile() -> None:
        case.carry_out(OpenInterrupted)
        assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, False)
        case.stage.clock.sleep(400)
        hinted(case)
        case.carry_out(CordonInterrupted)
        case.carry_out(EnterSpotPhase, phase=SpotPhase.DRAINED)

    # It stores that it will uncordon the node, then stops for minutes before it reads the node.
    with pytest.raises(WriteConflict):
        case.carry_out(OpenInterrupted, case.handler(once("kube", "node", CallPoint.BEFORE, meanwhile)))
    assert case.phase is SpotPhase.DRAINED
    assert case.node.is_unschedulable


def test_a_late_cordon_for_a_closed_notice_does_not_happen() -> None:
    case = hinted()
    late = case.handler(once("kube", "node", CallPoint.AFTER, lambda: case.carry_out(CloseNotice)))
    with pytest.raises(NotDone, match="has changed"):
        case.carry_out(CordonInterrupted, late)
    assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, False)


def test_a_late_handler_does_not_advance_the_next_notice() -> None:
    """Only the phase is the same; it is another notice."""
    case = hinted()

    def meanwhile() -> None:
        case.carry_out(CloseNotice)
        case.stage.clock.sleep(400)
        hinted(case)

    late = case.handler(once("store", "update", CallPoint.BEFORE, meanwhile))
    case.carry_out(CordonInterrupted, late)
    assert case.phase == "NOTICED", "its node is cordoned for the previous notice, not for this one"
    case.carry_out(CordonInterrupted)
    assert case.phase == "CORDONED"


def test_the_cordon_of_a_late_process_that_died_is_undone() -> None:
    """The notice is closed; no other process knows of the cordon."""
    case = hinted()
    dies = once("kube", "change_node", CallPoint.BEFORE, lambda: case.carry_out(CloseNotice))

    def hook(call: PortCall, moment: CallPoint) -> None:
        dies.hook(call, moment)
        if (call.port, call.method, moment) == ("kube", "change_node", CallPoint.AFTER):
            raise Killed

    with pytest.raises(Killed):
        case.carry_out(CordonInterrupted, case.handler(CallGate(hook)))
    assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, True)
    case.stage.tick_until(lambda: not case.node.is_unschedulable, most=70)
    assert SPOT_ANNOTATION not in case.node.annotations
    assert case.victim in {machine.id for machine in case.stage.alive}


def test_the_sweeper_does_not_uncordon_a_node_that_a_new_notice_cordons_meanwhile() -> None:
    case = hinted()
    case.carry_out(CordonInterrupted)
    case.overwrite(phase=str(SpotPhase.CLOSED))  # as the test above leaves it
    case.stage.store.delete(STATE, spots_key(case.stage.name))
    case.stage.clock.sleep(4000)

    def meanwhile() -> None:
        hinted(case)
        case.carry_out(CordonInterrupted)

    ticked = case.stage.tick(gate=once("store", "get", CallPoint.AFTER, meanwhile))
    assert ticked is not None
    assert case.node.is_unschedulable
    assert case.phase is SpotPhase.CORDONED
