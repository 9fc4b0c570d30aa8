"""The rules of a tick by group and in words: what speaks against adding or removing a worker."""

from collections.abc import Sequence
from typing import Final

from msgspec import UNSET, structs

from holdfast.cluster.rules import (
    CPU_HIGH,
    FOLLOWS,
    NO_ACTION_UP,
    NOTHING_WAITING,
    PODS_WAITING,
    PRESSURE,
    RULE_KINDS,
    WAITING_LONG_ENOUGH,
    RuleGroup,
)
from holdfast.control.rules import Verdict
from holdfast.kernel.json_types import Shape
from holdfast.views.decisions import RuleResult

TITLES: Final = {
    RuleGroup.ADD: "To add workers",
    RuleGroup.REMOVE: "To remove a worker",
    RuleGroup.OTHER: "Other checks",
}


class RuleInWords(RuleResult, frozen=True, kw_only=True):
    words: str


class GroupedRules(Shape, frozen=True, kw_only=True):
    """The rules of a group. All of them must hold; `against` says which do not."""

    title: str
    rules: list[RuleInWords]
    against: list[str]


def rule_groups(rules: Sequence[RuleResult], *, one_suffices: bool = False) -> list[GroupedRules]:
    """`one_suffices`: high CPU alone, or pending pods alone, are enough to add workers (SCALE_UP_RULE)."""
    found = []
    for group, title in TITLES.items():
        members = [rule for rule in rules if _group_of(rule) is group]
        if members:
            in_words = [RuleInWords(**structs.asdict(rule), words=holds_words(rule)) for rule in members]
            against = _against(members, one_suffices=one_suffices)
            found.append(GroupedRules(title=title, rules=in_words, against=against))
    return found


def _group_of(rule: RuleResult) -> RuleGroup:
    """Entries of an older version name no group; then it is the one that the rule is declared with."""
    if rule.group is not UNSET:
        return RuleGroup(rule.group)
    return RuleGroup(RULE_KINDS[rule.name].group) if rule.name in RULE_KINDS else RuleGroup.OTHER


def _against(rules: Sequence[RuleResult], *, one_suffices: bool) -> list[str]:
    missing = {rule.name for rule in rules if rule.verdict is not Verdict.YES}
    pending = {PODS_WAITING.name, WAITING_LONG_ENOUGH.name}
    if one_suffices and (CPU_HIGH.name not in missing or not missing & pending):
        missing -= PRESSURE
    return [
        _fails_words(rule) if rule.verdict is Verdict.NO else f"it is unknown whether {holds_words(rule)}"
        for rule in rules
        if rule.name in missing and not missing & FOLLOWS.get(rule.name, frozenset())
    ]


def holds_words(rule: RuleResult) -> str:
    return RULE_KINDS[rule.name].holds if rule.name in RULE_KINDS else rule.name.replace("_", " ")


def _fails_words(rule: RuleResult) -> str:
    return RULE_KINDS[rule.name].fails if rule.name in RULE_KINDS else f"not {rule.name.replace('_', ' ')}"


def reasons_for_no_action(groups: Sequence[GroupedRules]) -> str:
    """Why a tick did nothing, in one line. While pods are pending, the reasons against a scale-down are left out."""
    against = {group.title: group.against for group in groups}
    add, remove, other = (against.get(title, []) for title in TITLES.values())
    if NO_ACTION_UP.fails in (*add, *remove):
        return NO_ACTION_UP.fails
    if NOTHING_WAITING.fails in remove:
        remove = []
    parts = (("not scaling up: ", add), ("not scaling down: ", remove), ("", other))
    return "; ".join(f"{what}{', '.join(reasons)}" for what, reasons in parts if reasons)
