"""The process that holds the lease: it writes under its fence, and renews the lease while it acts.

One process acts at a time. A process that has lost its lease finds out at its next write, and stops.
"""

from typing import Final, Generic

from holdfast.control.lease import Lease, release, renewed
from holdfast.control.ledger import LeaseLost, Ledger, S, Transition
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.notify import Notification
from holdfast.ports.store import Item

REPORT_CHARACTERS_MOST: Final = 500


class LeaseHolder(Generic[S]):
    """`reports` are results of steps, for the log; `notifications` go to operators at once."""

    def __init__(self, clock: Clock, ledger: Ledger[S], lease: Lease) -> None:
        self.lease = lease
        self.reports: list[str] = []
        self.notifications: list[Notification] = []
        self._clock = clock
        self._ledger = ledger

    def now(self) -> Instant:
        return self._clock.now()

    def write(self, transition: Transition) -> S:
        """Write the transition and return the new state; LeaseLost or WriteConflict if it is refused."""
        return self._ledger.write(transition, self.lease.fence)

    def keep_lease(self) -> None:
        """Renew the lease when due; raise LeaseLost if it has expired, even if no other process has taken it."""
        now = self.now()
        if now >= self.lease.until:
            raise LeaseLost("the lease expired while acting; the next tick resumes", None)
        if self.lease.is_renewal_due(now):
            self.lease = renewed(self._ledger, self.lease, now)

    def release(self, timers: Item) -> None:
        """Release the lease, and store the timers with the same write."""
        release(self._ledger, self.lease, timers, self.now())

    def report(self, text: str) -> None:
        self.reports.append(cut(text, REPORT_CHARACTERS_MOST))
