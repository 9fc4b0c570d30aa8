"""What the world bears is ahead of what is stored: the state was lost, or put back from an older copy, or another
CLUSTER_ID names it.

Whoever holds the lease, and looked after it read the state, sees no fence on a node and no number on a machine that is
higher than the stored ones: they are stored before they are used. If it does, they are not this state's. Then the
stored ones are raised above them, under the fence, and everything goes on. Otherwise every change of such a node would
look like a lease that was lost, and such a machine like a successor's.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.ledger import Transition
from holdfast.cluster.nodes import fence_of
from holdfast.cluster.seen import SEQUENCE_TAG, Seen, tag_number
from holdfast.cluster.steps import Repair, Step
from holdfast.ports.readings import Unknown
from holdfast.ports.store import attr, set_all

COUNTERS: Final = ("fence", "actionSeq")
SUCCESSOR_SECONDS: Final = 3600  # a machine that is ahead for so long is not that of somebody who was faster
SEQUENCE_MOST: Final = 10_000_000  # nobody has begun so many actions: such a tag is not ours


def ahead_steps(seen: Seen) -> Iterator[Step]:
    counters = _ahead(seen)
    if counters:
        found = ", ".join(f"{name} {value}" for name, value in counters.items())
        stored = f"fence {seen.state.fence} and actionSeq {seen.state.action_seq} are stored"
        because = f"nodes or machines bear {found}, and {stored}: the state was lost or put back; it goes on above them"
        yield Repair(attributes=tuple(counters), because=because)


def raised(seen: Seen) -> Transition:
    counters = _ahead(seen)
    # Above what nodes bear: one of the same fence would be taken for a change of our own.
    values = {name: value + 1 if name == "fence" else value for name, value in counters.items()}
    return Transition(f"raise {', '.join(values)}", set_all(values), attr("fence").exists())


def _ahead(seen: Seen) -> dict[str, int]:
    nodes = () if isinstance(seen.kube, Unknown) else seen.kube.value.nodes
    fence = max(map(fence_of, nodes), default=0)
    latest = seen.now.plus(-SUCCESSOR_SECONDS)
    numbers = [tag_number(machine.tags.get(SEQUENCE_TAG)) for machine in seen.machines if machine.launched <= latest]
    sequence = max([number for number in numbers if number <= SEQUENCE_MOST], default=0)
    found = {"fence": (fence, seen.state.fence), "actionSeq": (sequence, seen.state.action_seq)}
    return {name: borne for name, (borne, stored) in found.items() if borne > stored}
