"""From settings to the cluster's policy."""

from holdfast.cluster.choices import Choices
from holdfast.cluster.drain import DrainRules
from holdfast.cluster.policy import Policy, Rebalance, ScaleUpRule
from holdfast.kernel.settings import Settings


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
        scale_up_rule=ScaleUpRule(settings.scale_up_rule),
        rebalance=Rebalance(settings.rebalance),
    )


def choices_of(settings: Settings) -> Choices:
    rules = DrainRules(evict_local_storage=settings.evict_local_storage, evict_unmanaged=settings.evict_unmanaged)
    return Choices(settings.instance_types, use_spot=settings.use_spot, drain=rules)
