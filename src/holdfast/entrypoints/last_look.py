"""What the last tick of this process saw, kept as plain data for the pages. Nothing is decided by it."""

from decimal import Decimal
from threading import Lock
from typing import Any, Final

from holdfast.cluster.plan import Ticked
from holdfast.cluster.seen import Seen, Worker
from holdfast.jobs.cost import Prices
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineState, Market
from holdfast.ports.readings import Unknown

PODS_SHOWN_MOST: Final = 60


class LastLook:
    """Told of each tick by the loop that ticks; asked by the pages, from other threads."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._seen: Seen | None = None
        self._failure: tuple[Instant, str] | None = None

    def ticked(self, ticked: Ticked) -> None:
        with self._lock:
            self._seen, self._failure = ticked.seen, None

    def failed(self, error: HoldfastError, now: Instant) -> None:
        with self._lock:
            self._failure = (now, str(error))

    @property
    def seen(self) -> Seen | None:
        with self._lock:
            return self._seen

    @property
    def failure(self) -> dict[str, str] | None:
        """Why the last tick came to nothing, if it did."""
        with self._lock:
            return None if self._failure is None else {"at": self._failure[0].iso(), "why": self._failure[1]}


def nodes_shown(seen: Seen, now: Instant, prices: Prices) -> list[dict[str, Any]]:
    """Every machine that is not gone, with its node and its pods; by zone, the oldest first."""
    ordered = sorted(seen.workers, key=lambda w: (w.machine.zone, w.machine.launched, w.id))
    return [_node_shown(seen, worker, now, prices) for worker in ordered]


def _node_shown(seen: Seen, worker: Worker, now: Instant, prices: Prices) -> dict[str, Any]:
    machine, node = worker.machine, worker.node
    pods = [pod for pod in seen.pods_of(worker) if not pod.is_finished]
    notice = seen.notices.get(worker.id)
    price = prices.of(machine.instance_type, str(machine.market), None, None)
    return {
        "id": worker.id,
        "node": node.name if node else None,
        "zone": machine.zone,
        "type": machine.instance_type,
        "market": str(machine.market),
        "machine_state": str(machine.state),
        "launched_at": machine.launched.iso(),
        "age_seconds": max(0, round(now.seconds_since(machine.launched))),
        "status": status_of(seen, worker),
        "pods": len(pods),
        "pod_names": [str(pod) for pod in pods[:PODS_SHOWN_MOST]],
        "notice": None if notice is None else {"kind": str(notice.kind), "phase": str(notice.phase)},
        "usd_per_hour": None if price is None else float(price.usd_per_hour),
    }


def status_of(seen: Seen, worker: Worker) -> str:
    """Where the worker is in its life, in a word or two."""
    notice = seen.notices.get(worker.id)
    if notice is not None and notice.is_leaving:
        return "leaving"
    if worker.machine.state is not MachineState.RUNNING:
        return "booting" if worker.machine.state is MachineState.PENDING else str(worker.machine.state)
    if isinstance(seen.kube, Unknown):
        return "unknown"
    if worker.node is None:
        return "joining"
    if not worker.node.is_ready:
        return "not ready"
    if not worker.is_accepted:
        return "joined"
    return "draining" if worker.node.is_unschedulable else "in service"


def hourly_cost(seen: Seen, prices: Prices) -> dict[str, Any]:
    """What the workers cost in an hour, and what they would cost without spot."""
    actual = without_spot = Decimal(0)
    unpriced, is_estimate = 0, False
    for worker in seen.workers:
        machine = worker.machine
        price = prices.of(machine.instance_type, str(machine.market), None, None)
        on_demand = prices.of(machine.instance_type, str(Market.ON_DEMAND), None, None)
        if price is None or on_demand is None:
            unpriced += 1
            continue
        actual += price.usd_per_hour
        without_spot += on_demand.usd_per_hour
        is_estimate = is_estimate or price.is_estimate
    return {
        "usd_per_hour": float(actual),
        "on_demand_usd_per_hour": float(without_spot),
        "saved_usd_per_hour": float(without_spot - actual),
        "is_estimate": is_estimate,
        "unpriced": unpriced,
        "prices_as_of": prices.as_of,
    }
