"""The cluster's last hours, for the time line and the lists of events.

The decision log is read once, and after that only its new entries.
"""

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from msgspec import structs

from holdfast.cluster.state import DownPhase, UpPhase
from holdfast.cluster.steps import STEP_KINDS
from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.action_ids import action_owner
from holdfast.control.decision_log import FAILURE_KIND, TICK_KIND, Entry
from holdfast.control.steps import Direction
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.ports.store import Store
from holdfast.views.decisions import StepTaken, step_taken

HOURS_MOST: Final = 24
_TICK_NUMBER: Final = re.compile(r"\.[0-9]+$")
_MESSAGES_SHOWN: Final = 2
# Left out of a short list: the start of a launch, whose outcome is in the list, and changes of phase.
_DETAILS: Final = frozenset(kind for kind, step in STEP_KINDS.items() if step.is_detail)
# Retried at each tick; a short list shows the newest attempt.
_REPEATED: Final = frozenset({"told", *(kind for kind, step in STEP_KINDS.items() if step.is_repeated)})
# Entries of a slower process come late, and the entry of ticks that failed changes for five minutes.
_OVERLAP_SECONDS: Final = 60

_ENDS: Final = {kind: (step.ends, step.result or "") for kind, step in STEP_KINDS.items() if step.ends}
_BEGINS: Final = {kind: step.begins for kind, step in STEP_KINDS.items() if step.begins}
_MARKS: Final = {kind: step.mark for kind, step in STEP_KINDS.items() if step.mark}
_DIRECTIONS: Final = {
    **dict.fromkeys(map(str, UpPhase), Direction.UP),
    **dict.fromkeys(map(str, DownPhase), Direction.DOWN),
}


class TimelinePoint(Shape, frozen=True, kw_only=True):
    """What a tick observed; None: unknown."""

    at: Time
    workers: Count | None
    pending: Count | None
    cpu: float | None


class ActionSpan(Shape, frozen=True, kw_only=True):
    """A scale-up or scale-down; `end` is None while it is in progress."""

    kind: Direction
    begin: Time | None
    end: Time | None
    result: str | None
    because: str


class TimelineMark(Shape, frozen=True, kw_only=True):
    """Something that happened at one moment: a spot interruption, a replacement."""

    kind: str
    at: Time
    because: str


class ClusterEvent(Shape, frozen=True, kw_only=True):
    """A line of the list of events."""

    at: Time
    kind: str
    text: str


@dataclass(frozen=True, slots=True)
class Moment:
    """An entry of the log, reduced to what the time line needs. None: unknown."""

    at: Instant
    kind: str
    workers: int | None
    pending: int | None
    cpu: float | None
    steps: tuple[tuple[str, str], ...]  # kind, because
    messages: tuple[str, ...]
    stopped: str | None
    key: str = ""  # its key in the log
    direction: Direction | None = None  # of the action in progress when the tick began
    begun_by: str | None = None  # the process that began that action, if it was one of ours

    @property
    def process(self) -> str:
        """The process that ticked, without the number of the tick."""
        return _process_of(self.key.rpartition("#")[2])

    @property
    def direction_after(self) -> Direction | None:
        """The direction of the action in progress when the tick ended; the tick may have begun or ended one."""
        for kind, _ in reversed(self.steps):
            if kind in _BEGINS or kind in _ENDS:
                return _BEGINS.get(kind)
        return self.direction

    def point(self) -> TimelinePoint:
        return TimelinePoint(at=self.at.iso(), workers=self.workers, pending=self.pending, cpu=self.cpu)


class ClusterHistory:
    """Safe to use from several threads; one of them reads the log at a time."""

    def __init__(self, store: Store, cluster: ClusterId) -> None:
        self._store = store
        self._cluster = cluster
        self._lock = Lock()
        self._known: dict[str, Moment] = {}
        self._span: tuple[Instant, Instant] | None = None

    def since(self, begin: Instant, now: Instant) -> list[Moment]:
        """The moments since `begin`, oldest first."""
        with self._lock:
            if self._span is not None and begin > self._span[1]:
                # No page was open for longer than the time line is. Two spans with an unread gap would count as one,
                # and a longer time line would show the gap as an outage.
                self._known, self._span = {}, None
            for start, end in self._unread(begin, now):
                for entry in cluster_log(self._store, self._cluster).entries(start, end):
                    moment = moment_of(entry)
                    self._known[moment.key] = moment
            self._span = (min(begin, self._span[0]) if self._span else begin, now)
            self._forget(now)
            found = [moment for moment in self._known.values() if moment.at >= begin]
        return sorted(found, key=lambda moment: moment.at)

    def _unread(self, begin: Instant, now: Instant) -> list[tuple[Instant, Instant]]:
        if self._span is None:
            return [(begin, now)]
        first, last = self._span
        older = [(begin, first)] if begin < first else []
        # From before `begin` too, if that is in the overlap: what came late there is in the span from now on.
        return [*older, (max(first, last.plus(-_OVERLAP_SECONDS)), now)]

    def _forget(self, now: Instant) -> None:
        oldest = now.plus(-HOURS_MOST * 3600)
        if self._span is not None and self._span[0] < oldest:
            self._known = {key: moment for key, moment in self._known.items() if moment.at >= oldest}
            self._span = (oldest, self._span[1])


def moment_of(entry: Entry) -> Moment:
    seen = entry.seen or {}
    return Moment(
        at=entry.at,
        kind=entry.kind,
        workers=seen.get("workers"),
        pending=(seen.get("pending") or {}).get("pods"),
        cpu=seen.get("cpu"),
        steps=tuple((step.kind, _reason(step)) for step in map(step_taken, entry.steps)),
        messages=tuple(entry.reports),
        stopped=entry.stopped,
        key=entry.key,
        direction=_DIRECTIONS.get(seen.get("phase") or ""),
        begun_by=_process_of(action_owner(seen.get("action") or "")) or None,
    )


def _process_of(owner: str) -> str:
    return _TICK_NUMBER.sub("", owner)


def _reason(step: StepTaken) -> str:
    """Why, and for which machine."""
    return f"{step.subject}: {step.because}" if step.subject else step.because


def action_spans(moments: Iterable[Moment]) -> list[ActionSpan]:
    """Actions from begin to end, according to the steps of the ticks.

    A tick that was cut short may have logged no steps; what later ticks observed fills the gap.
    """
    found: list[ActionSpan] = []
    for moment in moments:
        at, kinds = moment.at.iso(), {kind for kind, _ in moment.steps}
        for kind, because in moment.steps:
            if kind in _BEGINS:
                found.append(_open_span(_BEGINS[kind], at, because))
            elif kind in _ENDS:
                direction, result = _ENDS[kind]
                if not _is_open(found):
                    found.append(_open_span(direction, at, because))
                found[-1] = structs.replace(found[-1], end=at, result=result)
        if moment.direction and not _is_open(found) and not kinds & _ENDS.keys():
            found.append(_open_span(moment.direction, at, "already in progress"))
        elif moment.kind == TICK_KIND and not moment.direction and _is_open(found) and not kinds & _BEGINS.keys():
            found[-1] = structs.replace(found[-1], end=at, result="ended")
    return found


def _open_span(direction: Direction, at: str, because: str) -> ActionSpan:
    return ActionSpan(kind=direction, begin=at, end=None, result=None, because=because)


def _is_open(found: list[ActionSpan]) -> bool:
    return bool(found) and found[-1].end is None


def timeline_marks(moments: Iterable[Moment]) -> list[TimelineMark]:
    return [
        TimelineMark(kind=_MARKS[kind], at=moment.at.iso(), because=because)
        for moment in moments
        for kind, because in moment.steps
        if kind in _MARKS
    ]


def recent_events(moments: Sequence[Moment], limit: int | None) -> list[ClusterEvent]:
    """What was done and reported, newest first. A list with a limit leaves out details and repetitions."""
    found: list[ClusterEvent] = []
    takeovers = _takeovers(moments)
    for moment in reversed(moments):
        found += _events_of(moment, takeovers.get(moment.key), is_short=limit is not None)
        if limit is not None:
            found = _without_repetitions(found)
            if len(found) >= limit:
                return found[:limit]
    return found


def _events_of(moment: Moment, takeover: str | None, *, is_short: bool) -> list[ClusterEvent]:
    if moment.kind != TICK_KIND:
        texts = [("no_tick" if moment.kind == FAILURE_KIND else moment.kind, moment.stopped or "")]
    else:
        texts = [("stopped", moment.stopped)] if moment.stopped else []
        texts += [("told", text) for text in (_first_messages(moment.messages) if is_short else moment.messages)]
        texts += [step for step in reversed(moment.steps) if not is_short or step[0] not in _DETAILS]
        texts += [("taken_over", takeover)] if takeover else []
    at = moment.at.iso()
    return [ClusterEvent(at=at, kind=kind, text=text) for kind, text in texts]


def _without_repetitions(events: Iterable[ClusterEvent]) -> list[ClusterEvent]:
    """Of what each tick retries and reports again, the newest."""
    found: dict[tuple[str, ...], ClusterEvent] = {}
    for event in events:
        found.setdefault((event.kind, event.text, "" if event.kind in _REPEATED else event.at), event)
    return list(found.values())


def _first_messages(messages: tuple[str, ...]) -> Sequence[str]:
    if len(messages) <= _MESSAGES_SHOWN + 1:
        return messages
    return [*messages[:_MESSAGES_SHOWN], f"and {len(messages) - _MESSAGES_SHOWN} more"]


def _takeovers(moments: Iterable[Moment]) -> dict[str, str]:
    """Ticks that continued an action of another process, which was killed or lost the lease; by their key.

    A process that ticked only once is no sign of that: a schedule starts a process for each tick. One that died before
    it could log the beginning of an action is known from the action's id.
    """
    found: dict[str, str] = {}
    previous: Moment | None = None
    ticks_in_a_row = 0
    for moment in moments:
        if moment.kind != TICK_KIND:
            continue
        if previous is not None and previous.process != moment.process:
            was_theirs = previous.direction_after == moment.direction or moment.begun_by == previous.process
            if ticks_in_a_row > 1 and moment.direction and was_theirs:
                begun_by = moment.begun_by or previous.process
                found[moment.key] = f"{moment.process} resumes the scale-{moment.direction} begun by {begun_by}"
            ticks_in_a_row = 0
        previous, ticks_in_a_row = moment, ticks_in_a_row + 1
    return found
