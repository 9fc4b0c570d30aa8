"""Machines: what is asked of EC2.

Promises and limits are EC2's, and the simulated world keeps them as well:

- The same token with the same order gives the same machine, however often it is sent; per zone. Another order under
  the same token is refused (IdempotentParameterMismatch), also after a failed attempt.
- A machine that was just launched may be missing from lists for a while, and a list that misses one proves nothing.
- Terminating is repeatable; a machine on its way out is listed for a while as shutting down, then terminated.
"""

from collections.abc import Mapping, Sequence
from enum import StrEnum
from typing import Final, Protocol

from msgspec import Struct, field

from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant

USER_DATA_BYTES_MOST: Final = 16 * 1024  # before it is encoded


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


class Machine(Struct, frozen=True):
    """A machine as EC2 last showed it."""

    id: InstanceId
    state: MachineState
    zone: str
    subnet_id: str
    instance_type: str
    market: Market
    private_ip: str | None
    launched: Instant
    tags: Mapping[str, str] = field(default_factory=dict)

    @property
    def is_gone(self) -> bool:
        """Terminated, or past the point of return."""
        return self.state in (MachineState.SHUTTING_DOWN, MachineState.TERMINATED)


class LaunchOrder(Struct, frozen=True):
    """One machine. The token stands for the whole order: a changed order needs another token.

    `template` is a launch template and its version (``lt-0abc:3``): image, role, security groups. `user_data` is text
    of at most `USER_DATA_BYTES_MOST`, the same byte for byte on each use of the token.
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
    """EC2 said no, or did not answer.

    `code` is EC2's own, or the name of what befell the connection. What follows from it (ask again, try elsewhere,
    call a person) is decided by one table, in `fleet/ec2_errors.py`; a code that is not in it is taken for no answer.
    """

    def __init__(self, code: str, message: str) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message


class Machines(Protocol):
    def launch(self, order: LaunchOrder) -> Machine: ...

    def terminate(self, machine: InstanceId) -> None: ...

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        """All machines that bear these tags, in any state that EC2 still lists."""
        ...

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        """Those of the machines that EC2 knows; unknown ids are left out."""
        ...

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]: ...
