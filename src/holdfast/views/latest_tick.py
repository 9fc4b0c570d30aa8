"""What the latest tick of this process observed, for the console: nodes with their pods, and what they cost."""

from decimal import Decimal
from threading import Lock
from typing import Final

from holdfast.cluster.drain import DrainRules
from holdfast.cluster.plan import TickResult
from holdfast.cluster.policy import Policy
from holdfast.cluster.scaling.protections import protections
from holdfast.cluster.seen import Seen, Worker
from holdfast.jobs.cost.prices import Prices
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.ports.machines import MachineState, Market
from holdfast.ports.readings import Unknown

PODS_SHOWN_MOST: Final = 60


class TickFailure(Shape, frozen=True, kw_only=True):
    """Why the latest tick failed."""

    at: Time
    why: str


class NodeNotice(Shape, frozen=True, kw_only=True):
    kind: str
    phase: str


class NodeStatus(Shape, frozen=True, kw_only=True):
    """A machine that still exists, with its node and its pods."""

    id: str
    node: str | None
    zone: str
    type: str
    market: Market
    machine_state: str
    launched_at: Time
    age_seconds: Count
    status: str
    pods: Count
    pod_names: list[str]
    notice: NodeNotice | None
    usd_per_hour: float | None
    kept_by: list[str]  # everything that keeps it from leaving in a scale-down


class HourlyCost(Shape, frozen=True, kw_only=True):
    """What the workers cost in an hour, and what they would cost on demand."""

    usd_per_hour: float
    on_demand_usd_per_hour: float
    saved_usd_per_hour: float
    is_estimate: bool
    unpriced: Count
    prices_as_of: str


class LatestTick:
    """The loop that ticks writes it; the console's threads read it. `runs_ticks`: this process has that loop."""

    def __init__(self, *, runs_ticks: bool = True) -> None:
        self.runs_ticks = runs_ticks
        self._lock = Lock()
        self._seen: Seen | None = None
        self._failure: TickFailure | None = None

    def ticked(self, ticked: TickResult) -> None:
        with self._lock:
            self._seen, self._failure = ticked.seen, None

    def failed(self, error: HoldfastError, now: Instant) -> None:
        with self._lock:
            self._failure = TickFailure(at=now.iso(), why=str(error))

    @property
    def seen(self) -> Seen | None:
        with self._lock:
            return self._seen

    @property
    def failure(self) -> TickFailure | None:
        """Why the latest tick failed, if it did."""
        with self._lock:
            return self._failure


def node_statuses(seen: Seen, now: Instant, prices: Prices, policy: Policy, drain: DrainRules) -> list[NodeStatus]:
    """By zone, oldest first."""
    ordered = sorted(seen.workers, key=lambda worker: (worker.machine.zone, worker.machine.launched, worker.id))
    kept = {worker.instance: list(worker.reasons) for worker in protections(seen, policy, drain)}
    return [_node_status(seen, worker, now, prices, kept.get(worker.id, [])) for worker in ordered]


def _node_status(seen: Seen, worker: Worker, now: Instant, prices: Prices, kept_by: list[str]) -> NodeStatus:
    machine, node = worker.machine, worker.node
    pods = [pod for pod in seen.pods_of(worker) if not pod.is_finished]
    notice = seen.notices.get(worker.id)
    price = prices.of(machine.instance_type, str(machine.market), None, None)
    return NodeStatus(
        id=worker.id,
        node=node.name if node else None,
        zone=machine.zone,
        type=machine.instance_type,
        market=machine.market,
        machine_state=str(machine.state),
        launched_at=machine.launched.iso(),
        age_seconds=max(0, round(now.seconds_since(machine.launched))),
        status=status_of(seen, worker),
        pods=len(pods),
        pod_names=[str(pod) for pod in pods[:PODS_SHOWN_MOST]],
        notice=None if notice is None else NodeNotice(kind=str(notice.kind), phase=str(notice.phase)),
        usd_per_hour=None if price is None else float(price.usd_per_hour),
        kept_by=kept_by,
    )


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


def hourly_cost(seen: Seen, prices: Prices) -> HourlyCost:
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
    return HourlyCost(
        usd_per_hour=float(actual),
        on_demand_usd_per_hour=float(without_spot),
        saved_usd_per_hour=float(without_spot - actual),
        is_estimate=is_estimate,
        unpriced=unpriced,
        prices_as_of=prices.as_of,
    )
