"""The daemon sleeps through none of its own limits, and nothing keeps it awake."""

import logging
from collections.abc import Callable
from itertools import pairwise

import pytest

from holdfast.cluster.plan import TickResult
from holdfast.cluster.policy import Choices, Policy
from holdfast.cluster.spot.notice import SpotKind, SpotPhase, notice_key, store_notice
from holdfast.cluster.tick import run_ticks
from holdfast.control.lease import SKEW_SECONDS
from holdfast.control.tick_loop import AGAIN_SECONDS
from holdfast.entrypoints.daemon import Ticker
from holdfast.entrypoints.tick_reports import TickCallbacks, TickReports
from holdfast.entrypoints.wiring.world import OpenWorld
from holdfast.kernel.errors import Retryable
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.k3s import Workload
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.simulation.harness import TAGS, Stage

LATE_SECONDS = 2.0


class Daemon:
    """The daemon's ticks on virtual time: it sleeps as long as the ticker says."""

    def __init__(self, stage: Stage, every: float = 60, gate: CallGate | None = None) -> None:
        self.stage = stage
        self.ticks: list[tuple[Instant, TickResult]] = []
        self.waits: list[float] = []
        cluster = stage.cluster(gate)
        world = OpenWorld(stage.clock, stage.machines, cluster.writes.kube, cluster.reads.signals, [], "", "", None)  # type: ignore[arg-type]
        callbacks = TickCallbacks(lambda result: self.ticks.append((result.looked.now, result)))
        self._ticker = Ticker(cluster, world, TickReports(cluster, [], callbacks), every)

    def tick(self) -> float:
        self.waits.append(self._ticker.run())
        return self.waits[-1]

    def run_for(self, seconds: float) -> None:
        end = self.stage.clock.now().plus(seconds)
        while self.stage.clock.now() < end:
            self.stage.clock.sleep(self.tick())

    def run_until(self, condition: Callable[[], bool], most: int = 400) -> None:
        while not condition():
            assert len(self.waits) < most, self.stage.state
            self.stage.clock.sleep(self.tick())

    def first(self, kind: str) -> Instant:
        """When a step of this kind was first done."""
        return next(now for now, result in self.ticks if kind in [step.kind for step in result.done])


def is_on_time(done: Instant, allowed: Instant) -> bool:
    return 0 <= done.seconds_since(allowed) <= LATE_SECONDS


@pytest.mark.parametrize("every", [60, 3600])
@pytest.mark.parametrize("begins_after", [1, 13.7, 41, 59])
def test_a_launch_comes_as_soon_as_pods_have_been_pending_long_enough(every: float, begins_after: float) -> None:
    """TICK_SEC=60 and PENDING_UP_SEC=20: up to 45 s late, once."""
    stage = Stage(policy=Policy(pending_up_seconds=20))
    stage.clock.sleep(begins_after)
    stage.world.k3s.run(Workload("web", 35))
    stage.clock.sleep(5)
    daemon = Daemon(stage, every)
    daemon.run_until(lambda: stage.state.up is not None)
    since = daemon.ticks[0][1].plan.timers.pending_since
    assert since is not None
    assert is_on_time(daemon.first("launch_slot"), since.plus(20))


def test_a_launch_comes_as_soon_as_the_cooldown_is_over() -> None:
    stage = Stage(policy=Policy(cooldown_up_seconds=317))
    stage.world.k3s.run(Workload("web", 35))
    daemon = Daemon(stage)
    daemon.run_until(lambda: stage.state.last_scale.epoch_ms > 0)
    over = stage.state.last_scale.plus(317)
    daemon.ticks.clear()
    stage.world.k3s.run(Workload("more", 40))
    daemon.run_until(lambda: stage.state.up is not None)
    assert is_on_time(daemon.first("begin_scale_up"), over)


def test_a_launch_comes_as_soon_as_the_back_off_is_over() -> None:
    stage = Stage()
    stage.world.joins = False
    stage.world.k3s.run(Workload("web", 35))
    daemon = Daemon(stage, every=3600)
    daemon.run_until(lambda: stage.state.up_failures > 0)
    over = stage.state.up_backoff_until
    daemon.ticks.clear()
    daemon.run_until(lambda: stage.state.up is not None)
    assert is_on_time(daemon.first("begin_scale_up"), over)


def test_a_launch_comes_as_soon_as_a_pool_may_be_tried_again() -> None:
    stage = Stage(choices=Choices(("t3.medium",)), policy=Policy(max_batch_up=1))
    for subnet in stage.world.subnets:
        for market in Market:
            stage.world.ec2.run_out("t3.medium", subnet.zone, market)
    stage.world.k3s.run(Workload("web", 35))
    daemon = Daemon(stage, every=3600)
    daemon.run_until(lambda: stage.state.up_failures > 0)
    pools = stage.cluster().look()[0].failures
    allowed = max(stage.state.up_backoff_until, min(failure.until for failure in pools.values()))
    assert allowed > stage.state.up_backoff_until
    daemon.ticks.clear()
    daemon.run_until(lambda: stage.state.action_seq > 1)
    assert is_on_time(daemon.first("begin_scale_up"), allowed)


def test_a_scale_down_comes_as_soon_as_the_cluster_has_been_idle_long_enough() -> None:
    stage = Stage(workers=5)
    stage.world.k3s.run(Workload("web", 4))
    stage.clock.sleep(7)
    daemon = Daemon(stage, every=3600)
    daemon.run_until(lambda: stage.state.down is not None)
    since = daemon.ticks[0][1].plan.timers.idle_since
    assert since is not None
    assert is_on_time(daemon.first("begin_scale_down"), since.plus(600))


def test_machines_that_do_not_join_are_given_up_at_the_join_timeout() -> None:
    stage = Stage()
    stage.world.joins = False
    stage.world.k3s.run(Workload("web", 35))
    daemon = Daemon(stage)
    daemon.run_until(lambda: stage.state.up is not None and stage.state.up.phase_since is not None)
    assert stage.state.up is not None
    since = stage.state.up.phase_since
    assert since is not None
    daemon.run_until(lambda: stage.state.up_failures > 0)
    assert is_on_time(daemon.first("terminate_unjoined"), since.plus(stage.policy.join_timeout_seconds))


def test_a_drain_that_cannot_finish_is_aborted_at_its_limit() -> None:
    stage = Stage(workers=4)
    stage.world.k3s.run(Workload("db", 4, max_unavailable=0))
    daemon = Daemon(stage)
    daemon.run_until(lambda: stage.state.down is not None and stage.state.down.drain_started is not None)
    assert stage.state.down is not None
    began = stage.state.down.drain_started
    assert began is not None
    daemon.run_until(lambda: stage.state.down is None)
    assert is_on_time(daemon.first("abort_scale_down"), began.plus(stage.policy.drain_seconds))


def test_an_interrupted_machine_is_left_to_ec2_on_time() -> None:
    stage = Stage(workers=2)
    spot = stage.world.add_worker("eu-west-1a", TAGS, "spot")
    stage.world.k3s.run(Workload("web", 20, max_unavailable=0))
    stage.clock.sleep(60)
    noticed = stage.clock.now()
    store_notice(stage.store, stage.name, spot.id, SpotKind.INTERRUPTION, noticed)
    daemon = Daemon(stage)
    daemon.run_until(lambda: (stage.store.get(STATE, notice_key(spot.id)) or {}).get("phase") == str(SpotPhase.EXPIRED))
    whole = Instant.from_epoch_seconds(noticed.epoch_seconds)
    assert is_on_time(daemon.first("enter_spot_phase"), whole.plus(110))


def test_the_work_of_a_dead_process_is_resumed_as_soon_as_its_lease_expires() -> None:
    stage = Stage()
    stage.world.k3s.run(Workload("web", 35))
    stage.clock.sleep(300)
    until = stage.clock.now().plus(25).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "dead", "lockUntilEpoch": until}))
    daemon = Daemon(stage)
    daemon.run_until(lambda: stage.state.lock_owner != "dead")
    taken = daemon.ticks[0][0]
    assert is_on_time(taken, Instant.from_epoch_seconds(until + SKEW_SECONDS))
    assert len(daemon.waits) == 2


# Nothing keeps it awake


@pytest.mark.parametrize("pods", [0, 18, 35, 400])
def test_limits_cost_a_few_ticks_and_no_more(pods: int) -> None:
    """Paused, so that no action shortens the interval: pods stay pending, limits are reached, and stay reached."""
    stage = Stage(workers=4)
    stage.store.put(STATE, {"pk": "cluster#pause", "paused": True})
    if pods:
        stage.world.k3s.run(Workload("web", pods))
    daemon = Daemon(stage)
    daemon.run_for(3600)
    assert 60 <= len(daemon.ticks) <= 60 + 6
    assert min(daemon.waits) >= 1


def test_a_limit_that_passes_while_the_tick_runs_is_looked_at_a_second_later() -> None:
    stage = Stage(policy=Policy(pending_up_seconds=20))
    stage.world.k3s.run(Workload("web", 35))
    stage.clock.sleep(5)

    def slow(call: PortCall, point: CallPoint) -> None:
        if (call.method, point) == ("put", CallPoint.AFTER):  # the decision log, at its end
            stage.clock.sleep(30)

    daemon = Daemon(stage, gate=CallGate(slow))
    daemon.run_for(1)
    assert daemon.waits == [1]


def test_a_tick_that_fails_waits_for_the_whole_interval() -> None:
    stage = Stage(policy=Policy(pending_up_seconds=20))
    stage.world.k3s.run(Workload("web", 35))
    stage.clock.sleep(5)
    failing = [False]

    def hook(call: PortCall, _point: CallPoint) -> None:
        if failing[0] and call.port == "store":
            raise Retryable("the store is away")

    daemon = Daemon(stage, gate=CallGate(hook))
    daemon.run_for(1)
    assert daemon.waits[0] < 20
    failing[0] = True
    daemon.waits.clear()
    daemon.run_for(200)
    assert set(daemon.waits) == {60}


def test_the_log_says_when_it_looks_next_and_why_and_only_once(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    stage = Stage(policy=Policy(pending_up_seconds=150))
    stage.world.k3s.run(Workload("web", 35))
    stage.clock.sleep(5)
    daemon = Daemon(stage, every=200)
    for _ in range(3):  # as the watch on pods does
        daemon.tick()
        stage.clock.sleep(10)
    since = daemon.ticks[0][1].plan.timers.pending_since
    assert since is not None
    lines = [record.getMessage() for record in caplog.records if "next look" in record.getMessage()]
    assert lines == [f"next look at {since.plus(150).iso_seconds()}: pods will have been pending long enough"]


# In Lambda


def test_an_invocation_waits_for_a_limit_that_it_can_still_act_on() -> None:
    stage = Stage(policy=Policy(pending_up_seconds=20))
    stage.world.k3s.run(Workload("web", 35))
    stage.clock.sleep(5)
    began = stage.clock.now()
    run_ticks(stage.cluster(), "a", 55)
    launched = [machine.launched for machine in stage.alive if machine.launched > began]
    assert launched
    assert all(moment.seconds_since(began) <= 20 + LATE_SECONDS for moment in launched)


def test_an_invocation_leaves_a_later_limit_to_the_next_one() -> None:
    stage = Stage(policy=Policy(pending_up_seconds=45))
    stage.world.k3s.run(Workload("web", 35))
    began = stage.clock.monotonic_seconds()
    assert run_ticks(stage.cluster(), "a", 55).ticks == 1
    assert stage.clock.monotonic_seconds() - began < 5


def test_an_invocation_whose_ticks_fail_does_not_retry_every_second() -> None:
    stage = Stage(policy=Policy(pending_up_seconds=10))
    stage.world.k3s.run(Workload("web", 35))
    stage.clock.sleep(5)
    looks: list[Instant] = []

    def hook(call: PortCall, point: CallPoint) -> None:
        if call.method == "tagged" and point is CallPoint.BEFORE:
            looks.append(stage.clock.now())
            if len(looks) > 1:
                raise Retryable("EC2 is away")

    run_ticks(stage.cluster(CallGate(hook)), "a", 55)
    gaps = [later.seconds_since(earlier) for earlier, later in pairwise(looks[1:])]
    assert gaps
    assert min(gaps) >= AGAIN_SECONDS
