"""A second notice for one machine: a more serious one, the same one, and what others do to its node meanwhile."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.nodes import FencedNodes
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotPhase, store_notice
from holdfast.cluster.state import cluster_ledger
from holdfast.cluster.steps import (
    CloseNotice,
    CordonInterrupted,
    EnterSpotPhase,
    OpenInterrupted,
    OpenLeftMarked,
    TerminateInterrupted,
)
from holdfast.cluster.sweeping.sweep import is_left_marked
from holdfast.cluster.sweeping.sweep_act import open_left_marked
from holdfast.control.lease import acquire
from holdfast.control.steps import NotDone
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import ActionId
from holdfast.ports.kube import NodeChange
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.spot_case import SpotCase


def at_store_call(number: int, case: SpotCase, seconds: float) -> CallGate:
    """An interruption notice arrives just before that call of the store."""
    calls = [number]

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.port == "store" and moment is CallPoint.BEFORE:
            calls[0] -= 1
            if calls[0] == 0:
                case.receive_notice(SpotKind.INTERRUPTION, seconds)

    return CallGate(hook)


@pytest.mark.parametrize("kind", [SpotKind.NOT_READY, SpotKind.REBALANCE])
def test_an_interruption_supersedes_a_milder_notice_that_has_cordoned_the_node(kind: SpotKind) -> None:
    """The milder one would be given up, and the node uncordoned, while EC2 takes the machine."""
    case = SpotCase()
    assert case.receive_notice(kind)
    case.overwrite(replacement=str(Replacement.ACCEPTED))
    case.carry_out(CordonInterrupted)
    assert case.receive_notice(SpotKind.INTERRUPTION)
    case.stage.tick()
    assert (case.notice.kind, case.notice.replacement) == (SpotKind.INTERRUPTION, Replacement.ACCEPTED)
    assert case.notice.phase in (SpotPhase.CORDONED, SpotPhase.DRAINED, SpotPhase.EXPIRED)
    assert case.node.is_unschedulable


@pytest.mark.parametrize("number", range(1, 4))
def test_an_interruption_that_arrives_while_a_hint_is_closed_is_not_lost(number: int) -> None:
    """Whenever it arrives: a notice that is not closed is in the list of open ones, which every tick reads."""
    case = SpotCase()
    assert case.receive_notice(SpotKind.REBALANCE)
    handler = case.handler(at_store_call(number, case, 30))
    try:
        handler.carry_out(CloseNotice(instance=case.victim, because="the hint expired"))
    except HoldfastError:
        assert case.notice.kind is SpotKind.INTERRUPTION, "only the new notice keeps it open"
    assert case.is_listed == (case.notice.phase is not SpotPhase.CLOSED)


@pytest.mark.parametrize("number", range(1, 4))
def test_an_interruption_that_arrives_with_a_repeated_hint_is_not_lost(number: int) -> None:
    case = SpotCase()
    assert case.receive_notice(SpotKind.REBALANCE)
    case.carry_out(CloseNotice)
    store = case.stage.cluster(at_store_call(number, case, 60)).writes.store
    assert not store_notice(store, case.stage.name, case.victim, SpotKind.REBALANCE, case.stage.clock.now().plus(60))
    assert case.is_listed == (case.notice.phase is not SpotPhase.CLOSED)


def test_a_repeated_event_is_another_notice() -> None:
    """Otherwise a late write for the first notice would count for the second: here, that the machine is empty."""
    case = SpotCase()
    assert case.receive_notice(SpotKind.INTERRUPTION)
    case.overwrite(replacement=str(Replacement.ACCEPTED))
    case.carry_out(CordonInterrupted)
    late, first = case.handler(), case.notice
    case.carry_out(EnterSpotPhase, phase=SpotPhase.EXPIRED)
    case.carry_out(OpenInterrupted)
    assert case.receive_notice(SpotKind.INTERRUPTION), "the first was closed because the machine stays"
    assert case.notice.mark != first.mark
    case.carry_out(CordonInterrupted)
    late.carry_out(EnterSpotPhase(instance=case.victim, phase=SpotPhase.DRAINED, because="test"))
    assert case.notice.phase is SpotPhase.CORDONED


def test_a_persons_cordon_outlives_a_scale_down_and_a_notice() -> None:
    case = SpotCase()
    kube = case.stage.world.k3s
    kube.change_node(case.node, NodeChange(unschedulable=True))
    nodes = FencedNodes(kube, 50)
    nodes.cordon(case.node, case.victim, ActionId("down-1"))
    assert case.receive_notice(SpotKind.INTERRUPTION)
    case.overwrite(replacement=str(Replacement.ACCEPTED))
    case.carry_out(CordonInterrupted)
    nodes.uncordon(case.node)
    case.carry_out(EnterSpotPhase, phase=SpotPhase.EXPIRED)
    case.carry_out(OpenInterrupted)
    assert case.node.is_unschedulable


def test_the_node_of_a_just_terminated_machine_is_not_uncordoned_though_its_notice_is_old() -> None:
    """EC2's list may show it as running for a while."""
    case = SpotCase()
    assert case.receive_notice(SpotKind.REBALANCE, -3700)
    case.overwrite(replacement=str(Replacement.ACCEPTED))
    case.carry_out(CordonInterrupted)
    before = case.stage.cluster().look()[0]
    case.carry_out(EnterSpotPhase, phase=SpotPhase.DRAINED)
    case.carry_out(TerminateInterrupted)
    case.carry_out(CloseNotice)
    cluster = case.stage.cluster()
    seen = replace(cluster.look()[0], machines=before.machines)
    worker = seen.worker(case.victim)
    assert worker is not None
    assert is_left_marked(seen, worker)
    ledger = cluster_ledger(cluster.writes.store, seen.cluster)
    lease, _ = acquire(ledger, "sweeper", seen.now)
    holder = ClusterLeaseHolder(cluster.writes, ledger, lease, seen, ActionId("sweep"))
    with pytest.raises(NotDone):
        open_left_marked(holder, OpenLeftMarked(instance=case.victim, because="test"))
    assert case.node.is_unschedulable
