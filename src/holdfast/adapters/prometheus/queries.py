"""Prometheus queries. Settings can replace each one, for other exporters.

A query for a number has exactly one result, or none if the number is unknown. A query whose name ends in `_seen`
returns the Unix time of the newest sample that the reading uses; if it is empty, the age of the data is not checked.
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
    # `and`: after an exporter dies, rate() still uses its old samples until the window has passed. The plain selector
    # ends with the first failed scrape, so a dead exporter leaves the average at once.
    cpu: str = f"1 - avg(rate({_IDLE}[5m]) and {_IDLE})"
    cpu_seen: str = f"max(timestamp({_IDLE}))"

    # Reporting exporters per Ready worker: a few of them are not representative. Servers are not counted as workers,
    # because they are not always scraped; if they are, the check is only more lenient.
    cpu_coverage: str = (
        f"count(count by (instance) ({_IDLE})) / count(max by (node) ({_READY}) == 1 unless on (node) {_SERVERS})"
    )

    # Unschedulable, not merely Pending: a pod that pulls its image has a node, and a new node would not help it.
    # (kube-state-metrics counts pods with scheduling gates as well; if you use gates, replace this query.)
    # Counted by pod, because two instances of kube-state-metrics or of Prometheus report each pod twice.
    # Zero only if pods exist: if kube-state-metrics is down, or may not list pods, there is no result at all. With
    # `or vector(0)` that would read as "no pending pods". A cluster without any pod reads as unknown.
    pending: str = f"count(count by (namespace, pod, uid) ({_WAITING})) or 0 * count(kube_pod_status_phase)"
    # The age of the pod: not every version of kube-state-metrics reports since when a pod is unschedulable.
    pending_oldest_seconds: str = f"time() - min(kube_pod_created and on (namespace, pod, uid) {_WAITING})"
    pending_seen: str = "max(timestamp(kube_pod_status_phase))"

    # One result per node with an address: 1 if it is Ready, 0 if not. So a cluster without a Ready node differs from
    # one that is not scraped.
    ready: str = f"max by (node, internal_ip) (kube_node_info) * on (node) group_left () max by (node) ({_READY})"
    ready_seen: str = f"max(timestamp({_READY}))"
