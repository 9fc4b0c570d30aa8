"""The tracker's front door: a delivery comes in, and its effect is durable when the answer goes out.

Every answer means that GitHub need not send the delivery again. When the store is away, `StoreUnavailable` goes
through: nothing was acknowledged, and the delivery comes again.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs import handlers
from holdfast.jobs.handlers import Desk
from holdfast.jobs.internal import InternalEvent, InternalType, internal_event
from holdfast.jobs.interrupted import note_interrupted
from holdfast.jobs.payloads import PingPayload, Unusable, decoded
from holdfast.jobs.receipts import Receipt, Result
from holdfast.jobs.record import Recorded, record
from holdfast.jobs.times import is_too_old
from holdfast.jobs.webhook import Delivery, Refused
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut, one_line
from holdfast.ports.clock import Clock
from holdfast.ports.store import Key, Store, attr
from holdfast.ports.store.tables import LOGS, STATE

INSTALLATIONS: Final = Key("github#installations")
_UNUSABLE_KEPT_SECONDS: Final = 30 * 86_400
_REPEATS_MOST: Final = 3
_HANDLERS: Final[dict[str, Callable[[Desk, Delivery], Receipt]]] = {
    "workflow_job": handlers.take_job,
    "workflow_run": handlers.take_run,
    "deployment": handlers.take_deployment,
    "deployment_status": handlers.take_deployment,
    "deployment_protection_rule": handlers.take_deployment,
    "deployment_review": handlers.take_review,
    "installation": handlers.take_installation,
    "ping": handlers.take_ping,
}
EVENTS: Final = tuple(_HANDLERS)  # what the GitHub App is to subscribe to
_log = logging.getLogger(__name__)


class Acknowledged:
    """Deliveries that this process has seen to the end. One that keeps coming is no longer written down each time.

    The id is not signed, and the same body may be meant twice: together they are the delivery. The body counts from
    the second time that an id comes: until then, nobody need look at it.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._times: OrderedDict[tuple[str, ...], int] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, delivery: Delivery) -> None:
        with self._lock:
            name: tuple[str, ...] = (delivery.target, delivery.id)
            if name in self._times:
                name = (*name, delivery.body_mark)
            self._times[name] = self._times.pop(name, 0) + 1
            if len(self._times) > self._most:
                self._times.popitem(last=False)

    def is_tiresome(self, delivery: Delivery) -> bool:
        """A few repetitions are counted in the history; a flood of them costs nothing but this look."""
        name = (delivery.target, delivery.id)
        with self._lock:
            return name in self._times and self._times.get((*name, delivery.body_mark), 0) >= _REPEATS_MOST


@dataclass
class Tracker:
    """Takes in deliveries and internal events; from several threads and several processes at once."""

    store: Store
    clock: Clock
    received_by: str
    # GitHub redelivers for three days, GHES for seven: what is older than this is somebody's replay. None: no bound.
    oldest_seconds: float | None = None
    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    _installations: set[InstallationId] = field(default_factory=set)

    def receive(self, delivery: Delivery) -> Receipt:
        """Make the delivery's effect durable. `Refused` if its body is no JSON."""
        known = self._needless(delivery)
        if known is not None:
            return known
        together = getattr(self.store, "together", None)
        receipt: Receipt
        if together is None:
            receipt = self._taken(self._desk(self.store), delivery)
        else:
            receipt = together(lambda store: self._taken(self._desk(store), delivery))
        self._acknowledge(delivery, receipt)
        return receipt

    def receive_all(self, deliveries: Sequence[Delivery]) -> list[Receipt | Exception]:
        """The receipt of each, or why it has none. Where the store can do that, they share one transaction."""
        together = getattr(self.store, "together", None)
        if together is None or len(deliveries) == 1:
            return [self._received_alone(delivery) for delivery in deliveries]
        try:
            found = together(lambda store: self._all_taken(self._desk(store), deliveries))
        except StoreUnavailable as error:
            return [error] * len(deliveries)  # each alone would only wait in vain for the same
        except Exception:
            # Nothing was written, and one of them may be the reason: it must not stand in the others' way.
            return [self._received_alone(delivery) for delivery in deliveries]
        receipts: list[Receipt | Exception] = found
        for delivery, receipt in zip(deliveries, receipts, strict=True):
            if isinstance(receipt, Receipt):
                self._acknowledge(delivery, receipt)
        return receipts

    def _received_alone(self, delivery: Delivery) -> Receipt | Exception:
        try:
            return self.receive(delivery)
        except Exception as error:
            return error

    def _desk(self, store: Store) -> Desk:
        return Desk(store, self.received_by, self.clock.now())

    def _all_taken(self, desk: Desk, deliveries: Sequence[Delivery]) -> list[Receipt | Exception]:
        return [self._taken_or_refused(desk, delivery) for delivery in deliveries]

    def _taken_or_refused(self, desk: Desk, delivery: Delivery) -> Receipt | Exception:
        try:
            return self._needless(delivery) or self._taken(desk, delivery)
        except Refused as error:
            return error  # before anything was written for it

    def _needless(self, delivery: Delivery) -> Receipt | None:
        """The receipt of one that the store need not hear of."""
        if self.acknowledged.is_tiresome(delivery):
            return Receipt(Result.DUPLICATE, delivery.id, delivery.event)
        return None if delivery.event in _HANDLERS else _untracked(delivery)

    def _taken(self, desk: Desk, delivery: Delivery) -> Receipt:
        try:
            self.check_age(delivery, desk.now)
            receipt = _HANDLERS[delivery.event](desk, delivery)
        except Unusable as error:
            receipt = Receipt(Result.UNUSABLE, delivery.id, delivery.event, one_line(str(error)))
            _keep_unusable(desk, delivery, receipt.reason)
        if receipt.installation is not None and receipt.installation not in self._installations:
            # So that its jobs can be found without being told where to look.
            desk.store.update(STATE, INSTALLATIONS, attr("ids").add_elements({receipt.installation}))
        return receipt

    def _acknowledge(self, delivery: Delivery, receipt: Receipt) -> None:
        """Only now: its effect is durable."""
        if receipt.installation is not None:
            self._installations.add(receipt.installation)
        if delivery.event in _HANDLERS:
            self.acknowledged.add(delivery)

    def tell(self, event: InternalEvent) -> Recorded:
        """Record what the runner fleet did for a job."""
        now = self.clock.now()
        checked = internal_event(event, now)
        recorded = record(self.store, checked, self.received_by)
        if event.type is InternalType.INTERRUPTED:
            # Not before: a sweep in between would find a failure that nothing explains, and drop the note.
            note_interrupted(self.store, event.key, now)
        return recorded

    def check_age(self, delivery: Delivery, now: Instant) -> None:
        """Raise Unusable if it is somebody's replay."""
        if self.oldest_seconds is not None and is_too_old(delivery.id, now, self.oldest_seconds):
            raise Unusable(f"sent more than {self.oldest_seconds:g} s ago: GitHub itself would not send it again")


def installations(store: Store) -> list[InstallationId]:
    """Those that GitHub has told of."""
    found = store.get(STATE, INSTALLATIONS) or {}
    return sorted(InstallationId(number) for number in found.get("ids", ()))


def _untracked(delivery: Delivery) -> Receipt:
    with suppress(Unusable):
        decoded(delivery.body, PingPayload)  # what is no JSON is refused, whatever the event
    return Receipt(Result.IGNORED, delivery.id, delivery.event, f"event {cut(delivery.event)!r} is not tracked")


def _keep_unusable(desk: Desk, delivery: Delivery, reason: str) -> None:
    _log.warning("delivery %s of %s is unusable: %s", cut(delivery.id), cut(delivery.event), cut(reason, 200))
    now: Instant = desk.now
    desk.store.put(
        LOGS,
        {
            "pk": f"github#{now.date()}",
            "sk": f"{now.epoch_ms}#unusable#{delivery.mark}",
            "event": delivery.event,
            "delivery": delivery.id,
            "reason": cut(reason, 500),
            "ttl": now.epoch_seconds + _UNUSABLE_KEPT_SECONDS,
        },
    )
