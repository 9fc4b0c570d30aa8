"""The rules' numbers, as settings give them. Units are in the names."""

from dataclasses import dataclass
from enum import StrEnum


class ScaleUpRule(StrEnum):
    ALL = "all"  # CPU is high and pods wait
    ANY = "any"  # either is enough


class Rebalance(StrEnum):
    """What a rebalance recommendation leads to."""

    PREFER = "prefer"  # the machine is the first to leave, when one leaves anyway
    REPLACE = "replace"  # launch, join, then drain and terminate
    IGNORE = "ignore"


@dataclass(frozen=True, slots=True)
class Policy:
    """What an operator chose. The defaults are the seeds'."""

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
    not_ready_seconds: int = 900  # 0: nodes that are NotReady are left to people
    scale_up_rule: ScaleUpRule = ScaleUpRule.ALL
    rebalance: Rebalance = Rebalance.PREFER
