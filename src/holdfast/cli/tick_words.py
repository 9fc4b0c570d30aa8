"""A tick for people: what was done, or which rules kept it from doing anything."""

from collections.abc import Mapping, Sequence
from typing import Any, Final

from holdfast.cli.colours import Style, of_verdict
from holdfast.cli.layout import Cell
from holdfast.cluster.glance import glance_words
from holdfast.cluster.log import SWITCH_KINDS
from holdfast.cluster.notices import replacement_words
from holdfast.cluster.steps import step_words

RULE_COLUMNS: Final = ("RULE", "HOLDS", "SEEN", "LIMIT")
NOTICE_COLUMNS: Final = ("LEAVES", "KIND", "PHASE", "SINCE", "UNTIL", "REPLACEMENT")
_OBSTACLES: Final = ("not_paused", "somewhere_to_launch", "a_worker_may_leave")

Data = Mapping[str, Any]


def rule_row(rule: Data) -> list[object]:
    return [rule["name"], Cell(rule["verdict"], of_verdict(rule["verdict"])), rule["value"], rule["limit"]]


def notice_row(notice: Data) -> list[object]:
    """A machine that is to leave; until when, where that is known, and what takes its place."""
    since, until = to_seconds(notice["since"]), to_seconds(notice["deadline"] or "-")
    phase = Cell(notice["phase"], Style.BUSY)
    return [notice["instance"], notice["kind"], phase, since, until, replacement_words(notice)]


def tick_row(tick: Data) -> list[object]:
    seen = glance_words(tick["seen"]) if tick["seen"] else {}
    readings = [_reading(seen.get(name, "")) for name in ("workers", "cpu", "pending")]
    return [to_seconds(tick["at"]), *readings, Cell(what_was_done(tick), style_of(tick))]


def _reading(text: object) -> Cell:
    # By its own word: what could not be seen is "unknown", and why.
    return Cell(str(text), Style.WARNING if str(text).startswith("unknown") else Style.PLAIN)


def style_of(tick: Data) -> Style:
    if tick.get("kind") in SWITCH_KINDS:
        return Style.WARNING
    if tick["stopped"]:
        return Style.BAD
    return Style.BUSY if tick["steps"] else Style.PLAIN


def what_was_done(tick: Data) -> str:
    if tick.get("kind") in SWITCH_KINDS:
        return f"{tick['kind']} {tick['stopped']}"
    if tick["stopped"]:
        ticks = tick.get("ticks", 1)
        return f"stopped{f' ({ticks} ticks)' if ticks > 1 else ''}: {tick['stopped']}"
    if tick["steps"]:
        return "; ".join([*map(step_words, tick["steps"]), *tick.get("told", [])])
    seen = tick["seen"]
    if seen and seen["action"]:
        return f"nothing new: {seen['action']} is under way, {seen['phase']}"
    return f"nothing: {', '.join(_missing(tick['rules'])) or 'all is as it should be'}"


def _missing(rules: Sequence[Data]) -> list[str]:
    """The rules that kept it from going up, and those that kept it from going down; first what stood in the way."""
    missing = [rule for rule in rules if rule["verdict"] != "yes"]
    missing.sort(key=lambda rule: rule["name"] not in _OBSTACLES)
    # A rule that speaks for both directions is there twice.
    return list(dict.fromkeys(f"not {rule['name']} ({rule['value']})" for rule in missing))


def to_seconds(time: str) -> str:
    """A time as people want it: 2026-01-15T10:00:00Z, without its milliseconds."""
    return f"{time[:19]}Z" if time.endswith("Z") and time[19:20] == "." else time
