"""Rows that show ticks: what each did, or which rules held it back."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Final

from holdfast.cli.terminal.colours import Style, verdict_style
from holdfast.cli.terminal.layout import Cell
from holdfast.control.decision_log import SWITCH_KINDS

if TYPE_CHECKING:
    from holdfast.views.cluster_status import NoticeStatus
    from holdfast.views.decisions import DecisionEntry, RuleResult

RULE_COLUMNS: Final = ("RULE", "HOLDS", "SEEN", "LIMIT")
NOTICE_COLUMNS: Final = ("INSTANCE", "NOTICE", "PHASE", "SINCE", "UNTIL", "REPLACEMENT")
_OBSTACLES: Final = ("not_paused", "somewhere_to_launch", "every_pod_fits", "a_worker_may_leave")


def rule_row(rule: RuleResult) -> list[object]:
    return [rule.name, Cell(rule.verdict, verdict_style(rule.verdict)), rule.value, rule.limit]


def detail_lines(rules: Sequence[RuleResult]) -> Iterator[str]:
    """What a rule names one by one, a line each: workers that stay, pods that fit on no machine."""
    for rule in rules:
        for line in rule.details or ():
            yield f"{rule.name}: {line}"


def notice_row(notice: NoticeStatus) -> list[object]:
    """An instance that is leaving: its deadline, if known, and its replacement."""
    since, until = to_seconds(notice.since), to_seconds(notice.deadline or "-")
    phase = Cell(notice.phase, Style.BUSY)
    return [notice.instance, notice.kind, phase, since, until, notice.replacement.words()]


def tick_row(tick: DecisionEntry) -> list[object]:
    seen = tick.seen.words() if tick.seen else {}
    readings = [_reading(seen.get(name, "")) for name in ("workers", "cpu", "pending")]
    return [to_seconds(tick.at), *readings, Cell(what_was_done(tick), tick_style(tick))]


def _reading(text: str) -> Cell:
    # A reading that failed says "unknown" and why.
    return Cell(text, Style.WARNING if text.startswith("unknown") else Style.PLAIN)


def tick_style(tick: DecisionEntry) -> Style:
    if tick.kind in SWITCH_KINDS:
        return Style.WARNING
    if tick.stopped:
        return Style.BAD
    return Style.BUSY if tick.steps else Style.PLAIN


def what_was_done(tick: DecisionEntry) -> str:
    if tick.kind in SWITCH_KINDS:
        return f"{tick.kind} {tick.stopped}"
    if tick.stopped:
        return f"stopped{f' ({tick.ticks} ticks)' if tick.ticks > 1 else ''}: {tick.stopped}"
    if tick.steps:
        return "; ".join([*(step.words() for step in tick.steps), *tick.messages])
    if tick.seen and tick.seen.action:
        return f"nothing new: {tick.seen.action} is in progress, {tick.seen.phase}"
    unmet = _unmet(tick.rules)
    return f"nothing: {', '.join(unmet)}" if unmet else "nothing to do"


def _unmet(rules: Sequence[RuleResult]) -> list[str]:
    """The rules that held back a scale-up or a scale-down; obstacles first."""
    unmet = [rule for rule in rules if rule.verdict != "yes"]
    unmet.sort(key=lambda rule: rule.name not in _OBSTACLES)
    # A rule that applies to both directions is listed twice.
    return list(dict.fromkeys(f"not {rule.name} ({rule.value})" for rule in unmet))


def to_seconds(time: str) -> str:
    """The time without milliseconds: 2026-01-15T10:00:00Z."""
    return f"{time[:19]}Z" if time.endswith("Z") and time[19:20] == "." else time
