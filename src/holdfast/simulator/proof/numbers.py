"""The settings of a simulated cluster, as the checkers know them."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Numbers:
    """Each field is named like its setting, in lower case."""

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
    scale_up_rule: str = "any"
    rebalance: str = "prefer"
    newest_kept_seconds: int = 600
    zones_kept: str = "always"
