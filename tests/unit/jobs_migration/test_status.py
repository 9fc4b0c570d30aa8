"""Whether the migration may move to the next phase, and why not; the lifecycle at its end."""

from typing import Any

import pytest

from holdfast.jobs.migration.cleanup import RULE, carry_out, planned, prefix_of, webhooks_rule
from holdfast.jobs.migration.counts import DailyCounts, StorageCall
from holdfast.jobs.migration.layout import ObjectLayout
from holdfast.jobs.migration.phases import InvalidMove, Phase, move, stored_phase
from holdfast.jobs.migration.status import (
    MigrationStatus,
    check_may_archive,
    migration_status,
    move_notes,
    phase_to_move_to,
)
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.ports.store.tables import JOBS
from holdfast.views.migration_answers import migration_status_answer
from tests.support.migration_world import LAYOUT, World, fill_older, life


def looked_at(world: World) -> MigrationStatus:
    return migration_status(world.store, world.objects, Phase.DUAL_WRITE, world.clock.now())


def against(world: World) -> str:
    return "; ".join(looked_at(world).against_next())


def test_every_step_of_a_migration_has_its_reasons() -> None:
    world = World()
    fill_older(world, range(1, 11))
    assert against(world) == ""
    move(world.store, stored_phase(world.store), Phase.DUAL_WRITE, world.clock.now(), "test")
    assert "not every instance follows it yet" in against(world)
    world.clock.advance(30)
    assert against(world) == "no backfill has run since dual_write began; run: holdfast migrate backfill"
    world.backfill()
    assert against(world) == "no comparison has run since the backfill; run: holdfast migrate compare"
    world.clock.advance(1)
    world.compare(0.5)
    assert "only a share of 0.5 of the jobs was compared" in against(world)
    world.compare()
    assert against(world) == ""
    assert migration_status_answer(looked_at(world)).is_ready
    world.go_to(Phase.DUAL_READ)
    assert against(world) == ""
    world.go_to(Phase.DYNAMODB_ONLY)
    assert (looked_at(world).next, against(world)) == (None, "")


def test_webhooks_missing_in_the_tables_block_the_next_phase() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.backfill()
    world.compare()
    world.store.fails = lambda call: call == "update"
    world.dual.receive(life(3)[0])
    world.store.fails = lambda _: False
    assert "1 webhooks are in S3 but not in the tables" in against(world)
    assert "1 webhooks are only in S3 and would be missed" in looked_at(world).against_back(Phase.OFF)[0]
    assert looked_at(world).against_back(Phase.DUAL_WRITE) == []
    world.backfill()
    assert looked_at(world).against_back(Phase.OFF) == []
    world.clock.advance(1)
    world.compare()
    assert against(world) == ""


def test_a_backfill_from_before_dual_write_does_not_count() -> None:
    """After a step back to off there is a gap to fill."""
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.backfill()
    world.compare()
    world.go_to(Phase.OFF)
    world.go_to(Phase.DUAL_WRITE)
    assert "no backfill has run since dual_write began" in against(world)


def test_an_unfinished_backfill_and_differences_block_the_next_phase() -> None:
    world = World()
    fill_older(world, range(1, 4))
    world.go_to(Phase.DUAL_WRITE)
    world.backfill()
    world.objects.put("webhooks/1/2/queued.json", b"{")
    world.clock.advance(1)
    world.compare()
    found = against(world)
    assert "the comparison found 1 differences (1 unusable); holdfast migrate compare lists them" in found
    world.objects.delete("webhooks/1/2/queued.json")
    world.store.delete(JOBS, JobKey(InstallationId(1), JobId(3)).item)
    world.compare()
    assert (
        against(world)
        == "the comparison found 1 differences (1 missing); run: holdfast migrate backfill, then compare again"
    )


def test_reads_that_fell_back_to_s3_block_the_last_phase() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    world.backfill()
    world.compare()
    world.go_to(Phase.DUAL_READ)
    ledger = DailyCounts(world.store, world.clock)
    ledger(StorageCall(stored_phase(world.store).seq, "read", "s3", "fallback", 0.1))
    ledger.flush()
    assert "1 reads since yesterday found a job in S3 but not in the tables" in against(world)
    world.clock.advance(3 * 86_400)
    assert against(world) == ""


def test_a_step_goes_in_the_requested_direction() -> None:
    world = World()
    world.go_to(Phase.DUAL_WRITE)
    it = looked_at(world)
    assert phase_to_move_to(it, None, is_forward=True) is Phase.DUAL_READ
    assert phase_to_move_to(it, None, is_forward=False) is Phase.OFF
    with pytest.raises(InvalidMove, match="other direction; run: holdfast migrate back"):
        phase_to_move_to(it, Phase.OFF, is_forward=True)
    with pytest.raises(InvalidMove, match="first move to dual_read"):
        phase_to_move_to(it, Phase.DYNAMODB_ONLY, is_forward=True)
    world.go_to(Phase.OFF)
    with pytest.raises(InvalidMove, match="the phase is off, which is the first"):
        phase_to_move_to(looked_at(world), None, is_forward=False)


def test_moving_back_reports_what_s3_lacks() -> None:
    world = World()
    world.go_to(Phase.DYNAMODB_ONLY)
    assert "are only in the tables" in " ".join(move_notes(stored_phase(world.store), Phase.DUAL_READ))
    world.go_to(Phase.DUAL_WRITE)
    assert "back at the older system" in " ".join(move_notes(stored_phase(world.store), Phase.OFF))


# The lifecycle

THEIRS: dict[str, Any] = {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 7}}


def test_webhooks_go_to_glacier_and_foreign_rules_stay() -> None:
    plan = planned([THEIRS], LAYOUT, "runners/")
    assert plan.rules == [THEIRS, webhooks_rule(LAYOUT)]
    assert prefix_of(plan.rules[1]) == "webhooks/"
    assert plan.rules[1]["Transitions"] == [{"Days": 90, "StorageClass": "GLACIER"}]
    assert (plan.is_change, plan.notes) == (True, ())


def test_a_second_cleanup_changes_nothing() -> None:
    rules = planned([THEIRS], LAYOUT, "runners/").rules
    assert not planned(rules, LAYOUT, "runners/").is_change
    older = [{**rule, "Status": "Disabled"} if rule["ID"] == RULE else rule for rule in rules]
    assert planned(older, LAYOUT, "runners/").is_change


@pytest.mark.parametrize(
    ("layout", "runners"), [("r/{job_id}/{status}", "r/runners/"), ("runners/w/{job_id}/{status}", "runners/")]
)
def test_a_rule_that_would_cover_the_agents_configurations_is_refused(layout: str, runners: str) -> None:
    with pytest.raises(NeedsOperator, match="agents could not boot"):
        planned([], ObjectLayout(layout), runners)


def test_foreign_rules_that_cover_them_are_reported() -> None:
    whole = {"ID": "all", "Status": "Enabled", "Prefix": "", "Expiration": {"Days": 30}}
    off = {**whole, "ID": "off", "Status": "Disabled"}
    notes = planned([whole, off], LAYOUT, "runners/").notes
    assert len(notes) == 2
    assert "rule all also applies to runners/: Expiration; agents need these objects" in notes


def test_a_lifecycle_set_by_another_process_at_the_same_time_is_noticed() -> None:
    world = World()
    plan = planned([THEIRS], LAYOUT, "runners/")

    def meddle(call: str, when: str) -> bool:
        if (call, when) == ("set_lifecycle", "after"):
            world.objects.fault = lambda _call, _when: False
            world.objects.set_lifecycle([THEIRS])
        return False

    world.objects.fault = meddle
    with pytest.raises(NeedsOperator, match=f"rules are missing from it: {RULE}"):
        carry_out(world.objects, plan)
    carry_out(world.objects, plan)
    assert world.objects.lifecycle() == plan.rules


@pytest.mark.parametrize("phase", [Phase.OFF, Phase.DUAL_WRITE, Phase.DUAL_READ])
def test_no_object_is_archived_while_it_may_be_read(phase: Phase) -> None:
    world = World()
    world.go_to(phase)
    with pytest.raises(NeedsOperator, match=f"the phase is {phase}, and objects in Glacier cannot be read"):
        check_may_archive(world.store, world.objects)
    world.go_to(Phase.DYNAMODB_ONLY)
    check_may_archive(world.store, world.objects)
