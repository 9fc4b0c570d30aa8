"""Invocations whose time runs out, that fail halfway, or that hints keep awake."""

import json
from collections.abc import Callable
from contextlib import closing
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from msgspec.structs import replace

from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.cli.main import cli
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot.notice import SpotKind, store_notice
from holdfast.cluster.state import cluster_ledger
from holdfast.cluster.tick import is_unfinished, run_ticks, tick
from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.deadline import CALL_SECONDS, Deadline
from holdfast.control.decision_log import Entry
from holdfast.control.failures import Failure, newest_failure, remember
from holdfast.control.lease import acquire
from holdfast.control.tick_loop import AGAIN_SECONDS
from holdfast.entrypoints.cluster_commands import run_tick
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.settings import load_settings
from holdfast.ports.kube import KubeRefused, Taint
from holdfast.ports.machines import Machine, MachineError
from holdfast.ports.notify import Notification
from holdfast.ports.store.tables import STATE, TABLES
from holdfast.simulator.proof.processes import Killed
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from holdfast.views.cluster_status import cluster_status
from tests.call_gate import CallGate
from tests.simulation.harness import TAGS, Stage
from tests.simulation.hooks import before, raising

MANY = Policy(min_workers=20, max_workers=30, max_batch_up=20)


def slow(stage: Stage, method: str, seconds: float) -> CallGate:
    """Every call of that name takes that long."""
    return before(method, lambda: stage.clock.sleep(seconds))


def passed(stage: Stage, act: Callable[[], object]) -> float:
    began = stage.clock.monotonic_seconds()
    act()
    return stage.clock.monotonic_seconds() - began


def logged(stage: Stage) -> list[Entry]:
    now = stage.clock.now()
    return list(cluster_log(stage.store, stage.name).entries(now.plus(-86_400), now))


def spot_worker(stage: Stage) -> Machine:
    machine = stage.world.add_worker(ZONES[2], TAGS, "spot")
    stage.clock.sleep(60)
    stage.tick()
    return machine


# Time


@pytest.mark.parametrize("seconds", [13, 28, 55])
def test_a_tick_with_many_slow_launches_ends_before_its_time_is_up(seconds: float) -> None:
    stage = Stage(workers=0, policy=MANY)
    assert passed(stage, lambda: run_ticks(stage.cluster(slow(stage, "launch", 4)), "a", seconds)) <= seconds
    assert 0 < len(stage.world.ec2.launches) < 20
    assert stage.state.lock_owner == ""
    assert "too few to start more; the next tick resumes" in str(logged(stage)[-1].stopped)


def test_the_next_invocation_resumes_where_the_last_one_stopped() -> None:
    stage = Stage(workers=0, policy=MANY)
    for call in range(12):
        run_ticks(stage.cluster(slow(stage, "launch", 4)), f"call{call}", 28)
        stage.clock.sleep(60)
    assert len(stage.world.ec2.launches) == 20
    assert len({order.token for order, _ in stage.world.ec2.launches}) == 20


def test_a_single_call_of_the_longest_duration_still_ends_in_time() -> None:
    """The call may finish, and its result is recorded."""
    stage = Stage(workers=0, policy=MANY)
    assert passed(stage, lambda: run_ticks(stage.cluster(slow(stage, "launch", 17)), "a", 55)) <= 55
    recorded = stage.state.up.instances if stage.state.up else ()
    assert len(recorded) == len(stage.world.ec2.launches) > 0


def test_slow_evictions_do_not_hold_an_invocation_past_its_end() -> None:
    """All evictions of a node are one step: the deadline is checked before each call, not only before each step."""
    stage = Stage(workers=2)
    machine = spot_worker(stage)
    stage.world.k3s.run(Workload("web", 30))
    stage.clock.sleep(60)
    store_notice(stage.store, stage.name, machine.id, SpotKind.INTERRUPTION, stage.clock.now())
    stage.tick(seconds=1)
    gate = slow(stage, "evict", 5)
    assert passed(stage, lambda: run_ticks(stage.cluster(gate), "a", 28)) <= 28
    assert 0 < sum(call.method == "evict" for call in gate.calls) < 10


def test_a_lease_lasts_no_longer_than_the_invocation_that_took_it() -> None:
    """Lambda stops it there, so no other process should wait any longer."""
    stage = Stage(workers=0, policy=MANY)
    end = stage.clock.now().plus(28)
    held = []

    def launch() -> None:
        held.append(stage.state.lock_until)
        stage.clock.sleep(4)

    run_ticks(stage.cluster(before("launch", launch)), "a", 28)
    assert held
    assert all(until <= end for until in held)


def test_a_lease_that_lasts_to_the_end_is_not_written_again() -> None:
    stage = Stage(workers=0, policy=MANY)
    gate = slow(stage, "launch", 1)
    run_ticks(stage.cluster(gate), "a", 28)
    launched, beside = len(stage.world.ec2.launches), 4  # the lease, the plan, the phase, the lease's end
    assert sum(call.method == "update" for call in gate.calls) <= launched + beside


def test_a_long_invocation_renews_its_lease_but_not_past_its_end() -> None:
    stage = Stage(workers=0, policy=MANY)
    end = stage.clock.now().plus(100)
    held = []

    def launch() -> None:
        held.append(stage.state.lock_until)
        stage.clock.sleep(12)

    run_ticks(stage.cluster(before("launch", launch)), "a", 100)
    assert len(set(held)) > 1
    assert max(held) == end


def test_without_a_deadline_a_tick_takes_the_time_it_needs() -> None:
    stage = Stage(workers=0, policy=MANY)
    tick(stage.cluster(slow(stage, "launch", 4)), "daemon")
    assert len(stage.world.ec2.launches) == 20


def test_without_any_time_a_tick_observes_and_starts_nothing() -> None:
    stage = Stage(workers=0, policy=MANY)
    ticked = tick(stage.cluster(), "late", Deadline(stage.clock, stage.clock.monotonic_seconds() + 5, CALL_SECONDS))
    assert "5 s of this invocation are left" in str(ticked.stopped)
    assert (stage.world.ec2.launches, stage.state.fence) == ([], 0)
    assert newest_failure(stage.store, stage.name) is None


# A tick reports what it did, however it ended


def orphan_with_a_node(stage: Stage) -> None:
    """The sweeper wants to cordon it, after the launches of the same tick."""
    machine = stage.world.add_worker(
        ZONES[0], {**TAGS, "holdfast.dev/action": "1-1-x", "holdfast.dev/seq": "0"}, is_marked=False
    )
    node = stage.world.k3s.node(machine.id)
    assert node is not None
    taint = Taint("holdfast.dev/unverified", "1-1-x", "NoSchedule")
    stage.world.k3s.put(replace(node, taints=(taint,)))
    stage.clock.sleep(700)


@pytest.mark.parametrize(
    ("error", "what", "words"),
    [
        (KubeRefused("403: nodes is forbidden"), "an error that needs an operator", "403: nodes is forbidden"),
        (ZeroDivisionError(), "an error that needs an operator", "unexpected error: ZeroDivisionError; see the log"),
    ],
)
def test_a_tick_that_fails_halfway_still_logs_what_it_had_done(error: Exception, what: str, words: str) -> None:
    stage = Stage(workers=4, policy=Policy(min_workers=7))
    orphan_with_a_node(stage)
    gate = before("change_node", raising(error))
    for owner in ("begins", "launches"):
        with pytest.raises(type(error)):
            tick(stage.cluster(gate), owner)
        stage.clock.sleep(100)
    entry = logged(stage)[-1]
    assert words in str(entry.stopped)
    assert [step["kind"] for step in entry.steps] == ["launch_slot", "launch_slot"]
    assert sum("launched i-" in text for text in entry.reports) == 2
    failure = newest_failure(stage.store, stage.name)
    assert failure is not None
    assert (failure.what, words in failure.why) == (what, True)


def test_the_lease_is_released_when_an_operator_is_needed() -> None:
    stage = Stage(workers=4, policy=Policy(min_workers=7))
    orphan_with_a_node(stage)
    with pytest.raises(KubeRefused):
        tick(stage.cluster(before("change_node", raising(KubeRefused("403")))), "a")
    assert stage.state.lock_owner == ""


def test_an_error_before_the_first_step_is_logged_too() -> None:
    stage = Stage()
    with pytest.raises(ZeroDivisionError):
        tick(stage.cluster(before("cpu", raising(ZeroDivisionError()))), "a")
    assert "unexpected error: ZeroDivisionError" in str(logged(stage)[-1].stopped)


@pytest.mark.parametrize(
    ("error", "text"),
    [(ZeroDivisionError(), "unexpected error: ZeroDivisionError; see the log"), (KubeRefused("403"), "403")],
)
def test_the_command_notifies_an_operator_of_an_error_before_it_exits(
    error: Exception, text: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    received: list[str] = []

    class Mailbox:
        def notify(self, notice: Notification) -> None:
            received.append(notice.text)

    monkeypatch.setattr("holdfast.entrypoints.cluster_commands.notifiers", lambda *_: [Mailbox()])
    monkeypatch.setattr("holdfast.entrypoints.cluster_commands.tick", lambda *_: raising(error)())
    with pytest.raises(type(error)):
        run_tick(load_settings({"HOLDFAST_DATA": str(tmp_path)}))
    assert [text in each for each in received] == [True]


def test_a_killed_process_writes_nothing_more() -> None:
    stage = Stage(workers=0, policy=MANY)
    assert stage.tick(gate=before("launch", raising(Killed()))) is None
    assert logged(stage) == []


# The newest failure


def test_the_newest_failure_is_kept_until_a_newer_one() -> None:
    stage = Stage()
    assert newest_failure(stage.store, stage.name) is None
    with pytest.raises(StoreUnavailable):
        tick(stage.cluster(before("batch_get", raising(StoreUnavailable("no answer")))), "a")
    failed_at = stage.clock.now()
    for _ in range(5):
        stage.tick()
    failure = newest_failure(stage.store, stage.name)
    assert failure is not None
    assert failure.shown() == {"what": "no answer from the store", "at": failed_at.iso(), "why": "no answer"}


def test_a_scale_up_that_failed_is_a_failure_with_its_reason() -> None:
    stage = Stage(workers=0, policy=Policy(min_workers=1))
    stage.world.joins = False
    stage.tick_until(lambda: stage.state.up_failures > 0)
    failure = newest_failure(stage.store, stage.name)
    assert failure is not None
    assert (failure.what, failure.at) == ("fail_scale_up", stage.clock.now())
    assert "did not join" in failure.why


def test_standing_by_is_not_a_failure() -> None:
    stage = Stage(workers=0)
    acquire(cluster_ledger(stage.store, stage.name), "another", stage.clock.now())
    assert stage.tick(seconds=1) is None
    assert newest_failure(stage.store, stage.name) is None


def test_after_hours_of_failures_the_last_tick_and_the_newest_failure_are_still_shown() -> None:
    stage = Stage()
    stage.tick()
    last = stage.clock.now()
    for _ in range(200):
        stage.tick(gate=before("tagged", raising(MachineError("RequestLimitExceeded", "slow down"))))
    overview = cluster_status(stage.store, stage.name, stage.policy, stage.clock.now())
    assert overview.last_tick
    assert overview.last_tick.at == last.iso()
    failure = overview.last_failure
    assert failure
    assert (failure.what, failure.at) == ("a temporary error", stage.clock.now().iso())
    assert "RequestLimitExceeded: slow down" in failure.why


def test_status_shows_the_newest_failure(tmp_path: Path) -> None:
    settings = {"HOLDFAST_DATA": str(tmp_path), "LOG_LEVEL": "error"}
    run = partial(CliRunner().invoke, cli, env=settings, catch_exceptions=False)
    assert run(["tick"]).exit_code == 0
    assert "newest failure" not in run(["status"]).output
    at = SystemClock().now()
    with closing(sqlite_store(tmp_path / "holdfast.db", SystemClock(), tables=TABLES)) as store:
        remember(store, ClusterId("cluster"), Failure("fail_scale_up", at, "2 of 2 machines did not join"))
    shown = " ".join(run(["status"]).output.split())
    assert f"last failure {at.iso_seconds()}: fail_scale_up: 2 of 2 machines did not join" in shown
    failure = json.loads(run(["status", "--json"]).output)["lastFailure"]
    assert failure == {"what": "fail_scale_up", "at": at.iso(), "why": "2 of 2 machines did not join"}


def test_files_of_a_tick_are_readable_by_its_own_user_only_and_leave_no_sqlite_log(tmp_path: Path) -> None:
    settings = {"HOLDFAST_DATA": str(tmp_path), "LOG_LEVEL": "error"}
    assert CliRunner().invoke(cli, ["tick"], env=settings, catch_exceptions=False).exit_code == 0
    modes = {path.name: path.stat().st_mode & 0o777 for path in tmp_path.iterdir()}
    assert modes == dict.fromkeys(("holdfast.db", "holdfast.db.lock", "world", "world.lock"), 0o600)


@pytest.mark.parametrize("odd", [{}, {"what": "x", "at": "yesterday", "why": ""}, {"what": 1, "at": 2, "why": 3}])
def test_a_malformed_failure_record_is_ignored(odd: dict[str, Any]) -> None:
    stage = Stage()
    stage.store.put(STATE, {"pk": "cluster#failure", **odd})
    assert newest_failure(stage.store, stage.name) is None


# Hints


def test_a_hint_that_needs_no_action_does_not_prolong_the_invocation() -> None:
    stage = Stage()
    machine = spot_worker(stage)
    store_notice(stage.store, stage.name, machine.id, SpotKind.REBALANCE, stage.clock.now())
    ran = run_ticks(stage.cluster(), "a", 55)
    assert ran.ticks == 1
    assert machine.id in stage.open_notices


@pytest.mark.parametrize(
    ("kind", "rebalance"), [(SpotKind.INTERRUPTION, Rebalance.PREFER), (SpotKind.REBALANCE, Rebalance.REPLACE)]
)
def test_a_notice_that_is_acted_on_is_checked_again_within_seconds(kind: SpotKind, rebalance: Rebalance) -> None:
    stage = Stage(policy=Policy(rebalance=rebalance))
    machine = spot_worker(stage)
    store_notice(stage.store, stage.name, machine.id, kind, stage.clock.now())
    began = stage.clock.monotonic_seconds()
    ran = run_ticks(stage.cluster(), "a", 55)
    assert ran.ticks > 3
    assert is_unfinished(ran.last)
    assert stage.clock.monotonic_seconds() - began >= AGAIN_SECONDS * 3
