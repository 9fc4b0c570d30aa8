"""What one job contributes to the figures: the one place that decides it, for counted and for open jobs."""

from collections.abc import Sequence
from typing import Final

from holdfast.jobs.cost.prices import machine_uses
from holdfast.jobs.figures.histogram import Histogram
from holdfast.jobs.figures.totals import Figures, GroupKey, Totals, used_by
from holdfast.jobs.model.durations import is_carried_over, moments_of
from holdfast.jobs.model.machines import was_interrupted, with_own_machine
from holdfast.jobs.read.item_views import repository_of
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store, Value
from holdfast.ports.store.tables import JOBS

UNKNOWN: Final = "unknown"
NONE: Final = "none"


def with_all_it_needs(store: Store, entries: Sequence[Item]) -> list[Item]:
    """Entries of the index by status, as `contribution` needs them.

    Jobs that have expired meanwhile are left out, and those that an earlier attempt of their run executed. The index
    has no room for what only few jobs have: those that waited for approval, were interrupted, had more than one machine
    requested, or ended before they were created. They are read whole.
    """
    few = [entry for entry in entries if _needs_more(entry)]
    whole = store.batch_get(JOBS, [Key(entry["PK"], entry["SK"]) for entry in few], consistent=True) if few else []
    found = {entry["PK"]: item for entry, item in zip(few, whole, strict=True)}
    known = (found.get(entry["PK"], entry) for entry in entries)
    return [job for job in known if job is not None and not is_carried_over(job)]


def _needs_more(entry: Item) -> bool:
    if "waiting_ms" in entry or "was_interrupted" in entry or entry.get("scheduling_attempt", 1) > 1:
        return True
    return bool(entry.get("completed_at", entry["created_at"]) < entry["created_at"])


def group_of(job: Item, team: str = NONE) -> GroupKey:
    machine = with_own_machine(job)
    return GroupKey(
        repository=repository_of(job) or UNKNOWN,
        workflow=str(job.get("workflow_name", "?")),
        job_name=str(job.get("job_name", "?")),
        team=team,
        pool=str(machine.get("pool_name", NONE)),
        instance_type=str(machine.get("instance_type", "")),
        lifecycle=str(machine.get("instance_lifecycle", "")),
        region=str(machine.get("region", "")),
        conclusion=str(job.get("conclusion") or str(job.get("GSI1-PK", "")).partition("#")[2] or UNKNOWN),
    )


def contribution(job: Item, now: Instant | None = None) -> Totals:
    """`now`: until when a machine that still runs is counted."""
    moments = moments_of(job)
    return Totals(
        jobs=1,
        interrupted=int(was_interrupted(job)),
        busy_ms=moments.busy_ms(now) or 0,
        machine_ms=moments.machine_ms(now) or 0,
        run_seconds=_one(moments.run_seconds),
        queue_ms=_one(moments.overall_queue_ms),
        approval_ms=_one(moments.approval_ms),
        used=used_by(machine_uses(job, now), is_scheduled="scheduled_at" in job),
    )


def figures_of(jobs: list[Item], now: Instant | None = None, team_property: str | None = None) -> Figures:
    """The figures of whole items, in memory."""
    found = Figures()
    for job in (job for job in jobs if not is_carried_over(job)):
        found.add(group_of(job, team_of(job, team_property) if team_property else NONE), contribution(job, now))
    return found


def team_of(job: Item, team_property: str) -> str:
    """The team that a repository's property names; a property with several values names them all."""
    found: Value = job.get("custom_properties", {}).get(team_property, NONE)
    return ", ".join(map(str, found)) if isinstance(found, list) else str(found)


def _one(value: int | None) -> Histogram:
    found = Histogram()
    if value is not None:
        found.add(value)
    return found
