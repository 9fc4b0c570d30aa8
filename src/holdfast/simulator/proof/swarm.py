"""Swarm testing: each seed draws its own mix of faults, settings, cluster and load.

A single mix of everything would find less: some faults mask others.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item
from holdfast.simulator.proof.faults import HOOK_RATES, LATER_RATES, NODE_RATES, RATES, FaultKind
from holdfast.simulator.proof.github.plans import GitHubPlan, drawn_plan
from holdfast.simulator.proof.numbers import Numbers
from holdfast.simulator.world.workloads import LoadChange, LoadShape, load_of
from holdfast.simulator.world.world import DAWN

SAFETY_SECONDS: Final = 4 * 3600
HEAL_SECONDS: Final = 2 * 3600


class Faultiness(StrEnum):
    NONE = "none"
    MILD = "mild"
    WILD = "wild"


# An hour or two later it is midnight UTC, another month or year, or clocks change in Europe or in America.
ODD_STARTS: Final = tuple(
    map(
        Instant.from_iso,
        (
            "2026-05-12T22:00:00Z",
            "2026-01-31T22:00:00Z",
            "2026-12-31T22:00:00Z",
            "2028-02-28T22:00:00Z",
            "2026-03-28T23:00:00Z",
            "2026-10-24T23:00:00Z",
            "2026-03-08T05:00:00Z",
            "2026-11-01T04:00:00Z",
        ),
    )
)
_PAUSED_SHARE: Final = 0.3
_MARKED_SHARE: Final = 0.7
_LATER_SHARE: Final = 0.3  # a seed has each of the later kinds with this probability: all at once would mask much
_SHARE: Final = {Faultiness.NONE: 0.0, Faultiness.MILD: 0.2, Faultiness.WILD: 1.0}


@dataclass(frozen=True, slots=True)
class Outage:
    """A scripted fault of the world. `size`, from 0 up to 1, selects which machine or zone, or how long."""

    at_seconds: float
    kind: FaultKind
    size: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class PlannedPause:
    """A time in which an operator wants the cluster paused."""

    at_seconds: float
    until_seconds: float


@dataclass(frozen=True)
class Setup:
    """Everything that a run starts with. The seed decides the rest."""

    seed: int
    numbers: Numbers = field(default_factory=Numbers)
    workers: int = 3
    are_marked: bool = True  # False: the first workers were accepted by a version that did not tag them
    spot_share: float = 0.5
    zones: int = 3
    load: tuple[LoadChange, ...] = ()
    shape: str = "scripted"
    rates: Mapping[FaultKind, float] = field(default_factory=dict)
    daemons: int = 0  # in addition to the tick every minute
    loops: bool = False  # one invocation runs several ticks while an action is in progress
    unlisted_seconds: float = 6.0
    start: Instant = DAWN
    begins_with: Item = field(default_factory=dict)
    outages: tuple[Outage, ...] = ()  # in addition to those that are drawn
    pauses: tuple[PlannedPause, ...] = ()
    ticks: bool = True  # False: the cluster is not managed
    is_tagging_refused: bool = False  # EC2 accepts no tag after the launch
    is_dated: bool = True  # False: EC2's responses have no date, so a wrong clock is not noticed
    github: GitHubPlan | None = None
    safety_seconds: int = SAFETY_SECONDS
    heal_seconds: int = HEAL_SECONDS

    @property
    def seconds(self) -> int:
        return self.safety_seconds + self.heal_seconds


def drawn_setup(seed: int, faults: Faultiness, *, days: float | None = None, most_workers: int = 10) -> Setup:
    """The setup of a seed, with mild or wild faults."""
    chance = random.Random(f"setup {seed}")  # noqa: S311 -- a simulation wants chance that can be repeated
    numbers = _kept(seed, _numbers(chance, most_workers))
    shape = chance.choice(list(LoadShape))
    safety = SAFETY_SECONDS if days is None else max(60, round(days * 86_400) - HEAL_SECONDS)
    return Setup(
        seed=seed,
        numbers=numbers,
        workers=chance.randint(numbers.min_workers, numbers.max_workers),
        are_marked=_are_marked(seed),
        is_dated=_is_dated(seed),
        spot_share=chance.choice((0.0, 0.5, 0.9)),
        zones=chance.choice((1, 2, 3, 3)),
        load=tuple(load_of(shape, safety, numbers.max_workers * numbers.pods_per_node, chance)),
        shape=shape,
        rates={
            **_rates(chance, faults),
            **_hook_rates(seed, faults),
            **_node_rates(seed, faults),
            **_later_rates(seed, faults),
        },
        daemons=chance.choice((0, 0, 0, 1)) if faults is not Faultiness.NONE else 0,
        loops=chance.random() < 0.15,
        unlisted_seconds=chance.choice((0.0, 6.0, 6.0, 30.0, 90.0)),
        begins_with=chance.choice((*({},) * 9, *_LEGACY)) if faults is not Faultiness.NONE else {},
        pauses=_pauses(seed, safety) if faults is not Faultiness.NONE else (),
        start=_start(seed) if faults is not Faultiness.NONE else DAWN,
        safety_seconds=safety,
        github=drawn_plan(seed, safety, has_faults=faults is not Faultiness.NONE),
    )


def _numbers(chance: random.Random, most_workers: int) -> Numbers:
    least = chance.choice((0, 1, 2, 2, 3)) if most_workers <= 10 else most_workers // 4
    return Numbers(
        cpu_up=chance.choice((0.6, 0.7, 0.8)),
        cpu_down=chance.choice((0.2, 0.3, 0.5)),
        pending_up_seconds=chance.choice((60, 180)),
        idle_down_seconds=chance.choice((120, 300, 600)),
        cooldown_up_seconds=chance.choice((60, 300)),
        cooldown_down_seconds=chance.choice((120, 600)),
        min_workers=least,
        max_workers=chance.randint(max(least, most_workers // 2), most_workers),
        max_batch_up=chance.choice((1, 2, 4)),
        max_batch_down=chance.choice((1, 1, 2, 3)),
        join_timeout_seconds=chance.choice((300, 600)),
        rebalance=chance.choice(("prefer", "prefer", "replace", "ignore")),
    )


def _kept(seed: int, numbers: Numbers) -> Numbers:
    """How long the newest worker stays, and whether zones are kept. From a separate generator: the rest of a seed's
    setup does not depend on it.
    """
    chance = random.Random(f"kept {seed}")  # noqa: S311 -- a simulation wants chance that can be repeated
    zones_kept = chance.choice(("always", "always", "prefer"))
    return replace(numbers, newest_kept_seconds=chance.choice((0, 600, 600, 1800)), zones_kept=zones_kept)


def rates_of(seed: int, faults: Faultiness) -> dict[FaultKind, float]:
    """The mix of faults that a seed draws, for a scenario."""
    chance = random.Random(f"rates {seed}")  # noqa: S311 -- as above
    return {
        **_rates(chance, faults),
        **_hook_rates(seed, faults),
        **_node_rates(seed, faults),
        **_later_rates(seed, faults),
    }


def _rates(chance: random.Random, faults: Faultiness) -> dict[FaultKind, float]:
    return _drawn_rates(chance, RATES, faults)


def _drawn_rates(chance: random.Random, rates: Mapping[FaultKind, float], faults: Faultiness) -> dict[FaultKind, float]:
    """Each kind is in the mix or not, with a varying rate."""
    share = _SHARE[faults]
    if not share:
        return {}
    return {kind: rate * share * chance.uniform(0.3, 2.0) for kind, rate in rates.items() if chance.random() < 0.6}


def _hook_rates(seed: int, faults: Faultiness) -> dict[FaultKind, float]:
    """From a separate generator: the cluster of a seed does not depend on its GitHub."""
    chance = random.Random(f"hooks {seed}")  # noqa: S311 -- as above
    return _drawn_rates(chance, HOOK_RATES, faults)


def _node_rates(seed: int, faults: Faultiness) -> dict[FaultKind, float]:
    """From a separate generator, as above."""
    chance = random.Random(f"nodes {seed}")  # noqa: S311 -- as above
    return _drawn_rates(chance, NODE_RATES, faults)


def _is_dated(seed: int) -> bool:
    """By the number alone, so that the draws of the seed stay as they are. Half of them, two in a row."""
    return seed % 4 < 2


def _are_marked(seed: int) -> bool:
    """Whether the first workers bear the tag of an acceptance: an older version wrote none."""
    return random.Random(f"marked {seed}").random() < _MARKED_SHARE  # noqa: S311 -- as above


def _later_rates(seed: int, faults: Faultiness) -> dict[FaultKind, float]:
    """Each kind from a generator of its own, so that a new kind leaves all others as they are."""
    share = _SHARE[faults]
    found: dict[FaultKind, float] = {}
    for kind, rate in LATER_RATES.items() if share else ():
        chance = random.Random(f"{kind} {seed}")  # noqa: S311 -- as above
        if chance.random() < _LATER_SHARE:
            found[kind] = rate * share * chance.uniform(0.3, 2.0)
    return found


def _start(seed: int) -> Instant:
    """When the run starts: half of them at dawn, the others shortly before a clock or a calendar does something odd."""
    chance = random.Random(f"start {seed}")  # noqa: S311 -- as above
    return chance.choice(ODD_STARTS).plus(chance.uniform(0, 3600)) if chance.random() < 0.5 else DAWN


def _pauses(seed: int, safety_seconds: int) -> tuple[PlannedPause, ...]:
    """Up to three in some runs, each within the phase with faults. From a separate generator, as above."""
    chance = random.Random(f"pauses {seed}")  # noqa: S311 -- as above
    if chance.random() > _PAUSED_SHARE:
        return ()
    begins = [chance.uniform(0, safety_seconds * 0.9) for _ in range(chance.randint(1, 3))]
    return tuple(PlannedPause(at, min(at + chance.uniform(60, 3600), safety_seconds)) for at in sorted(begins))


# Items as an older autoscaler leaves them.
_LEGACY: Final[tuple[Item, ...]] = (
    {"scalingInProgress": True, "lastScaleEpoch": 0, "pendingSinceEpoch": 0, "idleSinceEpoch": 0, "workerCount": 3},
    {
        "scalingInProgress": True,
        "scaleUpActionId": "scale-up-1700000000",
        "scaleUpStartedEpoch": 1_700_000_000,
        "scaleUpRequested": 1,
        "scaleUpInstanceIds": [],
        "lastScaleEpoch": 0,
        "workerCount": 2,
    },
    {
        "scalingInProgress": True,
        "scaleDownActionId": "scale-down-1700000000",
        "scaleDownStartedEpoch": 1_700_000_000,
        "scaleDownPhase": "DRAINING",
        "scaleDownTargetInstanceIds": ["i-00000000000000000"],
        "scaleDownCompletedInstanceIds": [],
        "lastScaleEpoch": 0,
        "workerCount": 3,
    },
)
