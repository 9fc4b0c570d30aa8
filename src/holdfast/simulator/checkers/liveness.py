"""Liveness: what must happen in time, measured without a break from the moment at which the world heals.

Each limit is the sum of what the settings allow and of `SLACK_SECONDS`: a tick a minute, an expiring lease, and the
delays of EC2 and Kubernetes. A run that is under way never excuses another: each has its own limit.
"""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Node
from holdfast.simulator.checkers.base import Checker, Lasting, Violation
from holdfast.simulator.checkers.draining import is_critical
from holdfast.simulator.checkers.launching import REFUSAL_KEPT_SECONDS
from holdfast.simulator.proof.facts import Facts, MachineFacts, bears_taint, is_work
from holdfast.simulator.proof.processes import Process

SLACK_SECONDS: Final = 300
JOIN_SECONDS: Final = 120  # from a launch to a Ready node, in a world without faults
BACKOFF_MOST_SECONDS: Final = 1800
UNDRAINED_KEPT_SECONDS: Final = 7200
_SECRET: Final = ".node-password.k3s"  # noqa: S105 -- the end of a name


class LivenessChecker(Checker):
    """A checker with a limit. The world has healed when it is called."""

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self.lasting = Lasting()

    def seconds_since(self, moment: Instant) -> float:
        """How long ago, counted from the moment of healing."""
        healed = self.facts.healed or moment
        return self.facts.now().seconds_since(max(moment, healed))

    def refused_seconds(self) -> float:
        """How long after healing every zone may be left out, because EC2 had no capacity in it before."""
        refusals = [self.facts.refused_in.get(zone) for zone in self.facts.zones()]
        known = [refusal for refusal in refusals if refusal is not None]
        if not known or len(known) < len(refusals):
            return 0.0
        return max(0.0, REFUSAL_KEPT_SECONDS - (self.facts.healed or self.facts.now()).seconds_since(min(known)))


class NoLostInstance(LivenessChecker):
    name = "NoLostInstance"
    says = (
        "after the world has healed, a machine of ours comes into service or is terminated within its join timeout "
        "and 10 minutes"
    )

    def minute_passed(self) -> None:
        limit = self.numbers.join_timeout_seconds + 2 * SLACK_SECONDS
        for machine in self.facts.running():
            if machine.id in self.facts.marked:
                continue  # tagged as accepted: AcceptedServes watches it
            if machine.accepted is None and self.seconds_since(machine.launched) > limit:
                self.fail(None, f"{machine.id} runs since {machine.launched.iso()}, not in service: {machine.slot}")


class AcceptedServes(Checker):
    name = "AcceptedServes"
    says = "in the end, no node of a machine that was in service has the start-up taint, unless it is leaving"

    def healed(self) -> None:
        targets = self.facts.item.get("scaleDownTargetInstanceIds", ())
        for instance, node in self.facts.nodes.items():
            machine = self.facts.machines.get(instance)
            if machine is None or machine.gone is not None or not (machine.accepted or instance in self.facts.marked):
                continue
            notice = self.facts.notices.get(instance)
            is_leaving = instance in targets or (notice is not None and notice.leaving is not None)
            if node.is_ready and bears_taint(node) and not is_leaving:
                self.fail(None, f"{instance} was in service, and its node has the start-up taint")


class NoStuckAction(LivenessChecker):
    name = "NoStuckAction"
    says = "after the world has healed, an action ends within its timeout and 5 minutes"

    def minute_passed(self) -> None:
        began = self.facts.began
        if began is None:
            return
        is_up = "scaleUpActionId" in self.facts.item
        limit = self.numbers.join_timeout_seconds if is_up else self.numbers.stuck_seconds
        if self.seconds_since(began) > limit + SLACK_SECONDS:
            self.fail(None, f"an action has lasted since {began.iso()}: {self.facts.item}")


class NoStuckNotice(LivenessChecker):
    name = "NoStuckNotice"
    says = (
        "after the world has healed, the notice of a machine that is gone is closed within a join timeout and 10 "
        "minutes, once a zone may be tried again"
    )

    def minute_passed(self) -> None:
        limit = self.numbers.join_timeout_seconds + 2 * SLACK_SECONDS + self.refused_seconds()
        for instance, notice in self.facts.notices.items():
            gone = self.facts.machines[instance].gone if notice.is_open else None
            if gone is not None and self.seconds_since(gone) > limit:
                self.fail(None, f"{instance} is gone, but its notice is open: {notice.item}")


class Converges(LivenessChecker):
    name = "Converges"
    says = (
        "after the world has healed, machines come into service in time while pods are pending or the minimum is not "
        "reached, and the stored counts are right"
    )

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        self._backoff_seconds = 0.0

    def minute_passed(self) -> None:
        now, serving = self.facts.now(), len(self.facts.in_service())
        self._excuse_backoff(self.facts.healed or now)
        for problem, since in self.lasting.since(self._problems(serving), now).items():
            allowed = self._limit(problem)
            moment = max(since, self.facts.progressed or since) if problem in ("pending", "too few") else since
            if self.seconds_since(moment) > allowed:
                self.fail(None, f"{problem} since {since.iso()}: {serving} in service; {self.facts.item}")

    def _excuse_backoff(self, healed: Instant) -> None:
        """The back-off after an action that began before the world healed; what fails later has no such excuse."""
        if self.seconds_since(healed) <= self.numbers.join_timeout_seconds + SLACK_SECONDS:
            left = self.facts.item.get("upBackoffUntilEpoch", 0) - healed.epoch_seconds
            self._backoff_seconds = max(0.0, min(left, BACKOFF_MOST_SECONDS), self.refused_seconds())

    def _problems(self, serving: int) -> Iterator[str]:
        running = len(self.facts.running())
        if any(pod.node is None for pod in self.facts.pods_on(None)) and running < self.numbers.max_workers:
            yield "pending"
        if serving < self.numbers.min_workers:
            yield "too few"
        # A machine whose node turned Ready again stays, although it was replaced.
        stayed = sum(1 for notice in self.facts.notices.values() if notice.stays is not None)
        if serving > self.numbers.max_workers + stayed:
            yield "too many"
        item = self.facts.item
        if "workerCount" in item and item["workerCount"] != self._staying():
            yield "workerCount is wrong"
        if item.get("scalingInProgress") and self.facts.began is None:
            yield "scalingInProgress is set without an action"

    def _staying(self) -> int:
        now = self.facts.now()
        return sum(1 for machine in self.facts.running() if not self.facts.is_leaving(machine.id, now))

    def _limit(self, problem: str) -> float:
        if problem not in ("pending", "too few"):
            return SLACK_SECONDS
        waits = JOIN_SECONDS + SLACK_SECONDS + self._backoff_seconds
        if problem == "pending":
            waits += max(self.numbers.pending_up_seconds, self.numbers.cooldown_up_seconds)
        return waits


class IdleLeaves(LivenessChecker):
    name = "IdleLeaves"
    says = "after the world has healed, an idle cluster above its minimum loses a worker in time, if one can be drained"

    def minute_passed(self) -> None:
        now, numbers = self.facts.now(), self.numbers
        serving = [machine for machine in self.facts.in_service() if self._is_ready(machine)]
        found = [len(serving)] if self._is_idle() and self._has_one_to_spare(serving) else []
        since = self.lasting.since(found, now).get(len(serving))
        # A drain that a budget delays is tried first, and aborted.
        delayed = sum(1 for machine in serving if not self._is_drainable(machine))
        limit = max(numbers.idle_down_seconds, numbers.cooldown_down_seconds) + numbers.drain_seconds
        limit += SLACK_SECONDS + delayed * (numbers.drain_seconds + 120)
        if since is not None and self.seconds_since(max(since, self.facts.progressed or since)) > limit:
            self.fail(None, f"idle since {since.iso()} with {len(serving)} in service; {self.facts.item}")

    def _is_idle(self) -> bool:
        cpu = self.facts.cpu()
        if cpu is None or cpu >= self.numbers.cpu_down or self.facts.paused is not None:
            return False
        return all(pod.node is not None for pod in self.facts.pods_on(None))

    def _has_one_to_spare(self, serving: list[MachineFacts]) -> bool:
        """Neither the newest one nor the last one of one of several zones has to leave."""
        zones = Counter(machine.zone for machine in serving)
        if len(serving) < max(2, self.numbers.min_workers + 1):
            return False
        candidates = sorted(serving, key=lambda machine: (machine.launched, machine.id))[:-1]
        return any((len(zones) == 1 or zones[m.zone] > 1) and self._is_drainable(m) for m in candidates)

    def _is_drainable(self, machine: MachineFacts) -> bool:
        undrained = self.facts.undrained.get(machine.id)
        if undrained is not None and self.facts.now().seconds_since(undrained) < UNDRAINED_KEPT_SECONDS:
            return False
        pods = self.facts.pods_on(self.facts.nodes[machine.id].name)
        return not any(is_critical(pod) or self.facts.has_budget(pod) for pod in pods if is_work(pod))

    def _is_ready(self, machine: MachineFacts) -> bool:
        node = self.facts.nodes.get(machine.id)
        return node is not None and node.is_ready


class NoLeakedSecret(LivenessChecker):
    name = "NoLeakedSecret"
    says = "a node is removed only after its password, and after the world has healed no password outlives its machine"

    def node_changed(self, by: Process | None, old: Node | None, new: Node | None) -> None:
        if by is not None and old is not None and new is None and self._has_secret(old.name):
            self.fail(by, f"node {old.name} was removed, and its password was left")

    def minute_passed(self) -> None:
        ended = {machine.id for machine in self.facts.machines.values() if self._is_long_gone(machine)}
        for _, name in self.facts.secrets() if ended else ():
            if name.removesuffix(_SECRET) in ended:
                self.fail(None, f"{name} is left, and its machine is gone")

    def _has_secret(self, node: str) -> bool:
        return ("kube-system", f"{node}{_SECRET}") in self.facts.secrets()

    def _is_long_gone(self, machine: MachineFacts) -> bool:
        """Of a machine that an action launched: what names the others' nodes have is not known."""
        is_gone = machine.gone is not None and self.seconds_since(machine.gone) > 2 * SLACK_SECONDS
        return is_gone and machine.slot is not None


CHECKERS: tuple[type[Checker], ...] = (
    NoLostInstance,
    AcceptedServes,
    NoStuckAction,
    NoStuckNotice,
    Converges,
    IdleLeaves,
    NoLeakedSecret,
)
