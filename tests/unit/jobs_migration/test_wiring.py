"""The phases at the real entry points: the Lambda handler, the server, the command line."""

import json
import os
import socket
from collections.abc import Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from holdfast.adapters.memory import memory_store
from holdfast.cli.main import cli
from holdfast.entrypoints import lambda_handlers
from holdfast.entrypoints.wiring.migration import readable
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.jobs.intake.webhook import Delivery, WebhookSecrets
from holdfast.jobs.migration.dual import DualTracker
from holdfast.jobs.migration.phases import PHASE_TIMEOUT_SECONDS, Phase, move, stored_phase
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import load_settings
from holdfast.ports.store.tables import JOBS
from tests.clocks import StillClock
from tests.support.migration_world import life
from tests.support.server_process import environment, running

SECRET = "a-secret-of-the-webhook"
JOB = JobKey(InstallationId(1), JobId(9))


def signed(sent: Delivery) -> dict[str, str]:
    return {
        "x-hub-signature-256": WebhookSecrets.from_text(SECRET).signature_of(sent.body),
        "x-github-event": sent.event,
        "x-github-delivery": sent.id,
        "content-type": "application/json",
    }


def keys(s3: Any) -> list[str]:
    found = s3.list_objects_v2(Bucket=os.environ["S3_BUCKET"], Prefix="webhooks/1/9/")
    return [one["Key"] for one in found.get("Contents", [])]


@pytest.fixture
def cold(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[None]:
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    monkeypatch.setenv("GITHUB_WEBHOOK_SECRET", SECRET)
    lambda_handlers._webhook_process.cache_clear()
    yield
    lambda_handlers._webhook_process.cache_clear()


def call(sent: Delivery) -> dict[str, Any]:
    event = {"headers": signed(sent), "body": sent.body.decode()}
    return lambda_handlers.github_webhook(event, None)  # type: ignore[arg-type]  # the context is not used


def test_a_lambda_writes_to_both_sides(s3: Any, cold: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JOBS_MIGRATION", "dual_write")
    assert call(life(9)[0])["statusCode"] == 200
    assert keys(s3) == ["webhooks/1/9/queued.json"]
    receiver = lambda_handlers._webhook_process()[1]
    assert isinstance(receiver, DualTracker)
    item = receiver._tracker.store.get(JOBS, JOB.item)
    assert item is not None
    assert stored_phase(receiver._tracker.store).phase is Phase.DUAL_WRITE
    receiver._tracker.store.close()


def test_a_lambda_that_would_start_in_a_middle_phase_is_refused(
    s3: Any, cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_MIGRATION", "dynamodb_only")
    with pytest.raises(NeedsOperator, match="JOBS_MIGRATION=dynamodb_only cannot be the first phase"):
        call(life(9)[0])


def test_an_unavailable_bucket_is_503_and_nothing_is_acknowledged(
    s3: Any, cold: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("JOBS_MIGRATION", "dual_write")
    monkeypatch.setenv("S3_BUCKET", "not-there")
    assert call(life(9)[0])["statusCode"] == 503


def test_the_server_writes_and_reads_both_sides_and_counts(s3: Any, tmp_path: Path) -> None:
    settings = {"JOBS_MIGRATION": "dual_write", "GITHUB_WEBHOOK_SECRET": SECRET, "SIM_SPEED": "1"}
    with running(tmp_path, **environment(**settings)) as server:
        for sent in life(9)[:2]:
            connection = HTTPConnection("127.0.0.1", server.port, timeout=30)
            connection.request("POST", "/webhooks/github", sent.body, signed(sent))
            assert connection.getresponse().status == 200
            connection.close()
        assert keys(s3) == ["webhooks/1/9/in_progress.json", "webhooks/1/9/queued.json"]
        # Also for a job that only S3 has.
        for job, expected in ((9, "in_progress"), (3, "completed")):
            status, text = server.get(f"/api/jobs/1/{job}")
            assert (status, json.loads(text)["status"]) == (200, expected)
        metrics = server.get("/metrics")[1]
    for line in (
        'holdfast_migration_call_seconds_count{call="write",outcome="ok",side="s3"} 2.0',
        'holdfast_migration_call_seconds_count{call="write",outcome="ok",side="store"} 2.0',
        'holdfast_migration_call_seconds_count{call="read",outcome="fallback",side="s3"} 1.0',
    ):
        assert line in metrics


def test_a_read_on_the_command_line_follows_the_phase(s3: Any) -> None:
    """In dual_read, a job that only S3 has is shown."""
    store = open_store(load_settings(os.environ))
    for phase in (Phase.DUAL_WRITE, Phase.DUAL_READ):
        move(store, stored_phase(store), phase, Instant(0), socket.gethostname())
    store.close()
    shown = CliRunner().invoke(cli, ["jobs", "show", "3", "--installation", "1", "--json"], prog_name="holdfast")
    assert shown.exit_code == 0, shown.stderr
    assert json.loads(shown.stdout)["status"] == "completed"


def test_a_read_on_the_command_line_waits_longer_for_the_phase_than_a_webhook(s3: Any) -> None:
    settings = load_settings(os.environ)
    clock = StillClock()
    reads: Any = readable(settings, memory_store(clock), clock)
    assert reads._watch._with_timeout._seconds > PHASE_TIMEOUT_SECONDS
