"""Which machine a job ran on, and which machines were launched for it.

GitHub gives a job to any idle runner with its labels, so a machine that was launched for one job may run another. The
runner's name decides: if it contains an instance id, the job ran on that machine, and the facts of the machine that was
scheduled for the job (type, price, times) are not the job's. Of the machine that it names no more may be known.

Each scheduling attempt may have a machine. The item holds the facts of the highest attempt, and in `attempts` what the
cost of the earlier ones needs.
"""

import re
from collections.abc import Mapping
from functools import lru_cache
from typing import Final

from holdfast.jobs.model.times import parsed
from holdfast.ports.store import Item, Value

_INSTANCE: Final = re.compile(r"(?<![0-9A-Za-z])i-(?:[0-9a-f]{17}|[0-9a-f]{8})(?![0-9A-Za-z])", re.ASCII)
# The facts of a machine. `scheduled_at` is not one of them: a machine was requested for the job, whichever it got.
_OF_MACHINE: Final = (
    "instance_id",
    "instance_type",
    "instance_lifecycle",
    "pool_name",
    "fleet_id",
    "region",
    "spot_price_usd_per_hour",
    "attached_ms",
    "booted_ms",
    "registered_ms",
    "terminated_ms",
)
# Evidence that an attempt had a machine: EC2 may have refused the one that was requested.
_SIGNS_OF_MACHINE: Final = ("instance_id", "attached_ms", "interrupted_ms", "terminated_ms")


@lru_cache(maxsize=1024)
def machine_named(runner_name: str) -> str | None:
    """The instance id in a runner's name, such as `runs-on--i-0123456789abcdef0--x7Qd`."""
    found = _INSTANCE.search(runner_name)
    return found.group() if found else None


def machine_of(job: Mapping[str, Value]) -> str | None:
    """The machine that ran the job, or else the one that was launched for it."""
    return machine_named(job.get("runner_name", "")) or job.get("instance_id")


def with_own_machine(job: Item) -> Item:
    """The job without the facts of a machine that it did not get."""
    if has_own_machine(job):
        return job
    return {name: value for name, value in job.items() if name not in _OF_MACHINE} | {"instance_id": machine_of(job)}


def has_own_machine(job: Mapping[str, Value]) -> bool:
    """Whether nothing contradicts that the job got the machine that was launched for it."""
    machine = machine_of(job)
    return bool(machine == job.get("instance_id", machine))


def is_taken_down(job: Mapping[str, Value]) -> bool:
    """Whether EC2 reclaimed the job's machine: the last one, not one of an earlier attempt."""
    if machine_of(job) in job.get("interrupted_machines", ()):
        return True
    # The fleet need not name the machine: then the interruption is that of the attempt's own.
    is_last = job.get("interrupted_attempt", 0) >= job.get("scheduling_attempt", 1)
    return is_last and has_own_machine(job)


def was_interrupted(job: Mapping[str, Value]) -> bool:
    """Whether EC2 reclaimed a machine of the job, in any attempt. A machine that ran another job does not count."""
    if not job.get("was_interrupted") or has_own_machine(job):
        return bool(job.get("was_interrupted"))
    return is_taken_down(job) or any("interrupted_ms" in facts for facts in job.get("attempts", {}).values())


def _began_ms(facts: Mapping[str, Value]) -> int | None:
    scheduled = parsed(facts.get("scheduled_at"))
    return scheduled.epoch_ms if scheduled else facts.get("attached_ms")


def earlier_machines(job: Mapping[str, Value]) -> list[Item]:
    """The facts of each earlier attempt that had a machine. Each has an end: at the latest, the next attempt."""
    past: Mapping[str, Item] = job.get("attempts", {})
    found: list[Item] = []
    following: Mapping[str, Value] = job
    for attempt in sorted(past, key=int, reverse=True):
        facts = dict(past[attempt])
        if any(name in facts for name in _SIGNS_OF_MACHINE):
            found.append(facts | {"next_ms": _began_ms(following)})
        following = facts
    return found[::-1]
