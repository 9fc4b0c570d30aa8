"""The decision log: the outcome of each tick, including those that failed."""

import pytest

from holdfast.cluster.observe import NoLook
from holdfast.cluster.spot.notice import SpotKind, store_notice
from holdfast.cluster.tick import tick
from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.decision_log import Entry
from holdfast.control.lease import LeaseHeld
from holdfast.kernel.errors import HoldfastError, StoreUnavailable, TableProblem
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError, Market
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import LOGS, STATE
from holdfast.simulator.world.k3s import Workload
from holdfast.views.decisions import observed
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import Stage, StageMaker

# Later than the clock of any test run: DynamoDB Local removes what has expired by its own clock, not by the world's.
START = Instant.from_iso("2100-01-15T08:00:00Z")


def logged(stage: Stage) -> list[Entry]:
    return list(cluster_log(stage.store, ClusterId("cluster")).entries(START, stage.clock.now()))


def failing(port: str, method: str, error: HoldfastError) -> CallGate:
    def hook(call: PortCall, moment: CallPoint) -> None:
        if (call.port, call.method, moment) == (port, method, CallPoint.BEFORE):
            raise error

    return CallGate(hook)


def test_a_tick_that_stood_by_is_logged_once_for_five_minutes(stage_of: StageMaker) -> None:
    stage = stage_of(workers=0, start=START)
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))
    for _ in range(4):
        assert stage.tick() is None
    (entry,) = logged(stage)
    assert (entry.kind, entry.ticks) == ("no-tick", 4)
    assert entry.stopped is not None
    assert "lease held by other" in entry.stopped
    for _ in range(3):
        stage.tick()
    assert [entry.ticks for entry in logged(stage)] == [4, 3]


def test_a_tick_that_could_not_observe_is_logged_with_its_reason(stage_of: StageMaker) -> None:
    stage = stage_of(start=START)
    gate = failing("machines", "tagged", MachineError("RequestLimitExceeded", "slow down"))
    assert stage.tick(gate=gate) is None
    (entry,) = logged(stage)
    assert entry.stopped is not None
    assert "EC2 did not list machines: RequestLimitExceeded: slow down" in entry.stopped
    assert entry.shown()["ticks"] == 1


def test_different_reasons_are_logged_separately() -> None:
    stage = Stage(workers=0, start=START)
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))
    stage.tick(seconds=10)
    stage.tick(seconds=10, gate=failing("machines", "subnets", MachineError("InternalError", "oops")))
    assert sorted((entry.stopped or "")[:5] for entry in logged(stage)) == ["EC2 d", "lease"]


@pytest.mark.parametrize("why", [StoreUnavailable("no answer"), TableProblem("there is no LOGS_TABLE")])
def test_a_log_that_cannot_be_written_neither_fails_the_tick_nor_hides_its_error(why: HoldfastError) -> None:
    stage = Stage(start=START)
    stage.clock.sleep(60)
    assert tick(stage.cluster(failing("store", "put", why)), "a").stopped is None
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))

    def hook(call: PortCall, moment: CallPoint) -> None:
        if call.port == "machines":
            raise MachineError("InternalError", "oops")
        if call.method == "update" and moment is CallPoint.BEFORE:
            raise why

    with pytest.raises(NoLook):
        tick(stage.cluster(CallGate(hook)), "b")
    stage.world.k3s.run(Workload("web", 60))
    with pytest.raises(LeaseHeld):
        tick(stage.cluster(), "c")


def test_a_pod_that_stays_is_logged_with_the_budget_that_blocks_it(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4, start=START)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.tick_until(lambda: any(entry.reports for entry in logged(stage)))
    (report,) = next(entry.reports for entry in logged(stage) if entry.reports)
    assert report.startswith("pod default/db-")
    assert "The disruption budget db needs 4 healthy pods and has 4 currently" in report


def test_launches_and_refusals_are_logged(stage_of: StageMaker) -> None:
    stage = stage_of(start=START)
    for subnet in stage.world.subnets:
        stage.world.ec2.run_out("t3.medium", subnet.zone, Market.SPOT)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.up is not None)
    reports = logged(stage)[-1].reports
    assert reports[0].startswith("no t3.medium in eu-west-1c, spot: InsufficientInstanceCapacity")
    assert reports[-1] == f"launched {stage.alive[-1].id}: t3a.medium in eu-west-1c, spot"


def test_the_logged_observation_is_what_the_rules_saw(stage_of: StageMaker) -> None:
    """The tick that begins an action saw none; the action is in its steps, and in the next tick's observation."""
    stage = stage_of(start=START)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.up is not None)
    began, action = logged(stage)[-1], stage.state.up
    assert action is not None
    assert began.steps[0]["kind"] == "begin_scale_up"
    assert began.seen is not None
    assert (began.seen["action"], began.seen["phase"], began.seen["expected"]) == (None, None, 2)
    waiting = {"name": "no_action_under_way", "group": "add", "verdict": "yes", "value": "none", "limit": "none"}
    assert waiting in began.rules
    stage.tick()
    seen = logged(stage)[-1].seen
    assert seen is not None
    assert (seen["action"], seen["phase"]) == (action.action, "VERIFYING")
    assert seen["fence"] > began.seen["fence"]


def test_a_tick_that_observed_twice_logs_the_observation_it_acted_on() -> None:
    """Another process begins a scale-up between its observation and its lease: it observes again, and continues it."""
    stage = Stage(start=START)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick()
    inner: list[str] = []

    def hook(call: PortCall, moment: CallPoint) -> None:
        if (call.port, call.method, moment) == ("signals", "pending_pods", CallPoint.AFTER) and not inner:
            inner.append("looked")
            assert stage.tick(seconds=0) is not None

    stage.clock.sleep(300)
    assert not stage.state.is_acting
    assert tick(stage.cluster(CallGate(hook)), "outer").stopped is None
    outer = next(entry for entry in logged(stage) if entry.key.endswith("outer"))
    assert outer.seen is not None
    assert stage.state.up is not None
    assert outer.seen["action"] == stage.state.up.action
    assert [rule["verdict"] for rule in outer.rules if rule["name"] == "no_action_under_way"] == ["no", "no"]


def test_an_observation_is_logged_as_numbers_and_an_unknown_value_with_its_reason(stage_of: StageMaker) -> None:
    stage = stage_of(start=START)
    stage.world.k3s.run(Workload("web", 25))
    stage.world.prometheus.is_away = True
    stage.tick()
    seen = logged(stage)[-1].seen
    assert seen is not None
    assert (seen["workers"], seen["nodes"], seen["cpu"]) == (2, 2, None)
    assert seen["unknown"].keys() == {"cpu"}
    assert seen["pending"]["pods"] == 5
    stage.world.prometheus.is_away = False
    stage.tick()
    seen = logged(stage)[-1].seen
    assert seen is not None
    assert isinstance(seen["cpu"], float)
    assert seen["unknown"] == {}


OLD_SEEN = {
    "workers": "3",
    "expected": "4",
    "cpu": "0.71",
    "pending": "12 pods, the oldest for 95 s",
    "nodes": "3",
    "action": "7#a",
    "phase": "VERIFYING",
    "notices": "1",
    "paused": "yes",
    "fence": "41",
}


def test_a_record_of_an_older_version_is_read_in_the_new_shape(stage_of: StageMaker) -> None:
    """It had words where numbers are now."""
    stage = stage_of(start=START)
    now = stage.clock.now()
    blind = {
        **OLD_SEEN,
        "cpu": "unknown: no data",
        "pending": "unknown: x",
        "nodes": "unknown: refused; Prometheus sees 3 Ready, 2 of them our workers",
        "action": "none",
        "phase": "none",
        "paused": "no",
    }
    for number, seen in enumerate((OLD_SEEN, blind)):
        at = now.plus(number)
        key = {"pk": f"cluster#{at.date()}", "sk": f"{at.epoch_ms:013d}#tick#old"}
        old = {"at": at.iso(), "seen": seen, "rules": [], "steps": [], "ttl": at.plus(86_400).epoch_seconds}
        stage.store.put(LOGS, {**key, **old})
    stage.clock.sleep(10)
    first, second = logged(stage)
    assert first.seen == {
        "workers": 3,
        "expected": 4,
        "cpu": 0.71,
        "pending": {"pods": 12, "oldest_seconds": 95},
        "nodes": 3,
        "ready_elsewhere": None,
        "unknown": {},
        "action": "7#a",
        "phase": "VERIFYING",
        "notices": 1,
        "paused": True,
        "fence": 41,
    }
    assert second.seen is not None
    assert observed(first.seen).words() == OLD_SEEN
    assert observed(second.seen).words() == blind
    assert [second.seen[name] for name in ("cpu", "pending", "nodes", "action", "paused")] == [None] * 4 + [False]
    assert second.seen["unknown"] == {"cpu": "no data", "pending": "x", "nodes": "refused"}
    assert second.seen["ready_elsewhere"] == {"nodes": 3, "workers": 2}


def test_a_spot_interruption_is_logged_from_its_notice_to_its_end(stage_of: StageMaker) -> None:
    """Each of its steps, with the machine; and the notice in the observations of the ticks meanwhile."""
    stage = stage_of(workers=3, start=START)
    stage.world.k3s.run(Workload("web", 24))
    stage.tick()
    victim = stage.alive[0].id
    stage.world.ec2.interrupt(victim)
    store_notice(stage.store, stage.name, victim, SpotKind.INTERRUPTION, stage.clock.now())
    stage.tick_until(lambda: not stage.open_notices, seconds=10)
    steps = [step["kind"] for entry in logged(stage) for step in entry.steps if step.get("instance") == victim]
    assert list(dict.fromkeys(steps)) == [
        "cordon_interrupted",
        "plan_replacement",
        "launch_replacement",
        "evict_interrupted",
        "enter_spot_phase",
        "terminate_interrupted",
        "accept_replacement",
        "close_notice",
    ]
    seen = [entry.seen["notices"] for entry in logged(stage) if entry.seen]
    assert (seen[0], seen[1], seen[-1]) == (0, 1, 1)


def test_the_log_is_kept_for_thirty_days() -> None:
    stage = Stage(start=START)
    stage.tick()
    key = Key(f"cluster#{START.date()}", logged(stage)[0].key)
    stage.clock.sleep(29 * 86_400)
    assert stage.store.get(LOGS, key) is not None
    stage.clock.sleep(2 * 86_400)
    assert stage.store.get(LOGS, key) is None
