"""The node-password secrets of machines that ended without a node. Pure.

K3s stores a password for a node as soon as its agent starts, before the Node exists, and deletes it with the Node. Of a
machine that never became a Node it stays for good, except in versions since the end of 2025. The name of a node is that
of its machine, so EC2's list of terminated machines says which secrets are left. EC2 lists them for an hour: the ids
whose secrets were deleted are stored for as long, so that each is deleted once: those of removed nodes as well, because
a machine that once had a node may also end without one, after its Node was deleted by hand.
"""

from typing import Final

from holdfast.cluster.seen import ACTION_TAG, Seen
from holdfast.control.ledger import Transition
from holdfast.kernel.ids import InstanceId
from holdfast.ports.machines import MachineState
from holdfast.ports.readings import Unknown
from holdfast.ports.store import attr, set_all

NAMESPACE: Final = "kube-system"
_REMEMBERED_MOST: Final = 100  # a forgotten one is deleted again, which changes nothing


def password_name(node: str) -> str:
    """K3s' name for a node's secret."""
    return f"{node}.node-password.k3s"


def left_passwords(seen: Seen) -> tuple[InstanceId, ...]:
    """Machines that ended without a node, and whose secrets may still exist; none while Kubernetes is unknown.

    Not while a machine shuts down: its agent may still start, and K3s would store the secret again. A node is removed
    together with its secret.
    """
    if isinstance(seen.kube, Unknown):
        return ()
    nodes = {node.name for node in seen.kube.value.nodes}
    return tuple(instance for instance in ended(seen) if instance not in {*nodes, *seen.state.passwords_deleted})


def ended(seen: Seen) -> list[InstanceId]:
    """The machines of our actions that EC2 lists as terminated."""
    found = (machine for machine in seen.machines if machine.state is MachineState.TERMINATED)
    return [machine.id for machine in found if ACTION_TAG in machine.tags]


def deleted(seen: Seen, instances: tuple[InstanceId, ...]) -> Transition:
    """Remember these, and forget those that EC2 does not list any more."""
    listed = ended(seen)
    kept = [instance for instance in seen.state.passwords_deleted if instance in listed]
    update = set_all({"passwordsDeleted": [*kept, *instances][-_REMEMBERED_MOST:]})
    # Only the fence: it follows from no action.
    return Transition("remember the deleted node passwords", update, attr("fence").exists())
