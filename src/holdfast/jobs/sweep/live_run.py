"""A run's current status and pending approvals: from the store, and from GitHub if the store's data is too old.

GitHub's responses are stored with the run, as a cache that all processes share. The approvals need GitHub if no event
has named a deployment: the webhook of a waiting job need not name one, and it may be lost.
"""

from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, Protocol, runtime_checkable

from holdfast.jobs.intake import bounds
from holdfast.jobs.intake.item_writes import merge
from holdfast.jobs.intake.webhook import short_mark
from holdfast.jobs.model.facts import KEPT_SECONDS
from holdfast.jobs.model.keys import RunKey
from holdfast.jobs.model.run import ACTION_REQUIRED, RunEvent, folded_run, quick_run
from holdfast.jobs.model.times import seconds_text
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.kernel.errors import Retryable, StoreRefused, WriteConflict
from holdfast.kernel.ids import InstallationId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, RunSeen
from holdfast.ports.store import Item, Store, attr, set_all
from holdfast.ports.store.tables import RUNS

CURRENT_SECONDS: Final = 25
_STATUSES: Final = ("queued", "in_progress", "completed")


def current_run(
    store: Store, github: GitHub, key: RunKey, repository: str, now: Instant, budget: CallBudget
) -> Item | None:
    """The run's item, at most 25 s behind GitHub if GitHub responds. None: the run is unknown."""
    found = store.get(RUNS, key.item)
    if found is not None and _is_current(found, now):
        return found
    try:
        seen = github.run(key.installation_id, repository, key.run_id) if budget.spend() else None
    except Retryable:
        return found  # old data is better than none
    if seen is None or seen.run_attempt != key.run_attempt:
        return found
    return record_run(store, key, repository, seen, now)


def record_run(store: Store, key: RunKey, repository: str, seen: RunSeen, now: Instant) -> Item:
    """Record what GitHub reports about an attempt of a run, which must be the latest; returns its item."""
    event = _event(key, repository, seen, now)
    merge(store, RUNS, key.item, event.mark, lambda: quick_run(event), lambda item: folded_run(item, event))
    return store.update(RUNS, key.item, attr("checked_ms").set_to(now.epoch_ms)).new


def _is_current(run: Item, now: Instant) -> bool:
    """A completed run stays completed, unless it needs an approval; else the last webhook or response counts."""
    if run.get("status") == "completed" and run.get("conclusion") != ACTION_REQUIRED:
        return True
    updates = [Instant(run["checked_ms"])] if "checked_ms" in run else []
    if "updated_at" in run:
        updates.append(Instant.from_iso(run["updated_at"]))
    return bool(updates) and now.seconds_since(max(updates)) < CURRENT_SECONDS


def _event(key: RunKey, repository: str, seen: RunSeen, now: Instant) -> RunEvent:
    return RunEvent(
        key=key,
        at=seen.updated_at,
        received_at=now,
        mark=short_mark("api", key.partition, seen.status, seen.conclusion or "", seen.updated_at.iso()),
        status=seen.status if seen.status in _STATUSES else "queued",
        conclusion=(seen.conclusion or "unknown") if seen.status == "completed" else "",
        identity={"repo_full_name": repository, "ttl": now.epoch_seconds + KEPT_SECONDS}
        | ({"created_at": seen.created_at.iso_seconds()} if seen.created_at else {}),
    )


GATES_MOST: Final = 20
REVIEWERS_MOST: Final = 6  # as many as GitHub lets an environment have

Gates = list[dict[str, Any]]


class PendingEnvironment(Protocol):
    """An environment whose approval a run waits for."""

    @property
    def environment(self) -> str: ...

    @property
    def wait_minutes(self) -> int: ...

    @property
    def wait_began_at(self) -> str | None: ...

    @property
    def reviewers(self) -> Sequence[str]: ...


@runtime_checkable
class ListsPendingDeployments(Protocol):
    """A GitHub client that can list the pending deployments of a run."""

    def pending_deployments(
        self, installation: InstallationId, repository: str, run_id: RunId
    ) -> Sequence[PendingEnvironment]: ...


def pending_gates(
    store: Store, github: ListsPendingDeployments, key: RunKey, run: Item, now: Instant, budget: CallBudget
) -> Gates | None:
    """The approvals that the run waits for, at most 25 s old if GitHub responds. None: unknown."""
    kept: Gates | None = run.get("gates")
    if kept is not None and now.seconds_since(Instant(run.get("gates_ms", 0))) < CURRENT_SECONDS:
        return kept
    repository = run.get("repo_full_name")
    if repository is None or not budget.spend():
        return kept
    try:
        seen = github.pending_deployments(key.installation_id, repository, key.run_id)
    except Retryable:
        return kept  # old data is better than none
    gates = [_gate(each) for each in seen[:GATES_MOST]]
    with suppress(StoreRefused, WriteConflict):  # a process that may only read the store still gets the result
        update = set_all({"gates": gates, "gates_ms": now.epoch_ms})
        store.update(RUNS, key.item, update + attr("ttl").set_if_absent(now.epoch_seconds + KEPT_SECONDS))
    return gates


def _gate(seen: PendingEnvironment) -> dict[str, Any]:
    return {
        "environment": bounds.bounded(seen.environment),
        "wait_minutes": seen.wait_minutes,
        "wait_began_at": seconds_text(seen.wait_began_at),
        "reviewers": [bounds.bounded(name, 64) for name in seen.reviewers[:REVIEWERS_MOST]],
    }
