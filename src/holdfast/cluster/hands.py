"""What is acted through, and what every launch has in common."""

from collections.abc import Mapping

from msgspec import Struct

from holdfast.cluster.choices import Choices
from holdfast.kernel.errors import Retryable
from holdfast.ports.clock import Clock
from holdfast.ports.kube import Kube
from holdfast.ports.machines import Machines
from holdfast.ports.store import Store


class NotDone(Retryable):
    """A step was not done, and is asked for again at the next tick. `stops`: neither would the steps after it be."""

    def __init__(self, message: str, *, stops: bool = False) -> None:
        super().__init__(message)
        self.stops = stops


class Hands(Struct, frozen=True):
    """The ports that are acted through, and what every launch has in common."""

    store: Store
    clock: Clock
    machines: Machines
    kube: Kube
    tags: Mapping[str, str]
    template: str
    user_data: str
    choices: Choices
