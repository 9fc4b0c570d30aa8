"""One tick of the cluster, top to bottom.

A tick does a bounded amount of work and never waits for a node to join or a pod to leave: waiting is state, and the
next tick looks again.
"""

import logging
from dataclasses import dataclass
from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.cluster.act import Actor
from holdfast.cluster.action_names import action_name
from holdfast.cluster.alarms import lasting_actions
from holdfast.cluster.deadline import Deadline, OutOfTime
from holdfast.cluster.decide import decide, next_timers
from holdfast.cluster.failure import Failure, failure_in, failure_of, foreseen, remember
from holdfast.cluster.hands import Hands, NotDone
from holdfast.cluster.lease import Lease, LeaseHeld, acquire, release
from holdfast.cluster.ledger import LeaseLost, Ledger
from holdfast.cluster.log import log_failure, log_item
from holdfast.cluster.observe import Senses, observe
from holdfast.cluster.plan import Plan, Ticked
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import Seen
from holdfast.cluster.spot_act import SpotHand
from holdfast.cluster.state import ClusterState
from holdfast.cluster.steps import Step, UrgentStep
from holdfast.kernel.errors import HoldfastError, Retryable
from holdfast.ports.notify import Notice
from holdfast.ports.store.tables import LOGS

ROUNDS_MOST: Final = 8

_log = logging.getLogger(__name__)


class Cluster(Struct, frozen=True):
    """One cluster: what is read, what is acted through, and the operator's numbers."""

    senses: Senses
    hands: Hands
    policy: Policy

    def look(self) -> tuple[Seen, Plan]:
        """What a tick would see and do; touches nothing."""
        seen = observe(self.senses, self.hands.clock.now())
        return seen, decide(seen, self.policy, self.hands.choices)


class _Ended(Struct, frozen=True):
    """What became of a tick that had begun, and what stopped it, if something did.

    `is_lasting`: while it acted, something went wrong that the next tick will not mend.
    """

    ticked: Ticked
    error: Exception | None = None
    is_lasting: bool = False


def tick(cluster: Cluster, owner: str, deadline: Deadline | None = None) -> Ticked:
    """`owner` names this invocation, and no other: a request's id, or a process's name and a counter.

    With a deadline it begins nothing that may not end in time. What needs an operator is raised, after what had been
    done is logged.
    """
    store, name = cluster.hands.store, cluster.senses.cluster
    if deadline is not None:
        cluster = replace(cluster, hands=deadline.hands(cluster.hands))
    try:
        ended = _tick(cluster, owner, deadline)
    except Exception as error:
        now = cluster.hands.clock.now()
        with _BEST_EFFORT:
            log_failure(store, name, foreseen(error), now)
        _remember(cluster, failure_of(error, now))
        raise
    with _BEST_EFFORT:
        store.put(LOGS, log_item(name, ended.ticked, owner))
    failure = None if ended.error is None else failure_of(ended.error, ended.ticked.seen.now)
    _remember(cluster, failure or failure_in(ended.ticked))
    if ended.error is not None and ended.is_lasting:
        raise ended.error
    return replace(ended.ticked, has_failed=failure is not None)


def _remember(cluster: Cluster, failure: Failure | None) -> None:
    if failure is not None:
        with _BEST_EFFORT:
            remember(cluster.hands.store, cluster.senses.cluster, failure)


class _BestEffort:
    """The log explains, and nothing depends on it: what happened stays what it was when it cannot be written."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> bool:
        if isinstance(error, HoldfastError):
            _log.warning("the decision log could not be written; the tick itself is not affected: %s", error)
        return isinstance(error, HoldfastError)


_BEST_EFFORT: Final = _BestEffort()


def _tick(cluster: Cluster, owner: str, deadline: Deadline | None) -> _Ended:
    looked, plan = cluster.look()
    urgent = _act_urgently(cluster, looked, plan)
    seen, done, told = urgent.seen, urgent.done, urgent.told
    if (decide(seen, cluster.policy, cluster.hands.choices) if done else plan).is_quiet(seen):
        alarms = (*urgent.alarms, *lasting_actions(seen, cluster.policy))
        return _Ended(Ticked(looked, seen, plan, tuple(done), urgent.problem, tuple(told), alarms), urgent.error)
    ledger = Ledger(cluster.hands.store, seen.cluster)
    try:
        lease, state = _acquire(cluster, ledger, owner, deadline)
    except (LeaseHeld, OutOfTime) as error:
        if not done and isinstance(error, LeaseHeld):
            raise
        # What was urgent was done, and is told; so is what was seen.
        return _Ended(Ticked(looked, seen, plan, tuple(done), str(error), tuple(told), tuple(urgent.alarms)), error)
    action = action_name(seen.now, lease.fence, owner)
    actor = Actor(cluster.hands, ledger, lease, replace(seen, state=state), action)
    stopped, stopped_by, is_lasting = urgent.problem, urgent.error, False
    try:
        if state.has_moved_since(seen.state):
            # What is judged by the state must have been seen after it was read: a look of before may mislead.
            looked = observe(cluster.senses, cluster.hands.clock.now())
            plan = decide(looked, cluster.policy, cluster.hands.choices)
            actor.look_anew(looked)
        _act(cluster, actor, done)
    except Exception as error:
        stopped, stopped_by, is_lasting = str(foreseen(error)), error, not isinstance(error, Retryable)
    # The lease of others is not ours to give back. After a mistake of ours, what we would write is not to be trusted.
    if isinstance(stopped_by, HoldfastError | None) and not isinstance(stopped_by, LeaseLost):
        stopped = _release(cluster, ledger, actor) or stopped
    alarms = (*urgent.alarms, *actor.alarms, *lasting_actions(actor.seen, cluster.policy))
    ticked = Ticked(looked, actor.seen, plan, tuple(done), stopped, (*told, *actor.told), alarms)
    return _Ended(ticked, stopped_by, is_lasting)


def _acquire(cluster: Cluster, ledger: Ledger, owner: str, deadline: Deadline | None) -> tuple[Lease, ClusterState]:
    now = cluster.hands.clock.now()
    if deadline is None:
        return acquire(ledger, owner, now)
    deadline.check()
    return acquire(ledger, owner, now, deadline.instant(now))


def _release(cluster: Cluster, ledger: Ledger, actor: Actor) -> str | None:
    """Give the lease back; why not, if that failed: then it runs out by itself."""
    timers = next_timers(actor.seen, cluster.policy)
    try:
        release(ledger, actor.lease, timers, cluster.hands.clock.now())
    except HoldfastError as error:
        return str(error)
    return None


@dataclass(slots=True)
class _Urgent:
    """What was done without the lease, and the first problem, if there was one."""

    seen: Seen
    done: list[Step]
    told: list[str]
    alarms: list[Notice]
    problem: str | None = None
    error: Exception | None = None


def _act_urgently(cluster: Cluster, seen: Seen, plan: Plan) -> _Urgent:
    """What cannot wait for the lease: machines that spot is about to take. One that fails holds up no other."""
    hand = SpotHand(cluster.hands, seen)
    urgent = _Urgent(seen, [], hand.told, hand.alarms)
    for step in plan.steps:
        if isinstance(step, UrgentStep):
            try:
                hand.carry_out(step)
            except NotDone as error:
                urgent.told.append(str(error))
            except HoldfastError as error:
                if urgent.error is None:
                    urgent.problem, urgent.error = f"{step.kind}: {error}", error
            else:
                urgent.done.append(step)
    urgent.seen = hand.seen
    return urgent


def _act(cluster: Cluster, actor: Actor, done: list[Step]) -> None:
    """Decide and carry out, until there is nothing to do before another look. What is refused holds up no other."""
    refused: list[Step] = []
    for _ in range(ROUNDS_MOST):
        plan = decide(actor.seen, cluster.policy, cluster.hands.choices)
        steps = [step for step in plan.leased_steps if step not in refused]
        if not steps or steps == done[-len(steps) :]:
            return  # nothing to do, or nothing that would differ before another look
        for step in steps:
            try:
                go_on = actor.carry_out(step)
            except NotDone as error:
                if error.stops:
                    return
                refused.append(step)
                continue
            done.append(step)
            if not go_on:
                return
