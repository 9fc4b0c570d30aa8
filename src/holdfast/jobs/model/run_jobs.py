"""The jobs of a run. Each has an item of its own under the run's key, so a job costs the same in a run of any size.

    v          the run itself: what workflow_run reported, its retry, its reviews
    job#<id>   a job of the run, with its gates; written once, when the job is new

An item only says that the job belongs to the run. Whether it is open, done or failed is what the job's own item says,
which each event writes anyway: so counts are exact however often, and in whatever order, events arrive. An older
version kept the ids in sets of the run's item (`open`, `done`, `failed`, `deployments`); both are read as one.
"""

from collections.abc import Iterable, Mapping
from typing import Any, Final

from holdfast.jobs.intake.item_writes import combined, if_absent
from holdfast.jobs.model.deployment import gate_of
from holdfast.jobs.model.facts import FAILED, KEPT_SECONDS, JobEvent, Status
from holdfast.jobs.model.keys import JOB_PREFIX, ONLY
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import JobId
from holdfast.ports.store import Item, Update, Value, attr
from holdfast.ports.store.values import shown

_SETS: Final = ("open", "done", "failed")
# What a job knows of its run. Of several jobs, the one with the lowest id counts: any order gives the same.
_IDENTITY: Final = ("repo_full_name", "repo_id", "repo_is_private", "workflow_name", "head_sha", "head_branch", "ttl")


def registering(event: JobEvent) -> Update:
    """Write the event's job among those of its run, with the gate that the event names."""
    update = if_absent(_facts(event))
    if event.deployment is None:
        return update
    return combined([update, attr("gates").add_elements({str(gate_of(event))})])


def registration(item: Item | None, event: JobEvent) -> Item:
    """The item after `registering`; the same object if nothing changes."""
    before: Item = item or {}
    new = {**_facts(event), **before}
    if event.deployment is not None:
        new["gates"] = _set(before, "gates") | {str(gate_of(event))}
    return before if item is not None and new == before else new


def _facts(event: JobEvent) -> dict[str, Value]:
    found = {
        "ttl": event.received_at.epoch_seconds + KEPT_SECONDS,
        "repo_full_name": event.repository,
        "head_branch": event.head_branch,
        "repo_id": event.repository_id,
    }
    found |= {name: event.identity.get(name) for name in ("repo_is_private", "workflow_name", "head_sha")}
    return {name: value for name, value in found.items() if value}


def run_of(items: Iterable[Item]) -> Item | None:
    """The run of all items under its key, with the ids of its jobs as `jobs` and their gates as `deployments`."""
    own: Item = {}
    jobs: dict[JobId, Item] = {}
    for item in items:
        if item["SK"] == ONLY:
            own = item
        elif item["SK"].startswith(JOB_PREFIX):
            jobs[JobId(int(item["SK"].removeprefix(JOB_PREFIX)))] = item
    if not own and not jobs:
        return None
    first = jobs[min(jobs)] if jobs else {}
    identity: Item = {name: first[name] for name in _IDENTITY if name in first}
    partition = (own or first)["PK"]
    gates = {gate for item in jobs.values() for gate in item.get("gates", ())}
    return {
        **identity,
        **own,
        "PK": partition,
        "SK": ONLY,
        "jobs": frozenset(jobs).union(*(_set(own, name) for name in _SETS)),
        "deployments": frozenset(gates).union(own.get("deployments", ())),
    }


def with_states(run: Item, jobs: Mapping[JobId, Item | None]) -> Item:
    """The run with its jobs as `open`, `done` and `failed`. `jobs` are their items; None: not stored, or expired."""
    done = {number for number, job in jobs.items() if _is_done(run, number, job)}
    failed = {number for number in done if _has_failed(run, number, jobs[number])}
    return {**run, "open": frozenset(jobs) - done, "done": frozenset(done), "failed": frozenset(failed)}


def updated(run: Item, own: Item) -> Item:
    """The run, with its own item as it is now."""
    return {**run, **{name: value for name, value in own.items() if name not in (*_SETS, "deployments")}}


def _is_done(run: Item, number: JobId, job: Item | None) -> bool:
    return number in run.get("done", ()) if job is None else job.get("status") == Status.COMPLETED


def _has_failed(run: Item, number: JobId, job: Item | None) -> bool:
    return number in run.get("failed", ()) if job is None else job.get("conclusion") in FAILED


def _set(item: Item, name: str) -> frozenset[Any]:
    """A stored set. Checked, since an item may have been edited by hand."""
    found = item.get(name, frozenset())
    if type(found) is not frozenset:
        raise BadRequest(f"run {item.get('PK')}: {name} is {shown(found)}; expected a set")
    return found
