"""The newest failure, for status pages. No decision depends on it."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.control.deadline import OutOfTime
from holdfast.control.lease import LeaseHeld
from holdfast.control.ledger import LeaseLost
from holdfast.control.steps import Step
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Key, Store
from holdfast.ports.store.tables import STATE

_KEPT_SECONDS: Final = 30 * 86_400
_WHY_MOST: Final = 1000
# Another process is acting, or the next tick resumes: nothing failed.
_NO_FAILURE: Final = (LeaseHeld, LeaseLost, OutOfTime)


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed (the words of an error, or a step's kind), when, and why."""

    what: str
    at: Instant
    why: str

    def shown(self) -> dict[str, Any]:
        return {"what": self.what, "at": self.at.iso(), "why": self.why}


def as_our_error(error: Exception) -> HoldfastError:
    """The error as one of ours. A bug in this program needs an operator, because a retry does not help."""
    if isinstance(error, HoldfastError):
        return error
    return NeedsOperator(f"a tick failed with an unexpected error: {type(error).__name__}; see the log")


def failure_of(error: Exception, now: Instant) -> Failure | None:
    if isinstance(error, _NO_FAILURE):
        return None
    ours = as_our_error(error)
    return Failure(ours.words, now, str(ours))


def failed_step(done: Sequence[Step], reports: Sequence[str], now: Instant) -> Failure | None:
    """The last step that ended an action in failure, with the last report."""
    failed = [step for step in done if step.is_failure]
    if not failed:
        return None
    return Failure(failed[-1].kind, now, "; ".join((failed[-1].because, *reports[-1:])))


def remember(store: Store, cluster: ClusterId, failure: Failure) -> None:
    shown = {**failure.shown(), "why": cut(failure.why, _WHY_MOST)}
    expires_at = failure.at.plus(_KEPT_SECONDS).epoch_seconds
    store.put(STATE, {"pk": _name(cluster), **shown, "expiresAt": expires_at})


def newest_failure(store: Store, cluster: ClusterId) -> Failure | None:
    found = store.get(STATE, Key(_name(cluster)))
    try:
        return Failure(str(found["what"]), Instant.from_iso(found["at"]), str(found["why"])) if found else None
    except (KeyError, TypeError, ValueError):
        return None  # edited by hand


def _name(cluster: ClusterId) -> str:
    return f"{cluster}#failure"
