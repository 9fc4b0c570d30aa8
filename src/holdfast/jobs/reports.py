"""Figures over a span of time, from the index to the answer. What a question costs is bounded, and told.

Each report looks at no more jobs than `most`. `examined` says at how many it looked, and `is_complete` whether those
were all: figures over a part are no figures of the whole.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Final, Generic, TypeVar

from holdfast.jobs import statistics
from holdfast.jobs.cost import Prices
from holdfast.jobs.explain import Explanation, explained
from holdfast.jobs.facts import Status
from holdfast.jobs.keys import DeploymentKey, JobKey
from holdfast.jobs.queries import Found, Paging, Span, gathered, job, jobs_by_repository, jobs_by_status
from holdfast.jobs.statistics import CostGroup, Group
from holdfast.jobs.stuck import Patience
from holdfast.kernel.ids import DeploymentId, InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store
from holdfast.ports.store.tables import DEPLOYMENTS

MOST: Final = 5000
R = TypeVar("R")


@dataclass(frozen=True, slots=True)
class Report(Generic[R]):
    result: R
    examined: int
    is_complete: bool


@dataclass(frozen=True, slots=True)
class RepositoryFigures:
    whole: Group
    by_workflow_and_job: list[Group]


def repository_figures(
    store: Store, installation: InstallationId, repository: str, span: Span, most: int = MOST
) -> Report[RepositoryFigures]:
    """Success, run, queue and approval times of a repository's jobs."""
    found = gathered(lambda paging: jobs_by_repository(store, installation, repository, span, paging), most)
    groups = statistics.by_workflow_and_job(found.items)
    figures = RepositoryFigures(statistics.group_of(repository, found.items), groups)
    return Report(figures, found.examined, found.cursor is None)


def daily_counts(
    store: Store, installation: InstallationId, span: Span, most: int = MOST
) -> Report[dict[str, dict[str, int]]]:
    """How many jobs were created on each day, by conclusion or by where they are."""
    found = _in_statuses(store, installation, tuple(Status), span, most, whole=False)
    return Report(statistics.daily_counts(found.items), found.examined, found.cursor is None)


def pool_utilisation(
    store: Store, installation: InstallationId, span: Span, now: Instant, most: int = MOST
) -> Report[dict[str, dict[str, Any]]]:
    """How much of the machines' time jobs ran on them, by pool."""
    found = _in_statuses(store, installation, _WITH_MACHINES, span, most, whole=True)
    return Report(statistics.pool_utilisation(found.items, now), found.examined, found.cursor is None)


def costs(
    store: Store,
    installation: InstallationId,
    span: Span,
    group: str,
    prices: Prices,
    now: Instant,
    most: int = MOST,
) -> Report[list[CostGroup]]:
    """What the jobs' machines cost, by repo, workflow, team, pool or day."""
    found = _in_statuses(store, installation, _WITH_MACHINES, span, most, whole=True)
    return Report(statistics.costs(found.items, group, prices, now), found.examined, found.cursor is None)


def explanation(store: Store, key: JobKey, now: Instant, patience: Patience) -> Explanation | None:
    """Where the job is, since when, why, and what comes next; None for a job that is not known."""
    found = job(store, key)
    if found is None:
        return None
    return explained(found, _deployment_of(store, key, found), now, patience)


_WITH_MACHINES: Final = (Status.SCHEDULED, Status.IN_PROGRESS, Status.COMPLETED)


def _in_statuses(
    store: Store, installation: InstallationId, statuses: Iterable[Status], span: Span, most: int, *, whole: bool
) -> Found:
    """The jobs of these statuses one after the other, up to so many together."""
    items: list[Item] = []
    examined = 0
    for status in statuses:
        if examined >= most:
            return Found(items, "more", examined)

        def walk(paging: Paging, status: Status = status) -> Found:
            return jobs_by_status(store, installation, status, span, paging, whole=whole)

        found = gathered(walk, most - examined)
        items += found.items
        examined += found.examined
        if found.cursor is not None:
            return Found(items, found.cursor, examined)
    return Found(items, None, examined)


def _deployment_of(store: Store, key: JobKey, found: Item) -> Item | None:
    if "deployment_id" not in found:
        return None
    return store.get(DEPLOYMENTS, DeploymentKey(key.installation_id, DeploymentId(found["deployment_id"])).item)
