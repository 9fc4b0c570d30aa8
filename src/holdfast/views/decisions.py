"""The decision log as `holdfast explain`, the API and the console show it: what each tick saw, decided and did."""

import re
from collections.abc import Mapping
from itertools import islice
from typing import Annotated, Final, Literal

from msgspec import UNSET, Meta, UnsetType, field

from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.decision_log import Entry, Summary
from holdfast.control.rules import Verdict
from holdfast.control.steps import step_words
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Amount, Count, OpenShape, Shape, Time
from holdfast.kernel.text import cut, some
from holdfast.ports.store import Store

PAGE_MOST: Final = 200
StepKind = Annotated[str, Meta(pattern="^[a-z_]+$")]
_CURSOR: Final = re.compile(r"[0-9]{13}#[a-z-]{1,20}#[!-~]{1,200}", re.ASCII)


class RuleResult(Shape, frozen=True, kw_only=True):
    """A rule's verdict at a tick: the value it saw, and the limit it compared that with."""

    name: str
    verdict: Verdict
    value: str
    limit: str
    group: str | UnsetType = UNSET
    details: list[str] | UnsetType = UNSET  # one line each: the workers that stay, the pods that fit nowhere


class StepTaken(OpenShape, frozen=True, kw_only=True):
    """A step of a tick. Each kind has attributes of its own, such as `instance`."""

    kind: StepKind
    because: str

    @property
    def subject(self) -> object:
        """The machine or the node that it is about."""
        return self.extra.get("instance") or self.extra.get("node")

    def words(self) -> str:
        return step_words(self.kind, self.because, self.extra.get("instance"))


class PendingSummary(Shape, frozen=True, kw_only=True):
    pods: Count
    oldest_seconds: Count

    def words(self) -> str:
        return f"{some(self.pods, 'pod')}, the oldest for {self.oldest_seconds} s" if self.pods else "no pods"


class ReadyNodes(Shape, frozen=True, kw_only=True):
    """Ready nodes according to Prometheus, while Kubernetes does not answer."""

    nodes: Count
    workers: Count


class TickObserved(Shape, frozen=True, kw_only=True):
    """What a tick observed before it did anything. What could not be read is None, and `unknown` says why."""

    workers: Count
    expected: Count
    cpu: Amount | None
    pending: PendingSummary | None
    nodes: Count | None
    ready_elsewhere: ReadyNodes | None
    unknown: dict[Literal["cpu", "pending", "nodes"], str]
    action: str | None
    phase: str | None
    notices: Count
    paused: bool
    fence: Count

    def words(self) -> dict[str, str]:
        """Each value in a few words."""
        nodes = self._unknown("nodes") if self.nodes is None else str(self.nodes)
        if self.ready_elsewhere is not None:
            ready, ours = self.ready_elsewhere.nodes, self.ready_elsewhere.workers
            nodes += f"; Prometheus sees {ready} Ready, {ours} of them our workers"
        return {
            "workers": str(self.workers),
            "expected": str(self.expected),
            "cpu": self._unknown("cpu") if self.cpu is None else f"{self.cpu:.2f}",
            "pending": self._unknown("pending") if self.pending is None else self.pending.words(),
            "nodes": nodes,
            "action": self.action or "none",
            "phase": self.phase or "none",
            "notices": str(self.notices),
            "paused": "yes" if self.paused else "no",
            "fence": str(self.fence),
        }

    def _unknown(self, name: Literal["cpu", "pending", "nodes"]) -> str:
        why = self.unknown.get(name)
        return f"unknown: {why}" if why else "unknown"


class DecisionEntry(Shape, frozen=True, kw_only=True):
    """An entry of the log: a tick; or that ticks failed, or that a person paused or resumed (`stopped` says it)."""

    at: Time
    kind: str
    seen: TickObserved | None
    rules: list[RuleResult]
    steps: list[StepTaken]
    stopped: str | None
    messages: list[str] = field(name="told")
    ticks: Count


class DecisionPage(Shape, frozen=True, kw_only=True):
    items: list[DecisionEntry]
    cursor: str | None


def decisions(
    store: Store, cluster: ClusterId, since: Instant, until: Instant, cursor: str | None = None
) -> DecisionPage:
    """A page of the log, oldest first. A cursor continues after the previous page."""
    if cursor is not None and not _CURSOR.fullmatch(cursor):
        raise BadRequest(f"{cut(cursor)!r} is not a cursor; use the one of the previous page unchanged")
    found = list(islice(cluster_log(store, cluster).entries(since, until, cursor), PAGE_MOST + 1))
    page = found[:PAGE_MOST]
    return DecisionPage(items=list(map(decision_of, page)), cursor=page[-1].key if len(found) > PAGE_MOST else None)


def all_decisions(store: Store, cluster: ClusterId, since: Instant, until: Instant) -> DecisionPage:
    return DecisionPage(
        items=[decision_of(entry) for entry in cluster_log(store, cluster).entries(since, until)], cursor=None
    )


def decision_of(entry: Entry) -> DecisionEntry:
    return DecisionEntry(
        at=entry.at.iso(),
        kind=entry.kind,
        seen=None if entry.seen is None else observed(entry.seen),
        rules=[rule_result(rule) for rule in entry.rules],
        steps=[step_taken(step) for step in entry.steps],
        stopped=entry.stopped,
        messages=entry.reports,
        ticks=entry.ticks,
    )


def rule_result(rule: Mapping[str, str | list[str]]) -> RuleResult:
    details = rule.get("details")
    return RuleResult(
        name=str(rule["name"]),
        verdict=Verdict(str(rule["verdict"])),
        value=str(rule["value"]),
        limit=str(rule["limit"]),
        group=str(rule["group"]) if "group" in rule else UNSET,
        details=details if isinstance(details, list) else UNSET,
    )


def step_taken(step: Mapping[str, object]) -> StepTaken:
    extra = {name: value for name, value in step.items() if name not in ("kind", "because")}
    return StepTaken(kind=str(step.get("kind", "")), because=str(step.get("because", "")), extra=extra)


def observed(seen: Summary) -> TickObserved:
    pending, elsewhere = seen["pending"], seen["ready_elsewhere"]
    return TickObserved(
        workers=seen["workers"],
        expected=seen["expected"],
        cpu=seen["cpu"],
        pending=pending and PendingSummary(pods=pending["pods"], oldest_seconds=pending["oldest_seconds"]),
        nodes=seen["nodes"],
        ready_elsewhere=elsewhere and ReadyNodes(nodes=elsewhere["nodes"], workers=elsewhere["workers"]),
        unknown=seen["unknown"],
        action=seen["action"],
        phase=seen["phase"],
        notices=seen["notices"],
        paused=seen["paused"],
        fence=seen["fence"],
    )
