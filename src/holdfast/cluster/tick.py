"""One tick of the cluster, top to bottom.

A tick does a bounded amount of work and never waits for a node to join or a pod to leave: waiting is state, and the
next tick looks again.
"""

import logging
from dataclasses import dataclass, replace
from typing import Final

from holdfast.cluster.act import Actor
from holdfast.cluster.decide import decide
from holdfast.cluster.hands import Hands
from holdfast.cluster.lease import acquire, release
from holdfast.cluster.ledger import LeaseLost, Ledger
from holdfast.cluster.log import log_item
from holdfast.cluster.observe import Senses, observe
from holdfast.cluster.plan import Plan, Ticked
from holdfast.cluster.policy import Policy
from holdfast.cluster.seen import Seen
from holdfast.cluster.spot_act import SpotHand
from holdfast.cluster.steps import Step, UrgentStep
from holdfast.kernel.errors import Retryable
from holdfast.kernel.ids import ActionId
from holdfast.ports.store.tables import LOGS

ROUNDS_MOST: Final = 8

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Cluster:
    """One cluster: what is read, what is acted through, and the operator's numbers."""

    senses: Senses
    hands: Hands
    policy: Policy

    def look(self) -> tuple[Seen, Plan]:
        """What a tick would see and do; touches nothing."""
        seen = observe(self.senses, self.hands.clock.now())
        return seen, decide(seen, self.policy, self.hands.choices)


def tick(cluster: Cluster, owner: str) -> Ticked:
    """`owner` names this invocation, and no other: a request's id, or a process's name and a counter."""
    ticked = _tick(cluster, owner)
    try:
        cluster.hands.store.put(LOGS, log_item(ticked.seen.cluster, ticked, owner))
    except Retryable:
        _log.warning("the decision log could not be written; the tick itself is not affected")
    return ticked


def _tick(cluster: Cluster, owner: str) -> Ticked:
    seen, plan = cluster.look()
    seen, done = _act_urgently(cluster, seen, plan)
    if decide(seen, cluster.policy, cluster.hands.choices).is_quiet(seen):
        return Ticked(seen, plan, tuple(done))
    ledger = Ledger(cluster.hands.store, seen.cluster)
    lease, state = acquire(ledger, owner, cluster.hands.clock.now())
    action = ActionId(f"{seen.now.epoch_seconds}-{lease.fence}-{owner}")
    actor = Actor(cluster.hands, ledger, lease, replace(seen, state=state), action)
    stopped: str | None = None
    try:
        _act(cluster, actor, done)
    except LeaseLost as error:
        return Ticked(actor.seen, plan, tuple(done), str(error))
    except Retryable as error:
        stopped = str(error)
    timers = decide(actor.seen, cluster.policy, cluster.hands.choices).timers
    try:
        release(ledger, actor.lease, timers, cluster.hands.clock.now())
    except LeaseLost as error:
        stopped = stopped or str(error)
    return Ticked(actor.seen, plan, tuple(done), stopped)


def _act_urgently(cluster: Cluster, seen: Seen, plan: Plan) -> tuple[Seen, list[Step]]:
    """What cannot wait for the lease: machines that spot is about to take."""
    hand = SpotHand(cluster.hands, seen)
    done: list[Step] = []
    for step in plan.steps:
        if isinstance(step, UrgentStep):
            hand.carry_out(step)
            done.append(step)
    return hand.seen, done


def _act(cluster: Cluster, actor: Actor, done: list[Step]) -> None:
    """Decide and carry out, until there is nothing to do before another look."""
    for _ in range(ROUNDS_MOST):
        plan = decide(actor.seen, cluster.policy, cluster.hands.choices)
        steps = plan.leased_steps
        if not steps or steps == done[-len(steps) :]:
            return  # nothing to do, or nothing that would differ before another look
        for step in steps:
            go_on = actor.carry_out(step)
            done.append(step)
            if not go_on:
                return
