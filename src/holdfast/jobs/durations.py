"""How long things took, from what a job's item holds. GitHub's times have whole seconds and its own clocks: never < 0.

    created ─ approval ─▶ queued ─ decision ─▶ scheduled ─ launch ─▶ attached ─ boot ─▶ registered ─ assign ─▶ started

The time that people take to approve is kept apart: no queue time holds any of it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.jobs.times import parsed
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Value


@dataclass(frozen=True, slots=True)
class Moments:
    """A job's moments; None: not yet, or never told."""

    created: Instant | None
    received: Instant | None
    waiting: Instant | None
    queued: Instant | None
    scheduled: Instant | None
    attached: Instant | None
    booted: Instant | None
    registered: Instant | None
    started: Instant | None
    completed: Instant | None
    terminated: Instant | None

    @property
    def released(self) -> Instant | None:
        """When the approval came: the job queued again, or went on without; None: it never waited, or still does."""
        if self.waiting is None:
            return None
        if self.queued is not None and self.queued > self.waiting:
            return self.queued
        return self.started or self.completed

    @property
    def approval_ms(self) -> int:
        return _between(self.waiting, self.released) or 0

    @property
    def overall_queue_ms(self) -> int | None:
        """From creation until a runner took it."""
        return _less(_between(self.created, self.started), self.approval_ms)

    @property
    def internal_queue_ms(self) -> int | None:
        """The part of it that was ours: since we heard of the job."""
        heard = self.received
        if heard is not None and self.released is not None and self.released > heard:
            heard = self.released
        return _between(heard, self.started)

    @property
    def run_seconds(self) -> int | None:
        run_ms = _between(self.started, self.completed)
        return None if run_ms is None else run_ms // 1000

    def machine_seconds(self, now: Instant | None = None) -> float | None:
        """How long a machine was there for the job: what is paid for."""
        begin = self.attached or self.scheduled or self.started
        machine_ms = _between(begin, self.terminated or self.completed or now)
        return None if machine_ms is None else machine_ms / 1000

    def stages_ms(self) -> dict[str, int | None]:
        """Where the time went on the way to a runner.

        No stage is longer than until the next one began: what we were told late took none of the time after that.
        """
        end = self.started or self.completed
        received, scheduled, attached, booted, registered = _in_order(
            (self.received, self.scheduled, self.attached, self.booted, self.registered), end
        )
        [released] = _in_order((self.released,), scheduled or end)
        asked = max((time for time in (received, released) if time is not None), default=None)
        return {
            "webhook_lag": _between(self.created, received) if self.waiting is None else None,
            "approval": self.approval_ms or None,
            "decision": _between(asked, scheduled),
            "launch": _between(scheduled, attached),
            "boot": _between(attached, booted),
            "register": _between(booted or attached, registered),
            "assign": _between(registered or booted or attached, self.started),
        }


def moments_of(job: Mapping[str, Value]) -> Moments:
    return Moments(
        created=parsed(job.get("created_at")),
        received=parsed(job.get("received_at")),
        waiting=_from_ms(job.get("waiting_ms")),
        queued=_from_ms(job.get("queued_ms")),
        scheduled=parsed(job.get("scheduled_at")),
        attached=_from_ms(job.get("attached_ms")),
        booted=_from_ms(job.get("booted_ms")),
        registered=_from_ms(job.get("registered_ms")),
        started=parsed(job.get("started_at")),
        completed=parsed(job.get("completed_at")),
        terminated=_from_ms(job.get("terminated_ms")),
    )


def _in_order(moments: Sequence[Instant | None], end: Instant | None) -> list[Instant | None]:
    """The moments, none of them after the one that follows it, or after the end."""
    found: list[Instant | None] = []
    for moment in reversed(moments):
        if moment is not None:
            end = moment if end is None else min(moment, end)
        found.append(None if moment is None else end)
    return found[::-1]


def _from_ms(value: Value) -> Instant | None:
    return Instant(int(value)) if value is not None else None


def _between(begin: Instant | None, end: Instant | None) -> int | None:
    return None if begin is None or end is None else max(0, end.epoch_ms - begin.epoch_ms)


def _less(value: int | None, part: int) -> int | None:
    return None if value is None else max(0, value - part)
