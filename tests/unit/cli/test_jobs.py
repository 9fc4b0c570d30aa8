"""Jobs on the command line: with --json the same as over HTTP, and tables that no name can break."""

import json
import os
import pty
import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.cli import cost, jobs
from holdfast.cli.job_rows import seconds
from holdfast.cli.main import cli
from holdfast.console.schema.documents import document
from holdfast.jobs.cost.tracker_units import COMPARED, JobShape, measured
from holdfast.jobs.model.facts import Status
from holdfast.jobs.read.statistics import COST_GROUPS
from holdfast.ports.store.tables import JOB_EVENTS, TABLES
from tests.clocks import StillClock
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, REPOSITORY, RUN_ID, delivery, job_payload
from tests.support.job_world import HOSTILE, NOW, JobWorld, in_the_afternoon

DEPLOYMENT = 1_600_000_001


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, only the settings of the test, and a clock that stands still in the afternoon."""
    in_the_afternoon(tmp_path, monkeypatch)
    return tmp_path


@pytest.fixture
def world(directory: Path) -> Iterator[JobWorld]:
    """The daemon's store, open for writing while commands read it."""
    (directory / ".holdfast").mkdir()
    clock = StillClock(NOW)
    with closing(sqlite_store(directory / ".holdfast" / "holdfast.db", clock, tables=TABLES)) as store:
        yield JobWorld(store, clock)


def holdfast(*arguments: object, **environment: str) -> Result:
    return CliRunner().invoke(cli, [str(one) for one in arguments], env=environment, prog_name="holdfast")


def holdfast_json(*arguments: object) -> Any:
    result = holdfast(*arguments, "--json")
    assert (result.exit_code, result.stderr) == (0, ""), result.output
    return json.loads(result.stdout)


def lines(*arguments: object) -> list[str]:
    result = holdfast(*arguments)
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def fill(world: JobWorld) -> None:
    world.run()
    world.job(JOB_ID, "queued", "in_progress", "completed", conclusion="failure")
    world.schedule(JOB_ID)
    world.job(2, "queued", "waiting", after=60, deployment=DEPLOYMENT)
    world.job(3, "queued", after=120)


JOB = f"/api/jobs/{INSTALLATION_ID}/{JOB_ID}"


@pytest.mark.parametrize(
    ("command", "path", "query", "schema"),
    [
        (["jobs", "list"], "/api/jobs", {}, "jobs"),
        (["jobs", "list", "--status", "queued", "--limit", 1], "/api/jobs", {"status": "queued", "limit": 1}, "jobs"),
        (["jobs", "list", "--repo", REPOSITORY], "/api/jobs", {"repo": REPOSITORY}, "jobs"),
        (["jobs", "list", "--limit", 2], "/api/jobs", {"limit": 2}, "jobs"),
        (["jobs", "show", JOB_ID], JOB, {}, "job"),
        (["jobs", "events", JOB_ID, "--limit", 2], f"{JOB}/events", {"limit": 2}, "job-events"),
        (["jobs", "explain", JOB_ID], f"{JOB}/explain", {}, "job-explained"),
        (["jobs", "stuck"], "/api/jobs/stuck", {}, "stuck-jobs"),
        (["jobs", "stats", "--repo", REPOSITORY], "/api/jobs/stats", {"repo": REPOSITORY}, "job-stats"),
        (["runs", "show", RUN_ID], f"/api/runs/{INSTALLATION_ID}/{RUN_ID}/1", {}, "run"),
        (["deployments", "show", DEPLOYMENT], f"/api/deployments/{INSTALLATION_ID}/{DEPLOYMENT}", {}, "deployment"),
        (["cost", "--by", "pool"], "/api/costs", {"by": "pool"}, "costs"),
        (["cost"], "/api/costs", {}, "costs"),
    ],
    ids=lambda value: " ".join(map(str, value)) if isinstance(value, list) else "",
)
def test_json_is_the_same_object_as_over_http(
    world: JobWorld, command: list[object], path: str, query: dict[str, object], schema: str
) -> None:
    """With and without the installation."""
    fill(world)
    found = holdfast_json(*command)
    assert (200, found) == world.get(path, **query)
    Draft202012Validator(document(schema)).validate(found)
    assert holdfast_json(*command, "--installation", INSTALLATION_ID) == found


def test_the_choices_of_options_match_the_queries() -> None:
    assert set(jobs.STATUSES) == set(Status)
    assert jobs.STATUSES[-1] == Status.COMPLETED
    assert cost.GROUPS == COST_GROUPS


# Text output


def test_jobs_are_a_line_each(world: JobWorld) -> None:
    fill(world)
    header, *rows = lines("jobs", "list")
    assert header.split() == ["JOB", "STATUS", "CREATED", "REPOSITORY:", "WORKFLOW", "/", "JOB"]
    assert [row.split()[:3] for row in rows] == [
        ["3", "queued", "2026-01-15T10:02:00Z"],
        ["2", "waiting", "2026-01-15T10:01:00Z"],
        [str(JOB_ID), "failure", "2026-01-15T10:00:00Z"],
    ]
    assert f"{REPOSITORY}: " in rows[0]


def test_a_page_says_how_to_get_the_next_one(world: JobWorld) -> None:
    fill(world)
    result = holdfast("jobs", "list", "--limit", 2)
    assert len(result.stdout.splitlines()) == 3
    found = re.search(r"for the next page: --cursor (\S+)", result.stderr)
    assert found
    rest = lines("jobs", "list", "--limit", 2, "--cursor", found[1])
    assert [row.split()[0] for row in rest[1:]] == [str(JOB_ID)]


def test_spans_reach_back_from_the_worlds_own_time(world: JobWorld) -> None:
    fill(world)
    assert [job["job_id"] for job in holdfast_json("jobs", "list", "--since", "25139s")["items"]] == [3]
    assert [job["job_id"] for job in holdfast_json("jobs", "list", "--until", "25139s")["items"]] == [2, JOB_ID]
    assert len(holdfast_json("jobs", "list", "--since", "999999d")["items"]) == 3
    assert holdfast_json("jobs", "list", "--since", NOW.iso())["items"] == []
    assert lines("jobs", "list", "--since", "1h") == ["no jobs found"]


def test_a_job_is_shown_with_all_its_details(world: JobWorld) -> None:
    fill(world)
    rows = dict(line.split(maxsplit=1) for line in lines("jobs", "show", JOB_ID)[1:])
    assert (rows["conclusion"], rows["repo_is_private"], rows["pool_name"]) == ("failure", "yes", "small")
    assert rows["stages_in_ms"].startswith("webhook_lag ")
    assert "deployment_id" not in rows


def test_a_history_shows_what_changed(world: JobWorld) -> None:
    fill(world)
    rows = lines("jobs", "events", JOB_ID)[1:]
    assert [row.split()[1] for row in rows][:2] == ["webhook_queued", "runner_scheduled"]
    assert rows[0].split(maxsplit=3)[2:] == ["1", "status: none → queued"]
    world.tracker.receive(delivery("workflow_job", job_payload("queued", at=CREATED, job_id=JOB_ID), CREATED, JOB_ID))
    assert lines("jobs", "events", JOB_ID, "--type", "webhook_queued")[1].split()[2] == "2"


def test_an_event_of_an_older_deployment_may_lack_attributes(world: JobWorld) -> None:
    fill(world)
    world.store.put(JOB_EVENTS, {"PK": f"{INSTALLATION_ID}#{JOB_ID}", "SK": "2026-01-01T00:00:00.000Z#x#y"})
    assert lines("jobs", "events", JOB_ID)[1].split() == ["2026-01-01T00:00:00.000Z", "nothing"]


def test_a_job_is_explained_in_three_lines(world: JobWorld) -> None:
    fill(world)
    assert lines("jobs", "explain", 2) == [
        "waiting since 2026-01-15T10:01:10Z",
        "Its deployment to production waits for approval.",
        "Next: a reviewer approves or rejects it; GitHub fails it after 30 days",
    ]
    assert lines("jobs", "explain", 3)[0] == "queued since 2026-01-15T10:02:00Z (stuck)"


def test_settings_define_what_is_stuck_and_the_github_url(world: JobWorld) -> None:
    fill(world)
    assert [line.split()[:4] for line in lines("jobs", "stuck")[1:]] == [["3", "queued", "7h", "15m"]]
    patient = holdfast("jobs", "stuck", STUCK_QUEUED_SEC="86400")
    assert patient.stdout == "no stuck jobs\n"
    shown = holdfast("jobs", "show", JOB_ID, GITHUB_URL="https://github.example.com").stdout
    assert f"https://github.example.com/{REPOSITORY}/actions/runs/{RUN_ID}" in shown


def test_figures_are_tables(world: JobWorld) -> None:
    fill(world)
    world.count()
    shown = lines("jobs", "stats")
    assert shown[0].startswith("3 jobs from 2026-01-08T17:00:00Z to 2026-01-15T17:00:00Z")
    assert any(re.fullmatch(r"3 +0\.0% +10s/10s/10s +10s/10s/10s +all", line) for line in shown)
    assert any(line.split()[-1] == "small" for line in shown)
    assert any(line.startswith("2026-01-15") for line in shown)


def test_a_run_and_a_deployment_have_their_jobs(world: JobWorld) -> None:
    fill(world)
    assert lines("runs", "show", RUN_ID)[-1].split()[:2] == [str(JOB_ID), "failure"]
    deployment = lines("deployments", "show", DEPLOYMENT)
    assert deployment[-1].split()[:2] == ["2", "waiting"]
    assert any(line.split() == ["status", "pending"] for line in deployment)


def test_costs_are_added_up(world: JobWorld) -> None:
    fill(world)
    world.count()
    shown = lines("cost", "--by", "pool")
    assert shown[0].startswith("3 jobs from ")
    assert shown[2].split() == ["0.00036", "1", "estimated", "small"]
    assert "EC2 prices as of" in shown[-2]
    assert shown[-1] == "jobs that have ended: as of 2026-01-15T17:00:00Z; percentiles are within 1.6 %"


# What tracking itself costs


def test_the_cost_of_tracking_is_measured_and_compared() -> None:
    """Without a store: it does not depend on stored jobs."""
    found = holdfast_json("cost", "--dynamodb")
    Draft202012Validator(document("dynamodb-cost")).validate(found)
    clock = SystemClock()
    for row, has_deployment in zip(found["items"], (False, True), strict=True):
        shape = JobShape(has_deployment=has_deployment)
        whole = measured(lambda meter: memory_store(clock, meter), clock, shape)
        assert row["units"] == pytest.approx(whole.total)
        assert (
            row["units"]
            == pytest.approx(row["write_units"] + row["read_units"])
            == pytest.approx(sum(row["by_step"].values()))
        )
        assert row["usd_on_demand"] == pytest.approx(row["write_units"] * 0.625 + row["read_units"] * 0.125, abs=0.01)
    assert len(found["compared"]) == 2 * len(COMPARED)
    shown = "\n".join(lines("cost", "--dynamodb"))
    assert all(other.name in shown for other in COMPARED)
    assert "units by table: workflow_runs " in shown


def test_the_prices_of_units_are_settings() -> None:
    dear = json.loads(holdfast("cost", "--dynamodb", "--json", DYNAMODB_WRITE_USD="1.25").stdout)
    [normal, _] = dear["items"]
    assert normal["usd_on_demand"] == pytest.approx(
        normal["write_units"] * 1.25 + normal["read_units"] * 0.125, abs=0.01
    )


def test_the_cost_of_tracking_cannot_be_combined_with_filters() -> None:
    result = holdfast("cost", "--dynamodb", "--by", "repo")
    assert (result.exit_code, result.stdout) == (2, "")
    assert "--dynamodb takes no other options" in result.stderr


# Errors


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("jobs", "list"), "no installation is known yet"),
        (("jobs", "show", "--installation", "7", "9"), "job 9 of installation 7 not found"),
        (("jobs", "explain", "--installation", "7", "9"), "job 9 of installation 7 not found"),
        (("runs", "show", "--installation", "7", "9"), "run 9, attempt 1, of installation 7 not found"),
        (("deployments", "show", "--installation", "7", "9"), "deployment 9 of installation 7 not found"),
    ],
)
def test_a_missing_item_is_one_line(world: JobWorld, arguments: tuple[str, ...], words: str) -> None:
    _error_line(arguments, words, 1)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (("jobs", "list", "--installation", "1\x1b[2J"), "installation_id '1\\\\x1b[2J' is not a number"),
        (("jobs", "list", "--installation", "7", "--cursor", "x"), "cursor 'x' does not belong"),
        (("jobs", "stats", "--installation", "7", "--repo", "\udcff/x"), "expected owner/name"),
        (("jobs", "list", "--installation", "7", "--limit", "0"), "limit 0"),
        (("jobs", "show", "--installation", "7", "٣"), "is not a number"),
        (("runs", "show", "--installation", "7", "9", "--attempt", "-1"), "run_attempt '-1' is not a number"),
        (("jobs", "events", "--installation", "7", "9", "--day", "today"), "expected a date"),
    ],
)
def test_an_invalid_argument_is_one_line(world: JobWorld, arguments: tuple[str, ...], words: str) -> None:
    _error_line(arguments, words, 2)


def _error_line(arguments: tuple[str, ...], words: str, exit_code: int) -> None:
    result = holdfast(*arguments)
    assert (result.exit_code, result.stdout) == (exit_code, "")
    assert words in result.stderr
    assert (result.stderr.count("\n"), result.stderr.strip().isprintable()) == (1, True)


def test_several_installations_are_named(world: JobWorld) -> None:
    fill(world)
    world.take(delivery("workflow_job", job_payload("queued", job_id=1, installation=7), CREATED))
    for command in (["jobs", "list"], ["jobs", "show", JOB_ID], ["cost"]):
        assert f"choose one of 7, {INSTALLATION_ID}" in holdfast(*command).stderr
    assert [job["job_id"] for job in holdfast_json("jobs", "list", "--installation", 7)["items"]] == [1]


def test_with_an_empty_store_one_line_says_how_to_start(directory: Path) -> None:
    result = holdfast("jobs", "list")
    assert (result.exit_code, result.stdout) == (1, "")
    assert "holdfast run" in result.stderr
    assert list(directory.iterdir()) == []


@pytest.mark.parametrize("text", ["", "{", '{"as_of": "2026-01-01", "region": "x", "large_usd_per_hour": {"m7i": -1}}'])
def test_an_invalid_price_file_is_a_wrong_setting(world: JobWorld, directory: Path, text: str) -> None:
    (directory / "prices.json").write_text(text)
    result = holdfast("cost", PRICES_FILE="prices.json")
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith("holdfast: PRICES_FILE=prices.json cannot be used as prices: ")


def test_newer_prices_are_used(world: JobWorld, directory: Path) -> None:
    fill(world)
    world.count()
    newer = {"as_of": "2026-01-01", "region": "us-east-1", "large_usd_per_hour": {"m7i": "100"}}
    (directory / "prices.json").write_text(json.dumps(newer))
    found = json.loads(holdfast("cost", "--json", PRICES_FILE="prices.json").stdout)
    assert found["prices_as_of"] == "2026-01-01"
    assert found["usd"] > holdfast_json("cost")["usd"] * 100


# Hostile names


@pytest.mark.parametrize("name", HOSTILE, ids=lambda name: repr(name[:12]))
def test_no_name_breaks_a_line_or_a_table(world: JobWorld, name: str) -> None:
    fields: dict[str, Any] = {
        "name": name,
        "workflow_name": name,
        "labels": [name],
        "runner_name": name,
        "head_sha": name,
    }
    world.job(JOB_ID, "queued", "in_progress", **fields)
    world.job(2, "queued", after=1, **fields)
    world.count()
    for command, count in (
        (["jobs", "list"], 3),
        (["jobs", "stuck"], 3),
        (["jobs", "events", JOB_ID], 3),
        (["jobs", "explain", JOB_ID], 3),
        (["jobs", "explain", 2], 3),
        (["cost", "--by", "workflow"], 5),
    ):
        shown = lines(*command)
        assert len(shown) == count, shown
        assert all(line.isprintable() for line in shown)
        assert all(len(line) < 1500 for line in shown)
    for command in (["jobs", "show", JOB_ID], ["runs", "show", RUN_ID], ["jobs", "stats"]):
        assert all(line.isprintable() for line in lines(*command))


@pytest.mark.parametrize("columns", [60, 80, 132])
def test_a_terminal_gets_tables_that_fit_it(directory: Path, columns: int) -> None:
    """The process has the real clock, and the jobs arrived long after it: they have not expired."""
    clock = StillClock()
    with closing(sqlite_store(directory / "s.db", clock, tables=TABLES)) as store:
        world = JobWorld(store, clock)
        for number, name in enumerate(HOSTILE):
            world.job(number, "queued", after=number, name=name, workflow_name=name)
        for command in (["jobs", "list"], ["jobs", "events", "0"], ["jobs", "show", "1"]):
            shown = on_terminal(command, columns, directory)
            assert len(shown) > 1
            for line in shown:
                assert line.isprintable(), line
                assert sum(2 if unicodedata.east_asian_width(c) in "WF" else 1 for c in line) <= columns, line


def on_terminal(arguments: list[str], columns: int, directory: Path) -> list[str]:
    controller, terminal = pty.openpty()
    command = [sys.executable, "-m", "holdfast.cli.main", *arguments]
    environment = {**os.environ, "COLUMNS": str(columns), "TERM": "xterm", "HOLDFAST_STORE": "sqlite:s.db"}
    with os.fdopen(controller, "rb", closefd=True) as screen:
        child = subprocess.Popen(command, stdout=terminal, stderr=subprocess.DEVNULL, env=environment, cwd=directory)
        os.close(terminal)
        text = b""
        try:
            while chunk := screen.read1():
                text += chunk
        except OSError:
            pass  # how Linux says that the other side is gone
        assert child.wait(60) == 0
    return re.sub(r"\x1b\[[0-9;]*m", "", text.decode()).splitlines()


@pytest.mark.parametrize(
    ("count", "text"), [(0, "0s"), (45, "45s"), (90, "1.5m"), (3600, "1h"), (86_400 * 3, "3d"), (0.25, "0.2s")]
)
def test_durations_are_parsed(count: float, text: str) -> None:
    assert seconds(count) == text
