"""The lease: who may act on the cluster now. Short, fenced, and for efficiency only.

    free ──ACQUIRE (fence + 1)──► held ──RELEASE──► free
                                   │ ▲
                                   │ └─RENEW (same fence)
                                   └──expires──► may be acquired by anybody (fence + 1)

It separates two things that the seeds keep in one flag: the lease is held for seconds, while one process acts; an
action (`scaleUp…`, `scaleDown…`) lasts minutes and belongs to nobody. Nothing waits under the lease.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.cluster.ledger import Ledger, Transition
from holdfast.cluster.state import ClusterState, Timers
from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.kernel.instants import Instant
from holdfast.ports.store import attr, set_all

LEASE_SECONDS: Final = 90
LONGEST_SECONDS: Final = 3600  # an older autoscaler's lock lasts as long as a Lambda function may run: minutes
SKEW_SECONDS: Final = 5  # two machines' clocks may differ by as much
# After a lease was taken over, no slot gets another token for so long: the last holder may be about to use the old one.
NO_BUMP_SECONDS: Final = 60


class LeaseHeld(Retryable):
    """Another process is acting. This one stands by; there is nothing to repair."""


class Lease(Struct, frozen=True):
    """Held until `until`, if nobody was faster; every write proves it by the fence."""

    owner: str
    fence: int
    until: Instant
    took_over: bool = False  # its last holder did not give it back, and may yet wake up in the midst of a call
    ends: Instant | None = None  # its holder is stopped then, and needs it no longer

    def is_renewal_due(self, now: Instant) -> bool:
        """At a third of its length, so that two lost renewals do not lose it."""
        is_final = self.ends is not None and self.until >= self.ends
        return not is_final and self.until.seconds_since(now) < LEASE_SECONDS * 2 / 3


def acquire(ledger: Ledger, owner: str, now: Instant, ends: Instant | None = None) -> tuple[Lease, ClusterState]:
    """Take the lease, and with the same write read the state; LeaseHeld if somebody has it.

    `ends` is when this process will be stopped, if that is known: whoever comes after it need not wait any longer.
    """
    until = _until(now, ends)
    update = set_all({"lockOwner": owner, "lockUntilEpoch": until.epoch_seconds}) + attr("fence").plus(1)
    is_free = attr("lockOwner").is_absent() | attr("lockOwner").equals("")
    is_mine = attr("lockOwner").equals(owner)
    is_expired = attr("lockUntilEpoch").is_absent() | attr("lockUntilEpoch").less_than(now.epoch_seconds - SKEW_SECONDS)
    # Nobody takes it for longer, so a clock had jumped. Taking it is safe at any time: that is what the fence is for.
    is_expired |= attr("lockUntilEpoch").greater_than(now.epoch_seconds + LONGEST_SECONDS)
    try:
        before, state = ledger.acquire(update, is_free | is_mine | is_expired)
    except WriteConflict as conflict:
        holder, held_until = (conflict.item or {}).get("lockOwner"), (conflict.item or {}).get("lockUntilEpoch", 0)
        left = max(0, held_until - now.epoch_seconds)
        raise LeaseHeld(f"lease held by {holder} for {left} s more; this tick stands by") from conflict
    return Lease(owner, state.fence, until, took_over=before.lock_owner not in ("", owner), ends=ends), state


def renewed(ledger: Ledger, lease: Lease, now: Instant) -> Lease:
    until = _until(now, lease.ends)
    renewal = Transition(
        "renew the lease", attr("lockUntilEpoch").set_to(until.epoch_seconds), attr("lockOwner").equals(lease.owner)
    )
    ledger.write(renewal, lease.fence)
    return replace(lease, until=until)


def release(ledger: Ledger, lease: Lease, timers: Timers, now: Instant) -> None:
    """Give the lease back, and write the timers with the same write."""
    values = {"lockOwner": "", "lockUntilEpoch": 0, **timers.stored()}
    if lease.took_over:
        values["bumpAfterEpoch"] = now.plus(NO_BUMP_SECONDS).epoch_seconds
    ledger.write(Transition("release the lease", set_all(values), attr("lockOwner").equals(lease.owner)), lease.fence)


def _until(now: Instant, ends: Instant | None) -> Instant:
    longest = now.plus(LEASE_SECONDS)
    return longest if ends is None else min(longest, ends)
