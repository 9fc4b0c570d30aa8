"""Watching a process at its port calls, and letting others act in the midst of it."""

from collections.abc import Callable

from holdfast.simulator.gate import Gate, Moment, PortCall


def at(method: str, moment: Moment, then: Callable[[], object], *, times: int = 10_000) -> Gate:
    """A gate that does something before or after the calls of one name, so many times at most."""
    left = [times]

    def hook(call: PortCall, now: Moment) -> None:
        if (call.method, now) == (method, moment) and left[0] > 0:
            left[0] -= 1
            then()

    return Gate(hook)


def before(method: str, then: Callable[[], object], *, times: int = 10_000) -> Gate:
    return at(method, Moment.BEFORE, then, times=times)


def after(method: str, then: Callable[[], object], *, times: int = 10_000) -> Gate:
    return at(method, Moment.AFTER, then, times=times)


def raising(error: BaseException) -> Callable[[], object]:
    def then() -> object:
        raise error

    return then
