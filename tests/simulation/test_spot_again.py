"""A machine that is given notice of again: a graver notice, the same one, and what others do to its node meanwhile."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.hands import NotDone
from holdfast.cluster.holder import Holder
from holdfast.cluster.lease import acquire
from holdfast.cluster.ledger import Ledger
from holdfast.cluster.nodes import NodeHand
from holdfast.cluster.spot import Replacement, SpotKind, SpotPhase
from holdfast.cluster.spot_act import note
from holdfast.cluster.steps import (
    CloseNotice,
    CordonInterrupted,
    EnterSpotPhase,
    OpenInterrupted,
    OpenLeftMarked,
    TerminateInterrupted,
)
from holdfast.cluster.sweep import is_left_marked
from holdfast.cluster.sweep_act import SweepHand
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import ActionId
from holdfast.ports.kube import NodeChange
from holdfast.simulator.gate import Gate, Moment, PortCall
from tests.simulation.spot_case import SpotCase


def at_store_call(number: int, case: SpotCase, seconds: float) -> Gate:
    """Before the store's call of that number an interruption is told."""
    calls = [number]

    def hook(call: PortCall, moment: Moment) -> None:
        if call.port == "store" and moment is Moment.BEFORE:
            calls[0] -= 1
            if calls[0] == 0:
                case.told(SpotKind.INTERRUPTION, seconds)

    return Gate(hook)


@pytest.mark.parametrize("kind", [SpotKind.NOT_READY, SpotKind.REBALANCE])
def test_an_interruption_takes_the_place_of_a_milder_notice_that_has_closed_the_node(kind: SpotKind) -> None:
    """The milder one would be given up, and the node opened, while EC2 takes the machine."""
    case = SpotCase()
    assert case.told(kind)
    case.stored(replacement=str(Replacement.ACCEPTED))
    case.does(CordonInterrupted)
    assert case.told(SpotKind.INTERRUPTION)
    case.stage.tick()
    assert (case.notice.kind, case.notice.replacement) == (SpotKind.INTERRUPTION, Replacement.ACCEPTED)
    assert case.notice.phase in (SpotPhase.CORDONED, SpotPhase.DRAINED, SpotPhase.EXPIRED)
    assert case.node.is_unschedulable


@pytest.mark.parametrize("number", range(1, 4))
def test_an_interruption_while_a_hint_is_closed_is_not_forgotten(number: int) -> None:
    """Whenever it comes: what is not closed is among the open ones, where every tick looks."""
    case = SpotCase()
    assert case.told(SpotKind.REBALANCE)
    hand = case.hand(at_store_call(number, case, 30))
    try:
        hand.carry_out(CloseNotice(instance=case.victim, because="nothing came of the hint"))
    except HoldfastError:
        assert case.notice.kind is SpotKind.INTERRUPTION, "only its own doing keeps it from being closed"
    assert case.is_listed == (case.notice.phase is not SpotPhase.CLOSED)


@pytest.mark.parametrize("number", range(1, 4))
def test_an_interruption_beside_a_hint_that_comes_again_is_not_forgotten(number: int) -> None:
    case = SpotCase()
    assert case.told(SpotKind.REBALANCE)
    case.does(CloseNotice)
    store = case.stage.cluster(at_store_call(number, case, 60)).hands.store
    assert not note(store, case.stage.name, case.victim, SpotKind.REBALANCE, case.stage.clock.now().plus(60))
    assert case.is_listed == (case.notice.phase is not SpotPhase.CLOSED)


def test_the_same_event_again_is_another_notice() -> None:
    """Else who was late with the first would be believed about the second: here, that the machine is empty."""
    case = SpotCase()
    assert case.told(SpotKind.INTERRUPTION)
    case.stored(replacement=str(Replacement.ACCEPTED))
    case.does(CordonInterrupted)
    late, first = case.hand(), case.notice
    case.does(EnterSpotPhase, phase=SpotPhase.EXPIRED)
    case.does(OpenInterrupted)
    assert case.told(SpotKind.INTERRUPTION), "it was closed because the machine stays"
    assert case.notice.mark != first.mark
    case.does(CordonInterrupted)
    late.carry_out(EnterSpotPhase(instance=case.victim, phase=SpotPhase.DRAINED, because="test"))
    assert case.notice.phase is SpotPhase.CORDONED


def test_a_cordon_of_somebody_elses_outlives_a_scale_down_and_a_notice() -> None:
    case = SpotCase()
    kube = case.stage.world.k3s
    kube.change_node(case.node, NodeChange(unschedulable=True))
    nodes = NodeHand(kube, 50)
    nodes.close(case.node, ActionId("down-1"))
    assert case.told(SpotKind.INTERRUPTION)
    case.stored(replacement=str(Replacement.ACCEPTED))
    case.does(CordonInterrupted)
    nodes.open_again(case.node)
    case.does(EnterSpotPhase, phase=SpotPhase.EXPIRED)
    case.does(OpenInterrupted)
    assert case.node.is_unschedulable


def test_the_node_of_a_machine_that_was_just_terminated_is_not_opened_though_its_notice_is_old() -> None:
    """EC2's list may show it as running for a while."""
    case = SpotCase()
    assert case.told(SpotKind.REBALANCE, -3700)
    case.stored(replacement=str(Replacement.ACCEPTED))
    case.does(CordonInterrupted)
    before = case.stage.cluster().look()[0]
    case.does(EnterSpotPhase, phase=SpotPhase.DRAINED)
    case.does(TerminateInterrupted)
    case.does(CloseNotice)
    cluster = case.stage.cluster()
    seen = replace(cluster.look()[0], machines=before.machines)
    worker = seen.worker(case.victim)
    assert worker is not None
    assert is_left_marked(seen, worker)
    ledger = Ledger(cluster.hands.store, seen.cluster)
    lease, _ = acquire(ledger, "sweeper", seen.now)
    sweeper = SweepHand(Holder(cluster.hands, ledger, lease, seen, ActionId("sweep")))
    with pytest.raises(NotDone):
        sweeper.open_left_marked(OpenLeftMarked(instance=case.victim, because="test"))
    assert case.node.is_unschedulable
