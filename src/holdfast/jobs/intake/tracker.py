"""The tracker: receives a delivery and returns a receipt once its effect is durable.

A receipt means that GitHub need not redeliver. `StoreUnavailable` is passed on to the caller: nothing was acknowledged,
and the delivery is retried.
"""

import logging
import threading
from collections import OrderedDict
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.intake import handlers
from holdfast.jobs.intake.handlers import HandlerContext
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType, internal_event, interruption_of
from holdfast.jobs.intake.payload_age import check_age
from holdfast.jobs.intake.payloads import JobPayload, PingPayload, UnusablePayload, decoded
from holdfast.jobs.intake.record import Recorded, record
from holdfast.jobs.intake.senders import Senders
from holdfast.jobs.intake.webhook import Delivery, Receipt, ReceiptResult, WebhookRefused
from holdfast.jobs.model.machines import machine_named
from holdfast.jobs.read.queries import running_on
from holdfast.jobs.sweep.interrupted_jobs import note_interrupted
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut, one_line
from holdfast.ports.clock import Clock
from holdfast.ports.store import Key, Store, TransactionalStore, attr
from holdfast.ports.store.tables import LOGS, STATE

INSTALLATIONS: Final = Key("github#installations")
_UNUSABLE_KEPT_SECONDS: Final = 30 * 86_400
_REPEATS_MOST: Final = 3
_HANDLERS: Final[dict[str, Callable[[HandlerContext, Delivery], Receipt]]] = {
    "workflow_job": handlers.handle_job,
    "workflow_run": handlers.handle_run,
    "deployment": handlers.handle_deployment,
    "deployment_status": handlers.handle_deployment,
    "deployment_protection_rule": handlers.handle_deployment,
    "deployment_review": handlers.handle_review,
    "installation": handlers.handle_installation,
    "ping": handlers.handle_ping,
}
EVENTS: Final = tuple(_HANDLERS)  # the events that the GitHub App subscribes to
_log = logging.getLogger(__name__)


class RecentDeliveries:
    """The deliveries that this process has handled. One that is repeated too often is no longer written to the store.

    A delivery is identified by its id and its body: the id is not signed, and two deliveries may have equal bodies. The
    body is hashed only from the second delivery of an id on.
    """

    def __init__(self, most: int = 10_000) -> None:
        self._most = most
        self._times: OrderedDict[tuple[str, ...], int] = OrderedDict()
        self._lock = threading.Lock()

    def add(self, delivery: Delivery) -> None:
        with self._lock:
            name: tuple[str, ...] = (delivery.id,)
            if name in self._times:
                name = (*name, delivery.body_mark)
            self._times[name] = self._times.pop(name, 0) + 1
            if len(self._times) > self._most:
                self._times.popitem(last=False)

    def is_repeated_too_often(self, delivery: Delivery) -> bool:
        """The first few repetitions are counted in the history; further ones cost only this lookup."""
        name = (delivery.id,)
        with self._lock:
            return name in self._times and self._times.get((*name, delivery.body_mark), 0) >= _REPEATS_MOST


@dataclass
class Tracker:
    """Receives deliveries and internal events, in several threads and processes at once."""

    store: Store
    clock: Clock
    received_by: str
    # GitHub redelivers for three days, GHES for seven: an older delivery is a replay. None: no limit.
    oldest_seconds: float | None = None
    senders: Senders = field(default_factory=Senders)
    acknowledged: RecentDeliveries = field(default_factory=RecentDeliveries)
    _installations: set[InstallationId] = field(default_factory=set)
    _transactions: TransactionalStore | None = field(init=False, repr=False)

    def __post_init__(self) -> None:
        # Once: a check against a protocol is too slow for every delivery.
        self._transactions = self.store if isinstance(self.store, TransactionalStore) else None

    def receive(self, delivery: Delivery) -> Receipt:
        """Make the delivery's effect durable. `WebhookRefused` if its body is not JSON, or if it is too old."""
        known = self._known_receipt(delivery)
        if known is not None:
            return known
        if self._transactions is None:
            receipt = self._handled(self._context(self.store), delivery)
        else:
            try:
                receipt = self._transactions.run_in_transaction(
                    lambda store: self._handled(self._context(store), delivery)
                )
            except Exception:
                self.senders.forget()
                raise
        self._acknowledge(delivery, receipt)
        return receipt

    def receive_all(self, deliveries: Sequence[Delivery]) -> list[Receipt | Exception]:
        """The receipt of each, or its error. They share one transaction if the store supports it."""
        if self._transactions is None or len(deliveries) == 1:
            return [self._received_alone(delivery) for delivery in deliveries]
        try:
            receipts = self._transactions.run_in_transaction(
                lambda store: self._all_handled(self._context(store), deliveries)
            )
        except StoreUnavailable as error:
            self.senders.forget()
            return [error] * len(deliveries)  # trying each alone would fail the same way
        except Exception:
            # Nothing was written. One delivery may be the cause, so each is tried alone.
            self.senders.forget()
            return [self._received_alone(delivery) for delivery in deliveries]
        for delivery, receipt in zip(deliveries, receipts, strict=True):
            if isinstance(receipt, Receipt):
                self._acknowledge(delivery, receipt)
        return receipts

    def _received_alone(self, delivery: Delivery) -> Receipt | Exception:
        try:
            return self.receive(delivery)
        except Exception as error:
            return error

    def _context(self, store: Store) -> HandlerContext:
        return HandlerContext(store, self.received_by, self.clock.now(), self.senders, self.oldest_seconds)

    def _all_handled(self, context: HandlerContext, deliveries: Sequence[Delivery]) -> list[Receipt | Exception]:
        return [self._handled_or_refused(context, delivery) for delivery in deliveries]

    def _handled_or_refused(self, context: HandlerContext, delivery: Delivery) -> Receipt | Exception:
        try:
            return self._known_receipt(delivery) or self._handled(context, delivery)
        except WebhookRefused as error:
            return error  # before anything was written for it

    def _known_receipt(self, delivery: Delivery) -> Receipt | None:
        """The receipt of a delivery that needs no access to the store; None for any other."""
        if self.acknowledged.is_repeated_too_often(delivery):
            return Receipt(ReceiptResult.DUPLICATE, delivery.id, delivery.event)
        return None if delivery.event in _HANDLERS else _untracked(delivery)

    def _handled(self, context: HandlerContext, delivery: Delivery) -> Receipt:
        try:
            check_age(delivery, None, context.now, self.oldest_seconds)
            receipt = _HANDLERS[delivery.event](context, delivery)
        except UnusablePayload as error:
            receipt = Receipt(ReceiptResult.UNUSABLE, delivery.id, delivery.event, one_line(str(error)))
            _keep_unusable(context, delivery, receipt.reason)
        if receipt.installation is not None and receipt.installation not in self._installations:
            # The list of installations from which sweeps and queries start.
            context.store.update(STATE, INSTALLATIONS, attr("ids").add_elements({receipt.installation}))
        return receipt

    def _acknowledge(self, delivery: Delivery, receipt: Receipt) -> None:
        """Remember the delivery, now that its effect is durable."""
        if receipt.installation is not None:
            self._installations.add(receipt.installation)
        if delivery.event in _HANDLERS:
            self.acknowledged.add(delivery)

    def record_event(self, event: InternalEvent) -> Recorded:
        """Record an event of the runner fleet."""
        now = self.clock.now()
        checked = internal_event(event, now)
        recorded = record(self.store, checked, self.received_by)
        if event.type is InternalType.INTERRUPTED:
            # Not earlier: a sweep in between would find a failure without an interruption, and drop the note.
            note_interrupted(self.store, event.key, now)
            self._record_for_job_on_machine(event, recorded, now)
        return recorded

    def _record_for_job_on_machine(self, event: InternalEvent, recorded: Recorded, now: Instant) -> None:
        """The machine may run another job than the one it was launched for: that job is interrupted as well."""
        if event.instance_id is None or machine_named(recorded.job.get("runner_name", "")) == event.instance_id:
            return
        other = running_on(self.store, event.key.installation_id, event.instance_id)
        if other is not None and other != event.key:
            record(self.store, interruption_of(other, event, now), self.received_by)
            note_interrupted(self.store, other, now)

    def recognized_job(self, delivery: Delivery, now: Instant) -> JobPayload:
        """The payload of a workflow_job webhook. Raises if it is a replay, or if its sender is known as not accepted.

        Without the store: while S3 is the source of truth, a webhook is stored there although the tables are away.
        """
        payload = decoded(delivery.body, JobPayload)
        check_age(delivery, payload, now, self.oldest_seconds)
        self.senders.recognize(payload)
        return payload


def installations(store: Store) -> list[InstallationId]:
    """The installations of all deliveries so far."""
    found = store.get(STATE, INSTALLATIONS) or {}
    return sorted(InstallationId(number) for number in found.get("ids", ()))


def _untracked(delivery: Delivery) -> Receipt:
    with suppress(UnusablePayload):
        decoded(delivery.body, PingPayload)  # a body that is not JSON is refused, whatever the event
    return Receipt(ReceiptResult.IGNORED, delivery.id, delivery.event, f"event {cut(delivery.event)!r} is not tracked")


def _keep_unusable(context: HandlerContext, delivery: Delivery, reason: str) -> None:
    _log.warning("delivery %s of %s is unusable: %s", cut(delivery.id), cut(delivery.event), cut(reason, 200))
    now: Instant = context.now
    context.store.put(
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
