"""Whether a new machine can come into service, and if not, why not. Pure.

A node is accepted when it is Ready and has no start-up taint of someone else: a cloud provider, a network plug-in or a
storage driver is still preparing it, and would keep pods away after we had removed our own taint. Only taints that are
known to disappear by themselves count. A person's taint stays for good, so waiting for it would fail every scale-up.
"""

from collections.abc import Iterable
from itertools import islice
from typing import Final

from holdfast.cluster.seen import STOPPED, Seen, Worker
from holdfast.fleet.end_reasons import end_words
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.text import cut
from holdfast.ports.kube import Node

START_UP_TAINTS: Final = (
    "node.cloudprovider.kubernetes.io/uninitialized",  # until the cloud controller has found the machine
    "node.kubernetes.io/network-unavailable",  # until the cloud provider or the network plug-in has set up a route
    "node.kubernetes.io/not-ready",  # the API server sets it at registration, and removes it a little after Ready
)
# The convention of drivers that keep pods away until their agent runs, such as node.cilium.io and ebs.csi.aws.com.
AGENT_TAINT_NAME: Final = "/agent-not-ready"
_KEEPS_PODS_AWAY: Final = ("NoSchedule", "NoExecute")
_NAMED_MOST: Final = 3
_REASONS_MOST: Final = 2

# What EC2 says of a machine that we, or a person, terminated.
_TERMINATED_BY_CALL: Final = "Client.UserInitiatedShutdown"


def start_up_taint(node: Node) -> str | None:
    """A taint of someone else's that still has to disappear; None if there is none."""
    for taint in node.taints:
        if taint.effect in _KEEPS_PODS_AWAY and (taint.key in START_UP_TAINTS or taint.key.endswith(AGENT_TAINT_NAME)):
            return taint.key
    return None


def is_prepared(worker: Worker | None) -> bool:
    """Whether its node is Ready and nothing else has to be set up on it: it can be accepted, or serves already."""
    return worker is not None and worker.node is not None and worker.is_ready and start_up_taint(worker.node) is None


def has_ended(seen: Seen, instance: InstanceId) -> bool:
    """Whether the machine cannot join any more: it is gone, or was stopped. One that is only unlisted may join."""
    machine = seen.machine(instance)
    return instance in seen.gone or (machine is not None and machine.state in STOPPED)


def why_not_in_service(seen: Seen, instance: InstanceId) -> str:
    """Why the machine has not come into service, as far as EC2 and Kubernetes know."""
    machine, worker = seen.machine(instance), seen.worker(instance)
    if machine is None:
        return "EC2 does not list it"
    if has_ended(seen, instance):
        reason = machine.state_reason
        return f"it is {machine.state}" if reason is None else f"it ended: {end_words(reason)}"
    if worker is None or worker.node is None:
        several = worker is not None and worker.is_ambiguous
        return "several nodes claim to be it" if several else f"it is {machine.state}, but has no node"
    taint = start_up_taint(worker.node)
    if not worker.is_ready:
        return "its node is not Ready"
    return f"its node is Ready, but still has the taint {cut(taint, 120)}" if taint else "its node is Ready"


def reasons_words(seen: Seen, instances: Iterable[InstanceId]) -> str:
    """``i-0a, i-0b: its node is not Ready; i-0c: …``: machines with the same reason together, and not too many."""
    by_reason: dict[str, list[InstanceId]] = {}
    for instance in instances:
        by_reason.setdefault(why_not_in_service(seen, instance), []).append(instance)
    return "; ".join(f"{_named(named)}: {reason}" for reason, named in islice(by_reason.items(), _REASONS_MOST))


def ended_by_themselves(seen: Seen, instances: Iterable[InstanceId]) -> list[InstanceId]:
    """The machines that ended without a call to EC2: a clean-up has terminated some of the others itself."""
    reasons = ((instance, machine.state_reason) for instance in instances if (machine := seen.machine(instance)))
    return [instance for instance, reason in reasons if reason is not None and reason.code != _TERMINATED_BY_CALL]


def _named(instances: list[InstanceId]) -> str:
    more = len(instances) - _NAMED_MOST
    return ", ".join(instances[:_NAMED_MOST]) + (f" and {more} more" if more > 0 else "")
