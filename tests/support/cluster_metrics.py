"""What node_exporter and kube-state-metrics report of a real cluster, on one page for a real Prometheus."""

import time
from collections.abc import Callable
from datetime import datetime
from typing import Any, Final

from tests.servers.kubelets import Listed
from tests.servers.scripted_http import Asked, Reply

_PHASES: Final = ("Pending", "Running", "Succeeded", "Failed", "Unknown")


class ClusterMetrics:
    """The page. All nodes are equally busy: `load` is their share of CPU, from 0 to 1."""

    def __init__(self) -> None:
        self.listed: Callable[[], Listed] = Listed
        self._load = 0.5
        self._idle_seconds = 100.0
        self._since = time.time()

    @property
    def load(self) -> float:
        return self._load

    @load.setter
    def load(self, share: float) -> None:
        self._idle_seconds, self._since = self._idle(), time.time()
        self._load = share

    def page(self, _: Asked) -> Reply:
        listed = self.listed()
        lines = [line for node in listed.nodes for line in self._node(node)]
        lines += [line for pod in listed.pods for line in _pod(pod)]
        # The server's own pods: without any pod, the number of pending ones would be unknown.
        lines += ['kube_pod_status_phase{namespace="kube-system",pod="coredns",uid="coredns",phase="Running"} 1']
        return Reply("\n".join([*lines, ""]).encode(), headers={"Content-Type": "text/plain"})

    def _idle(self) -> float:
        return self._idle_seconds + (time.time() - self._since) * (1 - self._load)

    def _node(self, node: dict[str, Any]) -> list[str]:
        name = node["metadata"]["name"]
        addresses = [a["address"] for a in node["status"].get("addresses", ()) if a["type"] == "InternalIP"]
        conditions = node["status"].get("conditions", ())
        ready = next((each["status"] for each in conditions if each["type"] == "Ready"), "Unknown")
        condition = f'kube_node_status_condition{{node="{name}",condition="Ready",status='
        lines = [f'{condition}"{status.lower()}"}} {int(status == ready)}' for status in ("True", "False", "Unknown")]
        for address in addresses:
            lines.append(f'kube_node_info{{node="{name}",internal_ip="{address}"}} 1')
            if ready == "True":
                cpu = f'node_cpu_seconds_total{{instance="{address}:9100",cpu="0",mode="idle"}}'
                lines.append(f"{cpu} {self._idle():.3f}")
        return lines


def _pod(pod: dict[str, Any]) -> list[str]:
    meta, status = pod["metadata"], pod["status"]
    labels = f'namespace="{meta["namespace"]}",pod="{meta["name"]}",uid="{meta["uid"]}"'
    created = int(datetime.fromisoformat(meta["creationTimestamp"]).timestamp())
    lines = [f'kube_pod_status_phase{{{labels},phase="{each}"}} {int(each == status["phase"])}' for each in _PHASES]
    lines.append(f"kube_pod_created{{{labels}}} {created}")
    if any(each.get("reason") == "Unschedulable" for each in status.get("conditions", ())):
        lines.append(f"kube_pod_status_unschedulable{{{labels}}} 1")
    return lines
