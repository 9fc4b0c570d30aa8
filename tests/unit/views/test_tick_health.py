"""`/readyz` does not say ok while ticks fail; `/healthz` does, since a restart would fix nothing."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cluster.plan import TickResult
from holdfast.cluster.spot.notice import SpotKind, store_notice
from holdfast.cluster.tick import tick
from holdfast.console.http.live import Live
from holdfast.console.metrics.registry import Metrics
from holdfast.entrypoints.observers import Observers
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable, StoreRefused
from holdfast.kernel.settings import load_settings
from holdfast.ports.kube import KubeUnavailable
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.world.k3s import Workload
from holdfast.views.latest_tick import LatestTick
from holdfast.views.tick_health import TickHealth
from tests.call_gate import CallGate, CallPoint, PortCall
from tests.clocks import StillClock
from tests.simulation.harness import Stage
from tests.support.application import ServedWorld, ask, fail_with
from tests.support.server_process import next_line, running

ARN = "arn:aws:iam::123456789012:role/holdfast"


class Watched:
    """The tick health of a process that reports its ticks, a minute apart."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.tick_seconds = 60.0
        self.pulse = TickHealth(self.clock, lambda: self.tick_seconds)
        self.watching = Observers(Metrics("1.2.3"), LatestTick(), Live(), self.pulse)

    def failed(self, error: HoldfastError) -> None:
        self.watching.failed(error, self.clock.now())

    def ticked(self, ticked: TickResult) -> None:
        self.watching.ticked(ticked)

    @property
    def text(self) -> str:
        problem = self.pulse.problem()
        return problem.text if problem else "ok"


@pytest.fixture(scope="module")
def quiet() -> TickResult:
    return tick(Stage().cluster(), "a")


def test_before_the_first_tick_completes_it_is_ready_for_a_while() -> None:
    watched = Watched()
    assert watched.text == "ok"
    watched.clock.advance(241)
    assert watched.text == "no tick has completed for 241 s; 240 s are allowed; one may be hanging"


def test_a_process_whose_first_tick_fails_is_not_ready_at_once(quiet: TickResult) -> None:
    """For example with wrong credentials: a rollout fails at the first tick."""
    watched = Watched()
    watched.failed(NeedsOperator(f"{ARN} may not"))
    assert watched.text == (
        "no tick has completed since startup; the newest failure is an error that needs an operator"
    )
    watched.ticked(quiet)
    assert watched.text == "ok"


def test_a_failure_between_successful_ticks_does_not_matter(quiet: TickResult) -> None:
    watched = Watched()
    watched.ticked(quiet)
    for _ in range(4):
        watched.clock.advance(60)
        watched.failed(KubeUnavailable("slow"))
        assert watched.text == "ok"
    watched.clock.advance(60)
    assert watched.text.startswith("no tick has completed for 300 s; 240 s are allowed; the newest failure is")
    watched.ticked(quiet)
    assert watched.text == "ok"


def test_the_limit_follows_the_tick_interval(quiet: TickResult) -> None:
    """The current one: that of a simulated world may change."""
    watched = Watched()
    watched.ticked(quiet)
    watched.clock.advance(300)
    assert watched.text != "ok"
    watched.tick_seconds = 3600.0
    assert watched.text == "ok"


def holding(stage: Stage) -> None:
    until = stage.clock.now().plus(3000).epoch_seconds
    stage.store.update(STATE, Key("cluster"), set_all({"lockOwner": "other", "lockUntilEpoch": until}))


def test_a_process_that_stands_by_for_another_is_ready() -> None:
    """It could observe. With a notice it even takes urgent steps, and stops only before the lease."""
    stage, watched = Stage(workers=0), Watched()
    holding(stage)
    with pytest.raises(Retryable) as standing:
        tick(stage.cluster(), "a")
    assert isinstance(standing.value, HoldfastError)
    watched.failed(standing.value)
    assert watched.text == "ok"
    watched.failed(NeedsOperator("x"))
    busy = Stage(workers=3)
    store_notice(busy.store, busy.name, busy.alive[0].id, SpotKind.INTERRUPTION, busy.clock.now())
    holding(busy)
    ticked = tick(busy.cluster(), "b")
    assert "lease held by other" in (ticked.stopped or "")
    watched = Watched()
    watched.clock.advance(300)
    watched.ticked(ticked)
    assert watched.text == "ok"


def test_a_tick_stopped_by_an_error_does_not_count_as_successful() -> None:
    stage, watched = Stage(workers=4), Watched()

    def hook(call: PortCall, moment: CallPoint) -> None:
        if (call.port, call.method, moment) == ("kube", "change_node", CallPoint.BEFORE):
            raise KubeUnavailable(f"{ARN} is away")

    stage.world.k3s.run(Workload("web", 4))
    stage.tick_until(lambda: stage.state.down is not None)
    ticked = tick(stage.cluster(CallGate(hook)), "a")
    assert ticked.has_failed
    watched.ticked(ticked)
    assert watched.text == "no tick has completed since startup; the newest failure is a tick that was cut short"


def test_readyz_names_the_problem_and_no_details_of_the_account() -> None:
    """It is public. The system page, which needs a sign-in, has the full reason."""
    watched = Watched()
    served = replace(ServedWorld().served(), ticks=watched.pulse.problem)
    assert ask(served, "/readyz").text == "ok"
    watched.failed(NeedsOperator(f"EC2 refuses: {ARN} may not"))
    answer = ask(served, "/readyz")
    assert (answer.status, answer.json["error"]["code"]) == (503, "ticks_failing")
    assert answer.json["error"]["message"] == (
        "no tick has completed since startup; the newest failure is an error that needs an operator; see /system"
    )
    status = ask(served, "/api/status").json
    assert (status["ready"], ARN in status["problem"]) == (False, True)
    assert ask(served, "/healthz").text == "ok"
    assert ask(served, "/readyz/store").text == "ok", "webhooks can be accepted"


def test_readyz_shows_no_details_of_the_account_when_the_store_refuses() -> None:
    served = ServedWorld(probe=fail_with(StoreRefused(f"table x: User: {ARN} is not authorized"))).served()
    for path in ("/readyz", "/readyz/store"):
        answer = ask(served, path)
        assert (answer.status, answer.json["error"]["code"]) == (503, "store_unavailable")
        assert answer.json["error"]["message"] == "a refusal by the store; see /system and the log"
    assert ARN in ask(served, "/api/status").json["problem"]


def test_a_problem_of_the_store_is_reported_first() -> None:
    """Without the store no tick succeeds either."""
    watched = Watched()
    watched.failed(NeedsOperator("x"))
    world = ServedWorld(probe=fail_with(KubeUnavailable("away")))
    for path in ("/readyz", "/readyz/store"):
        answer = ask(replace(world.served(), ticks=watched.pulse.problem), path)
        assert (answer.status, answer.json["error"]["code"]) == (503, "store_unavailable")


def test_a_server_without_ticks_is_ready() -> None:
    """`holdfast serve`: another process ticks, and reports its own health."""
    assert ask(ServedWorld().served(), "/readyz").status == 200


def test_a_daemon_whose_ticks_fail_says_so(tmp_path: Path) -> None:
    with closing(open_store(load_settings({"HOLDFAST_DATA": str(tmp_path / ".holdfast")}))) as store:
        store.put(STATE, {"pk": "cluster", "scalingInProgress": "perhaps"})
    with running(tmp_path) as run:
        while "tick failed" not in (line := next_line(run.process.stderr)):
            assert line, "it ended without a failed tick"
        status, text = run.get("/readyz")
        assert (status, json.loads(text)["error"]["code"]) == (503, "ticks_failing")
        assert "an error that needs an operator" in text
        assert "scalingInProgress" in json.loads(run.get("/api/status")[1])["problem"]
        assert run.get("/healthz") == (200, "ok")
        assert run.get("/readyz/store") == (200, "ok")
