"""How long each stage of a job took. GitHub's times are whole seconds from its own clocks: negative spans count as 0.

    created ─ approval ─▶ queued ─ decision ─▶ scheduled ─ launch ─▶ attached ─ boot ─▶ registered ─ assign ─▶ started

The time that people take to approve is separate: no queue time includes it. The same holds for a job that GitHub holds
back without a deployment, by a concurrency limit for example; that is not called approval.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from holdfast.jobs.model.keys import run_key_of
from holdfast.jobs.model.machines import with_own_machine
from holdfast.jobs.model.times import parsed
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Value


@dataclass(frozen=True, slots=True)
class Moments:
    """A job's moments; None: not yet, or never reported."""

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
    has_gate: bool = False  # it names a deployment

    @property
    def released(self) -> Instant | None:
        """When GitHub stopped holding it back: it queued again, started or ended. None: it was not, or still is."""
        if self.waiting is None:
            return None
        if self.queued is not None and self.queued > self.waiting:
            return self.queued
        return self.started or self.completed

    @property
    def held_ms(self) -> int:
        """How long GitHub held it back, for an approval or for another reason."""
        return _between(self.waiting, self.released) or 0

    @property
    def approval_ms(self) -> int | None:
        """How long it waited for the approval of its deployment; None if it did not, or still does."""
        return self.held_ms if self.has_gate and self.released is not None else None

    @property
    def overall_queue_ms(self) -> int | None:
        """From creation until a runner started it, without the time in which GitHub held it back."""
        return _less(_between(self.created, self.started), self.held_ms)

    @property
    def internal_queue_ms(self) -> int | None:
        """The part of it that is ours: since the first webhook of the job, or its release."""
        begin = self.received
        if begin is not None and self.released is not None and self.released > begin:
            begin = self.released
        return _between(begin, self.started)

    @property
    def run_seconds(self) -> int | None:
        run_ms = _between(self.started, self.completed)
        return None if run_ms is None else run_ms // 1000

    def machine_ms(self, now: Instant | None = None) -> int | None:
        """How long the job had a machine: the time that is paid for."""
        begin = self.attached or self.scheduled or self.started
        return _between(begin, self.terminated or self.completed or now)

    def busy_ms(self, now: Instant | None = None) -> int | None:
        """How long it ran on its machine."""
        return _between(self.started, self.completed or now)

    def stages_ms(self) -> dict[str, int | None]:
        """How long each stage took until a runner started the job.

        A stage ends when the next one begins, even if it was reported later.
        """
        end = self.started or self.completed
        received, scheduled, attached, booted, registered = _in_order(
            (self.received, self.scheduled, self.attached, self.booted, self.registered), end
        )
        [released] = _in_order((self.released,), scheduled or end)
        ready = max((time for time in (received, released) if time is not None), default=None)
        return {
            "webhook_lag": _between(self.created, received) if self.waiting is None else None,
            "approval": self.approval_ms or None,
            "held": None if self.has_gate else self.held_ms or None,
            "decision": _between(ready, scheduled),
            "launch": _between(scheduled, attached),
            "boot": _between(attached, booted),
            "register": _between(booted or attached, registered),
            "assign": _between(registered or booted or attached, self.started),
        }


def moments_of(job: Item) -> Moments:
    """The job's moments; those of a machine that it did not get are left out."""
    job = with_own_machine(job)
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
        has_gate="deployment_id" in job,
    )


def is_carried_over(job: Mapping[str, Value]) -> bool:
    """Whether an earlier attempt of its run executed it.

    "Re-run failed jobs" lists the jobs that had succeeded once more in the new attempt, with new ids and the times and
    runners of their execution. Nothing was executed for them.
    """
    created, completed = parsed(job.get("created_at")), parsed(job.get("completed_at"))
    if created is None or completed is None or completed >= created or not job.get("runner_name"):
        return False
    return "GSI3-PK" in job and run_key_of(job["GSI3-PK"]).run_attempt > 1


def _in_order(moments: Sequence[Instant | None], end: Instant | None) -> list[Instant | None]:
    """The moments, each at most as late as the next one and the end."""
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
