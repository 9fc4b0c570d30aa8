"""After the migration: a lifecycle rule moves webhooks older than 90 days to Glacier. runner-config.json stays.

A bucket has one lifecycle configuration, which may have other rules: ours is added to them.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final

from holdfast.jobs.migration.layout import ObjectLayout
from holdfast.kernel.errors import NeedsOperator
from holdfast.ports.objects import Objects, Rule

RULE: Final = "holdfast-webhooks-to-glacier"
DAYS: Final = 90


@dataclass(frozen=True, slots=True)
class Cleanup:
    """The planned lifecycle configuration; `notes` name other rules that affect our objects."""

    rules: Sequence[Rule]
    is_change: bool
    notes: tuple[str, ...] = ()


def webhooks_rule(layout: ObjectLayout) -> Rule:
    return {
        "ID": RULE,
        "Status": "Enabled",
        # Without a size filter, S3 does not move objects under 128 KB, and every webhook is smaller.
        "Filter": {"And": {"Prefix": layout.prefix, "ObjectSizeGreaterThan": 1}},
        "Transitions": [{"Days": DAYS, "StorageClass": "GLACIER"}],
    }


def planned(rules: Sequence[Rule], layout: ObjectLayout, runner_config_prefix: str) -> Cleanup:
    """The bucket's rules with ours added. NeedsOperator if ours would include the agents' configurations."""
    if _overlap(layout.prefix, runner_config_prefix):
        raise NeedsOperator(
            f"the lifecycle was not set: webhooks are under {layout.prefix!r} and runner-config.json under "
            f"{runner_config_prefix!r}; a rule for the webhooks would move it as well, and agents could not boot"
        )
    ours = webhooks_rule(layout)
    others = [rule for rule in rules if rule.get("ID") != RULE]
    known = next((rule for rule in rules if rule.get("ID") == RULE), None)
    notes = [note for rule in others for note in _notes(rule, layout.prefix, runner_config_prefix)]
    return Cleanup([*others, ours], known != ours, tuple(notes))


def carry_out(objects: Objects, cleanup: Cleanup) -> None:
    """Set the lifecycle, then verify it: S3 has no conditional write here, and another process may overwrite it."""
    objects.set_lifecycle(cleanup.rules)
    found = {str(rule.get("ID")) for rule in objects.lifecycle()}
    missing = [str(rule.get("ID")) for rule in cleanup.rules if rule.get("ID") and str(rule["ID"]) not in found]
    if missing:
        raise NeedsOperator(
            f"the lifecycle was set, but rules are missing from it: {', '.join(missing)}; it was changed at the "
            "same time by someone else: check the bucket's rules, then run this again"
        )


def _notes(rule: Rule, webhooks: str, runner_configs: str) -> list[str]:
    if rule.get("Status") != "Enabled":
        return []
    name, prefix = rule.get("ID", "(no ID)"), prefix_of(rule)
    notes = []
    moves = [word for word in ("Transitions", "Expiration") if rule.get(word)]
    if moves and _overlap(prefix, runner_configs):
        notes.append(f"rule {name} also applies to {runner_configs}: {', '.join(moves)}; agents need these objects")
    if moves and _overlap(prefix, webhooks):
        notes.append(f"rule {name} also applies to {webhooks}: {', '.join(moves)}; the earlier of the two takes effect")
    return notes


def prefix_of(rule: Rule) -> str:
    """The prefix of a rule, in any of its three places; empty: the whole bucket, or objects with certain tags."""
    filters = rule.get("Filter") or {}
    combined = filters.get("And") or {}
    return str(rule.get("Prefix") or filters.get("Prefix") or combined.get("Prefix") or "")


def _overlap(one: str, other: str) -> bool:
    return one.startswith(other) or other.startswith(one)
