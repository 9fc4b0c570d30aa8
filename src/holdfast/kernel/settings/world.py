# ruff: noqa: RUF009  setting() makes a dataclass field, anew each time
"""The settings of the world that Holdfast acts in: the simulated one, or AWS, a K3s cluster and its Prometheus.

Secrets are best left where they are kept: settings name a file or an SSM parameter wherever that is possible.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from holdfast.kernel.settings.bootstrap import PARAMETER
from holdfast.kernel.settings.declaring import Declaration, Derived, setting
from holdfast.kernel.settings.kinds import Choice, Location, Maybe, Number, Text, Whole, WholeSeconds, Words

WorldName = Literal["sim", "aws"]

CLUSTER_TAG: Final = "holdfast.dev/cluster"
_OTHERS: Final = re.compile(r"aws:.*|holdfast\.dev/(?!cluster\Z).*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tags:
    """Tags that tell a cluster's machines from all others; each key once, and at least one."""

    expected: str = "a list of EC2 tags key=value, each key once; none of aws: and of holdfast.dev/ only cluster"

    def parse(self, given: object) -> tuple[str, ...]:
        tags = Words(self.expected, r"[^=]{1,128}=.{0,256}").parse(given)
        keys = [tag.partition("=")[0] for tag in tags]
        if len(set(keys)) < len(keys) or any(map(_OTHERS.fullmatch, keys)):
            raise ValueError(self.expected)
        return tags


def _maybe_text(group: str, kind: Text, example: str, help_text: str, *, secret: bool = False) -> str | None:
    return setting(Maybe(kind), default=None, example=example, group=group, help_text=help_text, secret=secret)


def _maybe_file(group: str, example: str, help_text: str) -> Path | None:
    kind = Maybe(Location("a path to a file"))
    return setting(kind, default=None, example=example, group=group, help_text=help_text)


def _query(example: str, what: str) -> str | None:
    kind = Text("a query in Prometheus' language", r".{1,4000}")
    help_text = f"Asks for {what}, instead of Holdfast's own query; see docs/cluster.md."
    return _maybe_text("Prometheus", kind, example, help_text)


_URL: Final = Text("an http:// or https:// address", r"https?://[!-~]{1,2000}")
_HTTPS: Final = Text("an https:// address", r"https://[!-~]{1,2000}")
_PARAMETER: Final = Text("the name of an SSM parameter", PARAMETER)


@dataclass(frozen=True, kw_only=True)
class WorldSettings(Declaration):
    holdfast_world: WorldName = setting(
        Choice(get_args(WorldName)),
        default="sim",
        example="aws",
        group="World",
        help_text="Where machines come from: sim is a simulated EC2 and K3s, aws is your account and your cluster.",
    )
    sim_seed: int = setting(
        Whole(0, 2**31 - 1),
        default=1,
        example="7",
        group="World",
        help_text="What happens in a new simulated world follows from this number.",
    )
    sim_speed: float = setting(
        Number(1, 3600),
        default=60.0,
        example="60",
        group="World",
        help_text="How many simulated seconds pass in a second.",
    )
    launch_template: str | None = _maybe_text(
        "Machines",
        Text("a launch template and the number of its version", "lt-[0-9A-Za-z]{1,40}:[1-9][0-9]{0,8}"),
        "lt-0123456789abcdef0:3",
        "What new machines are made of: image, role, security groups, disk. Never $Latest: an order must not change.",
    )
    subnets: tuple[str, ...] | None = setting(
        Maybe(Words("a list of subnet ids", "subnet-[0-9a-z-]{1,40}")),
        default=None,
        example="subnet-0aaa1111,subnet-0bbb2222,subnet-0ccc3333",
        group="Machines",
        help_text="The subnets that machines are launched in; their zones are the cluster's zones.",
    )
    machine_tags: tuple[str, ...] = setting(
        Tags(),
        default=Derived(f"{CLUSTER_TAG}=CLUSTER_ID", lambda earlier: _own_tag(earlier)),
        example="Cluster=k3s,Role=worker",
        group="Machines",
        help_text="The tags that make a machine a worker of this cluster, and of no other; launches set them.",
    )
    kubeconfig: Path | None = _maybe_file(
        "Kubernetes",
        "/etc/holdfast/kubeconfig",
        "How to reach the cluster. Left out: KUBE_SERVER, or the service account of the pod that this runs in.",
    )
    kube_context: str | None = _maybe_text(
        "Kubernetes",
        Text("a context's name", r".{1,253}"),
        "k3s",
        "The context of KUBECONFIG; its current one if not set.",
    )
    kube_server: str | None = _maybe_text(
        "Kubernetes", _HTTPS, "https://10.0.0.10:6443", "The API server, where there is no kubeconfig, as in Lambda."
    )
    kube_token_parameter: str | None = _maybe_text(
        "Kubernetes",
        _PARAMETER,
        "/holdfast/kube-token",
        "The SSM parameter with a service account's token, for KUBE_SERVER.",
    )
    kube_ca_file: Path | None = _maybe_file(
        "Kubernetes", "/etc/holdfast/k3s-ca.crt", "The certificate authority of KUBE_SERVER; the system's if not set."
    )
    prometheus_url: str | None = _maybe_text(
        "Prometheus", _URL, "https://prometheus.example.com", "Where CPU use and waiting pods are asked for."
    )
    prometheus_token_file: Path | None = _maybe_file(
        "Prometheus", "/etc/holdfast/prometheus-token", "A file with a bearer token for Prometheus; read at each call."
    )
    prometheus_token_parameter: str | None = _maybe_text(
        "Prometheus", _PARAMETER, "/holdfast/prometheus-token", "The SSM parameter with a bearer token for Prometheus."
    )
    prometheus_ca_file: Path | None = _maybe_file(
        "Prometheus",
        "/etc/holdfast/prometheus-ca.crt",
        "The certificate authority of Prometheus; the system's if not set.",
    )
    prometheus_stale_sec: int = setting(
        WholeSeconds(10, 3600),
        default=120,
        example="120",
        group="Prometheus",
        unit="seconds",
        help_text="Samples older than this count as unknown.",
    )
    prometheus_cpu_query: str | None = _query("avg(my_cpu)", "the workers' average CPU use, 0 to 1")
    prometheus_cpu_seen_query: str | None = _query("max(timestamp(my_cpu))", "the time of the newest CPU sample")
    prometheus_cpu_coverage_query: str | None = _query("count(my_cpu) / 10", "the share of workers that report CPU")
    prometheus_pending_query: str | None = _query("count(my_waiting)", "the number of pods that wait for a place")
    prometheus_pending_oldest_query: str | None = _query("max(my_waiting_sec)", "how long the oldest has waited")
    prometheus_pending_seen_query: str | None = _query("max(timestamp(my_waiting))", "the time of the newest of these")
    prometheus_ready_query: str | None = _query("my_ready", "a 1 or 0 for each node, with its internal_ip")
    prometheus_ready_seen_query: str | None = _query("max(timestamp(my_ready))", "the time of the newest of these")
    tick_sec: int = setting(
        WholeSeconds(5, 3600),
        default=60,
        example="60",
        group="Scaling",
        unit="seconds",
        help_text="How often the daemon looks when nothing happens; while an action is under way, every few seconds.",
    )
    events_secret: str | None = _maybe_text(
        "Events",
        Text("a secret of 16 to 256 characters without spaces", r"[!-~]{16,256}"),
        "8c1f6b6e0d5f4f0e9a7b",
        "What POST /events/aws expects as bearer token. Left out: there is no such endpoint.",
        secret=True,
    )
    events_queue_url: str | None = _maybe_text(
        "Events", _URL, "https://sqs.eu-west-1.amazonaws.com/123456789012/holdfast", "The SQS queue with EC2's events."
    )
    github_webhook_secret: str | None = _maybe_text(
        "GitHub",
        Text("one secret, or two with a comma between them while they are rotated", r"[!-~]{1,1000}"),
        "8c1f6b6e0d5f4f0e9a7b",
        "What GitHub signs its webhooks with. The simulated world makes one for itself.",
        secret=True,
    )
    slack_webhook_url: str | None = _maybe_text(
        "Notices", _HTTPS, "https://hooks.slack.com/services/T0/B0/x", "Slack's address for notices.", secret=True
    )
    notify_webhook_url: str | None = _maybe_text(
        "Notices", _HTTPS, "https://example.com/hook", "An address that notices are posted to as JSON.", secret=True
    )
    sns_topic_arn: str | None = _maybe_text(
        "Notices",
        Text("the ARN of an SNS topic", r"arn:[a-z-]{3,20}:sns:[a-z0-9-]{5,30}:[0-9]{12}:[A-Za-z0-9_-]{1,256}"),
        "arn:aws:sns:eu-west-1:123456789012:holdfast",
        "The SNS topic that notices are published to.",
    )


def _own_tag(earlier: Any) -> tuple[str, ...]:
    return (f"{CLUSTER_TAG}={earlier['cluster_id']}",)
