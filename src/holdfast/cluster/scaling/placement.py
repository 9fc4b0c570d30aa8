"""Which workers leave: from the fullest zone, the oldest first. The last worker of one of several zones stays, or with
`ZONES_KEPT=prefer` leaves only after every other zone is down to one worker.
"""

from collections import Counter
from collections.abc import Callable, Iterable

from holdfast.cluster.policy import ZonesKept
from holdfast.cluster.seen import Worker
from holdfast.kernel.ids import InstanceId


def targets(
    in_service: Iterable[Worker],
    count: int,
    may_leave: Callable[[Worker], bool],
    zones_kept: ZonesKept = ZonesKept.ALWAYS,
    preferred: frozenset[InstanceId] = frozenset(),
    others: Iterable[Worker] = (),
) -> tuple[InstanceId, ...]:
    """Up to `count` workers that may leave together. `preferred` ones (with a rebalance hint) come first.

    `others` are the workers that are not in service: they neither leave nor keep their zone, but `prefer` counts them.
    """
    remaining = sorted(in_service, key=age_of)
    serving = workers_by_zone(remaining)
    present = serving + workers_by_zone(others)
    chosen: list[InstanceId] = []
    while len(chosen) < count:
        # The zones' counts change with each choice, and with them the order.
        remaining.sort(key=lambda w: (w.id not in preferred, -serving[w.machine.zone], age_of(w)))
        open_ones = (w for w in remaining if not must_keep_zone(w.machine.zone, serving, present, zones_kept))
        next_one = next((worker for worker in open_ones if may_leave(worker)), None)
        if next_one is None:
            break
        chosen.append(next_one.id)
        remaining.remove(next_one)
        serving[next_one.machine.zone] -= 1
        present[next_one.machine.zone] -= 1
    return tuple(chosen)


def workers_by_zone(workers: Iterable[Worker]) -> Counter[str]:
    return Counter(worker.machine.zone for worker in workers)


def must_keep_zone(zone: str, serving: Counter[str], present: Counter[str], zones_kept: ZonesKept) -> bool:
    """Whether a worker of the zone must stay because it is the zone's last one in service.

    `serving` counts the workers in service, this one included, `present` also those that are joining or NotReady.
    """
    if serving[zone] > 1 or serving.total() == 1:
        return False
    return zones_kept is ZonesKept.ALWAYS or another_zone_has_several(zone, present)


def another_zone_has_several(zone: str, present: Counter[str]) -> bool:
    """Then a worker can leave there first, now or once it is in service or no longer protected."""
    return any(count > 1 for name, count in present.items() if name != zone)


def age_of(worker: Worker) -> tuple[int, str]:
    """The oldest comes first."""
    return worker.machine.launched.epoch_ms, worker.id
