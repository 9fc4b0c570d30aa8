"""Events that the runner fleet reports about a job: the only events that do not come from GitHub.

    runner_scheduled     a machine was requested: type, lifecycle, pool
    runner_rescheduled   another one was requested, in the next attempt
    runner_attached      EC2 launched the machine: its id and its actual attributes
    runner_interrupted   EC2 is reclaiming a spot machine; the job keeps this for good
    runner_terminated    the machine is gone

A repeated event changes nothing, and the order of events does not matter: each belongs to one scheduling attempt, and
a higher attempt replaces what a lower one had set. `at` is when it happened; a repeated event must have the same time.
Facts that become known later (such as when the machine booted) are sent as the same event with more attributes. An
attempt has one machine: a second one is refused, and needs a new attempt.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from decimal import Decimal
from enum import StrEnum
from typing import Final

from holdfast.jobs.intake.bounds import bounded
from holdfast.jobs.intake.webhook import short_mark
from holdfast.jobs.model.facts import JobEvent, Scheduling, Status
from holdfast.jobs.model.keys import JobKey
from holdfast.jobs.model.times import not_before, parsed
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
    """Something that the runner fleet did for a job. `attempt` counts its attempts to provide a runner, from 1."""

    key: JobKey
    type: InternalType
    at: Instant
    attempt: int = 1
    instance_id: InstanceId | None = None
    attributes: Mapping[str, str] = field(default_factory=dict)


def internal_event(event: InternalEvent, received_at: Instant) -> JobEvent:
    """The event as facts about the job; BadRequest if it is invalid."""
    if not 1 <= event.attempt <= ATTEMPT_MOST:
        raise BadRequest(f"{event.type}: attempt {cut(str(event.attempt))}; expected 1 to {ATTEMPT_MOST}")
    if event.type is InternalType.ATTACHED and event.instance_id is None:
        raise BadRequest(f"{event.type} of job {event.key}: instance_id is missing")
    if event.instance_id is not None and not _INSTANCE.fullmatch(event.instance_id):
        raise BadRequest(f"{event.type}: instance {cut(event.instance_id)!r}; for example i-0123456789abcdef0")
    _moment("at", event.at.iso())
    is_plan = event.type in (InternalType.SCHEDULED, InternalType.RESCHEDULED)
    facts = _checked(event)
    if is_plan:
        facts["scheduled_at"] = event.at.iso()
    elif event.type is InternalType.ATTACHED:
        facts |= {"instance_id": event.instance_id, "attached_ms": event.at.epoch_ms}
    elif event.type is InternalType.TERMINATED:
        facts["terminated_ms"] = event.at.epoch_ms
    elif event.type is InternalType.INTERRUPTED:
        facts["interrupted_ms"] = event.at.epoch_ms
    scheduling = Scheduling(
        event.attempt,
        planned=facts if is_plan else {},
        actual={} if is_plan else facts,
        is_interrupted=event.type is InternalType.INTERRUPTED,
        instance_id=event.instance_id,
    )
    return JobEvent(
        key=event.key,
        type=event.type,
        at=event.at,
        received_at=not_before(received_at, event.at),
        mark=_mark(event, facts),
        source="internal",
        status=Status.SCHEDULED if is_plan else None,
        scheduling=scheduling,
        interrupted_machine=event.instance_id if event.type is InternalType.INTERRUPTED else None,
        is_interruption=event.type is InternalType.INTERRUPTED,
    )


def interruption_of(key: JobKey, event: InternalEvent, received_at: Instant) -> JobEvent:
    """The interruption of the job that runs on a machine, which was launched for the job of the event."""
    return JobEvent(
        key=key,
        type=event.type,
        at=event.at,
        received_at=received_at,
        mark=short_mark("internal", event.type, "machine", event.instance_id or "", event.at.iso()),
        source="internal",
        interrupted_machine=event.instance_id,
        is_interruption=True,
    )


def _mark(event: InternalEvent, facts: Mapping[str, Value]) -> str:
    """Equal for equal events: the same event with more attributes, or another time, has another mark."""
    attributes = (f"{name}={value}" for name, value in sorted(facts.items()))
    return short_mark("internal", event.type, str(event.attempt), event.instance_id or "", event.at.iso(), *attributes)


def _checked(event: InternalEvent) -> dict[str, Value]:
    facts: dict[str, Value] = {}
    for name, value in event.attributes.items():
        if name in _TEXTS:
            facts[name] = bounded(value, _TEXT_BYTES_MOST)
        elif name in _TIMES:
            facts[name.replace("_at", "_ms")] = _moment(name, value).epoch_ms
        elif name == _PRICE:
            facts[name] = _price(value)
        else:
            raise BadRequest(
                f"{event.type}: unknown attribute {cut(name)!r}; expected {', '.join((*_TEXTS, *_TIMES, _PRICE))}"
            )
    if facts.get("instance_lifecycle", "spot") not in _LIFECYCLES:
        raise BadRequest(f"{event.type}: lifecycle {cut(facts['instance_lifecycle'])!r}; expected spot or on-demand")
    return {name: value for name, value in facts.items() if value != ""}


def _moment(name: str, text: str) -> Instant:
    """A time within the bounds for GitHub's times: one beyond them would outrank every later event."""
    found = parsed(text)
    if found is None:
        raise BadRequest(f"{name} {cut(text)!r}: expected a time such as 2026-01-15T10:00:00Z")
    return found


def _price(value: str) -> Decimal:
    if not re.fullmatch(r"[0-9]{1,4}(\.[0-9]{1,6})?", value, re.ASCII):
        raise BadRequest(f"{_PRICE}: {cut(value)!r} is not an amount; for example 0.0416")
    return Decimal(value)
