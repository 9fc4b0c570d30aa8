"""What must be true once the world has healed for long enough."""

from collections.abc import Callable

from holdfast.kernel.instants import Instant
from holdfast.simulator.checkers.base import Checker, Violation
from holdfast.simulator.facts import Facts

CLEANUP_SECONDS = 1200
# After an action's own time: a tick a minute, a lease to run out, and EC2 and Kubernetes to follow.
SLACK_SECONDS = 600


class NoLostInstance(Checker):
    name = "NoLostInstance"
    says = "in the end every machine of ours is in service, or recorded, or too young to be missed"

    def healed(self) -> None:
        now = self.facts.now()
        recorded = set(self.facts.item.get("scaleUpInstanceIds", ()))
        recorded |= {notice.plan["i"] for notice in self.facts.notices.values() if notice.plan and "i" in notice.plan}
        for machine in self.facts.machines.values():
            if not machine.is_ours or machine.gone is not None or machine.accepted is not None:
                continue
            age = now.seconds_since(machine.launched)
            if age > self.numbers.join_timeout_seconds + CLEANUP_SECONDS and machine.id not in recorded:
                self.fail(None, f"{machine.id} has run for {age:.0f} s, and nobody knows it: {machine.slot}")


class NoStuckAction(Checker):
    name = "NoStuckAction"
    says = "once the world is well, an action ends within its bound"

    def healed(self) -> None:
        began = self.facts.began
        if began is None:
            return
        lasted = self.facts.now().seconds_since(began)
        bound = max(self.numbers.join_timeout_seconds + CLEANUP_SECONDS, self.numbers.stuck_seconds) + SLACK_SECONDS
        if lasted > bound:
            self.fail(None, f"an action has lasted {lasted:.0f} s: {self.facts.item}")


class NoStuckNotice(Checker):
    name = "NoStuckNotice"
    says = "once the world is well, the notice of a machine that is gone is closed"

    def healed(self) -> None:
        for instance, notice in self.facts.notices.items():
            gone = self.facts.machines[instance].gone
            bound = self.numbers.join_timeout_seconds + SLACK_SECONDS
            if notice.is_open and gone is not None and self.facts.now().seconds_since(gone) > bound:
                self.fail(None, f"{instance} is gone, and its notice is open: {notice.item}")


class Converges(Checker):
    name = "Converges"
    says = "in the end no pod waits that a machine could take, and the counts are right"

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self.waiting: Callable[[], list[Instant]] = list  # since when pods wait; set by the run

    def healed(self) -> None:
        serving = self.facts.in_service()
        now = self.facts.now()
        if self.facts.began is not None or self.facts.promises():
            return  # an action is under way, and NoStuckAction holds it to its bound
        patience = self.numbers.pending_up_seconds + self.numbers.cooldown_up_seconds + SLACK_SECONDS
        late = [since for since in self.waiting() if now.seconds_since(since) > patience]
        if late and len(serving) < self.numbers.max_workers:
            self.fail(None, f"{len(late)} pods wait, the oldest since {min(late).iso()}; {len(serving)} in service")
        if len(serving) < self.numbers.min_workers:
            self.fail(None, f"{len(serving)} in service, and the minimum is {self.numbers.min_workers}")
        if len(serving) > self.numbers.max_workers:
            self.fail(None, f"{len(serving)} in service, and the maximum is {self.numbers.max_workers}")
        if self.facts.item.get("workerCount", len(serving)) != len(serving):
            self.fail(None, f"workerCount is {self.facts.item['workerCount']}, and {len(serving)} are in service")
        if bool(self.facts.item.get("scalingInProgress")):
            self.fail(None, "scalingInProgress is set, and no action is under way")


CHECKERS: tuple[type[Checker], ...] = (NoLostInstance, NoStuckAction, NoStuckNotice, Converges)
