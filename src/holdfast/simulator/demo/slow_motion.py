"""Slow motion: while an action is in progress, the simulated time runs slowly enough to watch it, or to kill it."""

from threading import Lock
from typing import Final, Protocol

SLOW_SPEED: Final = 4.0


class WithSpeed(Protocol):
    @property
    def speed(self) -> float: ...
    def go_at(self, speed: float) -> None: ...


class SlowMotion:
    """Off at first. The loop that ticks reports to it, and the console's threads switch it."""

    def __init__(self, world: WithSpeed) -> None:
        self._world = world
        self._lock = Lock()
        self._is_on = False
        self._usual: float | None = None  # the speed to return to

    @property
    def is_on(self) -> bool:
        return self._is_on

    def switch(self, *, is_on: bool) -> None:
        with self._lock:
            self._is_on = is_on
            if not is_on:
                self._return()

    def ticked(self, *, is_acting: bool) -> None:
        with self._lock:
            if not is_acting:
                self._return()
            elif self._is_on and self._usual is None and self._world.speed > SLOW_SPEED:
                self._usual = self._world.speed
                self._world.go_at(SLOW_SPEED)

    def chosen(self, speed: float) -> None:
        """Go at a speed that a person chose; it also applies after the action."""
        with self._lock:
            self._usual = None
            self._world.go_at(speed)

    def _return(self) -> None:
        if self._usual is not None:
            self._world.go_at(self._usual)
            self._usual = None
