# ruff: noqa: RUF009  setting() makes a dataclass field, anew each time
"""The settings of the cluster autoscaler. Names and defaults are the seeds'."""

from dataclasses import dataclass
from typing import Literal, get_args

from holdfast.kernel.settings.declaring import Declaration, setting
from holdfast.kernel.settings.kinds import Choice, Flag, Number, Text, Whole, WholeSeconds, Words

ScaleUpRuleName = Literal["all", "any"]
RebalanceName = Literal["prefer", "replace", "ignore"]


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
        help_text="The cluster's name: the key of its item in STATE_TABLE. Several clusters can share the tables.",
    )
    cpu_up: float = _share(0.70, "Go up when the workers' average CPU use is at least this.")
    cpu_down: float = _share(0.30, "Go down when the workers' average CPU use is below this.")
    pending_up_sec: int = _seconds(180, "Go up when pods have waited for this long.")
    idle_down_sec: int = _seconds(600, "Go down when the cluster has idled for this long.")
    cooldown_up_sec: int = _seconds(300, "After a completed action, wait this long before going up.")
    cooldown_down_sec: int = _seconds(600, "After a completed action, wait this long before going down.")
    min_workers: int = _count(2, 1000, "Never fewer workers than this; fewer are brought up to it at once.", least=0)
    max_workers: int = _count(10, 1000, "Never more workers than this.")
    pods_per_node: int = _count(10, 1000, "How many waiting pods one new worker is launched for.")
    max_batch_up: int = _count(2, 100, "The most workers that one action launches.")
    max_batch_down: int = _count(1, 100, "The most workers that one action takes away.")
    join_timeout_sec: int = _seconds(600, "A machine that has not joined the cluster by then is terminated.")
    drain_sec: int = _seconds(300, "A node that is not drained by then is opened again.")
    stuck_sec: int = _seconds(900, "A scale-down that lasts longer is given up.")
    not_ready_sec: int = _seconds(900, "A node that is NotReady for this long is replaced; 0: never.")
    scale_up_rule: ScaleUpRuleName = setting(
        Choice(get_args(ScaleUpRuleName)),
        default="all",
        example="any",
        group="Scaling",
        help_text="Go up when CPU is high and pods wait (all), or when either is so (any).",
    )
    rebalance: RebalanceName = setting(
        Choice(get_args(RebalanceName)),
        default="prefer",
        example="replace",
        group="Scaling",
        help_text="A machine that EC2 may soon take leaves first (prefer), is replaced (replace), or is left (ignore).",
    )
    instance_types: tuple[str, ...] = setting(
        Words("a list of instance types", r"[a-z0-9-]+\.[a-z0-9-]+"),
        default=("t3.medium", "t3a.medium"),
        example="t3.medium,t3a.medium",
        group="Machines",
        help_text="The instance types to launch, the best first.",
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
        help_text="Whether pods with data on the node may be evicted; the data is lost.",
    )
    evict_unmanaged: bool = setting(
        Flag(),
        default=False,
        example="true",
        group="Draining",
        help_text="Whether pods that nothing would make again may be evicted.",
    )
