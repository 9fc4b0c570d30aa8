"""Kubelets as K3s' agents: every machine that runs becomes a Node of a real API server, and runs the pods bound to it.

A node registers with the labels, taints and addresses that our bootstrap gives it; registers anew, with the start-up
taint again, if it was deleted while the machine runs; and falls silent when the machine is gone: the rest is up to
Kubernetes' controllers. Two habits of K3s' server are here, too: its cloud controller removes its own taint from new
nodes, and the password of a node is deleted with the node.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any, Final

import urllib3

from holdfast.cluster.seen import ACTION_TAG, INSTANCE_LABEL, UNVERIFIED_TAINT
from holdfast.ports.machines import Machine
from tests.servers.kube_apiserver import RunningKube

_PASS_SECONDS: Final = 0.2
_RENEW_SECONDS: Final = 2.0
_UNINITIALISED: Final = "node.cloudprovider.kubernetes.io/uninitialized"
_ALLOCATABLE: Final = {"cpu": "1900m", "memory": "3400Mi", "pods": "110"}
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
SECRETS: Final = "/api/v1/namespaces/kube-system/secrets"


@dataclass(frozen=True)
class Listed:
    """Nodes and pods, as the last pass found them."""

    nodes: tuple[dict[str, Any], ...] = ()
    pods: tuple[dict[str, Any], ...] = ()


def node_name(machine: Machine) -> str:
    """Our bootstrap names a node after its machine; that of an older autoscaler leaves the host's name."""
    return machine.id if ACTION_TAG in machine.tags else f"ip-{(machine.private_ip or '').replace('.', '-')}"


class Kubelets:
    """One thread for all machines. `running` gives the machines that run now."""

    def __init__(self, kube: RunningKube, running: Callable[[], Iterable[Machine]]) -> None:
        self.listed = Listed()
        self.passes = threading.Condition()
        self.joins = True  # False: agents start, and their nodes never register
        self.mistakes: list[Exception] = []
        self._kube = kube
        self._running = running
        self._renewed: dict[str, datetime] = {}
        self._nodes_before: set[str] = set()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._repeat, name="kubelets", daemon=True)

    def __enter__(self) -> Kubelets:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()
        if self.mistakes:
            raise self.mistakes[0]

    def _repeat(self) -> None:
        while not self._stopping.wait(_PASS_SECONDS):
            try:
                self._pass()
            except urllib3.exceptions.HTTPError:
                pass  # the server is away; kubelets try again
            except Exception as mistake:
                self.mistakes.append(mistake)
                return
            finally:
                with self.passes:
                    self.passes.notify_all()

    def _pass(self) -> None:
        machines = {node_name(machine): machine for machine in self._running()}
        nodes, pods = self._list("/api/v1/nodes"), self._list("/api/v1/pods")
        if nodes is None or pods is None:
            return
        self.listed = Listed(tuple(nodes), tuple(pods))
        self._forget_passwords({node["metadata"]["name"] for node in nodes})
        known = {node["metadata"]["name"]: node for node in nodes}
        for name, machine in machines.items():
            if self.joins:
                self._keep_node(machine, known.get(name))
            else:
                self._store_password(name)
        for pod in pods:
            if pod["spec"].get("nodeName") in machines and pod["spec"]["nodeName"] in known:
                self._run_pod(pod)

    def _list(self, path: str) -> list[dict[str, Any]] | None:
        status, answer = self._kube.ask("GET", path)
        return list(answer["items"]) if status == 200 else None

    def _forget_passwords(self, names: set[str]) -> None:
        for name in self._nodes_before - names:
            self._renewed.pop(name, None)
            self._kube.ask("DELETE", f"{SECRETS}/{name}.node-password.k3s")
        self._nodes_before = names

    def _keep_node(self, machine: Machine, node: dict[str, Any] | None) -> None:
        if node is None:
            self._register(machine)
            self._report(machine)
        elif any(taint["key"] == _UNINITIALISED for taint in node["spec"].get("taints", ())):
            left = [taint for taint in node["spec"]["taints"] if taint["key"] != _UNINITIALISED]
            meta = {"resourceVersion": node["metadata"]["resourceVersion"]}  # do not undo what others changed
            self._kube.ask("PATCH", f"/api/v1/nodes/{node_name(machine)}", {"metadata": meta, "spec": {"taints": left}})
        elif not _is_ready(node):
            self._report(machine)
        self._renew(node_name(machine))

    def _register(self, machine: Machine) -> None:
        name = node_name(machine)
        taints = [{"key": _UNINITIALISED, "value": "true", "effect": "NoSchedule"}]
        labels = {"kubernetes.io/hostname": name}
        if ACTION_TAG in machine.tags:  # it was launched with our bootstrap
            taints.append({"key": UNVERIFIED_TAINT, "value": "true", "effect": "NoSchedule"})
            labels |= {
                INSTANCE_LABEL: machine.id,
                "holdfast.dev/lifecycle": str(machine.market),
                "topology.kubernetes.io/region": machine.zone[:-1],
                "topology.kubernetes.io/zone": machine.zone,
            }
        spec = {"providerID": f"aws:///{machine.zone}/{machine.id}", "taints": taints}
        self._store_password(name)
        self._kube.ask("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "spec": spec})

    def _store_password(self, name: str) -> None:
        """K3s does so when an agent starts, before there is a node."""
        self._kube.ask("POST", SECRETS, {"metadata": {"name": f"{name}.node-password.k3s"}})

    def _report(self, machine: Machine) -> None:
        """Ready. Only when that is news: a kubelet that has nothing new to say renews its lease and no more."""
        name, now = node_name(machine), _text(datetime.now(UTC))
        path = f"/api/v1/nodes/{name}/status"
        status, node = self._kube.ask("GET", path)
        if status != 200:
            return
        others = [each for each in node["status"].get("conditions", ()) if each["type"] != "Ready"]
        ready = {"type": "Ready", "status": "True", "reason": "KubeletReady"}
        times = {"lastTransitionTime": now, "lastHeartbeatTime": now}
        addresses = [{"type": "InternalIP", "address": machine.private_ip}, {"type": "Hostname", "address": name}]
        report = {
            "addresses": addresses,
            "capacity": _ALLOCATABLE,
            "allocatable": _ALLOCATABLE,
            "conditions": [*others, {**ready, **times}],
        }
        self._kube.ask("PATCH", path, {"status": report})

    def _renew(self, name: str) -> None:
        now = datetime.now(UTC)
        before = self._renewed.get(name)
        if before is not None and (now - before).total_seconds() < _RENEW_SECONDS:
            return
        lease = {"holderIdentity": name, "leaseDurationSeconds": 10, "renewTime": _text(now, micro=True)}
        status, _ = self._kube.ask("PATCH", f"{_LEASES}/{name}", {"spec": lease})
        if status == 404:
            self._kube.ask("POST", _LEASES, {"metadata": {"name": name}, "spec": lease})
        self._renewed[name] = now

    def _run_pod(self, pod: dict[str, Any]) -> None:
        meta = pod["metadata"]
        path = f"/api/v1/namespaces/{meta['namespace']}/pods/{meta['name']}"
        ends = meta.get("deletionTimestamp")  # when its grace is over
        if ends is not None:
            if datetime.fromisoformat(ends) <= datetime.now(UTC):
                # It ended, if it is still the same pod.
                self._kube.ask("DELETE", path, {"gracePeriodSeconds": 0, "preconditions": {"uid": meta["uid"]}})
        elif pod["status"]["phase"] == "Pending":
            now = _text(datetime.now(UTC))
            healthy = [
                {"type": name, "status": "True", "lastTransitionTime": now}
                for name in ("Initialized", "ContainersReady", "Ready")
            ]
            conditions = [*pod["status"].get("conditions", ()), *healthy]
            self._kube.ask("PATCH", f"{path}/status", {"status": {"phase": "Running", "conditions": conditions}})


def _is_ready(node: dict[str, Any]) -> bool:
    return any(each["type"] == "Ready" and each["status"] == "True" for each in node["status"].get("conditions", ()))


def _text(moment: datetime, *, micro: bool = False) -> str:
    return moment.strftime("%Y-%m-%dT%H:%M:%S.%fZ" if micro else "%Y-%m-%dT%H:%M:%SZ")
