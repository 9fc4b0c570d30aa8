"""Faults of Kubernetes and of what watches it: the API server, Prometheus, nodes."""

from collections.abc import Sequence
from functools import partial

from msgspec.structs import replace

from holdfast.kernel.ids import InstanceId
from holdfast.ports.kube import Node, Taint
from holdfast.simulator.proof.effects import EffectRecorder
from holdfast.simulator.proof.faults import FaultKind
from holdfast.simulator.proof.ongoing_outages import OngoingOutages
from holdfast.simulator.world import tag_names
from holdfast.simulator.world.world import World


class KubernetesOutages:
    """Makes Kubernetes' faults happen."""

    def __init__(self, world: World, recorder: EffectRecorder, outages: OngoingOutages) -> None:
        self._world = world
        self._recorder = recorder
        self._outages = outages
        self._closed_by_people: set[str] = set()

    def begin(self, kind: FaultKind, size: float, seconds: float) -> None:
        world, facts = self._world, self._recorder.facts
        match kind:
            case FaultKind.API_AWAY:
                world.prometheus.is_cache_lost = int(size * 977) % 2 == 1
                world.k3s.is_away = True
                facts.api_away_until = world.timeline.now().plus(seconds)
                self._outages.begin("the API server is away", seconds, lambda: setattr(world.k3s, "is_away", False))
            case FaultKind.PROMETHEUS_AWAY:
                world.prometheus.is_away = True
                self._outages.begin("Prometheus is away", seconds, lambda: setattr(world.prometheus, "is_away", False))
            case FaultKind.NO_JOINS:
                world.joins = False
                self._outages.begin("machines do not join", seconds, lambda: setattr(world, "joins", True))
            case FaultKind.NODE_ANEW:
                self._register_one_anew(size)
            case FaultKind.NODES_ANEW:
                self._register_all_anew()
            case _:
                self._to_a_node(kind, size, seconds)

    def _register_one_anew(self, size: float) -> None:
        nodes = self._nodes_of_ours()
        if nodes:
            chosen = nodes[int(size * 977) % len(nodes)]
            self._recorder.happened(f"the Node of {chosen} is deleted, and registered anew")
            self._world.register_anew(chosen, size * 90)

    def _register_all_anew(self) -> None:
        self._recorder.happened("a snapshot is restored, and every node is registered anew")
        for machine in self._nodes_of_ours():
            self._world.register_anew(machine)

    def _nodes_of_ours(self) -> list[InstanceId]:
        """The machines whose bootstrap sets the start-up taint: an older autoscaler's are not tagged."""
        names = (tag_names.ACTION, tag_names.ACCEPTED)
        alive = [m for m in self._world.ec2.all_machines() if not m.is_gone and any(name in m.tags for name in names)]
        return [machine.id for machine in alive if self._world.k3s.is_registered(machine.id)]

    def _to_a_node(self, kind: FaultKind, size: float, seconds: float) -> None:
        nodes = self._nodes_of_machines()
        if not nodes:
            return
        chosen = nodes[int(size * 911) % len(nodes)]
        match kind:
            case FaultKind.NODE_FLAPS:
                # Above 0.85, the network between the servers and all nodes fails.
                names = [node.name for node in nodes] if size > 0.85 else [chosen.name]
                self._flap(names, seconds)
            case FaultKind.PERSON_CORDONS if not chosen.is_unschedulable:
                self._recorder.happened(f"a person cordons {chosen.name}")
                self._closed_by_people.add(chosen.name)
                self._world.k3s.cordon(chosen.name, is_closed=True)
                self._outages.begin("a person's cordon", seconds * 2, partial(self._uncordon, chosen.name))
            case FaultKind.NODE_TWIN:
                self._twin(chosen, seconds, has_label=int(size * 907) % 2 == 0)

    def _flap(self, names: Sequence[str], seconds: float) -> None:
        for name in names:
            self._world.k3s.set_ready(name, is_ready=False)

        def recover() -> None:
            alive = {node.name for node in self._nodes_of_machines()}
            for name in names:
                if name in alive:
                    self._world.k3s.set_ready(name, is_ready=True)

        self._outages.begin("NotReady, though the machine runs", seconds, recover)

    def _uncordon(self, name: str) -> None:
        """By a person, whatever else has happened to it; once."""
        if name in self._closed_by_people:
            self._closed_by_people.discard(name)
            self._recorder.facts.opened_by_people.add(InstanceId(name))
            self._world.k3s.cordon(name, is_closed=False)

    def _twin(self, node: Node, seconds: float, *, has_label: bool) -> None:
        """A node with another name and the same address, as one that was left over; no pod is scheduled on it."""
        labels = node.labels if has_label else {}
        name, taints = f"{node.name}-twin", (Taint("simulated", "twin", "NoSchedule"),)
        twin = replace(node, name=name, uid=f"{node.uid}-twin", labels=labels, annotations={}, taints=taints)
        self._world.k3s.put(twin)
        self._outages.begin("two nodes with one address", seconds, partial(self._world.k3s.forget, name))

    def _nodes_of_machines(self) -> list[Node]:
        """The nodes of machines that run and are in service, by the checkers' facts: whether they answer or not."""
        facts = self._recorder.facts
        machines = ((machine, facts.nodes.get(machine.id)) for machine in facts.machines.values())
        return [node for machine, node in machines if node is not None and machine.gone is None and machine.accepted]
