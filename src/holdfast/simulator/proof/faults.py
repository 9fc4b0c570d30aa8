"""Faults: what can go wrong at a call, to a process, to an event or to the world, and which faults a seed draws.

Each fault has a name (`tick-12@7:lost`), so a run can be repeated with only some of its faults.
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
from holdfast.simulator.world.chance import drawn, drawn_on, mixed, mixed_on


class FaultKind(StrEnum):
    # At a call
    SWITCH = "switch"  # other processes run first
    DELAY = "delay"  # seconds, before the call or after its effect
    PAUSE = "pause"  # longer than a lease lasts
    KILL_BEFORE = "kill-before"
    KILL_AFTER = "kill-after"
    LOST = "lost"  # the call takes effect, and its answer is lost
    REFUSED = "refused"  # throttled, or a server error: no effect
    STALE = "stale"  # a list from up to two minutes ago, as from a watch that missed changes
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
    HINTS = "hints"  # rebalance recommendations; not every one is followed by an interruption
    API_AWAY = "api-away"
    PROMETHEUS_AWAY = "prometheus-away"
    NO_JOINS = "no-joins"  # machines boot and never join the cluster
    MACHINE_DIES = "machine-dies"
    # To a webhook
    HOOK_LOST = "hook-lost"
    HOOK_LATE = "hook-late"
    HOOK_TWICE = "hook-twice"
    # To the nodes. At the end: a kind's position is part of what is drawn for it
    NODE_ANEW = "node-anew"  # a Node object is deleted, and registered anew while its pods run
    NODES_ANEW = "nodes-anew"  # all at once, as after a restored snapshot
    # Added later, each at the end: a draw depends on the position of its kind.
    # To EC2
    LIST_OMITS = "list-omits"  # its lists leave out a machine that was listed before
    LIST_LAGS = "list-lags"  # its lists have machines in the state that they were in a while ago
    DIES_AT_BIRTH = "dies-at-birth"  # a machine is terminated while it is pending, as with a disk key it may not use
    ADDRESS_REUSED = "address-reused"  # a new machine gets the address of one that was terminated
    POOL_OUT = "pool-out"  # one type, one market or one pool alone has no capacity
    SUBNET_FULL = "subnet-full"
    LAUNCH_REFUSED = "launch-refused"  # by codes that need an operator, or that are in no table
    STRANGERS = "strangers"  # another cluster's spot machines in the same account, and EC2's events about them
    # To Kubernetes
    NODE_FLAPS = "node-flaps"  # a node, or each of them, is NotReady for a while, and its machine runs
    PERSON_CORDONS = "person-cordons"  # and uncordons later
    NODE_TWIN = "node-twin"  # a second node with the address of a worker
    # To a port
    STORE_AWAY = "store-away"
    EC2_AWAY = "ec2-away"
    GITHUB_AWAY = "github-away"
    CONFLICT = "conflict"  # a transaction meets another one, again and again: nothing is written
    STALE_READ = "stale-read"  # of an index, or of an item that may be read eventually: as it was seconds ago
    # At GitHub
    HOOK_TARGETS = "hook-targets"  # the organisation has a hook beside the App's: the same event, under another id
    HOOK_HOURS_LATE = "hook-hours-late"
    LOG_LATE = "log-late"  # a failed delivery appears in GitHub's log late, under a lower id than others there
    RESCHEDULED = "rescheduled"  # a job's runner never attaches, and the fleet schedules another one
    DEPLOYMENT_EVENTS = "deployment-events"  # webhooks about a deployment, beside those about its job
    HOOK_DAYS_LATE = "hook-days-late"  # all webhooks of a run that ended days ago
    RUNNER_STOLEN = "runner-stolen"  # two jobs get the machines that were launched for each other


AT_CALLS: Final = (
    FaultKind.SWITCH,
    FaultKind.DELAY,
    FaultKind.PAUSE,
    FaultKind.KILL_BEFORE,
    FaultKind.KILL_AFTER,
    FaultKind.LOST,
    FaultKind.REFUSED,
    FaultKind.STALE,
    FaultKind.CONFLICT,
    FaultKind.STALE_READ,
)
IN_WORLD: Final = (
    FaultKind.ZONE_OUT,
    FaultKind.SPOT_STORM,
    FaultKind.HINTS,
    FaultKind.API_AWAY,
    FaultKind.PROMETHEUS_AWAY,
    FaultKind.NO_JOINS,
    FaultKind.MACHINE_DIES,
    FaultKind.NODE_ANEW,
    FaultKind.NODES_ANEW,
    FaultKind.LIST_OMITS,
    FaultKind.LIST_LAGS,
    FaultKind.POOL_OUT,
    FaultKind.SUBNET_FULL,
    FaultKind.LAUNCH_REFUSED,
    FaultKind.STRANGERS,
    FaultKind.NODE_FLAPS,
    FaultKind.PERSON_CORDONS,
    FaultKind.NODE_TWIN,
    FaultKind.STORE_AWAY,
    FaultKind.EC2_AWAY,
    FaultKind.GITHUB_AWAY,
)
# Probability at each call, for each process or event; for the world, every 20 minutes.
RATES: Final[Mapping[FaultKind, float]] = {
    FaultKind.SWITCH: 0.02,
    FaultKind.DELAY: 0.008,
    FaultKind.PAUSE: 0.003,
    FaultKind.KILL_BEFORE: 0.004,
    FaultKind.KILL_AFTER: 0.004,
    FaultKind.LOST: 0.008,
    FaultKind.REFUSED: 0.010,
    FaultKind.STALE: 0.010,
    FaultKind.SKEW: 0.3,
    FaultKind.JUMP: 0.01,
    FaultKind.TICK_TWICE: 0.10,
    FaultKind.TICK_MISSED: 0.03,
    FaultKind.EVENT_DROPPED: 0.2,
    FaultKind.EVENT_LATE: 0.3,
    FaultKind.EVENT_TWICE: 0.3,
    FaultKind.ZONE_OUT: 0.13,
    FaultKind.SPOT_STORM: 0.25,
    FaultKind.HINTS: 0.25,
    FaultKind.API_AWAY: 0.15,
    FaultKind.PROMETHEUS_AWAY: 0.15,
    FaultKind.NO_JOINS: 0.10,
    FaultKind.MACHINE_DIES: 0.10,
}
HOOK_RATES: Final[Mapping[FaultKind, float]] = {
    FaultKind.HOOK_LOST: 0.08,
    FaultKind.HOOK_LATE: 0.15,
    FaultKind.HOOK_TWICE: 0.15,
}
NODE_RATES: Final[Mapping[FaultKind, float]] = {
    FaultKind.NODE_ANEW: 0.15,
    FaultKind.NODES_ANEW: 0.05,
}
# Each kind has its own random generator: one more kind changes nothing in seeds that do not draw it.
LATER_RATES: Final[Mapping[FaultKind, float]] = {
    FaultKind.LIST_OMITS: 0.25,
    FaultKind.LIST_LAGS: 0.15,
    FaultKind.DIES_AT_BIRTH: 0.2,
    FaultKind.ADDRESS_REUSED: 0.6,
    FaultKind.POOL_OUT: 0.3,
    FaultKind.SUBNET_FULL: 0.15,
    FaultKind.LAUNCH_REFUSED: 0.15,
    FaultKind.STRANGERS: 0.3,
    FaultKind.NODE_FLAPS: 0.3,
    FaultKind.PERSON_CORDONS: 0.3,
    FaultKind.NODE_TWIN: 0.2,
    FaultKind.STORE_AWAY: 0.15,
    FaultKind.EC2_AWAY: 0.15,
    FaultKind.GITHUB_AWAY: 0.15,
    FaultKind.CONFLICT: 0.05,
    FaultKind.STALE_READ: 0.05,
    FaultKind.HOOK_TARGETS: 0.6,
    FaultKind.HOOK_HOURS_LATE: 0.04,
    FaultKind.LOG_LATE: 0.3,
    FaultKind.RESCHEDULED: 0.4,
    FaultKind.DEPLOYMENT_EVENTS: 0.8,
    FaultKind.HOOK_DAYS_LATE: 0.3,
    FaultKind.RUNNER_STOLEN: 0.8,
}
NO_FAULT: Final = "none"  # in place of fault names: no faults at all
LISTS: Final = frozenset({("machines", "tagged"), ("kube", "nodes"), ("kube", "pods")})
EVENTUAL: Final = frozenset({("store", "get_eventual"), ("store", "batch_get_eventual"), ("store", "query_eventual")})
# The calls that these faults can happen to; others can happen to each.
_ONLY_AT: Final = {
    FaultKind.STALE: LISTS,
    FaultKind.CONFLICT: frozenset({("store", "transact")}),
    FaultKind.STALE_READ: EVENTUAL,
}


@dataclass(frozen=True, slots=True)
class Fault:
    """A fault at one call. `seconds` is the length of a switch, a delay or a pause."""

    kind: FaultKind
    seconds: float = 0.0
    is_after: bool = False  # a delay or a pause comes after the effect


class Faults(Protocol):
    """Decides which faults happen, and counts those that did."""

    happened: Counter[FaultKind]

    def at_call(self, process: str, number: int, call: int, port: str, method: str) -> Fault | None: ...

    def draw(self, kind: FaultKind, what: str, number: int) -> float | None:
        """None when the fault does not happen to `what`; otherwise a number from 0 up to 1 that sets its size."""
        ...


@dataclass
class DrawnFaults:
    """Faults drawn by a seed; with `only`, limited to the names in it."""

    seed: int
    rates: Mapping[FaultKind, float]
    only: frozenset[str] | None = None
    happened: Counter[FaultKind] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)
    is_over: bool = False  # the world heals

    def __post_init__(self) -> None:
        self._steps: list[tuple[float, FaultKind]] = []
        total = 0.0
        for kind in AT_CALLS:
            total += self.rates.get(kind, 0.0)
            self._steps.append((total, kind))
        self._total = total
        # The common prefix of many draws is mixed once: per process, and per kind.
        self._mix = mixed(self.seed, 1)
        self._process, self._process_mix = 0, mixed_on(self._mix, 0)
        self._mix_of = {kind: mixed(self.seed, 3, number) for kind, number in _NUMBER.items()}

    def at_call(self, process: str, number: int, call: int, port: str, method: str) -> Fault | None:
        if self.is_over:
            return None
        if number != self._process:  # a process makes many calls in a row
            self._process, self._process_mix = number, mixed_on(self._mix, number)
        chance = drawn_on(self._process_mix, call)
        if chance >= self._total:
            return None
        kind = next(kind for limit, kind in self._steps if chance < limit)
        if kind in _ONLY_AT and (port, method) not in _ONLY_AT[kind]:
            return None
        if not self._takes_place(f"{process}@{call}:{kind}", kind):
            return None
        size = drawn(self.seed, 2, number, call)
        return fault_of(kind, size)

    def draw(self, kind: FaultKind, what: str, number: int) -> float | None:
        rate = 0.0 if self.is_over else self.rates.get(kind, 0.0)
        if not rate or drawn_on(self._mix_of[kind], number) >= rate:
            return None
        if not self._takes_place(f"{what}:{kind}", kind):
            return None
        return drawn(self.seed, 4, _NUMBER[kind], number)

    def _takes_place(self, name: str, kind: FaultKind) -> bool:
        if self.only is not None and name not in self.only:
            return False
        self.happened[kind] += 1
        self.names.append(name)
        return True


@dataclass
class ScriptedFaults:
    """Faults at given calls: `(process, number of the call)`."""

    script: Mapping[tuple[str, int], Fault]
    happened: Counter[FaultKind] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def at_call(self, process: str, number: int, call: int, port: str, method: str) -> Fault | None:
        fault = self.script.get((process, call))
        if fault is not None:
            self.happened[fault.kind] += 1
            self.names.append(f"{process}@{call}:{fault.kind}")
        return fault

    def draw(self, kind: FaultKind, what: str, number: int) -> float | None:
        return None


def fault_of(kind: FaultKind, size: float) -> Fault:
    """A fault of this kind; `size`, from 0 up to 1, sets its length and whether it comes before or after the effect."""
    is_after = size * 1000 % 1 < 0.5
    match kind:
        case FaultKind.SWITCH:
            return Fault(kind, 0.5 + size * 3)
        case FaultKind.DELAY:
            return Fault(kind, 5 + size * 50, is_after)
        case FaultKind.PAUSE:
            return Fault(kind, 95 + size * size * 1500, is_after)
        case _:
            return Fault(kind)


def error_of(kind: FaultKind, port: str, now: Instant) -> Exception:
    """The error that a caller gets when an answer is lost or a call is refused."""
    if port == "github":
        return (
            GitHubUnavailable("simulated: lost") if kind is FaultKind.LOST else RateLimited("simulated", now.plus(60))
        )
    if kind is FaultKind.CONFLICT:  # what is left after the adapter's retries
        return StoreUnavailable(f"simulated: {kind}")
    if port == "machines":
        return MachineError(
            "RequestTimeout" if kind is FaultKind.LOST else "RequestLimitExceeded", f"simulated: {kind}"
        )
    if port == "kube":
        return KubeUnavailable(f"simulated: {kind}")
    return StoreUnavailable(f"simulated: {kind}")


_NUMBER: Final = {kind: number for number, kind in enumerate(FaultKind)}
