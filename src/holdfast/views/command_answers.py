"""Answers to commands and requests that change something."""

from typing import Literal

from msgspec import UNSET, UnsetType

from holdfast.cluster.spot.events import EventOutcome
from holdfast.jobs.intake.webhook import ReceiptResult
from holdfast.jobs.read.item_views import JobStatus
from holdfast.kernel.json_types import Count, Shape
from holdfast.views.decisions import RuleResult, StepTaken, TickObserved


class PlannedTick(Shape, frozen=True, kw_only=True):
    """What a tick would do."""

    seen: TickObserved
    rules: list[RuleResult]
    steps: list[StepTaken]


class CompletedTick(PlannedTick, frozen=True, kw_only=True):
    """What a tick did; `stopped`: why it did not complete."""

    stopped: str | None


class Ec2EventAnswer(Shape, frozen=True, kw_only=True):
    result: EventOutcome


class WebhookResult(Shape, frozen=True, kw_only=True):
    result: ReceiptResult
    delivery: str
    reason: str | UnsetType = UNSET


class RecordedEvent(Shape, frozen=True, kw_only=True):
    """What became of a runner fleet's event, and the job after it."""

    result: Literal["stored", "duplicate"]
    installation_id: Count
    job_id: Count
    status: JobStatus | None
    scheduling_attempt: Count | None


class ErrorDetails(Shape, frozen=True, kw_only=True):
    code: str
    message: str


class ErrorAnswer(Shape, frozen=True, kw_only=True):
    error: ErrorDetails


def error_of(code: str, message: str) -> ErrorAnswer:
    return ErrorAnswer(error=ErrorDetails(code=code, message=message))
