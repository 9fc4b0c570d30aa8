"""Detect a state that was lost or restored from an older backup, or that another CLUSTER_ID names.

A fence or an action number is stored before it is written to a node or a machine. So a lease holder that reads the
state first never finds a higher one there, unless the state is not the one they were written with. Then the stored
counters are raised above those found, under the fence, and ticks continue. Otherwise every change of such a node would
look like a lost lease, and such a machine like a later lease holder's.
"""

from collections.abc import Iterator
from typing import Final

from holdfast.cluster.nodes import fence_of
from holdfast.cluster.seen import SEQUENCE_TAG, Seen, tag_number
from holdfast.cluster.steps import ClusterStep, Repair
from holdfast.control.ledger import Transition
from holdfast.ports.readings import Unknown
from holdfast.ports.store import attr, set_all

COUNTERS: Final = ("fence", "actionSeq")
SUCCESSOR_SECONDS: Final = 3600  # a younger machine may be a later lease holder's
SEQUENCE_MOST: Final = 10_000_000  # no cluster has begun so many actions: a tag with a higher number is not ours


def raise_counters_steps(seen: Seen) -> Iterator[ClusterStep]:
    counters = _ahead(seen)
    if counters:
        found = ", ".join(f"{name} {value}" for name, value in counters.items())
        stored = f"the stored state has fence {seen.state.fence} and actionSeq {seen.state.action_seq}"
        because = f"nodes or machines have {found}, but {stored}: it was lost or restored; the counters are raised"
        yield Repair(attributes=tuple(counters), because=because)


def raised_counters(seen: Seen) -> Transition:
    counters = _ahead(seen)
    # Above the nodes' fence: an equal one would look like a change of our own.
    values = {name: value + 1 if name == "fence" else value for name, value in counters.items()}
    return Transition(f"raise {', '.join(values)}", set_all(values), attr("fence").exists())


def _ahead(seen: Seen) -> dict[str, int]:
    nodes = () if isinstance(seen.kube, Unknown) else seen.kube.value.nodes
    fence = max(map(fence_of, nodes), default=0)
    latest = seen.now.plus(-SUCCESSOR_SECONDS)
    numbers = [tag_number(machine.tags.get(SEQUENCE_TAG)) for machine in seen.machines if machine.launched <= latest]
    sequence = max([number for number in numbers if number <= SEQUENCE_MOST], default=0)
    found = {"fence": (fence, seen.state.fence), "actionSeq": (sequence, seen.state.action_seq)}
    return {name: observed for name, (observed, stored) in found.items() if observed > stored}
