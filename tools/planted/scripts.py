"""Pinned fault scripts: one for each bug that a seed once found and that can still be planted, and some for others.

A seed draws another world as soon as the simulator changes, and then no longer meets its bug. A script has a world of
its own and names its faults by the call that they hit: the process, the port's method, and how often that process has
called it before.
"""

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Final

from holdfast.simulator.proof.faults import Fault, FaultKind
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.swarm import Outage, PlannedPause, Setup
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.workloads import LoadChange

ANY: Final = "any process"
Call = tuple[str, str, int]  # process, port.method, how often it was called before
Draw = tuple[FaultKind, str]  # what happens, and to which process or event
AHEAD, BEHIND = 0.75, 0.25  # the size of a clock's jump: half an hour ahead, or behind


@dataclass
class NamedFaults:
    """Faults at the calls that are named, and the draws that are named, with their sizes."""

    calls: Mapping[Call, Fault]
    draws: Mapping[Draw, float]
    happened: Counter[FaultKind] = field(default_factory=Counter)
    names: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._count: Counter[tuple[str, str]] = Counter()

    def at_call(self, process: str, number: int, call: int, port: str, method: str) -> Fault | None:  # noqa: ARG002 -- as Faults has it
        found = None
        for name in (process, ANY):
            key = (name, f"{port}.{method}")
            found = found or self.calls.get((*key, self._count[key]))
            self._count[key] += 1
        if found is not None:
            self._note(f"{process}@{call}:{found.kind}", found.kind)
        return found

    def draw(self, kind: FaultKind, what: str, number: int) -> float | None:  # noqa: ARG002 -- as above
        size = self.draws.get((kind, what))
        if size is not None:
            self._note(f"{what}:{kind}", kind)
        return size

    def _note(self, name: str, kind: FaultKind) -> None:
        self.happened[kind] += 1
        self.names.append(name)


@dataclass(frozen=True)
class FaultScript:
    """A world, and its faults. `seeds` are those that once found the bug."""

    seeds: tuple[int, ...]
    setup: Setup
    calls: Mapping[Call, Fault] = field(default_factory=dict)
    draws: Mapping[Draw, float] = field(default_factory=dict)

    def faults(self) -> NamedFaults:
        return NamedFaults(self.calls, self.draws)


def _scenario(name: str, **changes: object) -> Setup:
    """A scenario with changes; those of a setting are named like the setting."""
    setup = SCENARIOS[name]()
    fields = {key: value for key, value in changes.items() if hasattr(setup, key)}
    numbers = {key: value for key, value in changes.items() if key not in fields}
    return replace(setup, numbers=replace(setup.numbers, **numbers), **fields)  # type: ignore[arg-type]


def _load(pods: int, at: int = 0) -> tuple[LoadChange, ...]:
    return (LoadChange(at, Workload("web", pods)),)


def _storm(at: float) -> Outage:
    return Outage(at, FaultKind.SPOT_STORM, 0.001)


_REFUSED: Final = Fault(FaultKind.REFUSED)

SCRIPTS: Final[Mapping[str, FaultScript]] = {
    "a termination is throttled": FaultScript(
        (14,), _scenario("scale-down"), {(ANY, "machines.terminate", 0): _REFUSED}
    ),
    "an event's machine cannot be looked up": FaultScript(
        (9,), _scenario("spot"), {("event-1", "machines.found", 0): _REFUSED}
    ),
    "a hint comes as pods have waited long enough": FaultScript(
        (17,),
        _scenario("rebalance", max_workers=4, load=_load(60, at=150), outages=(Outage(149.5, FaultKind.HINTS, 0.3),)),
    ),
    "it sleeps between its look and its lease": FaultScript(
        (23,),
        _scenario("scale-up", min_workers=4, max_workers=4),
        {("tick-0", "signals.cpu", 0): Fault(FaultKind.PAUSE, 340, is_after=True)},
    ),
    "a scale-up begins while a replacement is in doubt": FaultScript(
        (105,),
        _scenario(
            "spot-during-scale-up",
            load=_load(45, at=130),
            outages=(_storm(30), Outage(35, FaultKind.ZONE_OUT, 0.0, 900)),
        ),
        {("event-1", "machines.launch", 0): Fault(FaultKind.KILL_BEFORE)},
    ),
    "another machine dies during a drain": FaultScript(
        (158,),
        _scenario("spot-during-drain", outages=(Outage(185, FaultKind.MACHINE_DIES, 0.0021),)),
    ),
    "a machine is launched late, and EC2 does not list it": FaultScript(
        (201, 344),
        _scenario(
            "scale-up",
            workers=0,
            min_workers=0,
            outages=(Outage(0, FaultKind.NO_JOINS, 0.0, 3600),),
            unlisted_seconds=2000.0,
            safety_seconds=1300,
            heal_seconds=60,
            max_batch_up=1,
        ),
        {(ANY, "machines.launch", number): _REFUSED for number in range(12)},
    ),
    "EC2 does not know a machine that never joins": FaultScript((), _scenario("join-timeout", unlisted_seconds=400.0)),
    "an event and a tick come at once": FaultScript((290, 675), _scenario("spot", outages=(_storm(60.0),))),
    "a replacement is Ready as a zone's last worker is drained": FaultScript(
        (800,),
        _scenario(
            "spot",
            workers=2,
            zones=2,
            spot_share=0.5,
            min_workers=0,
            newest_kept_seconds=0,
            load=(),
            outages=(_storm(42),),
        ),
    ),
    "a clock that is ahead gives a machine back": FaultScript(
        (10005,),
        _scenario("spot", is_dated=False),
        draws={
            (FaultKind.JUMP, "tick-2"): AHEAD,
            (FaultKind.JUMP, "tick-3"): AHEAD,
            (FaultKind.EVENT_TWICE, "event-1"): 1.1,
        },
    ),
    "a clock that is behind notes an interruption": FaultScript(
        (25122,),
        _scenario("spot", is_dated=False),
        draws={(FaultKind.JUMP, "event-1"): BEHIND, (FaultKind.EVENT_TWICE, "event-1"): 0.35},
    ),
    "a clock that is ahead gives up a replacement that EC2 does not list yet": FaultScript(
        (),
        _scenario("spot", is_dated=False, unlisted_seconds=90.0, outages=(_storm(118),)),
        draws={(FaultKind.JUMP, "tick-2"): AHEAD},
    ),
    "EC2 forgets a machine before its replacement comes": FaultScript(
        (10310,),
        _scenario("spot", pauses=(PlannedPause(0, 4500),), safety_seconds=4600),
    ),
    "a sweep comes between the note of an interruption and its event": FaultScript(
        (348,),
        _scenario("interrupted-job"),
        {("fleet-4", "store.put", 0): Fault(FaultKind.PAUSE, 340, is_after=True)},
    ),
    "an event comes seconds before the lease of a sleeping process ends": FaultScript(
        (),
        _scenario("spot", outages=(_storm(88),)),
        {("tick-0", "store.update", 0): Fault(FaultKind.PAUSE, 340, is_after=True)},
    ),
    "each launch takes 40 seconds": FaultScript(
        (),
        _scenario("scale-up"),
        {(ANY, "machines.launch", number): Fault(FaultKind.DELAY, 40, is_after=True) for number in range(2)},
    ),
    "a hint comes at the maximum": FaultScript((), _scenario("rebalance", max_workers=3)),
    "a hint comes for a node that a person has cordoned": FaultScript(
        (),
        _scenario(
            "persons-cordon",
            spot_share=1.0,
            rebalance="replace",
            min_workers=4,
            stuck_seconds=400,
            load=(LoadChange(0, Workload("web", 4, max_unavailable=0)),),
            outages=(Outage(5, FaultKind.PERSON_CORDONS, seconds=86_400), Outage(20, FaultKind.HINTS)),
        ),
    ),
    "EC2 interrupts another cluster's machines": FaultScript(
        (), _scenario("spot", outages=(Outage(30, FaultKind.STRANGERS, 0.3),))
    ),
}
