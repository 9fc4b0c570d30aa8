"""The gate that every call through a port passes: where a process may die, or a response be lost.

Ports are wrapped, not subclassed, so that no call can be forgotten: whatever a port offers goes through.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar, cast

from holdfast.simulator.proof.processes import Killed

P = TypeVar("P")
_NO_CALLS = ("server_time",)  # the time was part of an earlier response, so no process can die in it


class CallPoint(StrEnum):
    BEFORE = "before"
    AFTER = "after"


@dataclass(frozen=True, slots=True)
class PortCall:
    """One call: which port, which method, and its number among the calls of its process."""

    port: str
    method: str
    number: int

    def __str__(self) -> str:
        return f"{self.number}: {self.port}.{self.method}"


Hook = Callable[[PortCall, CallPoint], None]


@dataclass
class CallGate:
    """The gate of one process. `hook` may raise: Killed, or what the port raises when a response is lost."""

    hook: Hook
    is_dead: bool = False
    calls: list[PortCall] = field(default_factory=list)

    def wrapped(self, port: P, name: str) -> P:
        """The port, with every call passing the gate."""
        return cast(P, _Through(port, name, self))

    def pass_through(self, port: str, method: str, call: Callable[[], Any]) -> Any:
        if self.is_dead:
            raise Killed
        this = PortCall(port, method, len(self.calls))
        self.calls.append(this)
        try:
            self.hook(this, CallPoint.BEFORE)
            answer = call()
            self.hook(this, CallPoint.AFTER)
        except Killed:
            self.is_dead = True
            raise
        return answer


class _Through:
    def __init__(self, port: Any, name: str, gate: CallGate) -> None:
        self._port = port
        self._name = name
        self._gate = gate

    def __getattr__(self, method: str) -> Any:
        target = getattr(self._port, method)
        if method in _NO_CALLS:
            return target
        return lambda *args, **options: self._gate.pass_through(self._name, method, lambda: target(*args, **options))
