"""Everything that keeps a worker from leaving in a scale-down. Pure.

A worker can have several protections, and all of them are named: removing one does not help while another one holds.
"""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import Struct

from holdfast.cluster.drain import DrainRules, drain_view
from holdfast.cluster.policy import Policy, ZonesKept
from holdfast.cluster.scaling.placement import age_of, must_keep_zone, workers_by_zone
from holdfast.cluster.seen import Seen, Worker
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut, some
from holdfast.ports.readings import Unknown

_REASON_MOST: Final = 300


class ProtectedWorker(Struct, frozen=True):
    """A worker with the reasons why it stays; none if it may leave."""

    instance: InstanceId
    reasons: tuple[str, ...]

    def __str__(self) -> str:
        return f"{self.instance}: {'; '.join(self.reasons)}"


def in_service(seen: Seen) -> list[Worker]:
    """The workers that can run pods: one that is still joining, or NotReady, may never run any."""
    return [worker for worker in seen.staying if worker.is_accepted and worker.is_ready]


def newest_of(workers: Sequence[Worker]) -> Worker | None:
    return max(workers, key=age_of, default=None)


def own_protections(seen: Seen, worker: Worker, newest: Worker | None, policy: Policy, drain: DrainRules) -> list[str]:
    """The protections that do not depend on where the other workers are."""
    return list(_own(seen, worker, newest, policy, drain))


def protections(seen: Seen, policy: Policy, drain: DrainRules) -> list[ProtectedWorker]:
    """Every worker that counts, the oldest first, with all of its protections."""
    serving_ones = in_service(seen)
    serving, present = workers_by_zone(serving_ones), workers_by_zone(seen.staying)
    newest, serving_ids = newest_of(serving_ones), {worker.id for worker in serving_ones}
    is_at_minimum = len(serving_ones) <= policy.min_workers
    found = []
    for worker in sorted(seen.staying, key=age_of):
        reasons = own_protections(seen, worker, newest, policy, drain)
        if worker.id in serving_ids:
            if must_keep_zone(worker.machine.zone, serving, present, policy.zones_kept):
                reasons.append(_last_in_zone(worker.machine.zone, policy.zones_kept))
            if is_at_minimum:
                reasons.append(f"MIN_WORKERS keeps {policy.min_workers} in service")
        found.append(ProtectedWorker(worker.id, tuple(reasons)))
    return found


def newest_kept_until(seen: Seen, newest: Worker, policy: Policy) -> Instant | None:
    """Until when the newest worker stays; None if it is not protected any more."""
    began = newest.machine.launched if newest.node is None else max(newest.machine.launched, newest.node.created)
    is_kept = seen.seconds_since(began) < policy.newest_kept_seconds
    return began.plus(policy.newest_kept_seconds) if is_kept else None


def _own(seen: Seen, worker: Worker, newest: Worker | None, policy: Policy, drain: DrainRules) -> Iterator[str]:
    if isinstance(seen.kube, Unknown) or worker.is_ambiguous:
        yield "its node is unknown"
        return
    if worker.node is None or not worker.is_accepted:
        yield "it is not in service yet"
        return
    if not worker.is_ready:
        yield "its node is NotReady"
    until = newest_kept_until(seen, worker, policy) if newest is not None and worker.id == newest.id else None
    if until is not None:
        yield f"it is the newest worker, kept until {until.iso_seconds()} (NEWEST_KEPT_SEC)"
    if seen.is_undrainable(worker.id):
        failed = seen.undrainable[worker.id]
        yield f"a recent drain failed, the next attempt is after {failed.until.iso_seconds()}"
    view = drain_view(seen.pods_of(worker), drain)
    if view.blocked_by is not None:
        more = f" (and {some(view.blocked - 1, 'more such pod')})" if view.blocked > 1 else ""
        yield cut(f"pod {view.blocked_by}{more}", _REASON_MOST)


def _last_in_zone(zone: str, zones_kept: ZonesKept) -> str:
    if zones_kept is ZonesKept.ALWAYS:
        return f"it is the last worker in {zone} (ZONES_KEPT=always)"
    return f"it is the last worker in {zone}, and another zone has several (ZONES_KEPT=prefer)"
