"""Faults: what may go wrong at a call, to a process, to an event or to the world, and which of it a seed draws.

Each has a name (`tick-12@7:lost`), so that a run can be repeated with some of its faults and without the others.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final, Protocol

from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHubUnavailable, RateLimited
from holdfast.ports.kube import KubeUnavailable
from holdfast.ports.machines import MachineError
from holdfast.simulator.chance import drawn, drawn_on, mixed, mixed_on


class Kind(StrEnum):
    # At a call
    SWITCH = "switch"  # others run first
    DELAY = "delay"  # seconds, before the call or after its effect
    PAUSE = "pause"  # longer than a lease lasts
    KILL_BEFORE = "kill-before"
    KILL_AFTER = "kill-after"
    LOST = "lost"  # it takes place, and the answer is lost
    REFUSED = "refused"  # throttled, or a server error: it does not take place
    STALE = "stale"  # a list as it was a minute ago
    # To a process
    SKEW = "skew"  # its clock is off by seconds
    JUMP = "jump"  # … by minutes or hours
    TICK_TWICE = "tick-twice"
    TICK_MISSED = "tick-missed"
    # To an event
    EVENT_DROPPED = "event-dropped"
    EVENT_LATE = "event-late"
    EVENT_TWICE = "event-twice"
    # To the world
    ZONE_OUT = "zone-out"  # a zone has no capacity
    SPOT_STORM = "spot-storm"  # a zone's spot machines are taken at once
    HINTS = "hints"  # rebalance recommendations, some of which nothing comes of
    API_AWAY = "api-away"
    PROMETHEUS_AWAY = "prometheus-away"
    NO_JOINS = "no-joins"  # machines boot and never become nodes
    MACHINE_DIES = "machine-dies"
    # To a webhook
    HOOK_LOST = "hook-lost"
    HOOK_LATE = "hook-late"
    HOOK_TWICE = "hook-twice"


AT_CALLS: Final = (
    Kind.SWITCH,
    Kind.DELAY,
    Kind.PAUSE,
    Kind.KILL_BEFORE,
    Kind.KILL_AFTER,
    Kind.LOST,
    Kind.REFUSED,
    Kind.STALE,
)
IN_WORLD: Final = (
    Kind.ZONE_OUT,
    Kind.SPOT_STORM,
    Kind.HINTS,
    Kind.API_AWAY,
    Kind.PROMETHEUS_AWAY,
    Kind.NO_JOINS,
    Kind.MACHINE_DIES,
)
# How often: at each call, to each process or event; and to the world, every 20 minutes.
RATES: Final[Mapping[Kind, float]] = {
    Kind.SWITCH: 0.02,
    Kind.DELAY: 0.008,
    Kind.PAUSE: 0.003,
    Kind.KILL_BEFORE: 0.004,
    Kind.KILL_AFTER: 0.004,
    Kind.LOST: 0.008,
    Kind.REFUSED: 0.010,
    Kind.STALE: 0.010,
    Kind.SKEW: 0.3,
    Kind.JUMP: 0.01,
    Kind.TICK_TWICE: 0.10,
    Kind.TICK_MISSED: 0.03,
    Kind.EVENT_DROPPED: 0.2,
    Kind.EVENT_LATE: 0.3,
    Kind.EVENT_TWICE: 0.3,
    Kind.ZONE_OUT: 0.13,
    Kind.SPOT_STORM: 0.25,
    Kind.HINTS: 0.25,
    Kind.API_AWAY: 0.15,
    Kind.PROMETHEUS_AWAY: 0.15,
    Kind.NO_JOINS: 0.10,
    Kind.MACHINE_DIES: 0.10,
}
HOOK_RATES: Final[Mapping[Kind, float]] = {Kind.HOOK_LOST: 0.08, Kind.HOOK_LATE: 0.15, Kind.HOOK_TWICE: 0.15}
NO_FAULT: Final = "none"  # among names of faults: not a single one
LISTS: Final = frozenset({("machines", "tagged"), ("kube", "nodes"), ("kube", "pods")})


@dataclass(frozen=True, slots=True)
class Fault:
    """What goes wrong at one call. `seconds` is how long a switch, a delay or a pause takes."""

    kind: Kind
    seconds: float = 0.0
    is_after: bool = False  # of a delay or a pause: the effect has taken place


class Faults(Protocol):
    """What goes wrong, and what of it went wrong so far."""

    happened: Counter[Kind]

    def at_call(self, process: str, number: int, call: int, port: str, method: str) -> Fault | None: ...

    def befalls(self, kind: Kind, what: str, number: int) -> float | None:
        """Whether it happens to a thing; if so, a number from 0 up to 1 that says how."""
        ...


@dataclass
class DrawnFaults:
    """Faults by a seed. With `only`, those of them that it names."""

    seed: int
    rates: Mapping[Kind, float]
    only: frozenset[str] | None = None
    happened: Counter[Kind] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)
    is_over: bool = False  # the world heals

    def __post_init__(self) -> None:
        self._steps: list[tuple[float, Kind]] = []
        total = 0.0
        for kind in AT_CALLS:
            total += self.rates.get(kind, 0.0)
            self._steps.append((total, kind))
        self._total = total
        # What many questions begin with is mixed once: of each process, and of each kind.
        self._mix = mixed(self.seed, 1)
        self._asked, self._mix_asked = 0, mixed_on(self._mix, 0)
        self._mix_of = {kind: mixed(self.seed, 3, number) for kind, number in _NUMBER.items()}

    def at_call(self, process: str, number: int, call: int, port: str, method: str) -> Fault | None:
        if self.is_over:
            return None
        if number != self._asked:  # a process makes many calls in a row
            self._asked, self._mix_asked = number, mixed_on(self._mix, number)
        chance = drawn_on(self._mix_asked, call)
        if chance >= self._total:
            return None
        kind = next(kind for limit, kind in self._steps if chance < limit)
        if kind is Kind.STALE and (port, method) not in LISTS:
            return None
        if not self._takes_place(f"{process}@{call}:{kind}", kind):
            return None
        size = drawn(self.seed, 2, number, call)
        return fault_of(kind, size)

    def befalls(self, kind: Kind, what: str, number: int) -> float | None:
        rate = 0.0 if self.is_over else self.rates.get(kind, 0.0)
        if not rate or drawn_on(self._mix_of[kind], number) >= rate:
            return None
        if not self._takes_place(f"{what}:{kind}", kind):
            return None
        return drawn(self.seed, 4, _NUMBER[kind], number)

    def _takes_place(self, name: str, kind: Kind) -> bool:
        if self.only is not None and name not in self.only:
            return False
        self.happened[kind] += 1
        self.names.append(name)
        return True


@dataclass
class ScriptedFaults:
    """Faults at calls that are named: of which process, and which of its calls."""

    script: Mapping[tuple[str, int], Fault]
    happened: Counter[Kind] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def at_call(self, process: str, number: int, call: int, port: str, method: str) -> Fault | None:
        fault = self.script.get((process, call))
        if fault is not None:
            self.happened[fault.kind] += 1
            self.names.append(f"{process}@{call}:{fault.kind}")
        return fault

    def befalls(self, kind: Kind, what: str, number: int) -> float | None:
        return None


def fault_of(kind: Kind, size: float) -> Fault:
    """A fault of this kind; `size` from 0 up to 1 says how long, and on which side of the effect."""
    is_after = size * 1000 % 1 < 0.5
    match kind:
        case Kind.SWITCH:
            return Fault(kind, 0.5 + size * 3)
        case Kind.DELAY:
            return Fault(kind, 5 + size * 50, is_after)
        case Kind.PAUSE:
            return Fault(kind, 95 + size * size * 1500, is_after)
        case _:
            return Fault(kind)


def error_of(kind: Kind, port: str, now: Instant) -> Exception:
    """What a caller meets when an answer is lost, or a call refused."""
    if port == "github":
        return GitHubUnavailable("simulated: lost") if kind is Kind.LOST else RateLimited("simulated", now.plus(60))
    if port == "machines":
        return MachineError("RequestTimeout" if kind is Kind.LOST else "RequestLimitExceeded", f"simulated: {kind}")
    if port == "kube":
        return KubeUnavailable(f"simulated: {kind}")
    return StoreUnavailable(f"simulated: {kind}")


_NUMBER: Final = {kind: number for number, kind in enumerate(Kind)}
