"""What happens at GitHub in a run of the simulator: which runs begin when, and what becomes of each of their jobs.

Everything is decided beforehand, by a seed or by a scenario, so that leaving out a fault does not change the rest.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

INTERRUPTED: Final = "interrupted"  # spot takes the machine
NEVER: Final = "never"  # still running when the world ends
RUNS_EACH_HOUR: Final = 1.25
_ENDS: Final = ("success",) * 5 + (INTERRUPTED,) * 4 + ("failure", "timed_out", "cancelled", NEVER)
_REVIEWS: Final = ("approved",) * 4 + ("rejected", None)
_AGAIN_SECONDS: Final = (None, None, None, 400.0, 1500.0)
_SWEEP_SECONDS: Final = (600, 900)
_SPAN_SECONDS: Final = 4 * 3600


@dataclass(frozen=True, slots=True)
class JobScript:
    """One job. `ends` has the end of each attempt, the last one of all further ones; `review` None: nobody decides."""

    name: str
    ends: tuple[str, ...] = ("success",)
    environment: str | None = None
    review: str | None = "approved"
    review_seconds: float = 60.0
    queue_seconds: float = 20.0
    run_seconds: float = 180.0

    def end_of(self, attempt: int) -> str:
        return self.ends[min(attempt, len(self.ends)) - 1]


@dataclass(frozen=True, slots=True)
class RunScript:
    """A run. The jobs of a stage begin together, when all before have succeeded."""

    at_seconds: float
    stages: tuple[tuple[JobScript, ...], ...]
    installation: int = 0  # which of the two
    starts: bool = True  # else it ends with startup_failure
    again_seconds: float | None = None  # after a failure somebody runs it again


@dataclass(frozen=True, slots=True)
class GitHubPlan:
    """An organisation. `lost` names webhooks whose first attempt does not arrive, whatever the seed draws."""

    runs: tuple[RunScript, ...] = ()
    sweep_seconds: int = 300
    reads_log: bool = True  # an App may read the log of deliveries; a token may not
    calls_per_hour: int = 5000
    lost: frozenset[str] = frozenset()

    @property
    def settle_seconds(self) -> int:
        """After this long without faults the tracker knows what is so: two sweeps, and some patience."""
        return 2 * self.sweep_seconds + 600


def drawn_plan(seed: int, safety_seconds: int, *, has_faults: bool) -> GitHubPlan:
    """An organisation by a seed: small, and a little different each time."""
    chance = random.Random(f"jobs {seed}")  # noqa: S311 -- a simulation wants chance that can be repeated
    hours = min(safety_seconds, _SPAN_SECONDS) / 3600
    per_span = max(1, round(chance.uniform(0.5, 1.5) * RUNS_EACH_HOUR * hours))
    spans = max(1, safety_seconds // _SPAN_SECONDS)
    latest = max(60.0, safety_seconds / spans - 900)
    runs = [
        _run(chance, span * (safety_seconds // spans) + chance.uniform(30, latest))
        for span in range(spans)
        for _ in range(per_span)
    ]
    return GitHubPlan(
        tuple(sorted(runs, key=lambda run: run.at_seconds)),
        sweep_seconds=chance.choice(_SWEEP_SECONDS),
        calls_per_hour=chance.choice((5000, 5000, 30)) if has_faults else 5000,
    )


def _run(chance: random.Random, at_seconds: float) -> RunScript:
    stages = [_stage(chance, "build", chance.choice((1, 1, 2, 3)))]
    if chance.random() < 0.3:
        stages.append(_stage(chance, "deploy", 1))
    return RunScript(
        at_seconds,
        tuple(stages),
        installation=int(chance.random() < 0.3),
        starts=chance.random() >= 0.05,
        again_seconds=chance.choice(_AGAIN_SECONDS),
    )


def _stage(chance: random.Random, name: str, jobs: int) -> tuple[JobScript, ...]:
    # The machines of a run's jobs are often taken together.
    is_taken = chance.random() < 0.25
    return tuple(_job(chance, f"{name} {number}", is_taken=is_taken) for number in range(jobs))


def _job(chance: random.Random, name: str, *, is_taken: bool) -> JobScript:
    environment = "production" if chance.random() < (0.6 if name.startswith("deploy") else 0.1) else None
    ends: Sequence[str] = [chance.choice(_ENDS) for _ in range(3)]
    return JobScript(
        name,
        (INTERRUPTED if is_taken else ends[0], *ends[1:]),
        environment,
        review=chance.choice(_REVIEWS),
        review_seconds=chance.uniform(30, 1500),
        queue_seconds=chance.uniform(3, 60),
        run_seconds=chance.uniform(130, 900),
    )
