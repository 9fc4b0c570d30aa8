"""The cluster's last hours, for the time line: read from the decision log once, and then only what is new in it."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from holdfast.cluster.action_names import action_owner
from holdfast.cluster.log import FAILURE_KIND, TICK_KIND, Entry, entries
from holdfast.cluster.state import DownPhase, UpPhase
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Store

HOURS_MOST: Final = 24
_TICK_NUMBER: Final = re.compile(r"\.[0-9]+$")
_TOLD_SHOWN: Final = 2
# What a short list leaves out: how a launch was begun, where what came of it is told, and changes of a phase.
_BEHIND: Final = frozenset({"launch_slot", "launch_replacement", "enter_phase", "enter_spot_phase"})
# What it has once, though it was tried and told at each tick.
_REPEATED: Final = frozenset({"told", "evict_pods", "evict_interrupted"})
# Entries of a slower process come late. One for ticks that failed is changed for a while: `entries` begins with it.
_OVERLAP_SECONDS: Final = 60
_ENDS: Final = {
    "complete_scale_up": ("up", "done"),
    "fail_scale_up": ("up", "failed"),
    "complete_scale_down": ("down", "done"),
    "clear_scale_down": ("down", "given up"),
}
_BEGINS: Final = {"begin_scale_up": "up", "begin_scale_down": "down"}
_DIRECTIONS: Final = {
    **dict.fromkeys(map(str, UpPhase), "up"),
    **dict.fromkeys(map(str, DownPhase), "down"),
}
_MARKS: Final = {
    "cordon_interrupted": "spot",
    "launch_replacement": "replacement",
    "replace_not_ready": "not-ready",
    "collect_machine": "collected",
    "repair": "repair",
}


@dataclass(frozen=True, slots=True)
class Moment:
    """One tick, as far as the time line needs it. None: it was not known."""

    at: Instant
    kind: str
    workers: int | None
    pending: int | None
    cpu: float | None
    steps: tuple[tuple[str, str], ...]  # kind, because
    told: tuple[str, ...]
    stopped: str | None
    key: str = ""  # its place in the log
    direction: str | None = None  # of the action that was under way
    begun_by: str | None = None  # the process that had begun that action, if it was one of ours

    @property
    def process(self) -> str:
        """Who ticked, without the number of the tick."""
        return _process_of(self.key.rpartition("#")[2])

    @property
    def left(self) -> str | None:
        """The direction of the action that it left under way: it may have begun it itself, or ended it."""
        for kind, _ in reversed(self.steps):
            if kind in _BEGINS or kind in _ENDS:
                return _BEGINS.get(kind)
        return self.direction

    def point(self) -> dict[str, Any]:
        return {"at": self.at.iso(), "workers": self.workers, "pending": self.pending, "cpu": self.cpu}


class ClusterHistory:
    """Asked from several threads; the log is read by one of them at a time."""

    def __init__(self, store: Store, cluster: ClusterId) -> None:
        self._store = store
        self._cluster = cluster
        self._lock = Lock()
        self._known: dict[str, Moment] = {}
        self._span: tuple[Instant, Instant] | None = None

    def since(self, begin: Instant, now: Instant) -> list[Moment]:
        """The moments from `begin` on, the oldest first."""
        with self._lock:
            for start, end in self._unread(begin, now):
                for entry in entries(self._store, self._cluster, start, end):
                    moment = moment_of(entry)
                    self._known[moment.key] = moment
            self._span = (min(begin, self._span[0]) if self._span else begin, now)
            self._forget(now)
            found = [moment for moment in self._known.values() if moment.at >= begin]
        return sorted(found, key=lambda moment: moment.at)

    def _unread(self, begin: Instant, now: Instant) -> list[tuple[Instant, Instant]]:
        if self._span is None or begin > self._span[1]:
            return [(begin, now)]
        first, last = self._span
        older = [(begin, first)] if begin < first else []
        return [*older, (max(begin, last.plus(-_OVERLAP_SECONDS)), now)]

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
        steps=tuple((str(step.get("kind", "")), _reason(step)) for step in entry.steps),
        told=tuple(entry.told),
        stopped=entry.stopped,
        key=entry.key,
        direction=_DIRECTIONS.get(seen.get("phase") or ""),
        begun_by=_process_of(action_owner(seen.get("action") or "")) or None,
    )


def _process_of(owner: str) -> str:
    return _TICK_NUMBER.sub("", owner)


def _reason(step: Mapping[str, Any]) -> str:
    """Why, and of which machine."""
    about, because = step.get("instance") or step.get("node"), str(step.get("because", ""))
    return f"{about}: {because}" if about else because


def spans(moments: Iterable[Moment]) -> list[dict[str, Any]]:
    """Actions from begin to end; `end` is None while one is under way.

    They follow from the steps. A tick that was cut short may have logged none: what the others saw fills in for it.
    """
    found: list[dict[str, Any]] = []
    for moment in moments:
        at, kinds = moment.at.iso(), {kind for kind, _ in moment.steps}
        for kind, because in moment.steps:
            if kind in _BEGINS:
                found.append(_span(_BEGINS[kind], at, because))
            elif kind in _ENDS:
                direction, result = _ENDS[kind]
                if not _is_open(found):
                    found.append(_span(direction, at, because))
                found[-1] |= {"end": at, "result": result}
        if moment.direction and not _is_open(found) and not kinds & _ENDS.keys():
            found.append(_span(moment.direction, at, "it was under way"))
        elif moment.kind == TICK_KIND and not moment.direction and _is_open(found) and not kinds & _BEGINS.keys():
            found[-1] |= {"end": at, "result": "ended"}
    return found


def _span(direction: str, at: str, because: str) -> dict[str, Any]:
    return {"kind": direction, "begin": at, "end": None, "result": None, "because": because}


def _is_open(found: list[dict[str, Any]]) -> bool:
    return bool(found) and found[-1]["end"] is None


def marks(moments: Iterable[Moment]) -> list[dict[str, Any]]:
    """What happens in a moment: spot takes a machine, a replacement is launched, …"""
    return [
        {"kind": _MARKS[kind], "at": moment.at.iso(), "because": because}
        for moment in moments
        for kind, because in moment.steps
        if kind in _MARKS
    ]


def latest(moments: Sequence[Moment], most: int | None) -> list[dict[str, Any]]:
    """What was done and told, the newest first, a line each. A short list has less of what goes on behind it."""
    found: list[dict[str, Any]] = []
    taken_over = _taken_over(moments)
    for moment in reversed(moments):
        at = moment.at.iso()
        if moment.kind != TICK_KIND:
            kind = "no_tick" if moment.kind == FAILURE_KIND else moment.kind
            found.append({"at": at, "kind": kind, "text": moment.stopped or ""})
        else:
            if moment.stopped:
                found.append({"at": at, "kind": "stopped", "text": moment.stopped})
            found += [{"at": at, "kind": "told", "text": text} for text in _few(moment.told, most)]
            found += [
                {"at": at, "kind": kind, "text": because}
                for kind, because in reversed(moment.steps)
                if most is None or kind not in _BEHIND
            ]
            if moment.key in taken_over:
                found.append({"at": at, "kind": "taken_over", "text": taken_over[moment.key]})
        if most is not None:
            found = _once(found)
            if len(found) >= most:
                return found[:most]
    return found


def _once(events: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """What is tried again and again, and told each time, is there once: the newest time."""
    found: dict[tuple[str, ...], dict[str, Any]] = {}
    for event in events:
        is_repeated = event["kind"] in _REPEATED
        found.setdefault((event["kind"], event["text"], "" if is_repeated else event["at"]), event)
    return list(found.values())


def _few(told: tuple[str, ...], most: int | None) -> list[str]:
    """In a short list, a tick with many words gets two lines and how many more there are."""
    if most is None or len(told) <= _TOLD_SHOWN + 1:
        return list(told)
    return [*told[:_TOLD_SHOWN], f"and {len(told) - _TOLD_SHOWN} more like that"]


def _taken_over(moments: Iterable[Moment]) -> dict[str, str]:
    """Ticks that carried on what another process had begun, by their key: that one was killed, or lost the lease.

    One that ticked only once is no sign of it: a schedule starts a process for each tick. One that died before it could
    log that it had begun something is known by the name of what it began.
    """
    found: dict[str, str] = {}
    before: Moment | None = None
    in_a_row = 0
    for moment in moments:
        if moment.kind != TICK_KIND:
            continue
        if before is not None and before.process != moment.process:
            was_theirs = before.left == moment.direction or moment.begun_by == before.process
            if in_a_row > 1 and moment.direction and was_theirs:
                begun_by = moment.begun_by or before.process
                found[moment.key] = f"{moment.process} carries on with scale-{moment.direction}, begun by {begun_by}"
            in_a_row = 0
        before, in_a_row = moment, in_a_row + 1
    return found
