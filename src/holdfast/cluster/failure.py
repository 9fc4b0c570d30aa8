"""The newest failure, for whoever asks how the cluster fares. Nothing is decided by it."""

from dataclasses import dataclass
from typing import Any, Final

from holdfast.cluster.deadline import OutOfTime
from holdfast.cluster.lease import LeaseHeld
from holdfast.cluster.ledger import LeaseLost
from holdfast.cluster.plan import Ticked
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.store import Key, Store
from holdfast.ports.store.tables import STATE

_KEPT_SECONDS: Final = 30 * 86_400
_WHY_MOST: Final = 1000
# Steps by which an action ends without having reached what it was for.
_STEPS: Final = frozenset({"fail_scale_up", "abort_scale_down", "give_up_replacement"})
# Another process acts, or another call goes on: nothing failed.
_NO_FAILURE: Final = (LeaseHeld, LeaseLost, OutOfTime)


@dataclass(frozen=True, slots=True)
class Failure:
    """What failed, an error's name or a step's kind; when; and why."""

    what: str
    at: Instant
    why: str

    def shown(self) -> dict[str, Any]:
        return {"what": self.what, "at": self.at.iso(), "why": self.why}


def foreseen(error: Exception) -> HoldfastError:
    """The error as one of ours. A mistake in the program needs an operator: nobody else can end it."""
    if isinstance(error, HoldfastError):
        return error
    return NeedsOperator(f"a tick failed in a way that was not foreseen: {type(error).__name__}; see the log")


def failure_of(error: Exception, now: Instant) -> Failure | None:
    if isinstance(error, _NO_FAILURE):
        return None
    return Failure(type(error).__name__, now, str(foreseen(error)))


def failure_in(ticked: Ticked) -> Failure | None:
    """The last of its steps that ended an action in vain, with what was told of it."""
    failed = [step for step in ticked.done if step.kind in _STEPS]
    if not failed:
        return None
    return Failure(failed[-1].kind, ticked.seen.now, "; ".join((failed[-1].because, *ticked.told[-1:])))


def remember(store: Store, cluster: ClusterId, failure: Failure) -> None:
    shown = {**failure.shown(), "why": cut(failure.why, _WHY_MOST)}
    expires_at = failure.at.plus(_KEPT_SECONDS).epoch_seconds
    store.put(STATE, {"pk": _name(cluster), **shown, "expiresAt": expires_at})


def newest_failure(store: Store, cluster: ClusterId) -> Failure | None:
    found = store.get(STATE, Key(_name(cluster)))
    try:
        return Failure(str(found["what"]), Instant.from_iso(found["at"]), str(found["why"])) if found else None
    except (KeyError, TypeError, ValueError):
        return None  # edited by hand; it only explains


def _name(cluster: ClusterId) -> str:
    return f"{cluster}#failure"
