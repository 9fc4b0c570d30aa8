"""What the runner fleet tells of a job: the one door for events that do not come from GitHub.

    runner_scheduled     a machine was asked for: type, lifecycle, pool
    runner_rescheduled   another one was asked for, under the next attempt
    runner_attached      EC2 gave the machine: its id, and what it really is
    runner_interrupted   a spot machine is being taken away; this stays with the job for good
    runner_terminated    the machine is gone

Telling an event twice changes nothing, and the order of telling does not matter: each belongs to one scheduling
attempt, and a higher attempt replaces what a lower one had set. `at` is when it happened, and stays the same when an
event is told again: the teller has it in its own records. What becomes known later (when the machine had booted) is
told by the same event with more attributes. An attempt has one machine: a second one is refused, and belongs to another
attempt.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final

from holdfast.jobs.bounds import bounded
from holdfast.jobs.facts import JobEvent, Scheduling, Status
from holdfast.jobs.keys import JobKey
from holdfast.jobs.times import parsed
from holdfast.jobs.webhook import short_mark
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Value

ATTEMPT_MOST: Final = 1000
_INSTANCE: Final = re.compile(r"i-[0-9a-f]{8,32}")
_TEXTS: Final = ("instance_type", "instance_lifecycle", "pool_name", "fleet_id", "region")
_TIMES: Final = ("booted_at", "registered_at")
_PRICE: Final = "spot_price_usd_per_hour"
_LIFECYCLES: Final = ("spot", "on-demand")
_TEXT_BYTES_MOST: Final = 64


class InternalType(StrEnum):
    SCHEDULED = "runner_scheduled"
    RESCHEDULED = "runner_rescheduled"
    ATTACHED = "runner_attached"
    INTERRUPTED = "runner_interrupted"
    TERMINATED = "runner_terminated"


@dataclass(frozen=True, slots=True)
class InternalEvent:
    """One thing that the fleet did for a job, in its `attempt`-th try to give it a runner (from 1 up)."""

    key: JobKey
    type: InternalType
    at: Instant
    attempt: int = 1
    instance_id: InstanceId | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


def internal_event(told: InternalEvent, received_at: Instant) -> JobEvent:
    """The facts, checked; BadRequest says what is wrong with them."""
    if not 1 <= told.attempt <= ATTEMPT_MOST:
        raise BadRequest(f"{told.type}: attempt {cut(str(told.attempt))}; expected 1 to {ATTEMPT_MOST}")
    if told.type is InternalType.ATTACHED and told.instance_id is None:
        raise BadRequest(f"{told.type} of job {told.key}: which instance was attached?")
    if told.instance_id is not None and not _INSTANCE.fullmatch(told.instance_id):
        raise BadRequest(f"{told.type}: instance {cut(told.instance_id)!r}; for example i-0123456789abcdef0")
    _moment("at", told.at.iso())
    is_plan = told.type in (InternalType.SCHEDULED, InternalType.RESCHEDULED)
    facts = _checked(told)
    if is_plan:
        facts["scheduled_at"] = told.at.iso()
    elif told.type is InternalType.ATTACHED:
        facts |= {"instance_id": told.instance_id, "attached_ms": told.at.epoch_ms}
    elif told.type is InternalType.TERMINATED:
        facts["terminated_ms"] = told.at.epoch_ms
    scheduling = Scheduling(
        told.attempt,
        planned=facts if is_plan else {},
        actual={} if is_plan else facts,
        is_interrupted=told.type is InternalType.INTERRUPTED,
        instance_id=told.instance_id,
    )
    return JobEvent(
        key=told.key,
        type=told.type,
        at=told.at,
        received_at=received_at,
        mark=_mark(told, facts),
        source="internal",
        status=Status.SCHEDULED if is_plan else None,
        scheduling=scheduling,
    )


def _mark(told: InternalEvent, facts: Mapping[str, Value]) -> str:
    """The same for the same words: whoever says more of it, or another time, has told something else."""
    said = (f"{name}={value}" for name, value in sorted(facts.items()))
    return short_mark("internal", told.type, str(told.attempt), told.instance_id or "", told.at.iso(), *said)


def _checked(told: InternalEvent) -> dict[str, Value]:
    facts: dict[str, Value] = {}
    for name, value in told.attributes.items():
        if name in _TEXTS:
            facts[name] = bounded(value, _TEXT_BYTES_MOST)
        elif name in _TIMES:
            facts[name.replace("_at", "_ms")] = _moment(name, value).epoch_ms
        elif name == _PRICE:
            facts[name] = _price(value)
        else:
            raise BadRequest(
                f"{told.type}: attribute {cut(name)!r} is none of: {', '.join((*_TEXTS, *_TIMES, _PRICE))}"
            )
    if facts.get("instance_lifecycle", "spot") not in _LIFECYCLES:
        raise BadRequest(f"{told.type}: lifecycle {cut(facts['instance_lifecycle'])!r}; expected spot or on-demand")
    return {name: value for name, value in facts.items() if value != ""}


def _moment(name: str, text: str) -> Instant:
    """Within the bounds of what GitHub says: a time beyond them would outrank every event that follows."""
    found = parsed(text)
    if found is None:
        raise BadRequest(f"{name} {cut(text)!r}: expected when it happened, such as 2026-01-15T10:00:00Z")
    return found


def _price(value: str) -> Decimal:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", value, re.ASCII):
        raise BadRequest(f"{_PRICE}: {cut(value)!r} is not an amount; for example 0.0416")
    return Decimal(value)
