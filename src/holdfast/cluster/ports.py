"""The ports of one cluster: those that a tick reads from, and those that it acts through."""

from collections.abc import Callable, Mapping, Sequence

from msgspec import Struct
from msgspec.structs import replace

from holdfast.cluster.policy import Choices
from holdfast.control.deadline import Deadline, TimedKube, TimedMachines
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.kube import Kube
from holdfast.ports.machines import Machines
from holdfast.ports.signals import Signals
from holdfast.ports.store import Store


def _no_times() -> Mapping[str, Instant | None]:
    return {}


class ReadPorts(Struct, frozen=True):
    """The ports to read from, and the tags that identify our machines.

    `other_times`: the time of other servers than EC2, as far as it is known.
    """

    store: Store
    machines: Machines
    kube: Kube
    signals: Signals
    cluster: ClusterId
    tags: Mapping[str, str]
    subnets: Sequence[str]
    other_times: Callable[[], Mapping[str, Instant | None]] = _no_times


class WritePorts(Struct, frozen=True):
    """The ports to act through, and what every launch has in common."""

    store: Store
    clock: Clock
    machines: Machines
    kube: Kube
    tags: Mapping[str, str]
    template: str
    user_data: str
    choices: Choices

    def until(self, deadline: Deadline) -> "WritePorts":
        """The same ports, but too close to the deadline they start no call to EC2 or Kubernetes."""
        return replace(self, machines=TimedMachines(self.machines, deadline), kube=TimedKube(self.kube, deadline))
