"""The simulated K3s cluster: nodes, pods, a scheduler, evictions and disruption budgets."""

import random
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import partial
from threading import RLock
from typing import Any, Final

from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import (
    Evicted,
    Eviction,
    KubeUnavailable,
    Node,
    NodeChange,
    NodeChanged,
    Pod,
    PodPhase,
    Resources,
    Taint,
)
from holdfast.simulator.world.timeline import Timeline

GRACE_SECONDS: Final = 10.0
NOT_READY_SECONDS: Final = 40.0
_FINISHED: Final = (PodPhase.SUCCEEDED, PodPhase.FAILED)


@dataclass
class Workload:
    """Like a Deployment: a number of equal pods, recreated when they are removed."""

    name: str
    replicas: int
    namespace: str = "default"
    controller: str = "ReplicaSet"
    max_unavailable: int | None = None  # a disruption budget, if not None
    template: Mapping[str, object] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class DisruptionBudget:
    """At least this many pods with the label must stay healthy."""

    namespace: str
    app: str
    least_available: int


def ignored(_before: Node | None, _after: Node | None) -> None:
    """The default callback. Not a lambda, which could not be stored."""


class SimulatedK3s:
    """Implements `holdfast.ports.kube.Kube`."""

    def __init__(self, timeline: Timeline, chance: random.Random, pods_per_node: int = 10) -> None:
        self._timeline = timeline
        self._chance = chance
        self._pods_per_node = pods_per_node
        self._nodes: dict[str, Node] = {}
        self._machine_of: dict[str, InstanceId] = {}
        self._pods: dict[str, Pod] = {}
        self._workload_of: dict[str, str] = {}
        self._app_of: dict[str, str] = {}
        self._budgets: dict[str, DisruptionBudget] = {}
        self._lock = RLock()  # tests call from several threads
        self._workloads: dict[str, Workload] = {}
        self.secrets: set[tuple[str, str]] = set()
        self._version = 0
        self._made = 0
        self._last_watched: tuple[list[Node], list[Pod]] | None = None  # None while the API server answers
        self.on_node: Callable[[Node | None, Node | None], None] = ignored  # before, after

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_lock": None}  # a lock cannot be copied

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update({**state, "_lock": RLock()})

    # The port

    def nodes(self) -> list[Node]:
        self._answer()
        return list(self._nodes.values())

    def node(self, name: str) -> Node | None:
        self._answer()
        return self._nodes.get(name)

    def pods(self) -> list[Pod]:
        self._answer()
        return [pod for pod in self._pods.values() if pod.phase not in _FINISHED]

    def pods_on(self, node: str) -> list[Pod]:
        self._answer()
        return self._on(node)

    def change_node(self, node: Node, change: NodeChange) -> Node:
        with self._lock:
            return self._change_node(node, change)

    def _change_node(self, node: Node, change: NodeChange) -> Node:
        self._answer()
        found = self._nodes.get(node.name)
        if found is None or found.uid != node.uid:
            raise NodeChanged(f"node {node.name} is gone", found)
        expected = all(found.annotations.get(name) == value for name, value in change.expected.items())
        same_version = change.expected_version in (None, found.resource_version)
        # An annotation that must be absent is tested by the version, as a JSON patch cannot say it.
        if None in change.expected.values() and found.resource_version != node.resource_version:
            same_version = False
        # A taint is removed from the list that was read: it must still be that list.
        if change.remove_taint is not None and found.taints != node.taints:
            same_version = False
        if not expected or not same_version:
            raise NodeChanged(f"node {node.name} was changed by somebody else", found)
        annotations = {**found.annotations, **change.annotations}
        changed = replace(
            found,
            is_unschedulable=found.is_unschedulable if change.unschedulable is None else change.unschedulable,
            annotations={name: value for name, value in annotations.items() if value is not None},
            taints=tuple(taint for taint in found.taints if taint.key != change.remove_taint),
        )
        return self.put(changed)

    def evict(self, pod: Pod) -> Evicted:
        self._answer()
        found = self._pods.get(pod.uid)
        if found is None:
            return Evicted(Eviction.GONE)
        if found.is_deleting:
            return Evicted(Eviction.ACCEPTED)
        blocked = self._blocked_by(found)
        if blocked:
            return Evicted(Eviction.BLOCKED, blocked)
        self._pods[pod.uid] = replace(found, is_deleting=True)
        self._timeline.after(GRACE_SECONDS, partial(self._remove_pod, pod.uid))
        return Evicted(Eviction.ACCEPTED)

    def delete_node(self, node: Node) -> None:
        self._answer()
        found = self._nodes.get(node.name)
        if found is not None and found.uid == node.uid:
            del self._nodes[node.name]
            self.on_node(found, None)
            for pod in self._on(node.name):
                self._remove_pod(pod.uid)

    def delete_secret(self, namespace: str, name: str) -> None:
        self._answer()
        self.secrets.discard((namespace, name))

    # Changes by the world

    def join(
        self,
        name: str,
        machine: InstanceId,
        address: str,
        labels: Mapping[str, str],
        taints: tuple[Taint, ...] = (),
        allocatable: Resources | None = None,
    ) -> None:
        """A machine's agent registers its node, Ready."""
        now = self._timeline.now()
        self.start_agent(name)
        self._machine_of[name] = machine
        node = Node(name, self._new_uid(), "", address, True, now, now, False, dict(labels), {}, taints, allocatable)
        self.put(node)
        self._schedule()

    def unregister(self, name: str) -> Node | None:
        """Somebody deletes the Node object, as `kubectl delete node` does. Its pods run on, and stay bound to it."""
        node = self._nodes.pop(name, None)
        if node is not None:
            self.on_node(node, None)
        return node

    def is_registered(self, name: str) -> bool:
        return name in self._nodes

    def register_anew(self, node: Node, taints: tuple[Taint, ...]) -> None:
        """The agent registers its node once more: another UID, and nothing that was written on the Node before."""
        self._made += 1
        now = self._timeline.now()
        uid = f"{node.uid}-{self._made:06d}"  # no chance: what is drawn for others stays as it is
        anew = Node(node.name, uid, "", node.internal_ip, True, now, now, False, dict(node.labels), {}, taints)
        self.put(replace(anew, allocatable=node.allocatable))

    def start_agent(self, name: str) -> None:
        """A machine's agent begins to join: K3s stores a password for it, before there is a node."""
        self.secrets.add(("kube-system", f"{name}.node-password.k3s"))

    def remove_taint(self, name: str, key: str) -> None:
        """A controller has prepared the node."""
        node = self._nodes.get(name)
        if node is not None:
            self.put(replace(node, taints=tuple(taint for taint in node.taints if taint.key != key)))

    def lose(self, machine: InstanceId) -> None:
        """A machine ended: its node turns NotReady after a while, and its pods are recreated elsewhere."""
        for name, owner in list(self._machine_of.items()):
            if owner == machine:
                self._timeline.after(NOT_READY_SECONDS, partial(self._turn_not_ready, name, machine))

    def set_ready(self, name: str, *, is_ready: bool) -> None:
        """A kubelet stops or resumes reporting; its pods stay where they are."""
        node = self._nodes.get(name)
        if node is not None and node.is_ready != is_ready:
            self.put(replace(node, is_ready=is_ready, ready_changed=self._timeline.now()))

    def cordon(self, name: str, *, is_closed: bool) -> None:
        """As `kubectl cordon` and `uncordon` do: no annotation says who did it."""
        node = self._nodes.get(name)
        if node is not None and node.is_unschedulable != is_closed:
            self.put(replace(node, is_unschedulable=is_closed))

    def forget(self, name: str) -> None:
        """A node's object is deleted."""
        node = self._nodes.pop(name, None)
        if node is not None:
            self.on_node(node, None)

    def run(self, workload: Workload) -> None:
        """Start a workload, or change how many pods it has."""
        self._workloads[workload.name] = workload
        self._reconcile()

    def put_pod(self, pod: Pod, app: str = "") -> None:
        """A pod as it is from now on."""
        self._pods[pod.uid] = pod
        self._app_of[pod.uid] = app

    def put_budget(self, name: str, budget: DisruptionBudget) -> None:
        self._budgets[name] = budget

    def all_nodes(self) -> list[Node]:
        """The truth, for checkers: whether the API server answers or not."""
        return list(self._nodes.values())

    def all_pods(self, node: str | None = None) -> list[Pod]:
        """The truth, for checkers: whether the API server answers or not."""
        return list(self._pods.values()) if node is None else self._on(node)

    def has_budget(self, pod: Pod) -> bool:
        """Whether a disruption budget can delay its eviction."""
        workload = self._workloads.get(self._workload_of.get(pod.uid, ""))
        return bool(self._budgets) or (workload is not None and workload.max_unavailable is not None)

    def remove_pod(self, uid: str) -> None:
        """At once, as when its kubelet has stopped it."""
        self._remove_pod(uid)

    @property
    def is_away(self) -> bool:
        """Whether the API server does not answer."""
        return self._last_watched is not None

    @is_away.setter
    def is_away(self, is_away: bool) -> None:
        if is_away != self.is_away:
            self._last_watched = (list(self._nodes.values()), list(self._pods.values())) if is_away else None

    def watched(self) -> tuple[Iterable[Node], Iterable[Pod]]:
        """Nodes and pods as a client that watches them knows them: while the API server is away, the last ones."""
        return self._last_watched or (self._nodes.values(), self._pods.values())

    def new_uid(self) -> str:
        return self._new_uid()

    def cpu(self) -> float | None:
        """How busy the nodes are; None without any."""
        ready = [node for node in self._nodes.values() if node.is_ready]
        if not ready:
            return None
        running = Counter([pod.node for pod in self._pods.values() if pod.node and pod.controller != "DaemonSet"])
        return sum([min(1.0, running[node.name] / self._pods_per_node) for node in ready]) / len(ready)

    # Inside

    def _answer(self) -> None:
        if self.is_away:
            raise KubeUnavailable("the API server does not answer")

    def _on(self, node: str) -> list[Pod]:
        return [pod for pod in self._pods.values() if pod.node == node]

    def _turn_not_ready(self, name: str, machine: InstanceId) -> None:
        node = self._nodes.get(name)
        if node is None or self._machine_of.get(name) != machine:
            return
        self.put(replace(node, is_ready=False, ready_changed=self._timeline.now()))
        for pod in self._on(name):
            self._remove_pod(pod.uid)

    def put(self, node: Node) -> Node:
        """The node as it is from now on."""
        self._version += 1
        stored = replace(node, resource_version=str(self._version))
        before = self._nodes.get(node.name)
        self._nodes[node.name] = stored
        self.on_node(before, stored)
        self._schedule()
        return stored

    def _reconcile(self) -> None:
        """Create missing pods, and remove surplus ones."""
        for workload in self._workloads.values():
            mine = [uid for uid, name in self._workload_of.items() if name == workload.name and uid in self._pods]
            for _ in range(workload.replicas - len(mine)):
                self._make_pod(workload)
            for uid in mine[workload.replicas :]:
                self._pods.pop(uid)
                self._workload_of.pop(uid)
        self._schedule()

    def _make_pod(self, workload: Workload) -> None:
        uid = self._new_uid()
        now = self._timeline.now()
        self._workload_of[uid] = workload.name
        self._pods[uid] = Pod(
            namespace=workload.namespace,
            name=f"{workload.name}-{uid[-6:]}",
            uid=uid,
            node=None,
            phase=PodPhase.PENDING,
            created=now,
            unschedulable_since=now,
            controller=workload.controller,
            **workload.template,  # type: ignore[arg-type]
        )

    def _remove_pod(self, uid: str) -> None:
        self._pods.pop(uid, None)
        self._workload_of.pop(uid, None)
        self._reconcile()

    def _schedule(self) -> None:
        """Assign each pending pod to a Ready, schedulable node with room; the emptiest first."""
        waiting = [(uid, pod) for uid, pod in self._pods.items() if pod.node is None]
        if not waiting:
            return
        load = Counter([pod.node for pod in self._pods.values() if pod.node])
        for uid, pod in waiting:
            open_nodes = [node for node in self._nodes.values() if self._takes_pods(node, load[node.name])]
            if not open_nodes:
                return
            if pod.requests is not None:
                open_nodes = [node for node in open_nodes if self._has_room(node, pod.requests)]
                if not open_nodes:
                    continue
            chosen = min(open_nodes, key=lambda node: (load[node.name], node.name))
            load[chosen.name] += 1
            self._pods[uid] = replace(pod, node=chosen.name, phase=PodPhase.RUNNING, unschedulable_since=None)

    def _takes_pods(self, node: Node, load: int) -> bool:
        return node.is_ready and not node.is_unschedulable and not node.taints and load < self._pods_per_node

    def _has_room(self, node: Node, asked: Resources) -> bool:
        """Whether the requests fit beside those of the node's pods. A node of unknown size has room for any."""
        here = [asked, *(pod.requests for pod in self._on(node.name) if pod.requests is not None)]
        total = Resources(sum(r.cpu_millis or 0 for r in here), sum(r.memory_bytes or 0 for r in here))
        return node.allocatable is None or node.allocatable.could_hold(total)

    def _blocked_by(self, pod: Pod) -> str:
        """Which budget keeps the pod where it is, in the API server's words; "" when none does."""
        budgets = self._budgets.items()
        mine = [(n, b) for n, b in budgets if (b.namespace, b.app) == (pod.namespace, self._app_of.get(pod.uid))]
        if len(mine) > 1:
            return "This pod has more than one PodDisruptionBudget, which the eviction subresource does not support."
        if mine:
            name, budget = mine[0]
            apps = (other for uid, other in self._pods.items() if self._app_of.get(uid) == budget.app)
            return _budget_refusal(name, budget.least_available, _healthy(apps))
        workload = self._workloads.get(self._workload_of.get(pod.uid, ""))
        if workload is None or workload.max_unavailable is None:
            return ""
        own = (p for uid, p in self._pods.items() if self._workload_of.get(uid) == workload.name)
        return _budget_refusal(workload.name, workload.replicas - workload.max_unavailable, _healthy(own))

    def _new_uid(self) -> str:
        self._made += 1
        return f"{self._chance.getrandbits(32):08x}-{self._made:06d}"


def _healthy(pods: Iterable[Pod]) -> int:
    return sum(1 for pod in pods if pod.phase is PodPhase.RUNNING and not pod.is_deleting)


def _budget_refusal(budget: str, needed: int, healthy: int) -> str:
    if healthy > needed:
        return ""
    why = f"The disruption budget {budget} needs {needed} healthy pods and has {healthy} currently"
    return f"429: Cannot evict pod as it would violate the pod's disruption budget. ({why})"
