"""The web server: its responses, and how it starts and stops."""

import json
import logging
import re
import shutil
import signal
import socket
import stat
import subprocess
import sys
import threading
import tomllib
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path

import pytest

from holdfast.adapters.memory import memory_store
from holdfast.adapters.timed_store import timed_store
from holdfast.console.http.app import CONTENT_SECURITY_POLICY, build_app
from holdfast.console.http.connection_limits import HEAD_BYTES_MOST
from holdfast.console.metrics.registry import Metrics
from holdfast.control.clock_check import WrongClock
from holdfast.entrypoints.process_setup import JsonLines, TextLines
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.kernel.errors import StoreUnavailable, WriteConflict
from holdfast.kernel.text import age
from holdfast.ports.store import Key, PutItem, Query, attr
from holdfast.ports.store.admin import TableDifference
from holdfast.ports.store.tables import LOGS, STATE
from holdfast.views.system_status import TableStatus
from tests.clocks import StillClock
from tests.payloads import INSTALLATION_ID, job_payload
from tests.support.application import ServedWorld, ask, fail_with
from tests.support.runner_offers import EXAMPLE
from tests.support.server_process import START_SECONDS_MOST, environment, next_line, running, start
from tools.environment import ROOT

HOSTILE = "<script>alert(1)</script>"


# The application, with its own small world


def test_it_is_healthy_whatever_the_store_does() -> None:
    """An unavailable store is no reason to restart the process."""
    answer = ask(ServedWorld(probe=fail_with(StoreUnavailable("no route"))).served(), "/healthz")
    assert (answer.status, answer.text) == (200, "ok")


def test_it_is_ready_when_the_store_answers() -> None:
    """And only then; the response names the temporary problem."""
    assert ask(ServedWorld().served(), "/readyz").status == 200
    answer = ask(ServedWorld(probe=fail_with(StoreUnavailable("table x: no answer in 8 s"))).served(), "/readyz")
    assert answer.status == 503
    assert answer.json == {"error": {"code": "store_unavailable", "message": "table x: no answer in 8 s"}}


def test_with_a_wrong_clock_it_is_not_ready_at_once_and_says_so() -> None:
    """Without waiting for failed ticks; and webhooks are still received."""
    message = "this machine's clock is 90 s ahead of DynamoDB's; nothing is begun until it is set"
    served = replace(ServedWorld().served(), check_clock=fail_with(WrongClock(message)), ticks=lambda: None)
    answer = ask(served, "/readyz")
    assert (answer.status, answer.json) == (503, {"error": {"code": "wrong_clock", "message": message}})
    assert ask(served, "/readyz/store").status == 200
    assert ask(served, "/api/status").json["problem"] == message
    assert "90 s ahead of DynamoDB" in ask(served, "/").text


def test_page_and_json_show_the_same_data() -> None:
    """Version, age, store, and each table with its problem."""
    difference = TableDifference("jobs", "ttl", "ttl", "none", "run: holdfast tables create")
    world = ServedWorld(
        tables=[TableStatus("deployments", "who approved"), TableStatus("jobs", "each job", (difference,))]
    )
    served = world.served()
    world.clock.advance(3 * 3600 + 120)
    status = ask(served, "/api/status").json
    assert (status["version"], status["ready"], status["problem"]) == ("1.2.3", True, None)
    assert (status["uptime_seconds"], status["started_at"]) == (10920, "2100-01-15T10:00:00.000Z")
    assert status["store"] == {"kind": "sqlite", "path": ".holdfast/holdfast.db"}
    assert [table["ok"] for table in status["tables"]["items"]] == [True, False]
    assert status["tables"]["items"][1]["differences"] == [
        {
            "attribute": "ttl",
            "declared": "ttl",
            "found": "none",
            "remedy": "run: holdfast tables create",
            "rebuild": None,
        }
    ]
    page = ask(served, "/")
    assert page.headers["content-type"] == "text/html; charset=utf-8"
    for words in ("1.2.3", "3 h 2 min", ".holdfast/holdfast.db", "who approved", "run: holdfast tables create"):
        assert words in page.text


def test_the_page_still_opens_when_everything_else_fails() -> None:
    """That is when it is needed."""
    world = ServedWorld(probe=fail_with(StoreUnavailable("no route")), failure=StoreUnavailable("no tables"))
    page = ask(world.served(), "/")
    assert page.status == 200
    assert "not ready" in page.text
    assert "no route" in page.text
    assert "no tables" in page.text


def test_hostile_text_is_escaped() -> None:
    """A path may contain anything that a file system allows, and a problem may quote it."""
    world = ServedWorld(path=f"{HOSTILE}/holdfast.db", probe=fail_with(StoreUnavailable(HOSTILE)))
    world.tables = [TableStatus(HOSTILE, HOSTILE, (TableDifference(HOSTILE, HOSTILE, HOSTILE, HOSTILE, HOSTILE),))]
    page = ask(world.served(), "/").text
    assert "<script>" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;/holdfast.db" in page


def test_the_content_security_policy_allows_only_this_origin_and_nothing_inline() -> None:
    headers = ask(ServedWorld().served(), "/").headers
    policy = dict(part.strip().split(" ", 1) for part in headers["content-security-policy"].split(";"))
    assert policy.pop("default-src") == "'none'"
    assert policy.pop("base-uri") == "'none'"
    assert policy.pop("frame-ancestors") == "'none'"
    assert policy == dict.fromkeys(("script-src", "style-src", "img-src", "connect-src", "form-action"), "'self'")
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "same-origin"


def test_the_page_works_within_its_content_security_policy() -> None:
    """No inline script, no inline style, nothing from elsewhere."""
    page = ask(ServedWorld().served(), "/")
    assert page.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", page.text)
    addresses = re.findall(r'(?:src|href)="([^"#]+)"', page.text)
    assert all(address.startswith("/") for address in addresses)
    for address in set(addresses):
        assert ask(ServedWorld().served(), address).status == 200, address


def test_reloading_the_page_does_not_check_the_tables_each_time() -> None:
    """DynamoDB allows few of these calls per second, and anyone can reload."""
    world = ServedWorld()
    served = world.served()
    app = build_app(served)
    ask(served, "/", app=app)
    ask(served, "/api/status", app=app)
    assert world.looks == 1
    world.clock.advance(10)
    ask(served, "/", app=app)
    assert world.looks == 2


def test_readiness_does_not_wait_for_a_hanging_store() -> None:
    """The response is no, in time; requests in the meantime wait for the same call and do not pile up."""
    asked: list[int] = []
    released = threading.Event()

    def hang() -> None:
        asked.append(1)
        released.wait()

    served = replace(ServedWorld(probe=hang).served(), patience_seconds=0.01)
    app = build_app(served)
    try:
        for _ in range(3):
            answer = ask(served, "/readyz", app=app)
            assert answer.status == 503
            assert answer.json["error"]["message"] == "no answer from the store within 0.01 s"
        assert len(asked) == 1
    finally:
        released.set()


@pytest.mark.parametrize(
    ("method", "path", "status", "code"),
    [
        ("GET", "/nowhere", 404, "not_found"),
        ("GET", "/static/nowhere.css", 404, "not_found"),
        ("GET", "/static/../app.py", 404, "not_found"),
        ("POST", "/healthz", 405, "method_not_allowed"),
        ("GET", "/readyz", 500, "internal"),
    ],
)
def test_errors_have_one_shape(method: str, path: str, status: int, code: str) -> None:
    """Also unexpected ones, whose details are only in the log."""
    answer = ask(ServedWorld(probe=fail_with(ZeroDivisionError("secret detail"))).served(), path, method)
    assert answer.status == status
    assert answer.json["error"]["code"] == code
    assert set(answer.json["error"]) == {"code", "message"}
    assert "secret detail" not in answer.text
    assert answer.headers["content-security-policy"] == CONTENT_SECURITY_POLICY
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert ("allow" in answer.headers) == (status == 405)


@pytest.mark.parametrize(
    ("seconds", "words"), [(0, "0 s"), (61, "1 min 1 s"), (7200, "2 h"), (90061, "1 d 1 h"), (86400, "1 d")]
)
def test_an_age_is_its_two_largest_units(seconds: int, words: str) -> None:
    """More would add nothing."""
    assert age(seconds) == words


# Metrics


def test_store_calls_are_counted_with_their_cost_time_and_outcome() -> None:
    """By table and call; a conflict is not a failure."""
    clock = StillClock()
    metrics = Metrics("1.2.3")
    store = timed_store(memory_store(clock).metered(metrics.record_consumed), clock, metrics.record_call)
    store.put(STATE, {"pk": "a"})
    store.get(STATE, Key("a"))
    with pytest.raises(WriteConflict):
        store.put(STATE, {"pk": "a"}, attr("pk").is_absent())
    with pytest.raises(ValueError, match="empty"):
        store.get(STATE, Key(""))
    store.transact([PutItem(STATE, {"pk": "b"}), PutItem(LOGS, {"pk": "b", "sk": "c"})])
    store.query(Query(LOGS, "b"))
    page = metrics.page().decode()
    table = f'table="{STATE.name}"'
    for line in (
        f'holdfast_store_call_seconds_count{{call="put",outcome="ok",{table}}} 1.0',
        f'holdfast_store_call_seconds_count{{call="put",outcome="conflict",{table}}} 1.0',
        f'holdfast_store_call_seconds_count{{call="get",outcome="failed",{table}}} 1.0',
        f'holdfast_store_conflicts_total{{call="put",{table}}} 1.0',
        f'holdfast_store_read_units_total{{call="get",{table}}} 1.0',
        f'holdfast_store_write_units_total{{call="put",{table}}} 2.0',
        f'holdfast_store_call_seconds_count{{call="transact",outcome="ok",table="{LOGS.name}+{STATE.name}"}} 1.0',
        f'holdfast_store_call_seconds_count{{call="query",outcome="ok",table="{LOGS.name}"}} 1.0',
    ):
        assert line in page
    assert 'holdfast_build_info{python="' in page
    assert "process_resident_memory_bytes" in page


def test_each_metrics_object_is_independent() -> None:
    """Nothing is registered globally, where a second one would collide."""
    Metrics("1").record_call("t", "get", "ok", 0.1)
    assert 'table="t"' not in Metrics("2").page().decode()


# Logs


def log_record(message: str, *arguments: object, error: BaseException | None = None) -> logging.LogRecord:
    exc_info = (type(error), error, None) if error else None
    record = logging.LogRecord("holdfast.test", logging.WARNING, "", 0, message, arguments, exc_info)
    record.created = 1768471201.5
    return record


def test_a_text_record_is_one_line() -> None:
    """With UTC time; foreign text cannot start a new line."""
    line = TextLines().format(log_record("seen: %s", "x\n2026 ERROR forged\x1b[2J"))
    expected = r"seen: x\n2026 ERROR forged\x1b[2J"
    assert line == f"2026-01-15T10:00:01.500Z WARNING holdfast.test: {expected}"


def test_the_lines_of_a_traceback_are_indented() -> None:
    """So that they are not mistaken for records."""
    lines = TextLines().format(log_record("went wrong", error=ValueError("a\nforged"))).split("\n")
    assert len(lines) > 1
    assert all(line.startswith("    ") for line in lines[1:])


def test_a_json_record_is_one_object_on_one_line() -> None:
    """Whatever it contains."""
    line = JsonLines().format(log_record("seen: %s", "x\ny", error=ValueError("bad")))
    assert "\n" not in line
    entry = json.loads(line)
    assert (entry["time"], entry["level"], entry["logger"]) == ("2026-01-15T10:00:01.500Z", "warning", "holdfast.test")
    assert entry["message"] == "seen: x\ny"
    assert "ValueError: bad" in entry["traceback"]


# A real process


def refused(*arguments: str, cwd: Path, **changes: str) -> tuple[int, str, str]:
    """Exit code, stdout and stderr of a start that fails."""
    process = start(*arguments, cwd=cwd, **changes)
    try:
        output, errors = process.communicate(timeout=START_SECONDS_MOST)
    finally:
        process.kill()
    return process.returncode, output, errors


def test_run_serves_from_an_empty_directory(tmp_path: Path) -> None:
    """It prints the address, creates its directory (for its user only) and its tables, and is ready."""
    with running(tmp_path) as run:
        assert run.get("/healthz") == (200, "ok")
        assert run.get("/readyz") == (200, "ok")
        status = json.loads(run.get("/api/status")[1])
        assert status["store"] == {"kind": "sqlite", "path": ".holdfast/holdfast.db"}
        assert all(table["ok"] for table in status["tables"]["items"])
        assert len(status["tables"]["items"]) == 6
        assert f'call="get",outcome="ok",table="{STATE.name}"' in run.get("/metrics")[1]
    assert stat.S_IMODE((tmp_path / ".holdfast").stat().st_mode) == 0o700


def test_the_printed_address_has_the_actual_port(tmp_path: Path) -> None:
    """`--port 0` takes any free one."""
    with running(tmp_path) as run:
        assert run.port != 0
        assert "sqlite:.holdfast/holdfast.db" in run.first_line


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_stops_it_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    """Exit code 0 and nothing to read, also with a connection left open."""
    with running(tmp_path, LOG_LEVEL="warning") as run:
        connection = HTTPConnection("127.0.0.1", run.port)
        connection.request("GET", "/healthz")
        connection.getresponse().read()
        assert run.stopped_by(number) == (0, "")
        connection.close()


def test_unknown_clients_have_limits(tmp_path: Path) -> None:
    """The limits of `test_connections`, in the real server."""
    with running(tmp_path) as run, socket.create_connection(("127.0.0.1", run.port)) as stranger:
        stranger.settimeout(START_SECONDS_MOST)
        stranger.sendall(b"GET / HTTP/1.1\r\nX: " + b"x" * HEAD_BYTES_MOST)
        assert stranger.recv(12) == b"HTTP/1.1 431"


def test_it_restarts_on_its_own_data(tmp_path: Path) -> None:
    """Also after being killed."""
    with running(tmp_path) as run:
        assert run.stopped_by(signal.SIGKILL)[0] == -signal.SIGKILL
    with running(tmp_path) as run:
        assert run.get("/readyz") == (200, "ok")


def test_a_second_server_on_the_same_data_gets_a_clear_error(tmp_path: Path) -> None:
    """One simulated world, one process; on AWS two may run."""
    with running(tmp_path):
        second = start("--port", "0", cwd=tmp_path)
        try:
            assert second.wait(START_SECONDS_MOST) == 1
            assert next_line(second.stdout) == ""
            assert "another process uses the simulated world" in next_line(second.stderr)
        finally:
            second.kill()
            second.communicate()


def test_a_taken_port_is_one_line_before_anything_starts(tmp_path: Path) -> None:
    """Exit code 1, and nothing was created."""
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        code, output, errors = refused("--port", str(port), cwd=tmp_path)
    assert (code, output) == (1, "")
    assert errors.startswith(f"holdfast: port {port} on 127.0.0.1 is in use; ")
    assert errors.count("\n") == 1
    assert list(tmp_path.iterdir()) == []


def test_a_host_without_an_address_is_one_line(tmp_path: Path) -> None:
    """Whether it is unknown, or not a valid name."""
    for host in ("host.invalid", "a" * 64 + ".invalid"):
        code, _, errors = refused("--host", host, "--port", "0", cwd=tmp_path)
        assert code == 1
        assert errors.startswith(f"holdfast: host {host} cannot be resolved")
        assert errors.count("\n") == 1


def test_a_data_directory_that_cannot_be_created_is_one_line(tmp_path: Path) -> None:
    """Here there is a file of that name."""
    (tmp_path / "file").write_text("")
    code, _, errors = refused("--port", "0", "--data", "file/data", cwd=tmp_path)
    assert (code, errors.count("\n")) == (1, 1)
    assert errors.startswith("holdfast: ")
    assert "file/data" in errors


def test_without_the_console_extra_it_says_what_to_install() -> None:
    """The core, which Lambda installs, has no web server."""
    for command in ("run", "serve"):
        assert errors_without("uvicorn", command) == (
            "holdfast: the server needs uvicorn, which is not installed; "
            "in the directory of Holdfast's source, run: pip install '.[console,metrics]'\n"
        )


def test_without_the_simulator_extra_it_says_what_to_install() -> None:
    for arguments in (("simulate",), ("simulate", "--seeds", "2", "--json"), ("simulate", "--scenario", "list")):
        assert errors_without("greenlet", *arguments) == (
            "holdfast: 'holdfast simulate' needs greenlet, which is not installed; "
            "in the directory of Holdfast's source, run: pip install '.[simulator]'\n"
        )


def test_the_extra_named_all_has_every_other_one() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert extras.pop("all") == [f"holdfast[{','.join(sorted(extras))}]"]


def errors_without(package: str, *arguments: str) -> str:
    code = f"import sys; sys.modules[{package!r}] = None; from holdfast.cli.main import main; main()"
    command = [sys.executable, "-c", code, *arguments]
    done = subprocess.run(command, env=environment(), capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (2, "")
    return done.stderr


def test_kill_ends_the_daemon_of_its_own_data_only(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with running(tmp_path / "a") as first, running(tmp_path / "b") as second:
        done = killed(tmp_path / "a", "--dry-run")
        assert (done.returncode, done.stdout) == (0, f"would kill process {first.process.pid}\n")
        done = killed(tmp_path / "a")
        assert (done.returncode, first.process.wait()) == (0, -signal.SIGKILL)
        assert second.process.poll() is None
        done = killed(tmp_path / "a")
        assert (done.returncode, "no daemon is running" in done.stderr) == (1, True)
        done = killed(tmp_path / "b", HOLDFAST_WORLD="aws")
        assert (done.returncode, "is for the simulated world" in done.stderr) == (1, True)
        assert second.process.poll() is None


def killed(directory: Path, *arguments: str, **changes: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "holdfast.cli.main", "kill", *arguments]
    return subprocess.run(
        command, cwd=directory, env=environment(**changes), capture_output=True, text=True, check=False
    )


def test_a_hostile_directory_name_has_no_effect(tmp_path: Path) -> None:
    """It is created, used and shown, and nothing in it is interpreted."""
    with running(tmp_path, HOLDFAST_DATA="<script>") as run:
        status, page = run.get("/system")
        assert status == 200
        assert "&lt;script&gt;/holdfast.db" in page
        assert "<script>" not in page
    assert (tmp_path / "<script>").is_dir()


def aws(port: int) -> dict[str, str]:
    return {
        "HOLDFAST_STORE": "dynamodb:",
        "AWS_ENDPOINT_URL_DYNAMODB": f"http://127.0.0.1:{port}",
        "AWS_ACCESS_KEY_ID": "x",
        "AWS_SECRET_ACCESS_KEY": "y",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "LOG_FORMAT": "json",
    }


def test_without_dynamodb_it_serves_but_is_not_ready(tmp_path: Path) -> None:
    """It says why, and becomes ready when DynamoDB is available."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
    with running(tmp_path, **aws(port), DYNAMODB_DEADLINE_SEC="0.2") as run:
        assert run.get("/healthz") == (200, "ok")
        status, text = run.get("/readyz")
        assert (status, json.loads(text)["error"]["code"]) == (503, "store_unavailable")
        assert run.get("/system")[0] == 200
        assert run.get("/")[0] == 503
        code, errors = run.stopped_by(signal.SIGTERM)
    assert code == 0
    assert "warning" in [json.loads(line)["level"] for line in errors.splitlines()]
    assert not (tmp_path / ".holdfast/holdfast.db").exists()


@pytest.mark.slow
def test_a_hanging_dynamodb_does_not_keep_it_from_stopping(tmp_path: Path) -> None:
    """A call may take a minute here; the stop takes the few seconds that a request may last."""
    with socket.create_server(("127.0.0.1", 0)) as silent:
        port = silent.getsockname()[1]
        with running(tmp_path, **aws(port), DYNAMODB_DEADLINE_SEC="60") as run:
            connection = HTTPConnection("127.0.0.1", run.port)
            connection.request("GET", "/readyz")
            assert run.get("/healthz") == (200, "ok")
            code, errors = run.stopped_by(signal.SIGTERM)
            connection.close()
    assert code == 0
    assert "Traceback" not in errors


def test_the_page_of_a_queued_job_says_what_its_labels_become(tmp_path: Path) -> None:
    """The server joins the tracker and what operators offer."""
    shutil.copy(EXAMPLE, tmp_path / "holdfast.toml")
    secret = "It's a Secret to Everybody"
    body = json.dumps(job_payload("queued", job_id=3, labels=["holdfast=1/cpu=64"])).encode()
    headers = {
        "Content-Type": "application/json",
        "X-GitHub-Event": "workflow_job",
        "X-GitHub-Delivery": "4d8ed510-a74e-11f1-0000-000000000001",
        "X-GitHub-Hook-Installation-Target-ID": "1",
        "X-Hub-Signature-256": WebhookSecrets.from_text(secret).signature_of(body),
    }
    with running(tmp_path, GITHUB_WEBHOOK_SECRET=secret) as server:
        assert server.post("/webhooks/github", body, headers)[0] == 200
        status, page = server.get(f"/jobs/{INSTALLATION_ID}/3")
    assert status == 200
    assert "[runners.bounds] is only for acme/*, and not for acme-corporation/backend-service" in page
    assert "The nearest that would do: small." in page
