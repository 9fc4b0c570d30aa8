"""Command output and API responses match the schemas under docs/schema."""

import json
from pathlib import Path
from typing import Any, cast

import pytest
from click.testing import CliRunner
from jsonschema import Draft202012Validator

from holdfast.adapters.memory import memory_store
from holdfast.cli.main import cli
from holdfast.console.http.app import WEBHOOKS_PATH
from holdfast.console.http.cluster_api import ClusterApi
from holdfast.console.http.jobs_api import JobsApi
from holdfast.console.pages.cluster import ClusterPages
from holdfast.console.pages.job_list import JobListPages
from holdfast.console.pages.jobs import JobPages
from holdfast.console.pages.shell import Shell
from holdfast.console.pages.simulator import SimulatorControls, SimulatorPages
from holdfast.console.schema.api_calls import CALLS
from holdfast.console.schema.documents import SCHEMAS, document
from holdfast.console.schema.openapi import openapi
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.errors import BadRequest, StoreUnavailable
from holdfast.kernel.ids import ClusterId
from holdfast.simulator.world.k3s import Workload
from holdfast.views.cluster_status import cluster_status
from holdfast.views.decisions import decisions
from holdfast.views.job_views import JobViews
from holdfast.views.plain_json import to_json
from tests.clocks import StillClock
from tests.payloads import CREATED
from tests.simulation.harness import Stage
from tests.support.answer_schemas import check
from tests.support.console_world import ConsoleWorld

CLUSTER = ClusterId("cluster")


def printed(directory: Path, *arguments: str) -> Any:
    result = CliRunner().invoke(cli, [*arguments, "--json", "--data", str(directory)], catch_exceptions=False)
    assert result.exit_code == 0, result.output
    return json.loads(result.stdout)


@pytest.mark.parametrize("name", SCHEMAS)
def test_every_schema_is_valid(name: str) -> None:
    Draft202012Validator.check_schema(document(name))


def test_a_wrong_object_is_refused_by_every_schema() -> None:
    """A schema that accepts everything would promise nothing."""
    for name in SCHEMAS:
        assert list(Draft202012Validator(document(name)).iter_errors({})), name


def test_ticks_match_their_schema(tmp_path: Path) -> None:
    check("tick-dry-run", printed(tmp_path, "tick", "--dry-run"))
    assert list(tmp_path.iterdir()) == []
    check("tick", printed(tmp_path, "tick"))
    check("cluster", printed(tmp_path, "status"))
    check("decisions", printed(tmp_path, "explain"))
    check("switched", printed(tmp_path, "pause"))
    assert printed(tmp_path, "status")["paused"]["reason"] == ""
    check("switched", printed(tmp_path, "resume"))


def test_the_cluster_matches_its_schema_in_every_phase() -> None:
    """Through a scale-up and a scale-down, at every tick."""
    stage = Stage(workers=5)
    stage.world.k3s.run(Workload("web", 55))
    kinds = set()
    for minute in range(90):
        if minute == 30:
            stage.world.k3s.run(Workload("web", 8))
        stage.tick()
        now = stage.clock.now()
        status = cluster_status(stage.store, CLUSTER, stage.policy, now)
        check("cluster", status)
        kinds.add(status.action.kind if status.action else None)
    assert kinds == {None, "scale-up", "scale-down"}
    check("decisions", decisions(stage.store, CLUSTER, now.plus(-5400), now))


def test_the_pages_data_match_their_schemas_in_every_phase() -> None:
    """Before the first tick, through a scale-up and a scale-down, a lost spot machine, a pause and a failure."""
    world = ConsoleWorld(Stage(workers=5, start=CREATED))
    world.job("queued")
    kinds = set()
    for minute in range(75):
        if minute == 10:
            world.stage.world.k3s.run(Workload("web", 55))
        if minute == 30:
            world.stage.world.k3s.run(Workload("web", 8))
        if minute == 60:
            world.look.failed(StoreUnavailable("the store is away"), world.stage.clock.now())
            world.stage.world.ec2.interrupt(next(iter(world.stage.world.ec2.all_machines())).id)
        if minute % 5 == 0 or minute > 55:
            overview = world.get("/api/overview").json
            check("overview", overview)
            check("cluster-now", world.get("/api/cluster/now", hours="24").json)
            check("cluster-decisions", world.get("/api/cluster/decisions").json)
            check("cluster-decisions", world.get("/api/cluster/decisions", acted="yes").json)
            check("events", world.get("/api/events", q="scale").json)
            check("job-queue", world.get("/api/jobs/queue").json)
            check("deployments", world.get("/api/deployments").json)
            kinds.add((overview["cluster"]["action"] or {}).get("kind"))
        world.tick()
    assert kinds == {None, "scale-up", "scale-down"}
    assert {action["kind"] for action in overview["time_line"]["actions"]} == {"up", "down"}
    assert overview["jobs"]["counts"]["queued"]["jobs"] == 1
    assert overview["cost"]["usd_per_hour"] > 0


def test_pages_of_decisions_show_each_tick_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.views.decisions.PAGE_MOST", 3)
    stage = Stage()
    ticks = 20
    for number in range(ticks):
        stage.tick(seconds=0 if number % 4 else 60)  # several at the same moment
    until = stage.clock.now()
    found: list[str] = []
    cursor, pages = None, 0
    while pages == 0 or cursor:
        page = decisions(stage.store, CLUSTER, until.plus(-3600), until, cursor)
        check("decisions", page)
        found += [json.dumps(to_json(item), sort_keys=True) for item in page.items]
        cursor, pages = page.cursor, pages + 1
    assert len(found) == ticks
    assert pages == 7


@pytest.mark.parametrize(
    "cursor", ["", "x", "1", "1.2.3", "1768465266000#tick", "9" * 20 + "#tick#x", "176846526600\u0661#tick#x"]
)
def test_an_invalid_cursor_is_refused(cursor: str) -> None:
    stage = Stage()
    now = stage.clock.now()
    with pytest.raises(BadRequest, match="is not a cursor"):
        decisions(stage.store, CLUSTER, now.plus(-60), now, cursor)


def test_every_call_of_the_api_is_described() -> None:
    def answer(*_: Any) -> Any:
        return {}

    api = ClusterApi(answer, answer, answer, answer, answer, "token", "secret")
    store, clock = memory_store(StillClock()), StillClock()
    tracking = JobViews(store, clock, Viewing(shipped_prices()), StuckLimits())
    jobs = JobsApi(tracking, answer, "token")
    shell, boards, controls = Shell("1.2.3"), ConsoleWorld().boards, cast(SimulatorControls, None)
    pages = [
        *ClusterPages(shell, boards, answer, answer).routes(),
        *JobListPages(shell, tracking, list, clock.now).routes(),
        *JobPages(shell, tracking, list, clock.now).routes(),
        *SimulatorPages(shell, controls).routes(),
    ]
    routes = [*api.routes(), *jobs.routes(), *(route for route in pages if route.path.startswith("/api/"))]
    routed = {(method, route.path) for route in routes for method in (route.methods or set()) if method != "HEAD"}
    routed.add(("POST", WEBHOOKS_PATH))  # outside the routes: it is called most often
    assert routed == {(call.method.upper(), call.path) for call in CALLS}
    described = openapi("1.2.3")
    refs = {
        response["content"]["application/json"]["schema"]["$ref"].rsplit("/", 1)[1]
        for path in described["paths"].values()
        for operation in path.values()
        for response in operation["responses"].values()
    }
    assert refs <= set(SCHEMAS)
