# ruff: noqa: RUF009  setting() returns a new dataclass field each time
"""Settings of the environment: the simulated world, or AWS, a K3s cluster and its Prometheus.

Where possible, a setting names a file or an SSM parameter with a secret instead of containing the secret.
"""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, get_args

from holdfast.kernel.settings.bootstrap import PARAMETER
from holdfast.kernel.settings.declaring import Declaration, Derived, setting
from holdfast.kernel.settings.kinds import Choice, Location, Maybe, Number, Text, Whole, WholeSeconds, WordList

WorldName = Literal["sim", "aws"]

CLUSTER_TAG: Final = "holdfast.dev/cluster"
# Any printable character but the comma. GitHub takes a sentence with spaces, too.
_SIGNING_TEXT: Final = r" *[!-+\--~][ -+\--~]{6,254}[!-+\--~] *"
_OTHERS: Final = re.compile(r"aws:.*|holdfast\.dev/(?!cluster\Z).*", re.DOTALL)


@dataclass(frozen=True, slots=True)
class Tags:
    """Tags that identify a cluster's machines: at least one, with distinct keys."""

    expected: str = (
        "a list of EC2 tags key=value with distinct keys, without aws: and, except holdfast.dev/cluster, "
        "without holdfast.dev/"
    )

    def parse(self, raw: object) -> tuple[str, ...]:
        tags = WordList(self.expected, r"[^=]{1,128}=.{0,256}").parse(raw)
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
    kind = Text("a PromQL query", r".{1,4000}")
    help_text = f"A query for {what}, to replace the default; see docs/cluster-reference.md."
    return _maybe_text("Prometheus", kind, example, help_text)


TEMPLATE: Final = Text("the id of a launch template and a version number", "lt-[0-9A-Za-z]{1,40}:[1-9][0-9]{0,8}")
_URL: Final = Text("an http:// or https:// URL", r"https?://[!-~]{1,2000}")
_HTTPS: Final = Text("an https:// URL", r"https://[!-~]{1,2000}")
_PARAMETER: Final = Text("the name of an SSM parameter", PARAMETER)


@dataclass(frozen=True, kw_only=True)
class WorldSettings(Declaration):
    holdfast_world: WorldName = setting(
        Choice(get_args(WorldName)),
        default="sim",
        example="aws",
        group="World",
        help_text="The environment: sim simulates EC2 and K3s, aws uses your AWS account and your cluster.",
    )
    sim_seed: int = setting(
        Whole(0, 2**31 - 1),
        default=1,
        example="7",
        group="World",
        help_text="The random seed of a new simulated world.",
    )
    sim_speed: float = setting(
        Number(1, 3600),
        default=60.0,
        example="60",
        group="World",
        help_text="How many simulated seconds pass per second.",
    )
    launch_template: str | None = _maybe_text(
        "Machines",
        TEMPLATE,
        "lt-0123456789abcdef0:3",
        "The launch template and version of new machines: image, role, security groups, disk. $Latest is not allowed.",
    )
    subnets: tuple[str, ...] | None = setting(
        Maybe(WordList("a list of subnet ids", "subnet-[0-9a-z-]{1,40}")),
        default=None,
        example="subnet-0aaa1111,subnet-0bbb2222,subnet-0ccc3333",
        group="Machines",
        help_text="The subnets to launch machines in. Their zones are the cluster's zones.",
    )
    machine_tags: tuple[str, ...] = setting(
        Tags(),
        default=Derived(f"{CLUSTER_TAG}=CLUSTER_ID", lambda earlier: _own_tag(earlier)),
        example="Cluster=k3s,Role=worker",
        group="Machines",
        help_text="The tags that identify this cluster's workers, set at launch. No other cluster may use the same.",
    )
    kubeconfig: Path | None = _maybe_file(
        "Kubernetes",
        "/etc/holdfast/kubeconfig",
        "The kubeconfig file. If not set, KUBE_SERVER, or the service account of the pod that Holdfast runs in.",
    )
    kube_context: str | None = _maybe_text(
        "Kubernetes",
        Text("the name of a context", r".{1,253}"),
        "k3s",
        "The context in KUBECONFIG. If not set, the current context.",
    )
    kube_server: str | None = _maybe_text(
        "Kubernetes", _HTTPS, "https://10.0.0.10:6443", "The API server, for use without a kubeconfig, as in Lambda."
    )
    kube_token_parameter: str | None = _maybe_text(
        "Kubernetes",
        _PARAMETER,
        "/holdfast/kube-token",
        "The SSM parameter with a service account token for KUBE_SERVER.",
    )
    kube_ca_file: Path | None = _maybe_file(
        "Kubernetes", "/etc/holdfast/k3s-ca.crt", "The CA certificate for KUBE_SERVER. If not set, the system's."
    )
    prometheus_url: str | None = _maybe_text(
        "Prometheus", _URL, "https://prometheus.example.com", "The Prometheus server to query for CPU use and pods."
    )
    prometheus_token_file: Path | None = _maybe_file(
        "Prometheus", "/etc/holdfast/prometheus-token", "A file with a bearer token for Prometheus; read on each call."
    )
    prometheus_token_parameter: str | None = _maybe_text(
        "Prometheus", _PARAMETER, "/holdfast/prometheus-token", "The SSM parameter with a bearer token for Prometheus."
    )
    prometheus_ca_file: Path | None = _maybe_file(
        "Prometheus",
        "/etc/holdfast/prometheus-ca.crt",
        "The CA certificate for PROMETHEUS_URL. If not set, the system's.",
    )
    prometheus_stale_sec: int = setting(
        WholeSeconds(10, 3600),
        default=120,
        example="120",
        group="Prometheus",
        unit="seconds",
        help_text="Treat samples older than this as unknown.",
    )
    prometheus_cpu_query: str | None = _query("avg(my_cpu)", "the workers' average CPU use, 0 to 1")
    prometheus_cpu_seen_query: str | None = _query("max(timestamp(my_cpu))", "the time of the newest CPU sample")
    prometheus_cpu_coverage_query: str | None = _query("count(my_cpu) / 10", "the share of workers that report CPU")
    prometheus_pending_query: str | None = _query("count(my_waiting)", "the number of pending pods")
    prometheus_pending_oldest_query: str | None = _query("max(my_waiting_sec)", "the age of the oldest pending pod")
    prometheus_pending_seen_query: str | None = _query(
        "max(timestamp(my_waiting))", "the time of the newest sample of pending pods"
    )
    prometheus_ready_query: str | None = _query("my_ready", "the readiness of each node (1 or 0, with its internal_ip)")
    prometheus_ready_seen_query: str | None = _query(
        "max(timestamp(my_ready))", "the time of the newest readiness sample"
    )
    tick_sec: int = setting(
        WholeSeconds(5, 3600),
        default=60,
        example="60",
        group="Scaling",
        unit="seconds",
        help_text=(
            "The daemon's longest tick interval. It also ticks when a limit of its own is reached (pods pending long "
            "enough, cooldown, timeouts), when pods or nodes change, and every few seconds during an action."
        ),
    )
    events_secret: str | None = _maybe_text(
        "Events",
        Text("a secret of 16 to 256 characters without spaces", r"[!-~]{16,256}"),
        "8c1f6b6e0d5f4f0e9a7b",
        "The bearer token that POST /events/aws expects. If not set, the endpoint does not exist.",
        secret=True,
    )
    events_queue_url: str | None = _maybe_text(
        "Events", _URL, "https://sqs.eu-west-1.amazonaws.com/123456789012/holdfast", "The SQS queue with EC2 events."
    )
    github_webhook_secret: str | None = _maybe_text(
        "GitHub",
        Text(
            "one secret of at least 8 characters, or two separated by a comma during a rotation",
            rf"{_SIGNING_TEXT}(,{_SIGNING_TEXT})?",
        ),
        "8c1f6b6e0d5f4f0e9a7b",
        "The secret that GitHub signs webhooks with. The simulated world generates its own.",
        secret=True,
    )
    slack_webhook_url: str | None = _maybe_text(
        "Notifications",
        _HTTPS,
        "https://hooks.slack.com/services/T0/B0/x",
        "The Slack webhook to send notifications to.",
        secret=True,
    )
    notify_webhook_url: str | None = _maybe_text(
        "Notifications", _HTTPS, "https://example.com/hook", "A URL to send notifications to, as JSON.", secret=True
    )
    sns_topic_arn: str | None = _maybe_text(
        "Notifications",
        Text("the ARN of an SNS topic", r"arn:[a-z-]{3,20}:sns:[a-z0-9-]{5,30}:[0-9]{12}:[A-Za-z0-9_-]{1,256}"),
        "arn:aws:sns:eu-west-1:123456789012:holdfast",
        "The SNS topic to publish notifications to.",
    )


def _own_tag(earlier: Any) -> tuple[str, ...]:
    return (f"{CLUSTER_TAG}={earlier['cluster_id']}",)
