"""The lease: which process may act now. Short, fenced, and for efficiency only.

    free ──ACQUIRE (fence + 1)──► held ──RELEASE──► free
                                   │ ▲
                                   │ └─RENEW (same fence)
                                   └──expires──► free to acquire (fence + 1)

A lease is not an action. The lease is held for seconds, while one process acts; an action (`scaleUp…`, `scaleDown…`)
lasts minutes, and any process may resume it. Nothing waits under the lease.
"""

from typing import Final

from msgspec import Struct
from msgspec.structs import replace

from holdfast.control.ledger import Ledger, S, Transition
from holdfast.kernel.errors import Retryable, WriteConflict
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, attr, set_all

LEASE_SECONDS: Final = 90
LONGEST_SECONDS: Final = 3600  # no lease is longer: an older autoscaler's lasts as long as a Lambda function, minutes
SKEW_SECONDS: Final = 5  # the clocks of two hosts may differ by this much
# After a takeover no slot gets a new token for this long: the previous lease holder may still use the old one.
NO_BUMP_SECONDS: Final = 60


class LeaseHeld(Retryable):
    """Another process is acting. This one stands by; nothing is wrong.

    `free_at`: when the lease can be taken over at the latest, should that process have died.
    """

    def __init__(self, message: str, free_at: Instant | None = None) -> None:
        super().__init__(message)
        self.free_at = free_at


class Lease(Struct, frozen=True):
    """Held until `until`, unless another process takes it; the fence in every write proves it."""

    owner: str
    fence: int
    until: Instant
    took_over: bool = False  # the previous holder did not release it, and may still be in the middle of a call
    ends: Instant | None = None  # when its holder will be stopped, if known

    def is_renewal_due(self, now: Instant) -> bool:
        """Due after a third of its length, so that two failed renewals do not lose it."""
        is_final = self.ends is not None and self.until >= self.ends
        return not is_final and self.until.seconds_since(now) < LEASE_SECONDS * 2 / 3


def acquire(ledger: Ledger[S], owner: str, now: Instant, ends: Instant | None = None) -> tuple[Lease, S]:
    """Take the lease and read the state in one write; LeaseHeld if another process has it.

    `ends` is when this process will be stopped, if known: the next one need not wait longer than that.
    """
    until = _until(now, ends)
    update = set_all({"lockOwner": owner, "lockUntilEpoch": until.epoch_seconds}) + attr("fence").plus(1)
    is_free = attr("lockOwner").is_absent() | attr("lockOwner").equals("")
    is_mine = attr("lockOwner").equals(owner)
    is_expired = attr("lockUntilEpoch").is_absent() | attr("lockUntilEpoch").less_than(now.epoch_seconds - SKEW_SECONDS)
    # No lease is that long, so a clock had jumped. Taking a lease over is always safe, because of the fence.
    is_expired |= attr("lockUntilEpoch").greater_than(now.epoch_seconds + LONGEST_SECONDS)
    try:
        before, state = ledger.acquire(update, is_free | is_mine | is_expired)
    except WriteConflict as conflict:
        holder, held_until = (conflict.item or {}).get("lockOwner"), (conflict.item or {}).get("lockUntilEpoch", 0)
        left = max(0, held_until - now.epoch_seconds)
        free_at = Instant.from_epoch_seconds(held_until + SKEW_SECONDS + 1)
        raise LeaseHeld(f"lease held by {holder} for {left} s more; this tick stands by", free_at) from conflict
    return Lease(owner, state.fence, until, took_over=before.lock_owner not in ("", owner), ends=ends), state


def renewed(ledger: Ledger[S], lease: Lease, now: Instant) -> Lease:
    until = _until(now, lease.ends)
    renewal = Transition(
        "renew the lease", attr("lockUntilEpoch").set_to(until.epoch_seconds), attr("lockOwner").equals(lease.owner)
    )
    ledger.write(renewal, lease.fence)
    return replace(lease, until=until)


def release(ledger: Ledger[S], lease: Lease, timers: Item, now: Instant) -> None:
    """Release the lease and store the timers in one write."""
    values = {"lockOwner": "", "lockUntilEpoch": 0, **timers}
    if lease.took_over:
        values["bumpAfterEpoch"] = now.plus(NO_BUMP_SECONDS).epoch_seconds
    ledger.write(Transition("release the lease", set_all(values), attr("lockOwner").equals(lease.owner)), lease.fence)


def _until(now: Instant, ends: Instant | None) -> Instant:
    longest = now.plus(LEASE_SECONDS)
    return longest if ends is None else min(longest, ends)
