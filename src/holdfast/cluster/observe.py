"""Look at the world: reads only. What cannot be had is Unknown, and says why; without EC2 there is no look at all."""

from collections.abc import Mapping, Sequence

from msgspec import Struct

from holdfast.cluster.memory import believable, memory_keys, read_memory
from holdfast.cluster.notices import read_notices
from holdfast.cluster.seen import KubeView, Seen
from holdfast.cluster.state import ClusterState, read_state
from holdfast.fleet.ec2_errors import Ec2Verdict, ruling_on
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Kube
from holdfast.ports.machines import Machine, MachineError, Machines
from holdfast.ports.readings import Known, Reading, Unknown
from holdfast.ports.signals import PendingPods, Signals
from holdfast.ports.store import Key, Store
from holdfast.ports.store.tables import STATE


class NoLook(Retryable):
    """EC2 could not be asked what machines there are: nothing can be decided until it can."""


class Senses(Struct, frozen=True):
    """The ports that are only read, and what of EC2 is ours."""

    store: Store
    machines: Machines
    kube: Kube
    signals: Signals
    cluster: ClusterId
    tags: Mapping[str, str]
    subnets: Sequence[str]


def observe(senses: Senses, now: Instant) -> Seen:
    # The state first: what is judged by it (an orphan, say) must have been seen after it was read.
    keys = [Key(senses.cluster), *memory_keys(senses.cluster)]
    item, *beside = senses.store.batch_get(STATE, keys, consistent=True)
    state = read_state(item)
    remembered = read_memory(beside)
    try:
        machines = _machines(senses, state)
        subnets = tuple(senses.machines.subnets(senses.subnets))
    except MachineError as error:
        ruling = ruling_on(error.code)
        if ruling.verdict is Ec2Verdict.OPERATOR:
            raise NeedsOperator(f"EC2 refuses to tell what machines there are: {error}; {ruling.remedy}") from error
        raise NoLook(f"EC2 does not tell what machines there are: {error}; this tick does nothing") from error
    kube = _kube(senses.kube, now)
    return Seen(
        cluster=senses.cluster,
        now=now,
        state=state,
        machines=machines,
        kube=kube,
        cpu=senses.signals.cpu(),
        pending=_pending(senses.signals, kube, now),
        subnets=subnets,
        notices=read_notices(senses.store, remembered.noticed),
        failures=believable(remembered.failures, now),
        undrainable=believable(remembered.undrainable, now),
        is_paused=remembered.is_paused,
        ready_elsewhere=senses.signals.ready_addresses() if isinstance(kube, Unknown) else None,
    )


def _machines(senses: Senses, state: ClusterState) -> tuple[Machine, ...]:
    """Those with our tags, and those that an action names: an older autoscaler's may bear other tags."""
    tagged = senses.machines.tagged(senses.tags)
    missing = sorted(state.named - {machine.id for machine in tagged})
    return (*tagged, *(senses.machines.found(missing) if missing else ()))


def _kube(kube: Kube, now: Instant) -> Reading[KubeView]:
    try:
        return Known(KubeView(tuple(kube.nodes()), tuple(kube.pods())), now)
    except HoldfastError as error:
        return Unknown(str(error))


def _pending(signals: Signals, kube: Reading[KubeView], now: Instant) -> Reading[PendingPods]:
    """From Prometheus; where it does not know, from Kubernetes itself."""
    reading = signals.pending_pods()
    if not isinstance(reading, Unknown) or isinstance(kube, Unknown):
        return reading
    waiting = [pod.unschedulable_since for pod in kube.value.pods if pod.unschedulable_since and pod.node is None]
    oldest = max((now.seconds_since(since) for since in waiting), default=0.0)
    return Known(PendingPods(len(waiting), max(0.0, oldest)), kube.at)
