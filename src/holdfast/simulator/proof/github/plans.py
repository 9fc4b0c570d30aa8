"""What happens at GitHub in a run of the simulator: which runs start when, and how each of their jobs ends.

Everything is decided in advance, by a seed or by a scenario, so leaving out a fault does not change the rest.
"""

import random
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

INTERRUPTED: Final = "interrupted"  # its spot runner is interrupted
NEVER: Final = "never"  # still running when the world ends
RUNS_EACH_HOUR: Final = 1.25
_ENDS: Final = ("success",) * 5 + (INTERRUPTED,) * 4 + ("failure", "timed_out", "cancelled", NEVER)
_REVIEWS: Final = ("approved",) * 4 + ("rejected", None)
_RERUN_SECONDS: Final = (None, None, None, 400.0, 1500.0)
_SWEEP_SECONDS: Final = (600, 900)
_SPAN_SECONDS: Final = 4 * 3600
_LARGE_EACH: Final = 250  # one seed in so many has a large run, which costs more than the rest of its seed
_LARGE_JOBS: Final = 256  # GitHub's limit for a matrix


@dataclass(frozen=True, slots=True)
class JobScript:
    """One job. `ends` has the end of each attempt; the last one repeats. `review` None: it is never reviewed."""

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
    """A run. The jobs of a stage start together, once all earlier ones have succeeded."""

    at_seconds: float
    stages: tuple[tuple[JobScript, ...], ...]
    installation: int = 0  # index into INSTALLATIONS
    starts: bool = True  # False: it ends with startup_failure
    rerun_seconds: float | None = None  # a person re-runs it this long after a failure


@dataclass(frozen=True, slots=True)
class GitHubPlan:
    """The runs of an organisation. `lost` names delivery attempts that fail whatever the seed draws.

    `unsent` names webhooks that GitHub never sends, and that its delivery log does not have.
    """

    runs: tuple[RunScript, ...] = ()
    sweep_seconds: int = 300
    reads_log: bool = True  # an App may read the delivery log; a token may not
    calls_per_hour: int = 5000
    lost: frozenset[str] = frozenset()
    unsent: frozenset[str] = frozenset()

    @property
    def settle_seconds(self) -> int:
        """After this long without faults the tracker must be up to date: two sweeps, and some slack."""
        return 2 * self.sweep_seconds + 600


def drawn_plan(seed: int, safety_seconds: int, *, has_faults: bool) -> GitHubPlan:
    """A small organisation, drawn by a seed."""
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
    runs += _large_runs(seed, safety_seconds)
    return GitHubPlan(
        tuple(sorted(runs, key=lambda run: run.at_seconds)),
        sweep_seconds=chance.choice(_SWEEP_SECONDS),
        calls_per_hour=chance.choice((5000, 5000, 30)) if has_faults else 5000,
    )


def _large_runs(seed: int, safety_seconds: int) -> list[RunScript]:
    """One run with a large matrix, in few seeds. By the number, so that the draws of all others stay as they are."""
    if seed % _LARGE_EACH != _LARGE_EACH // 4:
        return []
    chance = random.Random(f"large run {seed}")  # noqa: S311 -- as above
    ends = chance.choice((("success",), ("success", "failure"), (INTERRUPTED,)))
    jobs = tuple(
        JobScript(f"test {number}", (ends[number % len(ends)], "success"), run_seconds=chance.uniform(130, 600))
        for number in range(_LARGE_JOBS)
    )
    return [RunScript(chance.uniform(60, max(120, safety_seconds - 3600)), (jobs,))]


def _run(chance: random.Random, at_seconds: float) -> RunScript:
    stages = [_stage(chance, "build", chance.choice((1, 1, 2, 3)))]
    if chance.random() < 0.3:
        stages.append(_stage(chance, "deploy", 1))
    return RunScript(
        at_seconds,
        tuple(stages),
        installation=int(chance.random() < 0.3),
        starts=chance.random() >= 0.05,
        rerun_seconds=chance.choice(_RERUN_SECONDS),
    )


def _stage(chance: random.Random, name: str, jobs: int) -> tuple[JobScript, ...]:
    # The spot runners of a run are often interrupted together.
    is_interrupted = chance.random() < 0.25
    return tuple(_job(chance, f"{name} {number}", is_interrupted=is_interrupted) for number in range(jobs))


def _job(chance: random.Random, name: str, *, is_interrupted: bool) -> JobScript:
    environment = "production" if chance.random() < (0.6 if name.startswith("deploy") else 0.1) else None
    ends: Sequence[str] = [chance.choice(_ENDS) for _ in range(3)]
    return JobScript(
        name,
        (INTERRUPTED if is_interrupted else ends[0], *ends[1:]),
        environment,
        review=chance.choice(_REVIEWS),
        review_seconds=chance.uniform(30, 1500),
        queue_seconds=chance.uniform(3, 60),
        run_seconds=chance.uniform(130, 900),
    )
