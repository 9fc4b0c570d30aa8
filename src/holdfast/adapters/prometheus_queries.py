"""What is asked of Prometheus. Each query can be replaced by one that suits another set of exporters.

A query of a number has exactly one result, or none when the number is not known. A query whose name ends in `_seen`
gives the Unix time of the newest sample that the reading rests on; empty, the age of the data is not looked at.
"""

from dataclasses import dataclass
from typing import Final

_IDLE: Final = 'node_cpu_seconds_total{mode="idle"}'
_WAITING: Final = (
    '(kube_pod_status_unschedulable == 1 and on (namespace, pod, uid) kube_pod_status_phase{phase="Pending"} == 1)'
)
_READY: Final = 'kube_node_status_condition{condition="Ready",status="true"}'

_SERVERS: Final = 'kube_node_role{role=~"control-plane|master|etcd"}'


@dataclass(frozen=True, slots=True)
class Queries:
    """The metrics are node_exporter's (CPU) and kube-state-metrics' (pods and nodes)."""

    # One minus idle: averaging the other modes would divide by their number, and a busy node would read as 0.14.
    # `and`: a range keeps the samples of an exporter that has died, and rate() goes on reading them until the window
    # is past. The plain selector ends with the first scrape that fails, so who is silent leaves the average at once.
    cpu: str = f"1 - avg(rate({_IDLE}[5m]) and {_IDLE})"
    cpu_seen: str = f"max(timestamp({_IDLE}))"

    # Exporters that answer, for each Ready worker: a few that are left do not speak for all. Servers are not counted
    # as workers, because not everybody watches them; where they are watched, the check is only milder.
    cpu_coverage: str = (
        f"count(count by (instance) ({_IDLE})) / count(max by (node) ({_READY}) == 1 unless on (node) {_SERVERS})"
    )

    # Unschedulable, and not merely Pending: a pod that pulls its image has a place, and a new node would not help it.
    # (kube-state-metrics counts pods with scheduling gates as well; whoever uses gates replaces this query.)
    # Counted by pod, because two kube-state-metrics or a pair of Prometheus would show each pod twice.
    # The zero is made of the pods that exist: while kube-state-metrics is silent, or may not list pods, there is no
    # result at all. `or vector(0)` would say "nobody waits" then. A cluster without a single pod reads as unknown.
    pending: str = f"count(count by (namespace, pod, uid) ({_WAITING})) or 0 * count(kube_pod_status_phase)"
    # Since the pod was made: when it was found unschedulable is not told by every version of kube-state-metrics.
    pending_oldest_seconds: str = f"time() - min(kube_pod_created and on (namespace, pod, uid) {_WAITING})"
    pending_seen: str = "max(timestamp(kube_pod_status_phase))"

    # One for each node that has an address: 1 if it is Ready, 0 if not. So a cluster in which no node is Ready differs
    # from one that nobody watches.
    ready: str = f"max by (node, internal_ip) (kube_node_info) * on (node) group_left () max by (node) ({_READY})"
    ready_seen: str = f"max(timestamp({_READY}))"


def queries_over(window: str) -> Queries:
    """The same with CPU averaged over another window than five minutes, such as ``2m``: at least four scrapes."""
    return Queries(cpu=Queries().cpu.replace("[5m]", f"[{window}]"))
