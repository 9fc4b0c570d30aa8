"""Notices of one machine follow each other, and who handled the first may be late: what model/Opening.tla checks."""

from collections.abc import Callable

import pytest

from holdfast.cluster.hands import NotDone
from holdfast.cluster.memory import spots_key
from holdfast.cluster.seen import SPOT_ANNOTATION
from holdfast.cluster.spot import Replacement, SpotKind, SpotPhase, read_notice
from holdfast.cluster.spot_act import SpotHand, note, notice_key
from holdfast.cluster.steps import CloseNotice, CordonInterrupted, EnterSpotPhase, OpenInterrupted
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node
from holdfast.ports.store import set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.gate import Gate, Killed, Moment, PortCall
from tests.simulation.harness import Stage


class Case:
    """A machine with a hint, whose replacement is in service; several processes that handle it."""

    def __init__(self) -> None:
        self.stage = Stage(workers=3)
        self.stage.tick()
        self.victim: InstanceId = self.stage.alive[0].id
        self.told()

    def told(self) -> None:
        """EC2 gives notice of it; that it has a replacement is settled by hand."""
        stage = self.stage
        assert note(stage.store, stage.name, self.victim, SpotKind.REBALANCE, stage.clock.now())
        stage.store.update(STATE, notice_key(self.victim), set_all({"replacement": str(Replacement.ACCEPTED)}))

    def hand(self, gate: Gate | None = None) -> SpotHand:
        """A process, with what it sees now."""
        cluster = self.stage.cluster(gate)
        return SpotHand(cluster.hands, self.stage.cluster().look()[0])

    def cordon(self, hand: SpotHand | None = None) -> None:
        (hand or self.hand()).carry_out(CordonInterrupted(instance=self.victim, because="test"))

    def open(self, hand: SpotHand | None = None) -> None:
        (hand or self.hand()).carry_out(OpenInterrupted(instance=self.victim, because="test"))

    def close(self) -> None:
        self.hand().carry_out(CloseNotice(instance=self.victim, because="test"))

    @property
    def node(self) -> Node:
        found = self.stage.world.k3s.node(self.victim)
        assert found is not None
        return found

    @property
    def phase(self) -> SpotPhase:
        item = self.stage.store.get(STATE, notice_key(self.victim))
        assert item is not None
        return read_notice(item).phase


def once(port: str, method: str, moment: Moment, happens: Callable[[], None]) -> Gate:
    """While this call is under way, something happens; once."""
    waiting = [happens]

    def hook(call: PortCall, at: Moment) -> None:
        if (call.port, call.method, at) == (port, method, moment) and waiting:
            waiting.pop()()

    return Gate(hook)


def test_who_is_late_to_open_a_node_leaves_what_the_next_notice_closed() -> None:
    """Else pods would come to it while the next one takes it for empty, and terminates it."""
    case = Case()
    case.cordon()

    def meanwhile() -> None:
        case.open()
        assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, False)
        case.stage.clock.sleep(400)
        case.told()
        case.cordon()
        case.hand().carry_out(EnterSpotPhase(instance=case.victim, phase=SpotPhase.DRAINED, because="test"))

    # Stored is that it opens; before it reads the node, it stops for minutes.
    with pytest.raises(WriteConflict):
        case.open(case.hand(once("kube", "node", Moment.BEFORE, meanwhile)))
    assert case.phase is SpotPhase.DRAINED
    assert case.node.is_unschedulable


def test_who_is_late_to_close_a_node_does_not_close_it_for_a_notice_that_is_over() -> None:
    case = Case()
    late = case.hand(once("kube", "node", Moment.AFTER, case.close))
    with pytest.raises(NotDone, match="is over"):
        case.cordon(late)
    assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, False)


def test_who_is_late_does_not_take_the_next_notice_for_its_own() -> None:
    """The phase alone is the same; the notice is another one."""
    case = Case()

    def meanwhile() -> None:
        case.close()
        case.stage.clock.sleep(400)
        case.told()

    late = case.hand(once("store", "update", Moment.BEFORE, meanwhile))
    case.cordon(late)
    assert case.phase == "NOTICED", "its node is closed for the one before, and not for this"
    case.cordon()
    assert case.phase == "CORDONED"


def test_a_cordon_of_somebody_who_was_late_and_died_is_undone() -> None:
    """The notice is over; nobody else knows of the cordon."""
    case = Case()
    dies = once("kube", "change_node", Moment.BEFORE, case.close)

    def hook(call: PortCall, moment: Moment) -> None:
        dies.hook(call, moment)
        if (call.port, call.method, moment) == ("kube", "change_node", Moment.AFTER):
            raise Killed

    with pytest.raises(Killed):
        case.cordon(case.hand(Gate(hook)))
    assert (case.phase, case.node.is_unschedulable) == (SpotPhase.CLOSED, True)
    case.stage.tick_until(lambda: not case.node.is_unschedulable, most=70)
    assert SPOT_ANNOTATION not in case.node.annotations
    assert case.victim in {machine.id for machine in case.stage.alive}


def test_the_sweeper_does_not_open_what_a_new_notice_closes_meanwhile() -> None:
    case = Case()
    case.cordon()
    mark = {"phase": str(SpotPhase.CLOSED)}  # as the test above leaves it
    case.stage.store.update(STATE, notice_key(case.victim), set_all(mark))
    case.stage.store.delete(STATE, spots_key(case.stage.name))
    case.stage.clock.sleep(4000)

    def meanwhile() -> None:
        case.told()
        case.cordon()

    ticked = case.stage.tick(gate=once("store", "get", Moment.AFTER, meanwhile))
    assert ticked is not None
    assert case.node.is_unschedulable
    assert case.phase is SpotPhase.CORDONED
