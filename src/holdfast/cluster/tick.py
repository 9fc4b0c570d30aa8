"""One tick of the cluster, top to bottom.

A tick does a bounded amount of work and never waits for a node to join or a pod to leave: waiting is state, and the
next tick looks again.
"""

import logging
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.cluster.carry_out import carry_out
from holdfast.cluster.decide import decide, next_timers
from holdfast.cluster.lease_holder import ClusterLeaseHolder
from holdfast.cluster.notifications import lasting_actions
from holdfast.cluster.observe import observe
from holdfast.cluster.plan import ClusterPlan, TickResult
from holdfast.cluster.policy import Policy
from holdfast.cluster.ports import ReadPorts, WritePorts
from holdfast.cluster.seen import Seen
from holdfast.cluster.spot.notice import Replacement
from holdfast.cluster.spot.notice_handler import NoticeHandler
from holdfast.cluster.state import cluster_ledger
from holdfast.cluster.steps import ClusterStep, LeasedStep
from holdfast.cluster.tick_summary import cluster_log, summary_of
from holdfast.cluster.wake_up import Change, next_change
from holdfast.control import tick_loop
from holdfast.control.action_ids import new_action_id
from holdfast.control.clock_check import check_clocks
from holdfast.control.deadline import Deadline, OutOfTime
from holdfast.control.decision_log import TickRecord
from holdfast.control.failures import Failure, as_our_error, failed_step, failure_of, remember
from holdfast.control.lease import LeaseHeld, acquire
from holdfast.control.ledger import LeaseLost
from holdfast.control.steps import NotDone, UrgentStep
from holdfast.control.tick_loop import AGAIN_SECONDS, Ran, TickObservers
from holdfast.kernel.errors import HoldfastError, Retryable
from holdfast.ports.notify import Notification

ROUNDS_MOST: Final = 8
PRESSING_SECONDS: Final = 3600

_log = logging.getLogger(__name__)


class Cluster(Struct, frozen=True):
    """One cluster: its ports, and the operator's policy."""

    reads: ReadPorts
    writes: WritePorts
    policy: Policy

    def look(self) -> tuple[Seen, ClusterPlan]:
        """What a tick would see and do; changes nothing."""
        seen = observe(self.reads, self.writes.clock.now(), self.writes.choices.instance_types)
        return seen, self.plan(seen)

    def plan(self, seen: Seen) -> ClusterPlan:
        return decide(seen, self.policy, self.writes.choices)

    def next_change(self, last: TickResult) -> Change | None:
        """The next moment after a tick at which something else is decided, although nothing changes but the time."""
        plan = self.plan(last.seen) if last.done else last.plan
        return next_change(last.seen, self.policy, plan)


def tick(cluster: Cluster, owner: str, deadline: Deadline | None = None) -> TickResult:
    """Look, decide, act, and log it. `owner` names this invocation and no other.

    With a deadline it starts nothing that may not finish in time. Errors that need an operator are raised, after what
    was done is logged.
    """
    if deadline is not None:
        cluster = replace(cluster, writes=cluster.writes.until(deadline))
    try:
        run = _run(cluster, owner, deadline)
    except Exception as error:
        _log_failure(cluster, error)
        raise
    result = run.result()
    failure = _log_result(cluster, owner, result, run.error)
    if run.error is not None and run.is_lasting:
        raise run.error
    return replace(result, has_failed=failure is not None)


def _run(cluster: Cluster, owner: str, deadline: Deadline | None) -> "_Run":
    """The recipe: look → decide → clock → urgent steps → (quiet: stop) → lease → decide, act, in rounds → release."""
    run = _Run.after_look(cluster)
    # Before anything is done, and after the look, whose responses had EC2's and DynamoDB's time.
    ec2_time = cluster.reads.machines.server_time()
    check_clocks(cluster.writes.clock.now(), {"EC2": ec2_time, **cluster.reads.other_times()})
    run.act_urgently()
    if run.is_quiet():
        return run.ended()
    try:
        holder = _acquire(cluster, run.seen, owner, deadline)
    except (LeaseHeld, OutOfTime) as error:
        if not run.done and isinstance(error, LeaseHeld):
            raise
        return run.stopped_by(error)  # the urgent steps were done and must be logged
    run.act(holder)
    run.release(holder)
    return run.ended()


def _acquire(cluster: Cluster, seen: Seen, owner: str, deadline: Deadline | None) -> ClusterLeaseHolder:
    """Take the lease; the same write reads the state."""
    now, ledger = cluster.writes.clock.now(), cluster_ledger(cluster.writes.store, seen.cluster)
    if deadline is not None:
        deadline.check()
    lease, state = acquire(ledger, owner, now, None if deadline is None else deadline.instant(now))
    action = new_action_id(seen.now, lease.fence, owner)
    return ClusterLeaseHolder(cluster.writes, ledger, lease, replace(seen, state=state), action)


def run_ticks(
    cluster: Cluster, owner: str, seconds: float, observers: TickObservers[TickResult] | None = None
) -> Ran[TickResult]:
    """Tick once, and again while there is time and unfinished work, or a limit of ours is about to be reached."""

    def tick_by(name: str, deadline: Deadline) -> TickResult:
        return tick(cluster, name, deadline)

    def wait_seconds(last: TickResult) -> float | None:
        change = cluster.next_change(last)
        waits = [AGAIN_SECONDS] if is_unfinished(last) else []
        waits += [] if change is None else [change.seconds_from(cluster.writes.clock.now())]
        return min(waits, default=None)

    return tick_loop.run_ticks(tick_by, wait_seconds, cluster.writes.clock, owner, seconds, observers)


def is_unfinished(last: TickResult | None) -> bool:
    """Whether to tick again within seconds: an action is under way, or a notice needs steps.

    An old action or notice waits for an operator or a timeout, so one tick a minute is enough.
    """
    if last is None:
        return False
    state = last.seen.state
    begun = [max(up.started, up.phase_since or up.started) for up in (state.up,) if up is not None]
    begun += [down.started for down in (state.down,) if down is not None]
    # A rebalance hint without a replacement needs nothing but to expire, after an hour.
    notices = last.seen.notices.values()
    begun += [n.moved for n in notices if n.is_leaving or n.replacement is not Replacement.OPEN]
    return any(last.seen.seconds_since(moment) < PRESSING_SECONDS for moment in begun)


@dataclass(slots=True)
class _Run:
    """A tick under way: what it saw, planned and did so far, and what stopped it, if anything did."""

    cluster: Cluster
    looked: Seen
    plan: ClusterPlan
    seen: Seen
    done: list[ClusterStep] = field(default_factory=list)
    reports: list[str] = field(default_factory=list)
    notifications: list[Notification] = field(default_factory=list)
    stopped: str | None = None
    error: Exception | None = None
    is_lasting: bool = False  # the next tick will fail with the same error

    @classmethod
    def after_look(cls, cluster: Cluster) -> "_Run":
        seen, plan = cluster.look()
        return cls(cluster, seen, plan, seen)

    def act_urgently(self) -> None:
        """Steps for machines that EC2 is about to reclaim cannot wait for the lease. A failed one delays no other."""
        handler = NoticeHandler(self.cluster.writes, self.seen)
        for step in self.plan.steps:
            if isinstance(step, UrgentStep):
                try:
                    handler.carry_out(step)
                except NotDone as error:
                    handler.reports.append(str(error))
                except HoldfastError as error:
                    if self.error is None:
                        self.stopped, self.error = f"{step.kind}: {error}", error
                else:
                    self.done.append(step)
        self.seen = handler.seen
        self.reports += handler.reports
        self.notifications += handler.notifications

    def is_quiet(self) -> bool:
        plan = self.cluster.plan(self.seen) if self.done else self.plan
        return plan.is_quiet(self.seen)

    def act(self, holder: ClusterLeaseHolder) -> None:
        try:
            if holder.seen.state.has_moved_since(self.seen.state):
                # Machines are compared with the state, so they must be listed after it was read.
                self.looked, self.plan = self.cluster.look()
                holder.seen = self.looked
            self._act_in_rounds(holder)
        except Exception as error:
            self.stopped, self.error = str(as_our_error(error)), error
            self.is_lasting = not isinstance(error, Retryable)
        self.seen = holder.seen
        self.reports += holder.reports
        self.notifications += holder.notifications

    def _act_in_rounds(self, holder: ClusterLeaseHolder) -> None:
        """Decide and act until nothing is left to do before another look. A refused step delays no other."""
        refused: list[LeasedStep] = []
        for _ in range(ROUNDS_MOST):
            steps = [step for step in self.cluster.plan(holder.seen).leased_steps if step not in refused]
            if not steps or steps == self.done[-len(steps) :]:
                return  # nothing to do, or nothing that would differ before another look
            for step in steps:
                try:
                    may_continue = carry_out(holder, step)
                except NotDone as error:
                    if error.stops:
                        return
                    refused.append(step)
                    continue
                self.done.append(step)
                if not may_continue:
                    return

    def release(self, holder: ClusterLeaseHolder) -> None:
        """Release the lease and store the timers. If that fails, the lease expires."""
        # Do not release another process's lease. After a bug in this program, do not trust its writes either.
        if isinstance(self.error, LeaseLost) or not isinstance(self.error, HoldfastError | None):
            return
        timers = next_timers(self.seen, self.cluster.policy).stored()
        try:
            holder.release(timers)
        except HoldfastError as error:
            self.stopped = str(error)

    def ended(self) -> "_Run":
        self.notifications += lasting_actions(self.seen, self.cluster.policy)
        return self

    def stopped_by(self, error: Exception) -> "_Run":
        self.stopped, self.error = str(error), error
        return self

    def result(self) -> TickResult:
        return TickResult(
            looked=self.looked,
            seen=self.seen,
            plan=self.plan,
            done=tuple(self.done),
            stopped=self.stopped,
            reports=tuple(self.reports),
            notifications=tuple(self.notifications),
        )


# Nothing depends on the log


def _log_result(cluster: Cluster, owner: str, result: TickResult, error: Exception | None) -> Failure | None:
    record = TickRecord(
        at=result.looked.now,
        owner=owner,
        seen=summary_of(result.looked),
        rules=result.plan.rules,
        steps=result.done,
        stopped=result.stopped,
        reports=result.reports,
    )
    with _best_effort(has_failed=error is not None):
        cluster_log(cluster.writes.store, cluster.reads.cluster).record(record)
    failure = None if error is None else failure_of(error, result.seen.now)
    _remember(
        cluster, failure or failed_step(result.done, result.reports, result.seen.now), has_failed=error is not None
    )
    return failure


def _log_failure(cluster: Cluster, error: Exception) -> None:
    now = cluster.writes.clock.now()
    with _best_effort(has_failed=True):
        cluster_log(cluster.writes.store, cluster.reads.cluster).record_failure(as_our_error(error), now)
    _remember(cluster, failure_of(error, now), has_failed=True)


def _remember(cluster: Cluster, failure: Failure | None, *, has_failed: bool) -> None:
    if failure is not None:
        with _best_effort(has_failed=has_failed):
            remember(cluster.writes.store, cluster.reads.cluster, failure)


@contextmanager
def _best_effort(*, has_failed: bool) -> Iterator[None]:
    """Write to the log, or continue without it.

    If the tick has failed, the caller logs its error, and an unwritten log is a consequence that needs no attention.
    """
    try:
        yield
    except HoldfastError as error:
        if has_failed:
            _log.debug("the failed tick could not be recorded: %s", error)
        else:
            _log.warning("the tick succeeded, but could not be recorded in the decision log: %s", error)
