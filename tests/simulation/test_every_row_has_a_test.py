"""The specification, row by row, with the test for each row: fails when such a test is renamed or removed.

Seeds 000, 001, 003 and 004 in their own order; then the faults of other autoscalers.
"""

import ast
from pathlib import Path

import pytest

TESTS = Path(__file__).parents[1]

SEED_000 = {
    "exactly one item per cluster": "test_there_is_one_item_per_cluster_under_its_name",
    "core fields: names and types": "test_the_core_attributes_have_the_seeds_names_and_types",
    "pendingSinceEpoch, idleSinceEpoch": "test_pending_since_and_idle_since_mark_when_the_condition_started_and_0"
    "_that_it_does_not_hold",
    "scale-up fields; begin": "test_begin_scale_up_writes_the_seeds_fields_before_anything_is_launched",
    "begin is conditional": "test_a_begin_while_an_action_is_under_way_changes_nothing",
    "no race of two invocations": "test_two_ticks_at_once_begin_one_action",
    "record only if the action matches": "test_recording_instances_needs_the_same_action",
    "verify: nodes become Ready": "test_a_node_that_exists_and_is_not_ready_has_not_joined",
    "complete scale-up": "test_complete_scale_up_starts_the_cooldown_and_removes_the_fields",
    "fail scale-up": "test_fail_scale_up_clears_the_fields_and_starts_no_cooldown",
    "scale-down fields; plan before destruction": "test_begin_scale_down_stores_the_plan_before_any_destructive_call",
    "scaleDownPhase": "test_the_phase_is_draining_while_pods_leave_and_then_terminating",
    "completed ones are skipped": "test_a_target_that_is_completed_is_skipped",
    "progress is safe across retries": "test_marking_an_instance_done_twice_keeps_it_once",
    "resume after a crash": "test_a_scale_down_whose_process_died_is_resumed_by_the_next",
    "complete scale-down": "test_complete_scale_down_starts_the_cooldown_and_removes_the_fields",
    "stuck for 15 minutes: cleared": "test_a_scale_down_that_lasts_fifteen_minutes_is_cleared_and_starts_no_cooldown",
    "example: idle": "test_the_seeds_idle_item_is_continued",
    "example: scale-up in progress": "test_the_seeds_scale_up_in_progress_with_machines_that_ec2_forgot_fails"
    "_and_is_cleared",
    "conditional writes": "test_a_write_of_another_fence_changes_nothing",
    "LOGS_TABLE: snapshots": "test_explain_says_for_every_tick_what_was_done_and_why_or_why_not",
    "LOGS_TABLE: drain results": "test_a_pod_that_stays_is_logged_with_the_budget_that_blocks_it",
    "LOGS_TABLE: spot events": "test_a_spot_interruption_is_logged_from_its_notice_to_its_end",
}
SEED_001 = {
    "table and key": "test_the_table_and_its_key_are_the_seeds",
    "lockOwner, lockUntilEpoch": "test_the_lock_names_its_owner_and_its_end",
    "acquired if free or expired": "test_a_free_or_expired_lock_can_be_acquired",
    "only one at a time": "test_other_processes_stand_by_while_a_lock_is_held_and_say_for_how_long",
    "expires if its holder crashes": "test_a_dead_holders_lock_expires_and_the_next_process_recovers",
    "lock and action are two things": "test_a_waiting_action_holds_no_lock",
    "two-phase scale-up": "test_a_scale_up_has_two_phases_launch_and_verify",
    "timeout: failScaleUp": "test_a_scale_up_waits_for_missing_nodes_and_fails_at_the_timeout",
    "crash-safe recovery": "test_one_disturbed_call_changes_nothing_in_the_end",
}
SEED_003 = {
    "all preconditions hold": "test_when_all_preconditions_hold_it_scales_down",
    "CPU, pending, idle, cooldown, minimum": "test_if_one_precondition_fails_it_does_not_scale_down_and_says_which",
    "no other scaling in progress": "test_a_scale_down_and_a_scale_up_never_overlap",
    "cordoned before eviction": "test_a_node_is_cordoned_before_a_pod_is_evicted",
    "DaemonSets ignored, mirror pods untouched": "test_daemonset_and_mirror_pods_are_not_evicted_and_block_no_drain",
    "critical priority and kube-system": "test_a_node_with_a_pod_that_must_stay_is_neither_chosen_nor_cordoned",
    "critical pods abort the drain": "test_a_critical_pod_that_arrives_during_a_drain_aborts_it_and_the_machine_stays",
    "five minutes; failed drain: not terminated": "test_a_drain_times_out_after_five_minutes_and_nothing_is_terminated",
    "fullest zone, oldest first": "test_the_oldest_worker_of_the_fullest_zone_leaves_first",
    "no zone to zero; minimum": "test_no_zone_is_emptied_and_the_minimum_is_kept",
    "newest protected": "test_the_newest_of_several_stays_even_after_those_before_it_were_chosen",
    "plan first": "test_begin_scale_down_stores_the_plan_before_any_destructive_call",
    "private IP to node": "test_a_machine_is_matched_to_its_node_by_private_address_and_label",
    "drain fails: tried again": "test_after_a_failed_drain_another_node_is_tried",
    "resume: nothing twice": "test_nothing_is_drained_or_terminated_twice",
    "cooldown only after completion": "test_the_cooldown_begins_only_with_the_completion",
    "fail-safe": "test_a_scale_down_that_lasts_fifteen_minutes_is_cleared_and_starts_no_cooldown",
    "independent of spot": "test_a_spot_interruption_during_a_scale_down_is_handled_and_leaves_the_scale_down_alone",
}
SEED_004 = {
    "all conditions hold": "test_when_all_of_the_seeds_conditions_hold_it_scales_up",
    "CPU, pending, cooldown, maximum": "test_if_one_condition_fails_it_does_not_scale_up_and_says_which",
    "sizing": "test_the_batch_is_sized_as_the_seed_says",
    "begin": "test_begin_scale_up_writes_the_seeds_fields_before_anything_is_launched",
    "one by one, least-filled zone": "test_each_machine_is_launched_into_the_zone_that_is_emptiest_at_that_moment",
    "pending machines count": "test_machines_that_are_still_pending_count_for_their_zone",
    "a subnet within it": "test_a_subnet_without_free_addresses_is_not_used",
    "spot, then on-demand": "test_spot_is_tried_first_then_on_demand_in_one_tick",
    "ids are persisted": "test_each_id_is_recorded_before_the_next_machine_is_launched",
    "Ready nodes by address": "test_a_node_that_exists_and_is_not_ready_has_not_joined",
    "some missing: wait, then fail": "test_a_scale_up_waits_for_missing_nodes_and_fails_at_the_timeout",
    "verification is idempotent": "test_verifying_twice_at_once_completes_once",
    "completion": "test_complete_scale_up_starts_the_cooldown_and_removes_the_fields",
    "may retry later": "test_after_each_failure_the_next_attempt_waits_longer",
    "cooldown after capacity is live": "test_the_next_scale_up_waits_for_its_cooldown",
    "partial launch": "test_a_partly_successful_scale_up_completes_with_the_machines_it_got",
    "timeouts and duplicates": "test_a_launch_with_an_unknown_outcome_is_retried_without_a_second_machine",
    "never beside a scale-down": "test_a_scale_down_and_a_scale_up_never_overlap",
    "replacements by the same logic": "test_a_replacement_is_placed_like_any_machine_and_has_its_own_lock",
}
FAULTS = {
    "ids stored after all launches": "test_a_crash_between_launches_leaves_no_untracked_machine",
    "no ClientToken": "test_a_retry_does_not_launch_twice",
    "never-joined instances left running": "test_machines_that_never_joined_are_not_left_running",
    "nodes left cordoned": "test_no_node_stays_cordoned_after_a_failed_drain_or_a_cleared_action",
    "the first 429 aborts": "test_a_refused_eviction_does_not_abort_the_drain",
    "lock TTL, renewal, fencing, release": "test_the_lock_is_shorter_than_a_drain_renewed_fenced_and_released_only_by"
    "_its_owner",
    "lock released by any process": "test_a_lock_is_released_only_by_its_owner",
    "lock not renewed": "test_a_lock_is_renewed_while_its_holder_works",
    "scale-down cooldown blocks scale-up": "test_only_the_scale_up_cooldown_delays_a_scale_up",
    "a rebalance hint terminates": "test_a_rebalance_hint_never_removes_a_healthy_node_without_a_replacement",
    "replacement after the termination": "test_the_replacement_is_launched_before_the_machine_is_gone",
    "replacement ignores the maximum": "test_replacements_stay_within_the_maximum",
    "replacement never join-checked": "test_a_replacement_that_does_not_join_is_terminated",
    "Prometheus failure read as zero": "test_an_unavailable_prometheus_neither_adds_nor_removes_machines",
    "a crash at the maximum": "test_at_the_maximum_nothing_crashes_and_it_can_scale_down_again",
    "TLS verification off": "test_no_file_turns_verification_off",
    "TLS: another CA": "test_a_server_with_a_certificate_of_another_ca_is_refused",
    "TLS of Prometheus": "test_a_certificate_of_another_authority_is_refused",
    "existence, not readiness": "test_a_node_that_exists_does_not_count_as_ready",
    "the CPU query that reads 0.14": "test_a_fully_busy_cluster_reads_as_one_and_an_idle_one_as_zero",
    "Node object and password secret": "test_after_a_termination_the_node_and_its_password_secret_are_removed",
    "lists lag behind launches": "test_a_machine_that_is_not_listed_yet_is_not_launched_again_and_not_given_up",
    "a fallback under the same token": "test_a_spot_attempt_and_its_fallback_have_different_tokens",
    "Prometheus: missing or stale is unknown": "test_cpu_is_unknown",
    "pending pods from Kubernetes meanwhile": "test_without_prometheus_pending_pods_are_read_from_kubernetes",
    "eviction: 404 is gone": "test_a_pod_that_is_gone_needs_no_eviction",
    "eviction: the pod's UID": "test_another_pod_of_the_same_name_is_left_alone",
    "errors of EC2 by what they mean": "test_the_code_means",
}
ROWS = {"000": SEED_000, "001": SEED_001, "003": SEED_003, "004": SEED_004, "faults": FAULTS}


@pytest.fixture(scope="module")
def names() -> frozenset[str]:
    """The names of all tests."""
    trees = (ast.parse(path.read_text(encoding="utf-8")) for path in TESTS.rglob("test_*.py"))
    return frozenset(node.name for tree in trees for node in ast.walk(tree) if isinstance(node, ast.FunctionDef))


@pytest.mark.parametrize("source", ROWS)
def test_every_row_names_a_test_that_exists(source: str, names: frozenset[str]) -> None:
    assert {row: name for row, name in ROWS[source].items() if name not in names} == {}
