"""Which workers may go: from the fullest zone, the oldest first, and never a zone's last while there are several."""

from collections import Counter, deque
from collections.abc import Callable, Iterable

from holdfast.cluster.seen import Worker
from holdfast.kernel.ids import InstanceId


def leaving_order(workers: Iterable[Worker], preferred: frozenset[InstanceId] = frozenset()) -> list[Worker]:
    """The workers in the order in which they may leave. `preferred` ones (a rebalance hint) come first.

    The newest of several is not among them: it was launched for a reason that may still hold.
    """
    staying = sorted(workers, key=_age)
    candidates = staying[:-1] if len(staying) > 1 else staying
    fill = Counter(worker.machine.zone for worker in staying)
    several = len(fill) > 1
    # Within a zone the order stays as it is; only whose turn it is changes. So it takes no look at all for each choice.
    queues: dict[str, deque[Worker]] = {zone: deque() for zone in fill}
    for worker in sorted(candidates, key=lambda w: (w.id not in preferred, _age(w))):
        queues[worker.machine.zone].append(worker)
    order: list[Worker] = []
    while heads := [queue[0] for zone, queue in queues.items() if queue and (not several or fill[zone] > 1)]:
        chosen = min(heads, key=lambda w: (w.id not in preferred, -fill[w.machine.zone], _age(w)))
        order.append(queues[chosen.machine.zone].popleft())
        fill[chosen.machine.zone] -= 1
    return order


def targets(
    workers: Iterable[Worker],
    count: int,
    may_leave: Callable[[Worker], bool],
    preferred: frozenset[InstanceId] = frozenset(),
) -> tuple[InstanceId, ...]:
    """Up to `count` workers that may leave together.

    The order is worked out anew after each choice: one that may not leave must not shift another zone's count.
    """
    remaining = list(workers)
    chosen: list[InstanceId] = []
    barred: set[InstanceId] = set()
    if len(remaining) > 1:
        barred.add(max(remaining, key=_age).id)  # protected also when those before it have been chosen
    while len(chosen) < count:
        order = leaving_order(remaining, preferred)
        next_one = next((worker for worker in order if worker.id not in barred and may_leave(worker)), None)
        if next_one is None:
            break
        chosen.append(next_one.id)
        remaining.remove(next_one)
    return tuple(chosen)


def _age(worker: Worker) -> tuple[int, str]:
    return worker.machine.launched.epoch_ms, worker.id
