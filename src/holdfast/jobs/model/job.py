"""A job as a fold over its events: any order, any repetition, one result.

    rank = phase * 10^14 + the sender's milliseconds

    phase 1   queued, waiting     ordered by the sender's time: a job behind an approval queues twice
    phase 2   scheduled           set by the runner fleet
    phase 3   in_progress
    phase 4   completed

`folded` is the definition. `quick` does the same in one conditional write for an event that arrives in order: its
condition refuses repeated and late events, and the refused write returns the item for `folded`.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from holdfast.jobs.intake.bounds import bounded
from holdfast.jobs.intake.item_writes import combined, if_absent, set_values
from holdfast.jobs.intake.payloads import UnusablePayload
from holdfast.jobs.model.facts import KEPT_SECONDS, JobEvent, Runner, Scheduling, Status, check_repository
from holdfast.jobs.model.keys import by_repository, by_status
from holdfast.kernel.errors import BadRequest
from holdfast.ports.store import Condition, Item, Update, Value, attr, remove_all
from holdfast.ports.store.conditions import All

MARKS_MOST: Final = 48
_STEP: Final = 10**14
_PHASES: Final = {
    Status.QUEUED: 1,
    Status.WAITING: 1,
    Status.SCHEDULED: 2,
    Status.IN_PROGRESS: 3,
    Status.COMPLETED: 4,
}
_GATES: Final = {Status.QUEUED: "queued_ms", Status.WAITING: "waiting_ms"}
_RUNNER: Final = ("started_at", "runner_id", "runner_name", "runner_group_id")
# Everything that one scheduling attempt may set; a higher attempt starts without any of it.
SCHEDULING: Final = (
    "scheduled_at",
    "instance_type",
    "instance_lifecycle",
    "pool_name",
    "region",
    "spot_price_usd_per_hour",
    "instance_id",
    "fleet_id",
    "attached_ms",
    "booted_ms",
    "registered_ms",
    "terminated_ms",
    "interrupted_ms",
)
# What is kept of an earlier attempt: its machine's cost and interruption.
_KEPT_OF_EARLIER: Final = frozenset(
    {
        "scheduled_at",
        "instance_type",
        "instance_lifecycle",
        "region",
        "spot_price_usd_per_hour",
        "instance_id",
        "attached_ms",
        "terminated_ms",
        "interrupted_ms",
    }
)
EARLIER_MOST: Final = 2  # of more attempts, the latest are kept, and the item says so
_EARLIER_BYTES_MOST: Final = 34  # an instance id; instance types and regions are shorter
INTERRUPTED_MOST: Final = 4
# If an event is reported again with another time, the earlier time wins.
_EARLIEST_WINS: Final = ("scheduled_at", "attached_ms", "booted_ms", "registered_ms", "terminated_ms", "interrupted_ms")


def folded(job: Item | None, event: JobEvent) -> Item:
    """The job after the event; unchanged if the event was applied before."""
    if job is not None and event.mark in job.get("dl", ()):
        return job
    if job is not None:
        _check_identity(job, event)
    new = {**event.identity, **(job or {})}
    new.setdefault("ttl", event.received_at.epoch_seconds + KEPT_SECONDS)
    _fold_status(new, event)
    if event.deployment is not None:
        new.setdefault("deployment_id", event.deployment.deployment_id)
    if event.scheduling is not None:
        _fold_scheduling(new, event)
    if event.is_interruption:
        new["was_interrupted"] = True
    if event.interrupted_machine is not None:
        machines = {*new.get("interrupted_machines", ()), event.interrupted_machine}
        new["interrupted_machines"] = frozenset(sorted(machines)[-INTERRUPTED_MOST:])
    if event.runner is not None and event.runner > runner_of(new):
        new = {name: value for name, value in new.items() if name not in _RUNNER} | _runner_attributes(event.runner)
    # Keep the largest marks, so that the order of arrival does not matter.
    new["dl"] = frozenset(sorted({*new.get("dl", ()), event.mark})[-MARKS_MOST:])
    return new


def _check_identity(job: Item, event: JobEvent) -> None:
    """Raise UnusablePayload if the event names another run or repository: then it is about another job.

    A job stays in its attempt of its run. Its repository may be renamed, and keeps its id.
    """
    if event.run is not None and job.get("GSI3-PK", event.run.partition) != event.run.partition:
        raise UnusablePayload(f"job {event.key}: run {event.run}, but the job belongs to run {job['GSI3-PK']}")
    if event.repository is not None and "GSI2-PK" in job and event.source != "github_api":
        known = job["GSI2-PK"].partition("#")[2]
        check_repository(f"job {event.key}", (known, job.get("repo_id")), (event.repository, event.repository_id))


def rank(status: Status, epoch_ms: int) -> int:
    return _PHASES[status] * _STEP + epoch_ms


def rank_ms(job: Mapping[str, Value]) -> int:
    """The sender's time of the event that set the status."""
    return int(job.get("rk", 0)) % _STEP


def runner_of(job: Mapping[str, Value]) -> Runner:
    """The runner that the item names; if none, one that started before any other."""
    return Runner(
        job.get("started_at", ""), job.get("runner_id", 0), job.get("runner_name", ""), job.get("runner_group_id", 0)
    )


def _fold_status(new: Item, event: JobEvent) -> None:
    if event.status is None:
        return
    gate = _GATES.get(event.status)
    if gate is not None:
        new[gate] = max(new.get(gate, 0), event.at.epoch_ms)
    end = (event.end.conclusion, event.end.completed_at) if event.end else ("", "")
    here = (rank(event.status, event.order_ms), str(event.status), *end)
    there = (_known_rank(new), new.get("status", ""), new.get("conclusion", ""), new.get("completed_at", ""))
    # At the same millisecond, waiting wins over queued: in doubt, no machine is launched.
    if here > there:
        new |= _status_attributes(event)


def _known_rank(job: Item) -> int:
    """The item's rank; for an item of an older version, the lowest rank of its status."""
    if "rk" in job or job.get("status") not in _PHASES:
        return int(job.get("rk", 0))
    return rank(Status(job["status"]), 0)


def _status_attributes(event: JobEvent) -> dict[str, Value]:
    assert event.status is not None  # noqa: S101 -- called for events that have one; narrows the type
    found: dict[str, Value] = {
        "status": str(event.status),
        "rk": rank(event.status, event.order_ms),
        "GSI1-PK": by_status(event.key.installation_id, event.status),
    }
    if event.end is not None:
        found |= {"conclusion": event.end.conclusion, "completed_at": event.end.completed_at}
    return found


def _runner_attributes(runner: Runner) -> dict[str, Value]:
    found = {
        "started_at": runner.started_at,
        "runner_id": runner.runner_id,
        "runner_name": runner.runner_name,
        "runner_group_id": runner.runner_group_id,
    }
    return {name: value for name, value in found.items() if value}


def _fold_scheduling(new: Item, event: JobEvent) -> None:
    scheduling = event.scheduling
    assert scheduling is not None  # noqa: S101 -- called for events that have one; narrows the type
    if scheduling.is_interrupted:
        new["interrupted_attempt"] = max(new.get("interrupted_attempt", 0), scheduling.attempt)
    known = new.get("scheduling_attempt", 0)
    if scheduling.attempt > known:
        if known:
            _keep_earlier(new, known, {name: new[name] for name in SCHEDULING if name in new})
        for name in SCHEDULING:
            new.pop(name, None)
        new["scheduling_attempt"] = scheduling.attempt
    if scheduling.attempt >= known:
        _fold_machine(new, event, scheduling)
        return
    earlier = dict(new.get("attempts", {}).get(str(scheduling.attempt), {}))
    _fold_machine(earlier, event, scheduling)
    _keep_earlier(new, scheduling.attempt, earlier)


def _fold_machine(facts: Item, event: JobEvent, scheduling: Scheduling) -> None:
    """Fold the event into the facts of its attempt."""
    _check_machine(facts, event, scheduling)
    plan = {name: value for name, value in scheduling.planned.items() if name not in facts or name in _EARLIEST_WINS}
    for name, value in {**plan, **scheduling.actual}.items():
        facts[name] = min(value, facts.get(name, value)) if name in _EARLIEST_WINS else value


def _keep_earlier(new: Item, attempt: int, facts: Item) -> None:
    kept = {name: _short(value) for name, value in facts.items() if name in _KEPT_OF_EARLIER}
    if not kept:
        return
    if "attached_ms" in kept:
        kept.pop("scheduled_at", None)  # the time of a machine counts from its launch
    attempts = {**new.get("attempts", {}), str(attempt): kept}
    latest = sorted(attempts, key=int)[-EARLIER_MOST:]
    if len(latest) < len(attempts):
        new["attempts_cut"] = True
    new["attempts"] = {name: attempts[name] for name in latest}


def _short(value: Value) -> Value:
    return bounded(value, _EARLIER_BYTES_MOST) if isinstance(value, str) else value


def _check_machine(facts: Item, event: JobEvent, scheduling: Scheduling) -> None:
    """Raise BadRequest for a second machine in one attempt: the result would depend on the order of the events."""
    there = facts.get("instance_id")
    if there is not None and scheduling.instance_id is not None and there != scheduling.instance_id:
        raise BadRequest(
            f"{event.type} of job {event.key}: attempt {scheduling.attempt} has machine {there}, "
            f"not {scheduling.instance_id}; another machine is another attempt"
        )


# The quick write


def quick(event: JobEvent) -> tuple[Update, Condition]:
    """One conditional write that does what `folded` does, for an event that arrives once and in order."""
    marks = attr("dl")
    parts = [marks.add_elements({event.mark}), if_absent(_set_by_first(event))]
    conditions: list[Condition] = [~marks.contains(event.mark), ~marks.is_larger_than(MARKS_MOST - 1)]
    if event.run is not None:
        run = attr("GSI3-PK")
        conditions.append(run.is_absent() | run.equals(event.run.partition))
    if event.repository is not None:
        repository = attr("GSI2-PK")
        named = by_repository(event.key.installation_id, event.repository)
        conditions.append(repository.is_absent() | repository.equals(named))
    if event.status is not None:
        values = _status_attributes(event)
        if gate := _GATES.get(event.status):
            values[gate] = event.at.epoch_ms
        parts.append(set_values(values))
        ranked = attr("rk")
        is_first = ranked.is_absent() & attr("status").is_absent()
        conditions.append(ranked.less_than(_rank_below(event)) | is_first)
    if event.runner is not None:
        parts.append(_set_group(_runner_attributes(event.runner), _RUNNER))
        conditions.append(_runner_is_newer(event.runner))
    if event.scheduling is not None:
        update, condition = _quick_scheduling(event.scheduling, is_plan=event.status is not None)
        parts.append(update)
        conditions.append(condition)
    if event.is_interruption:
        parts.append(set_values({"was_interrupted": True}))
    if event.interrupted_machine is not None:
        parts.append(attr("interrupted_machines").add_elements({event.interrupted_machine}))
        conditions.append(~attr("interrupted_machines").is_larger_than(INTERRUPTED_MOST - 1))
    return combined(parts), All(tuple(conditions))


def _set_by_first(event: JobEvent) -> dict[str, Value]:
    """The attributes that only the first event sets."""
    found = {"ttl": event.received_at.epoch_seconds + KEPT_SECONDS, **event.identity}
    if event.deployment is not None:
        found["deployment_id"] = event.deployment.deployment_id
    return found


def _set_group(values: Mapping[str, Value], names: Iterable[str]) -> Update:
    """Set these attributes, and remove the others of their group."""
    return combined([set_values(values), remove_all(*(name for name in names if name not in values))])


def _rank_below(event: JobEvent) -> int:
    """A job starts once and ends once: `folded` compares a second start or end with the first."""
    assert event.status is not None  # noqa: S101 -- called for events that have one; narrows the type
    if event.status in (Status.IN_PROGRESS, Status.COMPLETED):
        return rank(event.status, 0)
    return rank(event.status, event.order_ms)


def _runner_is_newer(runner: Runner) -> Condition:
    """It started after the stored one, or is the same; `folded` decides between two that started at the same time."""
    values = _runner_attributes(runner)
    is_same = All(
        tuple(attr(name).equals(values[name]) if name in values else attr(name).is_absent() for name in _RUNNER)
    )
    if not runner.started_at:
        return is_same | All(tuple(attr(name).is_absent() for name in _RUNNER))
    return is_same | attr("started_at").is_absent() | attr("started_at").less_than(runner.started_at)


def _quick_scheduling(scheduling: Scheduling, *, is_plan: bool) -> tuple[Update, Condition]:
    """A first attempt, or one more fact of the current one. The facts of an earlier attempt are moved by `folded`."""
    facts = {**scheduling.planned, **scheduling.actual}
    attempt = attr("scheduling_attempt")
    if is_plan:
        return set_values(facts | {"scheduling_attempt": scheduling.attempt}), attempt.is_absent()
    conditions: list[Condition] = [attr(name).is_absent() for name in _EARLIEST_WINS if name in scheduling.actual]
    if scheduling.is_interrupted:
        facts["interrupted_attempt"] = scheduling.attempt
    if scheduling.instance_id is not None:
        machine = attr("instance_id")
        conditions.append(machine.is_absent() | machine.equals(scheduling.instance_id))
    return set_values(facts), All((attempt.equals(scheduling.attempt), *conditions))
