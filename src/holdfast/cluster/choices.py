"""What an operator chose beside the numbers."""

from dataclasses import dataclass

from holdfast.cluster.drain import DrainRules


@dataclass(frozen=True, slots=True)
class Choices:
    """What an operator chose beside the numbers: what to launch, and what a drain may move."""

    instance_types: tuple[str, ...]
    use_spot: bool = True
    drain: DrainRules = DrainRules()  # noqa: RUF009 -- frozen
