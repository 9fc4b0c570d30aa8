"""Notices of one machine follow each other, and who handled the first may be late: what model/Opening.tla checks."""

from collections.abc import Callable

import pytest

from holdfast.cluster.hands import NotDone
from holdfast.cluster.memory import spots_key
from holdfast.cluster.seen import SPOT_ANNOTATION
from holdfast.cluster.spot import Replacement, SpotKind, SpotPhase
from holdfast.cluster.steps import CloseNotice, CordonInterrupted, EnterSpotPhase, OpenInterrupted
from holdfast.kernel.errors import WriteConflict
from holdfast.ports.store.tables import STATE
from holdfast.simulator.gate import Gate, Killed, Moment, PortCall
from tests.simulation.spot_case import SpotCase


def hinted(case: SpotCase | None = None) -> SpotCase:
    """EC2 gives a hint about the machine; that it has a replacement is settled by hand."""
    case = case or SpotCase()
    assert case.told(SpotKind.REBALANCE)
    case.stored(replacement=str(Replacement.ACCEPTED))
    return case


def once(port: str, method: str, moment: Moment, happens: Callable[[], None]) -> Gate:
    """While this call is under way, something happens; once."""
    waiting = [happens]

    def hook(call: PortCall, at: Moment) -> None:
        if (call.port, call.method, at) == (port, method, moment) and waiting:
            waiting.pop()()

    return Gate(hook)


def test_who_is_late_to_open_a_node_leaves_what_the_next_notice_closed() -> None:
    """Else pods would come to it while the next one takes it for empty, and terminates it."""
    case = hinted()
    case.does(CordonInterrupted)

    def meanwhile() -> None:
        case.does(OpenInterrupted)
        assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, False)
        case.stage.clock.sleep(400)
        hinted(case)
        case.does(CordonInterrupted)
        case.does(EnterSpotPhase, phase=SpotPhase.DRAINED)

    # Stored is that it opens; before it reads the node, it stops for minutes.
    with pytest.raises(WriteConflict):
        case.does(OpenInterrupted, case.hand(once("kube", "node", Moment.BEFORE, meanwhile)))
    assert case.phase is SpotPhase.DRAINED
    assert case.node.is_unschedulable


def test_who_is_late_to_close_a_node_does_not_close_it_for_a_notice_that_is_over() -> None:
    case = hinted()
    late = case.hand(once("kube", "node", Moment.AFTER, lambda: case.does(CloseNotice)))
    with pytest.raises(NotDone, match="is over"):
        case.does(CordonInterrupted, late)
    assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, False)


def test_who_is_late_does_not_take_the_next_notice_for_its_own() -> None:
    """The phase alone is the same; the notice is another one."""
    case = hinted()

    def meanwhile() -> None:
        case.does(CloseNotice)
        case.stage.clock.sleep(400)
        hinted(case)

    late = case.hand(once("store", "update", Moment.BEFORE, meanwhile))
    case.does(CordonInterrupted, late)
    assert case.phase == "NOTICED", "its node is closed for the one before, and not for this"
    case.does(CordonInterrupted)
    assert case.phase == "CORDONED"


def test_a_cordon_of_somebody_who_was_late_and_died_is_undone() -> None:
    """The notice is over; nobody else knows of the cordon."""
    case = hinted()
    dies = once("kube", "change_node", Moment.BEFORE, lambda: case.does(CloseNotice))

    def hook(call: PortCall, moment: Moment) -> None:
        dies.hook(call, moment)
        if (call.port, call.method, moment) == ("kube", "change_node", Moment.AFTER):
            raise Killed

    with pytest.raises(Killed):
        case.does(CordonInterrupted, case.hand(Gate(hook)))
    assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, True)
    case.stage.tick_until(lambda: not case.node.is_unschedulable, most=70)
    assert SPOT_ANNOTATION not in case.node.annotations
    assert case.victim in {machine.id for machine in case.stage.alive}


def test_the_sweeper_does_not_open_what_a_new_notice_closes_meanwhile() -> None:
    case = hinted()
    case.does(CordonInterrupted)
    case.stored(phase=str(SpotPhase.CLOSED))  # as the test above leaves it
    case.stage.store.delete(STATE, spots_key(case.stage.name))
    case.stage.clock.sleep(4000)

    def meanwhile() -> None:
        hinted(case)
        case.does(CordonInterrupted)

    ticked = case.stage.tick(gate=once("store", "get", Moment.AFTER, meanwhile))
    assert ticked is not None
    assert case.node.is_unschedulable
    assert case.phase is SpotPhase.CORDONED
