"""Observe the cluster; reads only. A reading that fails is Unknown with its reason; without EC2 the tick fails."""

from collections.abc import Sequence

from holdfast.cluster.impossible_pods import impossible_pods, pending_pods
from holdfast.cluster.memory import memory_keys, read_memory
from holdfast.cluster.ports import ReadPorts
from holdfast.cluster.seen import KubeView, Seen
from holdfast.cluster.spot.notice import read_notices
from holdfast.cluster.state import ClusterState, read_state
from holdfast.fleet.capacity_memory import without_future_failures
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Kube
from holdfast.ports.machines import Machine, MachineError
from holdfast.ports.readings import Known, Reading, Unknown
from holdfast.ports.store import Key
from holdfast.ports.store.tables import STATE


class NoLook(Retryable):
    """EC2 did not list the machines: nothing can be decided without them."""


def observe(ports: ReadPorts, now: Instant, instance_types: Sequence[str] = ()) -> Seen:
    """What there is to see. `instance_types` are those that can be launched."""
    # Read the state first: a machine that is compared with it (an orphan, say) must have been listed after it.
    keys = [Key(ports.cluster), *memory_keys(ports.cluster)]
    item, *beside = ports.store.batch_get(STATE, keys, consistent=True)
    state = read_state(item)
    remembered = read_memory(beside)
    try:
        machines = _machines(ports, state)
        subnets = tuple(ports.machines.subnets(ports.subnets))
    except MachineError as error:
        ruling = ruling_on(error.code)
        if ruling.verdict is Ec2Verdict.OPERATOR:
            raise NeedsOperator(f"EC2 refuses to list machines: {error}; {ruling.remedy}") from error
        raise NoLook(f"EC2 did not list machines: {error}; this tick does nothing") from error
    kube = _kube(ports.kube, now)
    view = KubeView((), ()) if isinstance(kube, Unknown) else kube.value
    impossible = impossible_pods(view.pods, view.nodes, instance_types)
    pods = kube if isinstance(kube, Unknown) else Known(view.pods, kube.at)
    return Seen(
        cluster=ports.cluster,
        now=now,
        state=state,
        machines=machines,
        kube=kube,
        cpu=ports.signals.cpu(),
        pending=pending_pods(ports.signals.pending_pods(), pods, impossible, now),
        impossible=impossible,
        subnets=subnets,
        notices=read_notices(ports.store, remembered.noticed),
        failures=without_future_failures(remembered.failures, now),
        undrainable=without_future_failures(remembered.undrainable, now),
        marks_refused=_unless_in_future(remembered.marks_refused, now),
        is_paused=remembered.is_paused,
        ready_elsewhere=ports.signals.ready_addresses() if isinstance(kube, Unknown) else None,
    )


def _machines(ports: ReadPorts, state: ClusterState) -> tuple[Machine, ...]:
    """The machines with our tags, and those that an action names: an older autoscaler's may have other tags."""
    tagged = ports.machines.tagged(ports.tags)
    missing = sorted(state.named - {machine.id for machine in tagged})
    return (*tagged, *(ports.machines.found(missing) if missing else ()))


def _kube(kube: Kube, now: Instant) -> Reading[KubeView]:
    try:
        return Known(KubeView(tuple(kube.nodes()), tuple(kube.pods())), now)
    except HoldfastError as error:
        return Unknown(str(error))


def _unless_in_future(failure: PoolFailure | None, now: Instant) -> PoolFailure | None:
    return None if failure is None else without_future_failures({"": failure}, now).get("")
