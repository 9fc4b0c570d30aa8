"""Compare this process's clock with a server's. Timeouts, leases and expiry depend on it.

A process whose clock is wrong by minutes would give up spot notices that have time left, or hold a lease that others
see as taken for longer. So it begins nothing: other processes, and this one after its clock is set, find everything as
it was.
"""

from collections.abc import Mapping
from typing import Final

from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Key, Store, attr
from holdfast.ports.store.tables import STATE

OFF_SECONDS_MOST: Final = 60
EXPIRY_JUMP_SECONDS_MOST: Final = 7 * 86_400
_HOUSEKEEPING: Final = Key("housekeeping")


class WrongClock(NeedsOperator):
    """This machine's clock differs too much from the server's. Nothing was begun."""


def check_clock(ours: Instant, theirs: Instant | None, server: str) -> None:
    """Raise WrongClock if the two differ by more than a minute. Without the server's time nothing is known."""
    if theirs is None:
        return
    ahead = ours.seconds_since(theirs)
    if abs(ahead) > OFF_SECONDS_MOST:
        raise WrongClock(
            f"this machine's clock is {abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {server}'s; "
            "nothing is begun until it is set: synchronise it with chrony or systemd-timesyncd"
        )


def check_clocks(ours: Instant, theirs: Mapping[str, Instant | None]) -> None:
    """The same with the time of each server by its name; the first one that is known decides."""
    for server, time in theirs.items():
        if time is not None:
            check_clock(ours, time, server)
            return


def check_expiry(store: Store, ours: Instant, theirs: Instant | None, server: str) -> None:
    """Raise WrongClock if expired items must not be removed now; otherwise note that they were removed at this time.

    A clock that is months ahead makes everything look expired, and what is removed cannot be recovered. If the server
    confirms our time, that is enough. Otherwise our time must not be far beyond that of the latest removal; after a
    long standstill, items are kept until the server answers.
    """
    check_clock(ours, theirs, server)
    latest = (store.get(STATE, _HOUSEKEEPING) or {}).get("removedEpoch")
    if theirs is None and isinstance(latest, int) and ours.epoch_seconds - latest > EXPIRY_JUMP_SECONDS_MOST:
        days = (ours.epoch_seconds - latest) // 86_400
        raise WrongClock(
            f"expired items were last removed {days} days ago by this machine's clock; "
            f"they are kept until {server} confirms the time: check this machine's clock"
        )
    store.update(STATE, _HOUSEKEEPING, attr("removedEpoch").set_to(ours.epoch_seconds))
