"""Steps: what to do, as data, each with its reason.

`decide` returns them. Dry run, log, console and `explain` all show the same steps. How people are notified of a step
and how it looks on a time line are attributes of its class.
"""

from dataclasses import dataclass, fields
from enum import StrEnum
from typing import Any, ClassVar, Protocol, runtime_checkable

from holdfast.kernel.errors import Retryable
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant


class NotDone(Retryable):
    """A step was not carried out; the next tick retries it. `stops`: the steps after it would fail as well."""

    def __init__(self, message: str, *, stops: bool = False) -> None:
        super().__init__(message)
        self.stops = stops


class Direction(StrEnum):
    """Which way an action changes the number of workers."""

    UP = "up"
    DOWN = "down"


@dataclass(frozen=True, slots=True, kw_only=True)
class Step:
    because: str
    kind: ClassVar[str]

    # The notification that operators get when the step is done; none without a title.
    title: ClassVar[str | None] = None
    is_urgent: ClassVar[bool] = False
    # It ends an action in failure.
    is_failure: ClassVar[bool] = False
    # On the time line: it begins or ends an action, or has its own mark.
    begins: ClassVar[Direction | None] = None
    ends: ClassVar[Direction | None] = None
    result: ClassVar[str | None] = None
    mark: ClassVar[str | None] = None
    # In short lists of events: a detail is left out, a repeated step is shown once.
    is_detail: ClassVar[bool] = False
    is_repeated: ClassVar[bool] = False
    # In lists of events: it is about a machine that EC2 takes back, or that is replaced.
    is_of_leaving: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        """``LaunchSlot`` → ``launch_slot``."""
        letters = (f"_{letter.lower()}" if letter.isupper() else letter for letter in cls.__name__)
        cls.kind = "".join(letters).lstrip("_")

    def shown(self) -> dict[str, Any]:
        """For people and programs: the kind, the reason, and the step's own values."""
        values = {f.name: _shown(getattr(self, f.name)) for f in fields(self) if f.name != "because"}
        return {"kind": self.kind, "because": self.because, **values}

    def __str__(self) -> str:
        return step_words(self.kind, self.because, self.shown().get("instance"))


@dataclass(frozen=True, slots=True, kw_only=True)
class MachineStep(Step):
    """A step for one machine. Several ticks may try it; other steps are done once."""

    instance: InstanceId


@dataclass(frozen=True, slots=True, kw_only=True)
class UrgentStep(MachineStep):
    """A step that does not wait for the lease: a spot interruption leaves only two minutes."""

    is_of_leaving = True


@runtime_checkable
class _Stored(Protocol):
    def stored(self) -> dict[str, Any]: ...


def step_words(kind: str, because: str, instance: object) -> str:
    """A step in one line: what it does, to which machine if to one, and why."""
    return f"{kind}{f' {instance}' if instance else ''}: {because}"


def _shown(value: Any) -> Any:
    if isinstance(value, tuple):
        return [_shown(part) for part in value]
    if isinstance(value, Instant):
        return value.iso()
    if isinstance(value, str):
        return str(value)  # of an enum, its value
    # Last: a check against a protocol is slow.
    return value.stored() if not isinstance(value, int) and isinstance(value, _Stored) else value
