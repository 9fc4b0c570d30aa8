"""What an operator chose beside the numbers."""

from msgspec import Struct

from holdfast.cluster.drain import DrainRules


class Choices(Struct, frozen=True):
    """What an operator chose beside the numbers: what to launch, and what a drain may move."""

    instance_types: tuple[str, ...]
    use_spot: bool = True
    drain: DrainRules = DrainRules()
