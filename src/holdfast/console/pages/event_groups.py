"""The page of events: what belongs together is one group, and what each tick repeated is one line.

begin_scale_up … complete_scale_up        an action, from its beginning to its end
cordon_interrupted … close_notice         a worker that leaves, with what was reported about it
evict_pods, evict_pods, evict_pods        one line: how often, and since when
"""

from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from typing import Final

from holdfast.cluster.steps import STEP_KINDS, CloseNotice
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.views.cluster_history import ClusterEvent

_REPORT: Final = "told"


class EventRow(Shape, frozen=True, kw_only=True):
    """An event, and its repetitions before it: `times` in total, since `since`."""

    event: ClusterEvent
    times: Count
    since: Time


class EventGroup(Shape, frozen=True, kw_only=True):
    """Events of one action (`action` is its direction), of a worker that leaves, or a single event; newest first."""

    action: str | None = None
    leaving: str | None = None
    items: list[ClusterEvent]

    @property
    def rows(self) -> list[EventRow]:
        """A step that each tick repeats has another text each time, such as fewer pods: the newest is shown."""
        found: dict[tuple[str, ...], EventRow] = {}
        for number, event in enumerate(self.items):
            before = found.get(key := _sameness(event, number))
            found[key] = EventRow(
                event=before.event if before else event, times=before.times + 1 if before else 1, since=event.at
            )
        return list(found.values())


def grouped(events: Sequence[ClusterEvent]) -> list[EventGroup]:
    """Groups in the order of their newest events. Events are newest first."""
    of_leaving, others = _by_leaving(events)
    position = {id(event): number for number, event in enumerate(events)}
    return sorted([*of_leaving, *by_action(others)], key=lambda group: position[id(group.items[0])])


def by_action(events: Sequence[ClusterEvent]) -> list[EventGroup]:
    """What happened from the beginning of an action to its end, together. Events are newest first.

    An action that began before the list, or has not ended, has the events that there are.
    """
    found: list[EventGroup] = []
    action: str | None = None
    items: list[ClusterEvent] = []
    for event in events:
        step = STEP_KINDS.get(event.kind)
        if step is not None and step.ends:
            found, action, items = [*found, *_of_action(action, items)], str(step.ends), []
        items.append(event)
        if step is not None and step.begins:
            found, action, items = [*found, *_of_action(str(step.begins), items)], None, []
    return [*found, *_of_action(action, items)]


def _of_action(action: str | None, items: list[ClusterEvent]) -> list[EventGroup]:
    if action is None:
        return [EventGroup(items=[event]) for event in items]
    return [EventGroup(action=action, items=items)]


def _by_leaving(events: Sequence[ClusterEvent]) -> tuple[list[EventGroup], list[ClusterEvent]]:
    """The events of each worker that leaves, and all others."""
    since = {_machine(event): event.at for event in events if _is_of_leaving(event)}  # the oldest remains
    of_machine: dict[str, list[ClusterEvent]] = {machine: [] for machine in since}
    others: list[ClusterEvent] = []
    for event in events:
        of_machine.get(_machine_meant(event, since), others).append(event)
    return [group for machine, items in of_machine.items() for group in _of_notices(machine, items)], others


def _of_notices(machine: str, items: list[ClusterEvent]) -> Iterator[EventGroup]:
    """A group for each notice: EC2's hint may expire, and hours later the machine is interrupted."""
    ends = [number for number, event in enumerate(items) if number and event.kind == CloseNotice.kind]
    for begin, end in pairwise([0, *ends, len(items)]):
        part = items[begin:end]
        yield EventGroup(leaving=machine if len(part) > 1 else None, items=part)


def _machine_meant(event: ClusterEvent, leaving_since: Mapping[str, str]) -> str:
    """The worker that the event is about, and that was leaving already; "" if there is none."""
    if event.kind == _REPORT:
        words = event.text.replace(":", " ").split()
        return next((machine for machine, since in leaving_since.items() if machine in words and event.at >= since), "")
    return _machine(event) if _is_of_leaving(event) else ""


def _is_of_leaving(event: ClusterEvent) -> bool:
    step = STEP_KINDS.get(event.kind)
    return step is not None and step.is_of_leaving


def _machine(event: ClusterEvent) -> str:
    """The machine of a step: the text of its event begins with it."""
    return event.text.partition(":")[0]


def _sameness(event: ClusterEvent, number: int) -> tuple[str, ...]:
    step = STEP_KINDS.get(event.kind)
    if step is not None and step.is_repeated:
        return event.kind, _machine(event)
    return (event.kind, event.text) if event.kind == _REPORT else (event.kind, event.text, str(number))
