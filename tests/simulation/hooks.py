"""Watch a process at its port calls, and let others act in the middle of one."""

from collections.abc import Callable
from typing import Any

from tests.call_gate import CallGate, CallPoint, PortCall


def at(method: str, moment: CallPoint, then: Callable[[], object], *, times: int = 10_000) -> CallGate:
    """A gate that does something before or after the calls of one name, at most ``times`` times."""
    left = [times]

    def hook(call: PortCall, now: CallPoint) -> None:
        if (call.method, now) == (method, moment) and left[0] > 0:
            left[0] -= 1
            then()

    return CallGate(hook)


def before(method: str, then: Callable[[], object], *, times: int = 10_000) -> CallGate:
    return at(method, CallPoint.BEFORE, then, times=times)


def after(method: str, then: Callable[[], object], *, times: int = 10_000) -> CallGate:
    return at(method, CallPoint.AFTER, then, times=times)


def raising(error: BaseException) -> Callable[[], object]:
    def then() -> object:
        raise error

    return then


class Instead:
    """A port with some of its calls replaced."""

    def __init__(self, port: Any, **answers: Any) -> None:
        self._port = port
        self._answers = answers

    def __getattr__(self, name: str) -> Any:
        return self._answers.get(name) or getattr(self._port, name)
