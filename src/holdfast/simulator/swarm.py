"""The swarm: each seed draws its own mix of faults, settings, cluster and load.

One mix with everything in it would find less: faults hide each other, and some only show where others are absent.
"""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Final

from holdfast.ports.store import Item
from holdfast.simulator.faults import HOOK_RATES, RATES, Kind
from holdfast.simulator.job_plans import GitHubPlan, drawn_plan
from holdfast.simulator.numbers import Numbers
from holdfast.simulator.workloads import Change, Shape, load_of

SAFETY_SECONDS: Final = 4 * 3600
HEAL_SECONDS: Final = 2 * 3600


class Faultiness(StrEnum):
    NONE = "none"
    MILD = "mild"
    WILD = "wild"


_PAUSED_SHARE: Final = 0.3
_SHARE: Final = {Faultiness.NONE: 0.0, Faultiness.MILD: 0.2, Faultiness.WILD: 1.0}


@dataclass(frozen=True, slots=True)
class Trouble:
    """Something that befalls the world at a moment that is written down. `size`, from 0 up to 1, says which or how."""

    at_seconds: float
    kind: Kind
    size: float = 0.0
    seconds: float = 0.0


@dataclass(frozen=True, slots=True)
class Pause:
    """A time in which somebody wants nothing new to be begun."""

    at_seconds: float
    until_seconds: float


@dataclass(frozen=True)
class Setup:
    """Everything that a run begins with. The seed decides the rest."""

    seed: int
    numbers: Numbers = field(default_factory=Numbers)
    workers: int = 3
    spot_share: float = 0.5
    zones: int = 3
    load: tuple[Change, ...] = ()
    shape: str = "scripted"
    rates: Mapping[Kind, float] = field(default_factory=dict)
    daemons: int = 0  # beside the tick a minute
    loops: bool = False  # a tick looks again in seconds while an action is under way
    unlisted_seconds: float = 6.0
    begins_with: Item = field(default_factory=dict)
    troubles: tuple[Trouble, ...] = ()  # beside those that are drawn
    pauses: tuple[Pause, ...] = ()
    ticks: bool = True  # else nobody looks after the cluster
    github: GitHubPlan | None = None
    safety_seconds: int = SAFETY_SECONDS
    heal_seconds: int = HEAL_SECONDS

    @property
    def seconds(self) -> int:
        return self.safety_seconds + self.heal_seconds


def drawn_setup(seed: int, faults: Faultiness, *, days: float | None = None, most_workers: int = 10) -> Setup:
    """What a seed stands for, with faults as mild or wild as asked."""
    chance = random.Random(f"setup {seed}")  # noqa: S311 -- a simulation wants chance that can be repeated
    numbers = _numbers(chance, most_workers)
    shape = chance.choice(list(Shape))
    safety = SAFETY_SECONDS if days is None else max(60, round(days * 86_400) - HEAL_SECONDS)
    return Setup(
        seed=seed,
        numbers=numbers,
        workers=chance.randint(numbers.min_workers, numbers.max_workers),
        spot_share=chance.choice((0.0, 0.5, 0.9)),
        zones=chance.choice((1, 2, 3, 3)),
        load=tuple(load_of(shape, safety, numbers.max_workers * numbers.pods_per_node, chance)),
        shape=shape,
        rates={**_rates(chance, faults), **_hook_rates(seed, faults)},
        daemons=chance.choice((0, 0, 0, 1)) if faults is not Faultiness.NONE else 0,
        loops=chance.random() < 0.15,
        unlisted_seconds=chance.choice((0.0, 6.0, 6.0, 30.0, 90.0)),
        begins_with=chance.choice((*({},) * 9, *_LEGACY)) if faults is not Faultiness.NONE else {},
        pauses=_pauses(seed, safety) if faults is not Faultiness.NONE else (),
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


def rates_of(seed: int, faults: Faultiness) -> dict[Kind, float]:
    """The mix of faults that a seed draws, for a setup that was not drawn."""
    chance = random.Random(f"rates {seed}")  # noqa: S311 -- as above
    return {**_rates(chance, faults), **_hook_rates(seed, faults)}


def _rates(chance: random.Random, faults: Faultiness) -> dict[Kind, float]:
    return _drawn_rates(chance, RATES, faults)


def _drawn_rates(chance: random.Random, rates: Mapping[Kind, float], faults: Faultiness) -> dict[Kind, float]:
    """Each kind is in the mix or not, and more or less frequent."""
    share = _SHARE[faults]
    if not share:
        return {}
    return {kind: rate * share * chance.uniform(0.3, 2.0) for kind, rate in rates.items() if chance.random() < 0.6}


def _hook_rates(seed: int, faults: Faultiness) -> dict[Kind, float]:
    """By a chance of their own: the cluster of a seed does not depend on its GitHub."""
    chance = random.Random(f"hooks {seed}")  # noqa: S311 -- as above
    return _drawn_rates(chance, HOOK_RATES, faults)


def _pauses(seed: int, safety_seconds: int) -> tuple[Pause, ...]:
    """In some runs: up to three, each within the time of the faults. By a chance of their own, as above."""
    chance = random.Random(f"pauses {seed}")  # noqa: S311 -- as above
    if chance.random() > _PAUSED_SHARE:
        return ()
    begins = [chance.uniform(0, safety_seconds * 0.9) for _ in range(chance.randint(1, 3))]
    return tuple(Pause(at, min(at + chance.uniform(60, 3600), safety_seconds)) for at in sorted(begins))


# Items as an older autoscaler left them.
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
