"""Load shapes: how many pods are wanted over time."""

import math
import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from holdfast.simulator.world.k3s import Workload

_HOUR: Final = 3600


class LoadShape(StrEnum):
    STEADY = "steady"
    DIURNAL = "diurnal"
    BURSTY = "bursty"
    BATCH = "batch"
    FLAPPING = "flapping"
    RAMP = "ramp"


@dataclass(frozen=True, slots=True)
class LoadChange:
    """From this second on, the workload is as given."""

    at_seconds: int
    workload: Workload


def load_of(shape: LoadShape, seconds: int, most_pods: int, chance: random.Random) -> list[LoadChange]:
    """The changes over a run. `most_pods` is about the capacity of the largest cluster."""
    low = max(1, int(most_pods * chance.uniform(0.05, 0.35)))
    high = max(low + 1, int(most_pods * chance.uniform(0.4, 1.05)))
    wanted = _CURVES[shape](low, high, chance)
    budget = chance.choice((None, None, 2, 1))
    changes: list[LoadChange] = []
    last = -1
    for at in range(0, seconds, 300):
        pods = max(0, min(most_pods, round(wanted(at))))
        if pods != last:
            changes.append(LoadChange(at, Workload("web", pods, max_unavailable=budget)))
            last = pods
    return changes + _fixtures(chance)


def _fixtures(chance: random.Random) -> list[LoadChange]:
    """Constant workloads: a critical pod, and a pod whose disruption budget blocks eviction."""
    found: list[LoadChange] = []
    if chance.random() < 0.3:
        template: Mapping[str, object] = {"priority_class": "system-cluster-critical"}
        found.append(LoadChange(0, Workload("dns", 1, namespace="kube-system", template=template)))
    if chance.random() < 0.2:
        found.append(LoadChange(0, Workload("keeper", 1, max_unavailable=0)))
    return found


Curve = Callable[[int], float]


def _steady(low: int, high: int, _: random.Random) -> Curve:
    return lambda _at: (low + high) / 2


def _diurnal(low: int, high: int, chance: random.Random) -> Curve:
    period, start = chance.uniform(2, 6) * _HOUR, chance.random()
    return lambda at: low + (high - low) * (1 - math.cos(2 * math.pi * (at / period + start))) / 2


def _bursty(low: int, high: int, chance: random.Random) -> Curve:
    bursts = [(chance.randrange(6 * _HOUR), chance.randrange(600, 2400)) for _ in range(chance.randint(2, 6))]
    return lambda at: high if any(start <= at < start + length for start, length in bursts) else low


def _batch(low: int, high: int, chance: random.Random) -> Curve:
    every, length = chance.randrange(3600, 7200), chance.randrange(900, 3000)
    return lambda at: high if at % every < length else low


def _flapping(low: int, high: int, chance: random.Random) -> Curve:
    every = chance.choice((600, 900, 1500))
    return lambda at: high if at // every % 2 else low


def _ramp(low: int, high: int, chance: random.Random) -> Curve:
    up = chance.random() < 0.5
    return lambda at: low + (high - low) * (at if up else 4 * _HOUR - at) / (4 * _HOUR)


_CURVES: Final[Mapping[LoadShape, Callable[[int, int, random.Random], Curve]]] = {
    LoadShape.STEADY: _steady,
    LoadShape.DIURNAL: _diurnal,
    LoadShape.BURSTY: _bursty,
    LoadShape.BATCH: _batch,
    LoadShape.FLAPPING: _flapping,
    LoadShape.RAMP: _ramp,
}
