"""What a tick saw, for tests of decisions: a busy cluster and an idle one."""

from holdfast.cluster.policy import Choices, Policy
from holdfast.cluster.seen import INSTANCE_LABEL, KubeView, Seen
from holdfast.cluster.state import ClusterState, Timers
from holdfast.kernel.ids import ClusterId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.ports.machines import ACCEPTED_TAG, Machine, MachineState, Market, Subnet
from holdfast.ports.readings import Known, Unknown
from holdfast.ports.signals import PendingPods

NOW = Instant.from_iso("2026-01-15T10:00:00Z")
POLICY = Policy()
CHOICES = Choices(("t3.medium",))
AWAY = Unknown("does not answer")


def machine(number: int) -> Machine:
    zone = "abc"[number % 3]
    return Machine(
        id=InstanceId(f"i-{number:08x}"),
        state=MachineState.RUNNING,
        zone=zone,
        subnet_id=f"subnet-{zone}",
        instance_type="t3.medium",
        market=Market.SPOT,
        private_ip=f"10.0.0.{number}",
        launched=NOW.plus(-86_400 + number),
        tags={ACCEPTED_TAG: "early"},
    )


def node(number: int) -> Node:
    name = f"i-{number:08x}"
    return Node(name, name, "1", f"10.0.0.{number}", True, NOW, NOW, False, {INSTANCE_LABEL: name})


def seen(
    workers: int = 4, *, cpu: float = 0.9, pending: int = 25, waited: int = 600, state: ClusterState | None = None
) -> Seen:
    view = KubeView(tuple(node(n) for n in range(workers)), ())
    return Seen(
        cluster=ClusterId("cluster"),
        now=NOW,
        state=state or ClusterState(timers=Timers(NOW.plus(-waited) if pending else None, NOW.plus(-waited), workers)),
        machines=tuple(machine(n) for n in range(workers)),
        kube=Known(view, NOW),
        cpu=Known(cpu, NOW),
        pending=Known(PendingPods(pending, waited), NOW),
        subnets=tuple(Subnet(f"subnet-{zone}", zone, 100) for zone in "abc"),
    )


BUSY = seen()
IDLE = seen(6, cpu=0.1, pending=0)
