# ruff: noqa: RUF009  setting() returns a new dataclass field each time
"""Settings of the cluster autoscaler."""

from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Choice, Flag, Number, Text, Whole, WholeSeconds, WordList

ScaleUpRuleName = Literal["all", "any"]
RebalanceName = Literal["prefer", "replace", "ignore"]
ZonesKeptName = Literal["always", "prefer"]


def _share(default: float, help_text: str) -> float:
    return setting(Number(0, 1), default=default, example=str(default), group="Scaling", help_text=help_text)


def _count(default: int, most: int, help_text: str, least: int = 1) -> int:
    return setting(Whole(least, most), default=default, example=str(default), group="Scaling", help_text=help_text)


def _seconds(default: int, help_text: str) -> int:
    kind = WholeSeconds(0, 86_400)
    return setting(kind, default=default, example=str(default), group="Scaling", unit="seconds", help_text=help_text)


@dataclass(frozen=True, kw_only=True)
class ClusterSettings(Declaration):
    cluster_id: str = setting(
        Text("a name of letters, digits, _ . and -", r"[A-Za-z0-9_.-]{1,100}"),
        default="cluster",
        example="cluster",
        group="Scaling",
        help_text="The cluster's name, and the key of its item in STATE_TABLE. Several clusters can share the tables.",
    )
    cpu_up: float = _share(0.70, "Scale up when the workers' average CPU use is at least this.")
    cpu_down: float = _share(0.30, "Scale down when the workers' average CPU use is below this.")
    pending_up_sec: int = _seconds(180, "Scale up when pods have been pending for this long.")
    idle_down_sec: int = _seconds(600, "Scale down when the cluster has been idle for this long.")
    cooldown_up_sec: int = _seconds(300, "How long to wait after a completed action before scaling up.")
    cooldown_down_sec: int = _seconds(600, "How long to wait after a completed action before scaling down.")
    min_workers: int = _count(
        2,
        1000,
        "The minimum number of workers. Missing workers are launched at once. A minimum below the number of zones with "
        "workers is not reached by scaling down, unless ZONES_KEPT is prefer.",
        least=0,
    )
    max_workers: int = _count(10, 1000, "The maximum number of workers.")
    pods_per_node: int = _count(10, 1000, "Launch one worker for this many pending pods.")
    max_batch_up: int = _count(2, 100, "The maximum number of workers to launch in one action.")
    max_batch_down: int = _count(1, 100, "The maximum number of workers to remove in one action.")
    join_timeout_sec: int = _seconds(600, "Terminate a new worker that has not joined the cluster after this long.")
    drain_sec: int = _seconds(300, "Uncordon a node that is not drained after this long.")
    stuck_sec: int = _seconds(900, "Abort a scale-down that takes longer than this.")
    not_ready_sec: int = _seconds(900, "Replace a node that has been NotReady for this long; 0 means never.")
    newest_kept_sec: int = _seconds(
        600, "Keep the newest worker for this long after it joined, even if the cluster is idle; 0 means not at all."
    )
    zones_kept: ZonesKeptName = setting(
        Choice(get_args(ZonesKeptName)),
        default="always",
        example="prefer",
        group="Scaling",
        help_text="Never scale a zone down to zero while several zones have workers (always), or only once each of "
        "them is down to one worker and there are still more than MIN_WORKERS (prefer).",
    )
    scale_up_rule: ScaleUpRuleName = setting(
        Choice(get_args(ScaleUpRuleName)),
        default="all",
        example="any",
        group="Scaling",
        help_text="Scale up when CPU is high and pods are pending (all), or when either is true (any).",
    )
    rebalance: RebalanceName = setting(
        Choice(get_args(RebalanceName)),
        default="prefer",
        example="replace",
        group="Scaling",
        help_text="After a rebalance recommendation, remove the worker first at the next scale-down (prefer), "
        "replace it now (replace), or do nothing (ignore).",
    )
    instance_types: tuple[str, ...] = setting(
        WordList("a list of instance types", r"[a-z0-9-]+\.[a-z0-9-]+"),
        default=("t3.medium", "t3a.medium"),
        example="t3.medium,t3a.medium",
        group="Machines",
        help_text="The instance types to launch, in order of preference.",
    )
    use_spot: bool = setting(
        Flag(),
        default=True,
        example="false",
        group="Machines",
        help_text="Try spot before on-demand.",
    )
    evict_local_storage: bool = setting(
        Flag(),
        default=True,
        example="false",
        group="Draining",
        help_text="Whether to evict pods with local data (emptyDir); the data is lost.",
    )
    evict_unmanaged: bool = setting(
        Flag(),
        default=False,
        example="true",
        group="Draining",
        help_text="Whether to evict pods without a controller; they are not recreated.",
    )
