"""After the way over: webhooks that are older than 90 days go to Glacier. The agents' runner-config.json stays.

A bucket has one lifecycle, and other people's rules in it: ours is put beside theirs.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

from holdfast.jobs.migration.layout import Layout
from holdfast.kernel.errors import NeedsOperator
from holdfast.ports.objects import Objects, Rule

RULE: Final = "holdfast-webhooks-to-glacier"
DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The lifecycle as it is to be; `notes` tell what else is in it that concerns us."""

    rules: Sequence[Rule]
    is_change: bool
    notes: tuple[str, ...] = ()

    def shown(self) -> dict[str, Any]:
        return {"rules": [dict(rule) for rule in self.rules], "is_change": self.is_change, "notes": list(self.notes)}


def webhooks_rule(layout: Layout) -> Rule:
    return {
        "ID": RULE,
        "Status": "Enabled",
        # A rule without a word about sizes leaves objects under 128 KB where they are, and every webhook is smaller.
        "Filter": {"And": {"Prefix": layout.prefix, "ObjectSizeGreaterThan": 1}},
        "Transitions": [{"Days": DAYS, "StorageClass": "GLACIER"}],
    }


def planned(rules: Sequence[Rule], layout: Layout, runner_config_prefix: str) -> Cleanup:
    """The bucket's rules with ours among them. Refused if ours would reach the agents' configurations."""
    if _overlap(layout.prefix, runner_config_prefix):
        raise NeedsOperator(
            f"the lifecycle was not set: webhooks are under {layout.prefix!r} and runner-config.json under "
            f"{runner_config_prefix!r}, and a rule for the one would move the other; agents could not boot"
        )
    ours = webhooks_rule(layout)
    others = [rule for rule in rules if rule.get("ID") != RULE]
    known = next((rule for rule in rules if rule.get("ID") == RULE), None)
    notes = [note for rule in others for note in _notes(rule, layout.prefix, runner_config_prefix)]
    return Cleanup([*others, ours], known != ours, tuple(notes))


def carry_out(objects: Objects, cleanup: Cleanup) -> None:
    """Set it, and see that all of it is there: S3 knows no condition here, and somebody else may have set another."""
    objects.set_lifecycle(cleanup.rules)
    found = {str(rule.get("ID")) for rule in objects.lifecycle()}
    missing = [str(rule.get("ID")) for rule in cleanup.rules if rule.get("ID") and str(rule["ID"]) not in found]
    if missing:
        raise NeedsOperator(
            f"the lifecycle was set, and rules are missing from it: {', '.join(missing)}; somebody else has set "
            "another at the same time: look at it, and run it again"
        )


def _notes(rule: Rule, webhooks: str, runner_configs: str) -> list[str]:
    if rule.get("Status") != "Enabled":
        return []
    name, prefix = rule.get("ID", "(no ID)"), prefix_of(rule)
    notes = []
    moves = [word for word in ("Transitions", "Expiration") if rule.get(word)]
    if moves and _overlap(prefix, runner_configs):
        notes.append(f"rule {name} also reaches {runner_configs}: {', '.join(moves)}; agents need these objects")
    if moves and _overlap(prefix, webhooks):
        notes.append(f"rule {name} also reaches {webhooks}: {', '.join(moves)}; whichever comes first counts")
    return notes


def prefix_of(rule: Rule) -> str:
    """What a rule is for, wherever it says so; empty: the whole bucket, or what has certain tags."""
    said = rule.get("Filter") or {}
    within = said.get("And") or {}
    return str(rule.get("Prefix") or said.get("Prefix") or within.get("Prefix") or "")


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
