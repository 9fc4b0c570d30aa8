"""The decision log: what became of each tick, also of those that came to nothing."""

import pytest

from holdfast.cluster.glance import glance_words
from holdfast.cluster.lease import LeaseHeld
from holdfast.cluster.log import Entry, entries
from holdfast.cluster.observe import NoLook
from holdfast.cluster.spot import SpotKind
from holdfast.cluster.spot_act import note
from holdfast.cluster.tick import tick
from holdfast.kernel.errors import HoldfastError, StoreUnavailable, TableProblem
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import MachineError, Market
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import LOGS, STATE
from holdfast.simulator.gate import Gate, Moment, PortCall
from holdfast.simulator.k3s import Workload
from tests.simulation.conftest import StageMaker
from tests.simulation.harness import Stage

# Ahead of any clock that this is run by: DynamoDB Local removes what has expired by its own clock, not by the world's.
START = Instant.from_iso("2100-01-15T08:00:00Z")


def logged(stage: Stage) -> list[Entry]:
    return list(entries(stage.store, ClusterId("cluster"), START, stage.clock.now()))


def failing(port: str, method: str, error: HoldfastError) -> Gate:
    def hook(call: PortCall, moment: Moment) -> None:
        if (call.port, call.method, moment) == (port, method, Moment.BEFORE):
            raise error

    return Gate(hook)


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


def test_a_tick_that_could_not_look_is_logged_with_its_reason(stage_of: StageMaker) -> None:
    stage = stage_of(start=START)
    gate = failing("machines", "tagged", MachineError("RequestLimitExceeded", "slow down"))
    assert stage.tick(gate=gate) is None
    (entry,) = logged(stage)
    assert entry.stopped is not None
    assert "EC2 does not tell what machines there are: RequestLimitExceeded: slow down" in entry.stopped
    assert entry.shown()["ticks"] == 1


def test_different_reasons_are_told_apart() -> None:
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

    def hook(call: PortCall, moment: Moment) -> None:
        if call.port == "machines":
            raise MachineError("InternalError", "oops")
        if call.method == "update" and moment is Moment.BEFORE:
            raise why

    with pytest.raises(NoLook):
        tick(stage.cluster(Gate(hook)), "b")
    stage.world.k3s.run(Workload("web", 60))
    with pytest.raises(LeaseHeld):
        tick(stage.cluster(), "c")


def test_a_pod_that_stays_is_told_with_the_budget_that_holds_it(stage_of: StageMaker) -> None:
    stage = stage_of(workers=4, start=START)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    stage.tick_until(lambda: any(entry.told for entry in logged(stage)))
    (told,) = next(entry.told for entry in logged(stage) if entry.told)
    assert told.startswith("pod default/db-")
    assert "The disruption budget db needs 4 healthy pods and has 4 currently" in told


def test_launches_and_refusals_are_told(stage_of: StageMaker) -> None:
    stage = stage_of(start=START)
    for subnet in stage.world.subnets:
        stage.world.ec2.run_out("t3.medium", subnet.zone, Market.SPOT)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.up is not None)
    told = logged(stage)[-1].told
    assert told[0].startswith("no t3.medium in eu-west-1c, spot: InsufficientInstanceCapacity")
    assert told[-1] == f"launched {stage.alive[-1].id}: t3a.medium in eu-west-1c, spot"


def test_what_is_logged_as_seen_is_what_the_rules_saw(stage_of: StageMaker) -> None:
    """The tick that begins an action saw none; the action is in its steps, and in what the next tick saw."""
    stage = stage_of(start=START)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick_until(lambda: stage.state.up is not None)
    began, action = logged(stage)[-1], stage.state.up
    assert action is not None
    assert began.steps[0]["kind"] == "begin_scale_up"
    assert began.seen is not None
    assert (began.seen["action"], began.seen["phase"], began.seen["expected"]) == (None, None, 2)
    assert {"name": "no_action_under_way", "verdict": "yes", "value": "none", "limit": "none"} in began.rules
    stage.tick()
    seen = logged(stage)[-1].seen
    assert seen is not None
    assert (seen["action"], seen["phase"]) == (action.action, "VERIFYING")
    assert seen["fence"] > began.seen["fence"]


def test_a_tick_that_had_to_look_again_logs_the_look_by_which_it_acted() -> None:
    """Another process begins a scale-up between its look and its lease: it saw none, looks again, and carries it on."""
    stage = Stage(start=START)
    stage.world.k3s.run(Workload("web", 25))
    stage.tick()
    inner: list[str] = []

    def hook(call: PortCall, moment: Moment) -> None:
        if (call.port, call.method, moment) == ("signals", "pending_pods", Moment.AFTER) and not inner:
            inner.append("looked")
            assert stage.tick(seconds=0) is not None

    stage.clock.sleep(300)
    assert not stage.state.is_acting
    assert tick(stage.cluster(Gate(hook)), "outer").stopped is None
    outer = next(entry for entry in logged(stage) if entry.key.endswith("outer"))
    assert outer.seen is not None
    assert stage.state.up is not None
    assert outer.seen["action"] == stage.state.up.action
    assert [rule["verdict"] for rule in outer.rules if rule["name"] == "no_action_under_way"] == ["no", "no"]


def test_what_was_seen_is_numbers_and_what_was_not_says_why(stage_of: StageMaker) -> None:
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
    assert glance_words(first.seen) == OLD_SEEN
    assert glance_words(second.seen) == blind
    assert [second.seen[name] for name in ("cpu", "pending", "nodes", "action", "paused")] == [None] * 4 + [False]
    assert second.seen["unknown"] == {"cpu": "no data", "pending": "x", "nodes": "refused"}
    assert second.seen["ready_elsewhere"] == {"nodes": 3, "workers": 2}


def test_a_spot_interruption_is_logged_from_its_notice_to_its_end(stage_of: StageMaker) -> None:
    """Each of its steps, with the machine; and the notice among what the ticks saw meanwhile."""
    stage = stage_of(workers=3, start=START)
    stage.world.k3s.run(Workload("web", 24))
    stage.tick()
    victim = stage.alive[0].id
    stage.world.ec2.interrupt(victim)
    note(stage.store, stage.name, victim, SpotKind.INTERRUPTION, stage.clock.now())
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
