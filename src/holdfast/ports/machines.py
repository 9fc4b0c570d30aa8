"""Machines: EC2 instances.

Promises and limits are EC2's; the simulated world has the same:

- The same token with the same order returns the same machine, however often it is sent; per zone. Another order with
  the same token is refused (IdempotentParameterMismatch), even after a failed attempt.
- A new machine may be missing from lists for a while: absence from a list proves nothing.
- Terminating is idempotent; a machine is then listed as shutting down, and for a while as terminated.
- `ACCEPTED_TAG` is the only tag that is written after the launch. It is never removed; a list may lack it for a while.
"""

from collections.abc import Callable, Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol, TypeVar

from msgspec import Struct, field

from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant

T = TypeVar("T")

USER_DATA_BYTES_MOST: Final = 16 * 1024  # before encoding
ACCEPTED_TAG: Final = "holdfast.dev/accepted"


class Market(StrEnum):
    SPOT = "spot"
    ON_DEMAND = "on-demand"


class MachineState(StrEnum):
    PENDING = "pending"
    RUNNING = "running"
    STOPPING = "stopping"
    STOPPED = "stopped"
    SHUTTING_DOWN = "shutting-down"
    TERMINATED = "terminated"


class StateReason(Struct, frozen=True):
    """Why a machine stopped or ended: EC2's code (``Client.InternalError``) and its words, both safe to show."""

    code: str
    message: str


class Machine(Struct, frozen=True):
    """A machine as EC2 last described it."""

    id: InstanceId
    state: MachineState
    zone: str
    subnet_id: str
    instance_type: str
    market: Market
    private_ip: str | None
    launched: Instant
    tags: Mapping[str, str] = field(default_factory=dict)
    state_reason: StateReason | None = None  # None: EC2 gives none, or the machine has not stopped or ended

    @property
    def is_gone(self) -> bool:
        """Terminated, or about to be."""
        return self.state in (MachineState.SHUTTING_DOWN, MachineState.TERMINATED)


class LaunchOrder(Struct, frozen=True):
    """An order for one machine. The token identifies the whole order: a changed order needs a new token.

    `template` is a launch template and its version (``lt-0abc:3``): image, role, security groups. `user_data` is text
    of at most `USER_DATA_BYTES_MOST`, and must not change while the token is in use.
    """

    token: str
    template: str
    instance_type: str
    market: Market
    subnet_id: str
    zone: str
    tags: Mapping[str, str]
    user_data: str


class Subnet(Struct, frozen=True):
    id: str
    zone: str
    free_addresses: int


class MachineError(HoldfastError):
    """EC2 refused, or did not respond.

    `code` is EC2's, or the name of the connection error. One table, in `fleet/ec2_errors.py`, decides what follows
    (retry, try another option, notify a person); an unknown code is treated like no response.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Machines(Protocol):
    def launch(self, order: LaunchOrder) -> Machine: ...

    def terminate(self, machine: InstanceId) -> None: ...

    def mark_accepted(self, machine: InstanceId, action: str) -> None:
        """Set `ACCEPTED_TAG` to the action that took the machine into service. Repeating it is no error."""
        ...

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        """All machines with these tags, in any state that EC2 still lists."""
        ...

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        """The machines that EC2 knows; unknown ids are left out."""
        ...

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]: ...

    def server_time(self) -> Instant | None:
        """EC2's time now, to a second or two, from the latest response; None before the first. Makes no request."""
        ...


class ForwardingMachines:
    """The base of wrappers: implements `Machines` by forwarding every call through `_forward`."""

    def __init__(self, machines: Machines) -> None:
        self._machines = machines

    def _forward(self, call: Callable[[], T]) -> T:
        return call()

    def launch(self, order: LaunchOrder) -> Machine:
        return self._forward(lambda: self._machines.launch(order))

    def terminate(self, machine: InstanceId) -> None:
        self._forward(lambda: self._machines.terminate(machine))

    def mark_accepted(self, machine: InstanceId, action: str) -> None:
        self._forward(lambda: self._machines.mark_accepted(machine, action))

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        return self._forward(lambda: self._machines.tagged(tags))

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        return self._forward(lambda: self._machines.found(machines))

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]:
        return self._forward(lambda: self._machines.subnets(subnets))

    def server_time(self) -> Instant | None:
        return self._machines.server_time()  # makes no request
