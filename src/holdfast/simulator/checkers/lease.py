"""The lease, the fence, and one action at a time."""

from typing import Any

from holdfast.control.clock_check import OFF_SECONDS_MOST, WrongClock
from holdfast.kernel.errors import Retryable
from holdfast.ports.store import Item
from holdfast.simulator.checkers.base import Checker
from holdfast.simulator.proof.processes import Killed, Process

LEASE_SECONDS = 90
_SEED_TYPES = {
    "scalingInProgress": bool,
    "lastScaleEpoch": int,
    "pendingSinceEpoch": int,
    "idleSinceEpoch": int,
    "workerCount": int,
    "lockOwner": str,
    "lockUntilEpoch": int,
    "scaleUpActionId": str,
    "scaleUpStartedEpoch": int,
    "scaleUpRequested": int,
    "scaleUpInstanceIds": list,
    "scaleDownActionId": str,
    "scaleDownStartedEpoch": int,
    "scaleDownPhase": str,
    "scaleDownTargetInstanceIds": list,
    "scaleDownCompletedInstanceIds": list,
}
_UP = ("scaleUpActionId", "scaleUpStartedEpoch", "scaleUpRequested", "scaleUpInstanceIds")
_DOWN = ("scaleDownActionId", "scaleDownStartedEpoch", "scaleDownPhase", "scaleDownTargetInstanceIds")


class FenceMonotone(Checker):
    name = "FenceMonotone"
    says = "the fence never decreases, and each acquisition adds exactly 1"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        before, after = old.get("fence", 0), new.get("fence", 0)
        if after not in (before, before + 1):
            self.fail(by, f"the fence went from {before} to {after}")
        owner = new.get("lockOwner", "")
        if owner and owner != old.get("lockOwner", "") and after != before + 1:
            self.fail(by, f"{owner} acquired the lease, but the fence stayed at {after}")
        if after != before and not owner:
            self.fail(by, f"the fence went to {after}, but no process acquired the lease")


class FencedWrite(Checker):
    name = "FencedWrite"
    says = "each write to the cluster's item is made by the process that last acquired the lease"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        if new.get("fence", 0) == old.get("fence", 0) and self.facts.holder != by.number:
            self.fail(by, f"{changes(old, new)}, after another process acquired the lease")

    def notice_written(self, by: Process, instance: str, old: Item, new: Item) -> None:
        if "plan" not in old and "plan" in new and self.facts.holder != by.number:
            self.fail(by, f"a replacement for {instance} was planned without the lease")


class LeaseShort(Checker):
    name = "LeaseShort"
    says = "a lease lasts at most 90 s without renewal; no process sleeps while holding it or keeps it when it ends"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        until = new.get("lockUntilEpoch", 0)
        if until != old.get("lockUntilEpoch", 0) and until:
            length = until - self.facts.now().plus(by.offset_seconds).epoch_seconds
            if length > LEASE_SECONDS + 1:
                self.fail(by, f"a lease of {length} s")

    def slept(self, by: Process) -> None:
        if self._is_kept(by):
            self.fail(by, "sleeps while holding the lease")

    def ended(self, by: Process, error: BaseException | None) -> None:
        if not isinstance(error, Killed) and self._is_kept(by):
            self.fail(by, "ended without releasing the lease")

    def _is_kept(self, by: Process) -> bool:
        """A process that met a fault may have failed to release it."""
        return not by.faults and self.facts.holder == by.number and bool(self.facts.item.get("lockOwner"))


class LeaseKept(Checker):
    name = "LeaseKept"
    says = "a lease is acquired only when it is free, or has expired by the clock of the process that acquires it"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        holder, until = old.get("lockOwner", ""), old.get("lockUntilEpoch", 0)
        if new.get("fence", 0) == old.get("fence", 0) or holder in ("", new.get("lockOwner")):
            return
        left = until - self.facts.now().plus(by.offset_seconds).epoch_seconds
        if 0 < left <= LEASE_SECONDS + 1:
            self.fail(by, f"the lease of {holder} was taken {left} s before it expired")


class OneAction(Checker):
    name = "OneAction"
    says = "there is never more than one action, and one ends before the next begins"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        up, down = new.get("scaleUpActionId"), new.get("scaleDownActionId")
        if up and down:
            self.fail(by, f"scale-up {up} and scale-down {down} at once")
        for name in ("scaleUpActionId", "scaleDownActionId"):
            if old.get(name) and new.get(name) and old[name] != new[name]:
                self.fail(by, f"{name} went from {old[name]} to {new[name]} without ending")


class FlagMatches(Checker):
    name = "FlagMatches"
    says = "scalingInProgress is true exactly while an action id is stored"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        if _flag_is_right(old) and not _flag_is_right(new):
            self.fail(by, f"scalingInProgress is {new.get('scalingInProgress')}: {changes(old, new)}")


class CooldownExact(Checker):
    name = "CooldownExact"
    says = (
        "lastScaleEpoch changes only when an action completes, to the time of that moment, and no action begins during "
        "its cooldown"
    )

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        before, after = old.get("lastScaleEpoch", 0), new.get("lastScaleEpoch", 0)
        up, down = _begins(old, new, "scaleUpActionId"), _begins(old, new, "scaleDownActionId")
        if before != after and not _completes(old, new) and not self._is_clock_correction(by, before, after):
            self.fail(by, f"lastScaleEpoch went from {before} to {after}: {changes(old, new)}")
        if before != after and _completes(old, new) and not self._is_current(by, after):
            self.fail(by, f"an action completed, but lastScaleEpoch became {after}: {changes(old, new)}")
        started = new.get("scaleUpStartedEpoch" if up else "scaleDownStartedEpoch", 0) if up or down else None
        if started is not None and not self._is_current(by, started):
            self.fail(by, f"an action began, but its start is stored as {started}")
        # A value written by a clock that was ahead may be corrected.
        if after < before <= self.facts.now().epoch_seconds and not by.offset_seconds:
            self.fail(by, f"lastScaleEpoch went back from {before} to {after}")
        if before == after and _ends(old, new) and new.get("upFailures", 0) == old.get("upFailures", 0):
            aborted = old.get("scaleDownPhase") == "ABORTING"
            if not aborted and after != self.facts.now().plus(by.offset_seconds).epoch_seconds:
                self.fail(by, "an action completed, but lastScaleEpoch did not change")
        if down and new["scaleDownStartedEpoch"] < after + self.numbers.cooldown_down_seconds:
            self.fail(by, f"a scale-down began {new['scaleDownStartedEpoch'] - after} s after the last action")
        if up and new["scaleUpStartedEpoch"] < after + self.numbers.cooldown_up_seconds and not self._is_low(by):
            self.fail(by, f"a scale-up began {new['scaleUpStartedEpoch'] - after} s after the last action")

    def _is_current(self, by: Process, epoch: int) -> bool:
        """Whether its clock showed this time between its last look and now."""
        looked, now = (at.plus(by.offset_seconds).epoch_seconds for at in (by.looked, self.facts.now()))
        return looked <= epoch <= now

    def _is_clock_correction(self, by: Process, before: int, after: int) -> bool:
        """A value more than an hour ahead is taken for a wrong clock's, and set to the current time."""
        return before > after + 3600 and after <= self.facts.now().plus(by.offset_seconds).epoch_seconds

    def _is_low(self, by: Process) -> bool:
        """Below the minimum there is no cooldown; a process with a stale list may believe it is below."""
        if by.saw_old_list or self.facts.were_lists_wrong(by.looked):
            return True
        return len(self.facts.in_service(by.looked)) < self.numbers.min_workers


class BackoffKept(Checker):
    name = "BackoffKept"
    says = "after a failed scale-up, none begins before the back-off has passed"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        until = old.get("upBackoffUntilEpoch", 0)
        if _begins(old, new, "scaleUpActionId") and new["scaleUpStartedEpoch"] < until:
            self.fail(by, f"a scale-up began {until - new['scaleUpStartedEpoch']} s before the back-off ended")
        # Measured from its last read: it may sleep before it writes, for longer than the back-off lasts.
        looked = by.looked.plus(by.offset_seconds).epoch_seconds
        if new.get("upFailures", 0) > old.get("upFailures", 0) and new.get("upBackoffUntilEpoch", 0) <= looked:
            self.fail(by, "a scale-up failed, but no back-off was set")


class LegacyReadable(Checker):
    name = "LegacyReadable"
    says = "after each write, a reader of the original format finds a valid state"

    def cluster_written(self, by: Process, old: Item, new: Item) -> None:
        for name, kind in _SEED_TYPES.items():
            if name in new and type(new[name]) is not kind:
                self.fail(by, f"{name} is {new[name]!r}, expected {kind.__name__}")
        for names in (_UP, _DOWN):
            there = [name for name in names if name in new]
            if there and len(there) != len(names) and not any(name in old for name in names):
                self.fail(by, f"only {', '.join(there)} of {', '.join(names)} are stored")
        targets, completed = new.get("scaleDownTargetInstanceIds", []), new.get("scaleDownCompletedInstanceIds", [])
        if len(set(completed)) != len(completed) or not set(completed) <= set(targets):
            self.fail(by, f"completed are {completed}, but targets are {targets}")
        if len(set(new.get("scaleUpInstanceIds", []))) != len(new.get("scaleUpInstanceIds", [])):
            self.fail(by, f"scaleUpInstanceIds has a duplicate: {new['scaleUpInstanceIds']}")


class EndsWell(Checker):
    name = "EndsWell"
    says = "an invocation ends normally or with a retryable error, or its clock is wrong by more than a minute"

    def ended(self, by: Process, error: BaseException | None) -> None:
        if isinstance(error, WrongClock) and abs(by.offset_seconds) > OFF_SECONDS_MOST - 1:
            return
        if error is not None and not isinstance(error, (Killed, Retryable)):
            self.fail(by, f"ended with {type(error).__name__}: {error}")


def changes(old: Item, new: Item) -> str:
    """What a write changed, as short text."""
    changed = sorted([name for name in {*old, *new} if old.get(name) != new.get(name)])
    return ", ".join(f"{name} → {_short(new.get(name, 'removed'))}" for name in changed) or "nothing changed"


def _short(value: Any) -> str:
    text = str(sorted(value)) if isinstance(value, (set, frozenset)) else str(value)
    return text if len(text) <= 120 else f"{text[:117]}…"


def _flag_is_right(item: Item) -> bool:
    return bool(item.get("scalingInProgress")) == bool(item.get("scaleUpActionId") or item.get("scaleDownActionId"))


def _begins(old: Item, new: Item, name: str) -> bool:
    return not old.get(name) and bool(new.get(name))


def _ends(old: Item, new: Item) -> bool:
    return any(old.get(name) and not new.get(name) for name in ("scaleUpActionId", "scaleDownActionId"))


def _completes(old: Item, new: Item) -> bool:
    return _ends(old, new) and new.get("upFailures", 0) <= old.get("upFailures", 0)


CHECKERS: tuple[type[Checker], ...] = (
    FenceMonotone,
    FencedWrite,
    LeaseShort,
    LeaseKept,
    OneAction,
    FlagMatches,
    CooldownExact,
    BackoffKept,
    LegacyReadable,
    EndsWell,
)
