"""A run's status: from the store, and from GitHub only where the store does not know it well enough.

It replaces a cache in memory: what GitHub said is kept with the run, for every process and over restarts.
"""

from typing import Final

from holdfast.jobs.budget import Budget
from holdfast.jobs.facts import KEPT_SECONDS
from holdfast.jobs.keys import RunKey
from holdfast.jobs.merging import merge
from holdfast.jobs.run import RunEvent, folded_run, quick_run
from holdfast.jobs.webhook import short_mark
from holdfast.kernel.errors import Retryable
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, RunSeen
from holdfast.ports.store import Item, Store, attr
from holdfast.ports.store.tables import RUNS

FRESH_SECONDS: Final = 25
_STATUSES: Final = ("queued", "in_progress", "completed")


def fresh_run(store: Store, github: GitHub, key: RunKey, repository: str, now: Instant, budget: Budget) -> Item | None:
    """The run's item, at most 25 s behind GitHub where GitHub can be asked. None: nobody knows the run."""
    found = store.get(RUNS, key.item)
    if found is not None and _is_fresh(found, now):
        return found
    try:
        seen = github.run(key.installation_id, repository, key.run_id) if budget.spend() else None
    except Retryable:
        return found  # what the store knows is better than nothing
    if seen is None or seen.run_attempt != key.run_attempt:
        return found
    event = _event(key, repository, seen, now)
    merge(store, RUNS, key.item, event.mark, lambda: quick_run(event), lambda item: folded_run(item, event))
    return store.update(RUNS, key.item, attr("checked_ms").set_to(now.epoch_ms)).new


def _is_fresh(run: Item, now: Instant) -> bool:
    """One that is over stays so; of another, the last word counts, whether it came or was asked for."""
    if run.get("status") == "completed":
        return True
    heard = [Instant(run["checked_ms"])] if "checked_ms" in run else []
    if "updated_at" in run:
        heard.append(Instant.from_iso(run["updated_at"]))
    return bool(heard) and now.seconds_since(max(heard)) < FRESH_SECONDS


def _event(key: RunKey, repository: str, seen: RunSeen, now: Instant) -> RunEvent:
    return RunEvent(
        key=key,
        at=seen.updated_at,
        received_at=now,
        mark=short_mark("api", key.partition, seen.status, seen.conclusion or "", seen.updated_at.iso()),
        status=seen.status if seen.status in _STATUSES else "queued",
        conclusion=(seen.conclusion or "unknown") if seen.status == "completed" else "",
        identity={"repo_full_name": repository, "ttl": now.epoch_seconds + KEPT_SECONDS},
    )
