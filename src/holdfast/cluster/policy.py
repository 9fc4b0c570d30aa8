"""The operator's settings: the rules' limits, what to launch, and which pods a drain may evict."""

from dataclasses import dataclass
from enum import StrEnum

from msgspec import Struct

from holdfast.cluster.drain import DrainRules
from holdfast.kernel.settings import Settings


class ScaleUpRule(StrEnum):
    ALL = "all"  # CPU is high and pods are pending
    ANY = "any"  # one of them is enough


class Rebalance(StrEnum):
    """What to do about a rebalance recommendation."""

    PREFER = "prefer"  # choose the machine first in the next scale-down
    REPLACE = "replace"  # launch a replacement; when it has joined, drain and terminate the machine
    IGNORE = "ignore"


class ZonesKept(StrEnum):
    """Whether a scale-down may remove the last worker of one of several zones."""

    ALWAYS = "always"  # no: the minimum is never reached while it is below the number of zones in use
    PREFER = "prefer"  # only if every other zone is down to one worker, too


@dataclass(frozen=True, slots=True)
class Policy:
    """The rules' limits. The defaults are those of the seeds."""

    cpu_up: float = 0.70
    cpu_down: float = 0.30
    pending_up_seconds: int = 180
    idle_down_seconds: int = 600
    cooldown_up_seconds: int = 300
    cooldown_down_seconds: int = 600
    min_workers: int = 2
    max_workers: int = 10
    pods_per_node: int = 10
    max_batch_up: int = 2
    max_batch_down: int = 1
    join_timeout_seconds: int = 600
    drain_seconds: int = 300
    stuck_seconds: int = 900
    not_ready_seconds: int = 900  # 0: NotReady nodes are not replaced
    newest_kept_seconds: int = 600  # 0: the newest worker is not protected
    scale_up_rule: ScaleUpRule = ScaleUpRule.ALL
    rebalance: Rebalance = Rebalance.PREFER
    zones_kept: ZonesKept = ZonesKept.ALWAYS


class Choices(Struct, frozen=True):
    """What to launch, and which pods a drain may evict."""

    instance_types: tuple[str, ...]
    use_spot: bool = True
    drain: DrainRules = DrainRules()


def policy_of(settings: Settings) -> Policy:
    return Policy(
        cpu_up=settings.cpu_up,
        cpu_down=settings.cpu_down,
        pending_up_seconds=settings.pending_up_sec,
        idle_down_seconds=settings.idle_down_sec,
        cooldown_up_seconds=settings.cooldown_up_sec,
        cooldown_down_seconds=settings.cooldown_down_sec,
        min_workers=settings.min_workers,
        max_workers=settings.max_workers,
        pods_per_node=settings.pods_per_node,
        max_batch_up=settings.max_batch_up,
        max_batch_down=settings.max_batch_down,
        join_timeout_seconds=settings.join_timeout_sec,
        drain_seconds=settings.drain_sec,
        stuck_seconds=settings.stuck_sec,
        not_ready_seconds=settings.not_ready_sec,
        newest_kept_seconds=settings.newest_kept_sec,
        scale_up_rule=ScaleUpRule(settings.scale_up_rule),
        rebalance=Rebalance(settings.rebalance),
        zones_kept=ZonesKept(settings.zones_kept),
    )


def choices_of(settings: Settings) -> Choices:
    rules = DrainRules(evict_local_storage=settings.evict_local_storage, evict_unmanaged=settings.evict_unmanaged)
    return Choices(settings.instance_types, use_spot=settings.use_spot, drain=rules)
