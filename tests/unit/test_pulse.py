"""`/readyz` does not say ok while ticks fail; `/healthz` does, since a restart would mend nothing."""

import json
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cluster.plan import Ticked
from holdfast.cluster.spot import SpotKind
from holdfast.cluster.spot_act import note
from holdfast.cluster.tick import tick
from holdfast.console.live import Live
from holdfast.console.metrics import Metrics
from holdfast.entrypoints.last_look import LastLook
from holdfast.entrypoints.pulse import Pulse
from holdfast.entrypoints.watching import Watching
from holdfast.entrypoints.wiring import open_store
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable, StoreRefused
from holdfast.kernel.settings import load_settings
from holdfast.ports.kube import KubeUnavailable
from holdfast.ports.store import Key, set_all
from holdfast.ports.store.tables import STATE
from holdfast.simulator.gate import Gate, Moment, PortCall
from holdfast.simulator.k3s import Workload
from tests.clocks import StillClock
from tests.simulation.harness import Stage
from tests.unit.test_server import World, ask, fail_with, next_line, running

ARN = "arn:aws:iam::123456789012:role/holdfast"


class Watched:
    """The pulse of a process that is told of ticks; a minute between them."""

    def __init__(self) -> None:
        self.clock = StillClock()
        self.tick_seconds = 60.0
        self.pulse = Pulse(self.clock, lambda: self.tick_seconds)
        self.watching = Watching(Metrics("1.2.3"), LastLook(), Live(), self.pulse)

    def failed(self, error: HoldfastError) -> None:
        self.watching.failed(error, self.clock.now())

    def ticked(self, ticked: Ticked) -> None:
        self.watching.ticked(ticked)

    @property
    def text(self) -> str:
        problem = self.pulse.problem()
        return problem.text if problem else "ok"


@pytest.fixture(scope="module")
def quiet() -> Ticked:
    return tick(Stage().cluster(), "a")


def test_before_the_first_tick_has_ended_it_is_ready_for_a_while() -> None:
    watched = Watched()
    assert watched.text == "ok"
    watched.clock.advance(241)
    assert watched.text == "no tick has come to its end for 241 s, and 240 s are allowed; one may hang"


def test_what_has_never_worked_is_not_ready_at_once(quiet: Ticked) -> None:
    """Wrong credentials, say: whoever rolls it out is told by the first tick."""
    watched = Watched()
    watched.failed(NeedsOperator(f"{ARN} may not"))
    assert watched.text == "no tick has come to its end since the start; the newest failure is NeedsOperator"
    watched.ticked(quiet)
    assert watched.text == "ok"


def test_a_failure_between_ticks_that_work_is_no_matter(quiet: Ticked) -> None:
    watched = Watched()
    watched.ticked(quiet)
    for _ in range(4):
        watched.clock.advance(60)
        watched.failed(KubeUnavailable("slow"))
        assert watched.text == "ok"
    watched.clock.advance(60)
    assert watched.text.startswith(
        "no tick has come to its end for 300 s, and 240 s are allowed; the newest failure is"
    )
    watched.ticked(quiet)
    assert watched.text == "ok"


def test_the_bound_follows_the_interval_of_the_ticks(quiet: Ticked) -> None:
    """Of the moment: a simulated world's may change."""
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
    """It could look. With a notice it even does what is urgent, and stops only before the lease."""
    stage, watched = Stage(workers=0), Watched()
    holding(stage)
    with pytest.raises(Retryable) as standing:
        tick(stage.cluster(), "a")
    assert isinstance(standing.value, HoldfastError)
    watched.failed(standing.value)
    assert watched.text == "ok"
    watched.failed(NeedsOperator("x"))
    busy = Stage(workers=3)
    note(busy.store, busy.name, busy.alive[0].id, SpotKind.INTERRUPTION, busy.clock.now())
    holding(busy)
    ticked = tick(busy.cluster(), "b")
    assert "lease held by other" in (ticked.stopped or "")
    watched = Watched()
    watched.clock.advance(300)
    watched.ticked(ticked)
    assert watched.text == "ok"


def test_a_tick_that_an_error_stops_is_none_that_works() -> None:
    stage, watched = Stage(workers=4), Watched()

    def hook(call: PortCall, moment: Moment) -> None:
        if (call.port, call.method, moment) == ("kube", "change_node", Moment.BEFORE):
            raise KubeUnavailable(f"{ARN} is away")

    stage.world.k3s.run(Workload("web", 4))
    stage.tick_until(lambda: stage.state.down is not None)
    ticked = tick(stage.cluster(Gate(hook)), "a")
    assert ticked.has_failed
    watched.ticked(ticked)
    assert watched.text == "no tick has come to its end since the start; the newest failure is Stopped"


def test_readyz_tells_which_rule_and_nothing_of_the_account() -> None:
    """Anybody may ask it. Who may see the system's page finds the whole reason there."""
    watched = Watched()
    served = replace(World().served(), ticks=watched.pulse.problem)
    assert ask(served, "/readyz").text == "ok"
    watched.failed(NeedsOperator(f"EC2 refuses: {ARN} may not"))
    answer = ask(served, "/readyz")
    assert (answer.status, answer.json["error"]["code"]) == (503, "ticks_failing")
    assert answer.json["error"]["message"] == (
        "no tick has come to its end since the start; the newest failure is NeedsOperator; /system says more"
    )
    status = ask(served, "/api/status").json
    assert (status["ready"], ARN in status["problem"]) == (False, True)
    assert ask(served, "/healthz").text == "ok"
    assert ask(served, "/readyz/store").text == "ok", "webhooks can be taken in"


def test_readyz_tells_nothing_of_the_account_when_the_store_refuses_either() -> None:
    served = World(probe=fail_with(StoreRefused(f"table x: User: {ARN} is not authorized"))).served()
    for path in ("/readyz", "/readyz/store"):
        answer = ask(served, path)
        assert (answer.status, answer.json["error"]["code"]) == (503, "store_unavailable")
        assert answer.json["error"]["message"] == "StoreRefused; /system and the log say more"
    assert ARN in ask(served, "/api/status").json["problem"]


def test_the_store_comes_first() -> None:
    """Without it no tick works either."""
    watched = Watched()
    watched.failed(NeedsOperator("x"))
    world = World(probe=fail_with(KubeUnavailable("away")))
    for path in ("/readyz", "/readyz/store"):
        answer = ask(replace(world.served(), ticks=watched.pulse.problem), path)
        assert (answer.status, answer.json["error"]["code"]) == (503, "store_unavailable")


def test_a_server_without_ticks_has_none_that_fail() -> None:
    """`holdfast serve`: the process that ticks answers for them."""
    assert ask(World().served(), "/readyz").status == 200


def test_a_daemon_whose_ticks_fail_says_so(tmp_path: Path) -> None:
    with closing(open_store(load_settings({"HOLDFAST_DATA": str(tmp_path / ".holdfast")}))) as store:
        store.put(STATE, {"pk": "cluster", "scalingInProgress": "perhaps"})
    with running(tmp_path) as run:
        while "tick failed" not in (line := next_line(run.process.stderr)):
            assert line, "it ended without a tick that failed"
        status, text = run.get("/readyz")
        assert (status, json.loads(text)["error"]["code"]) == (503, "ticks_failing")
        assert "StateDamaged" in text
        assert "scalingInProgress" in json.loads(run.get("/api/status")[1])["problem"]
        assert run.get("/healthz") == (200, "ok")
        assert run.get("/readyz/store") == (200, "ok")
