"""Which approvals a run waits for, where the store does not know: GitHub is asked.

The store knows a gate once an event has named its deployment. A job may wait without such an event: the webhook that
says so need not name any, and one may be lost. What GitHub said is kept with the run, for every process.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable

from holdfast.jobs import bounds
from holdfast.jobs.budget import Budget
from holdfast.jobs.fresh import FRESH_SECONDS
from holdfast.jobs.keys import RunKey
from holdfast.jobs.times import seconds_text
from holdfast.kernel.errors import Retryable, StoreRefused, WriteConflict
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Store, attr, set_all
from holdfast.ports.store.tables import RUNS

GATES_MOST: Final = 20
REVIEWERS_MOST: Final = 6  # as many as GitHub lets an environment have

Gates = list[dict[str, Any]]


class PendingSeen(Protocol):
    """An environment that a run waits for, as GitHub tells it."""

    @property
    def environment(self) -> str: ...

    @property
    def wait_minutes(self) -> int: ...

    @property
    def wait_began_at(self) -> str | None: ...

    @property
    def reviewers(self) -> Sequence[str]: ...


@runtime_checkable
class TellsPending(Protocol):
    """A GitHub that can be asked what a run waits for."""

    def pending_deployments(
        self, installation: InstallationId, repository: str, run_id: RunId
    ) -> Sequence[PendingSeen]: ...


def pending_gates(
    store: Store, github: TellsPending, key: RunKey, run: Item, now: Instant, budget: Budget
) -> Gates | None:
    """What GitHub says that the run waits for, at most 25 s ago where it can be asked. None: nobody knows."""
    kept: Gates | None = run.get("gates")
    if kept is not None and now.seconds_since(Instant(run.get("gates_ms", 0))) < FRESH_SECONDS:
        return kept
    repository = run.get("repo_full_name")
    if repository is None or not budget.spend():
        return kept
    try:
        seen = github.pending_deployments(key.installation_id, repository, key.run_id)
    except Retryable:
        return kept  # what was said before is better than nothing
    gates = [_gate(each) for each in seen[:GATES_MOST]]
    with suppress(StoreRefused, WriteConflict):  # whoever may only read the store is told all the same
        store.update(RUNS, key.item, set_all({"gates": gates, "gates_ms": now.epoch_ms}), attr("PK").exists())
    return gates


def _gate(seen: PendingSeen) -> dict[str, Any]:
    return {
        "environment": bounds.bounded(seen.environment),
        "wait_minutes": seen.wait_minutes,
        "wait_began_at": seconds_text(seen.wait_began_at),
        "reviewers": [bounds.bounded(name, 64) for name in seen.reviewers[:REVIEWERS_MOST]],
    }
