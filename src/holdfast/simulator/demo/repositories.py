"""The repositories of the demo's organisation: their workflows, and the runner pools that these use."""

from dataclasses import dataclass
from itertools import product
from typing import Final

from holdfast.kernel.ids import InstallationId


@dataclass(frozen=True, slots=True)
class JobKind:
    """One job of a workflow. With an `environment`, a person has to approve it first."""

    name: str
    seconds: tuple[float, float]
    pool: str = "linux-small"
    environment: str | None = None


@dataclass(frozen=True, slots=True)
class Workflow:
    """Jobs in stages: the jobs of a stage start together, once the stage before has succeeded."""

    id: int
    name: str
    stages: tuple[tuple[JobKind, ...], ...]
    branches: tuple[str, ...] = ("main",)


@dataclass(frozen=True, slots=True)
class DemoRepository:
    name: str
    team: str
    share: int  # of all pushes, relative to the other repositories
    workflows: tuple[Workflow, ...]
    private: bool = True


@dataclass(frozen=True, slots=True)
class Pool:
    """Runners of one instance type, at most `most` at a time."""

    instance_type: str
    most: int
    spot_share: float


def matrix(name: str, *axes: tuple[str, ...], seconds: tuple[float, float], pool: str) -> tuple[JobKind, ...]:
    """A job for each combination, named as GitHub does."""
    return tuple(JobKind(f"{name} ({', '.join(values)})", seconds, pool) for values in product(*axes))


INSTALLATION: Final = InstallationId(61_204_417)
OWNER: Final = "tidewater"
POOLS: Final = {
    "linux-small": Pool("m7g.large", 8, 0.85),
    "linux-large": Pool("c7i.4xlarge", 4, 0.7),
    "deploy": Pool("t3.medium", 2, 0.0),
}
_FEATURES: Final = ("feature/refunds", "fix/flaky-login", "feature/dark-mode", "renovate/all", "fix/slow-search")
_PYTHONS: Final = ("3.11", "3.12", "3.13")

REPOSITORIES: Final = (
    DemoRepository(
        "shop",
        "storefront",
        5,
        (
            Workflow(
                101,
                "CI",
                (
                    (JobKind("lint", (40, 90)), JobKind("types", (50, 120))),
                    matrix("unit", ("chrome", "firefox"), ("1", "2", "3"), seconds=(120, 420), pool="linux-small"),
                    (JobKind("end to end", (420, 900), "linux-large"),),
                ),
                _FEATURES,
            ),
            Workflow(
                102,
                "Release",
                (
                    (JobKind("build image", (150, 300), "linux-large"),),
                    (JobKind("deploy to staging", (60, 140), "deploy"),),
                    (JobKind("deploy to production", (90, 200), "deploy", "production"),),
                ),
            ),
        ),
    ),
    DemoRepository(
        "payments",
        "payments",
        3,
        (
            Workflow(
                201,
                "CI",
                (
                    (JobKind("lint", (30, 70)),),
                    matrix("test", _PYTHONS, ("postgres-16", "postgres-17"), seconds=(180, 480), pool="linux-small"),
                ),
                _FEATURES,
            ),
            Workflow(
                202,
                "Deploy",
                (
                    (JobKind("build", (100, 240)),),
                    (JobKind("deploy to production", (60, 150), "deploy", "production"),),
                ),
            ),
        ),
    ),
    DemoRepository(
        "search",
        "storefront",
        2,
        (
            Workflow(
                301,
                "CI",
                (
                    (JobKind("build", (200, 500), "linux-large"),),
                    matrix("relevance", ("de", "en", "fr"), seconds=(240, 600), pool="linux-large"),
                ),
                _FEATURES,
            ),
        ),
    ),
    DemoRepository(
        "infrastructure",
        "platform",
        1,
        (
            Workflow(
                401,
                "Plan",
                (matrix("plan", ("staging", "production"), seconds=(60, 180), pool="linux-small"),),
                _FEATURES,
            ),
            Workflow(402, "Apply", ((JobKind("apply", (90, 300), "deploy", "infrastructure"),),)),
        ),
    ),
    DemoRepository(
        "docs", "platform", 1, (Workflow(501, "Build", ((JobKind("build", (50, 110)),),), ("main",)),), private=False
    ),
)
JOB_KINDS: Final = {
    (workflow.id, kind.name): kind
    for repository in REPOSITORIES
    for workflow in repository.workflows
    for stage in workflow.stages
    for kind in stage
}
