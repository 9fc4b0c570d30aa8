"""The queries of the tables' original design, as other programs make them: with boto3, on the tables themselves.

With ``JOBS_INDEX_PROJECTION=status`` every one of them is answered by its index alone. With ``keys``, the indexes by
repository and by run lead to the items. Duplicates are the exception: an event that comes twice is stored once, and
``deliveries`` counts it.
"""

import json
from collections import Counter
from collections.abc import Iterator
from typing import Any
from uuid import uuid4

import boto3
import pytest
from boto3.dynamodb.conditions import Key

from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport
from holdfast.adapters.dynamodb.calls import DynamoCalls
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import Delivery
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.instants import Instant
from holdfast.ports.store.admin import CreateTable
from holdfast.ports.store.tables import TABLES, IndexProjection, projecting
from tests.clocks import StillClock
from tests.payloads import delivery_id
from tests.servers.processes import RunningServer

pytestmark = pytest.mark.real

Found = list[dict[str, Any]]


class Jobs:
    """The table of jobs with two ended jobs of a run, one of which failed, and one of another run that is running."""

    def __init__(self, url: str, projection: IndexProjection) -> None:
        place: dict[str, Any] = {
            "endpoint_url": url,
            "region_name": "eu-west-1",
            "aws_access_key_id": f"seed{uuid4().hex}",
            "aws_secret_access_key": "x",
        }
        self.client = boto3.client("dynamodb", **place)
        calls = DynamoCalls(Boto3Transport(self.client), StillClock())
        for table in projecting(TABLES, projection):
            DynamoTables(calls).carry_out(CreateTable(table))
        self.tracker = Tracker(DynamoStore(calls), StillClock(), "here")
        resource = boto3.resource("dynamodb", **place)
        self.table, self.event_table = resource.Table("workflow_jobs"), resource.Table("workflow_job_events")

    def query(self, index: str, partition: str, condition: Any = None) -> Found:
        wanted = Key(f"{index}-PK").eq(partition)
        found: Found = self.table.query(
            IndexName=index, KeyConditionExpression=wanted if condition is None else wanted & condition
        )["Items"]
        return found

    def whole(self, entries: Found) -> Found:
        """What ``keys`` needs in addition: the items of the entries."""
        return [self.table.get_item(Key={"PK": each["PK"], "SK": each["SK"]})["Item"] for each in entries]


def seed_delivery(number: int, run: int, action: str, conclusion: str | None) -> Delivery:
    """A webhook of the design's examples."""
    times = {"queued": "03:00:01", "in_progress": "03:00:25", "completed": "03:05:30"}
    job: dict[str, Any] = {
        "id": number,
        "run_id": run,
        "run_attempt": 1,
        "status": action,
        "name": "build",
        "workflow_name": "CI",
        "created_at": "2025-01-15T03:00:00Z",
        "started_at": "2025-01-15T03:00:00Z" if action == "queued" else "2025-01-15T03:00:25Z",
        "labels": ["runs-on", "pool=small-x64"],
    }
    if action != "queued":
        job |= {"runner_id": number, "runner_name": f"runs-on-12345-{number}"}
    if action == "completed":
        job |= {"conclusion": conclusion, "completed_at": "2025-01-15T03:05:30Z"}
    repository = {"full_name": "runs-on/test"}
    payload = {"action": action, "workflow_job": job, "repository": repository, "installation": {"id": 12345}}
    at = Instant.from_iso(f"2025-01-15T{times[action]}Z")
    return Delivery("workflow_job", delivery_id(at, number), "99", json.dumps(payload).encode())


def lived(jobs: Jobs) -> None:
    for number, run, conclusion in ((67890, 54321, "failure"), (67891, 54321, "success"), (67892, 54322, None)):
        for action in ("queued", "in_progress", "completed")[: 3 if conclusion else 2]:
            jobs.tracker.receive(seed_delivery(number, run, action, conclusion))
            if action == "queued":
                key = JobKey(InstallationId(12345), JobId(number))
                plan = {"instance_type": "t3.medium", "instance_lifecycle": "spot", "pool_name": "small-x64"}
                at = Instant.from_iso("2025-01-15T03:00:05Z")
                jobs.tracker.record_event(InternalEvent(key, InternalType.SCHEDULED, at, 1, None, plan))


@pytest.fixture(params=list(IndexProjection))
def jobs(request: pytest.FixtureRequest, dynamodb_server: RunningServer) -> Iterator[Jobs]:
    made = Jobs(dynamodb_server.url, request.param)
    lived(made)
    yield made
    made.client.close()


@pytest.fixture
def with_status(dynamodb_server: RunningServer) -> Iterator[Jobs]:
    made = Jobs(dynamodb_server.url, IndexProjection.STATUS)
    lived(made)
    yield made
    made.client.close()


def test_the_queries_by_status_are_the_same_under_each_projection(jobs: Jobs) -> None:
    """In progress, stuck for six hours, completed today, and by pool: GSI1 has what they need."""
    assert [each["PK"] for each in jobs.query("GSI1", "12345#in_progress")] == ["12345#67892"]
    stuck = jobs.query("GSI1", "12345#in_progress", Key("created_at").lt("2025-01-15T04:00:00Z"))
    assert [each["PK"] for each in stuck] == ["12345#67892"]
    assert jobs.query("GSI1", "12345#in_progress", Key("created_at").lt("2025-01-15T02:00:00Z")) == []
    assert len(jobs.query("GSI1", "12345#completed", Key("created_at").gt("2025-01-15T00:00:00Z"))) == 2
    by_pool = Counter(each["pool_name"] for each in jobs.query("GSI1", "12345#completed"))
    assert by_pool == {"small-x64": 2}


def test_with_status_the_queries_by_repository_need_nothing_else(with_status: Jobs) -> None:
    week = with_status.query("GSI2", "12345#runs-on/test", Key("created_at").gt("2025-01-08T00:00:00Z"))
    assert len(week) == 3
    found = Counter(
        (each["status"], each.get("conclusion")) for each in with_status.query("GSI2", "12345#runs-on/test")
    )
    assert found == {("completed", "failure"): 1, ("completed", "success"): 1, ("in_progress", None): 1}
    # Average duration
    assert {(each["started_at"], each.get("completed_at")) for each in week} == {
        ("2025-01-15T03:00:25Z", "2025-01-15T03:05:30Z"),
        ("2025-01-15T03:00:25Z", None),
    }


def test_with_status_the_queries_by_run_need_nothing_else(with_status: Jobs) -> None:
    """All complete, and some failed: as they are written in the design."""
    run, other = with_status.query("GSI3", "12345#54321#1"), with_status.query("GSI3", "12345#54322#1")
    assert {each["PK"] for each in run} == {"12345#67890", "12345#67891"}
    assert all(each["status"] == "completed" for each in run)
    assert any(each.get("conclusion") == "failure" for each in run)
    assert not all(each["status"] == "completed" for each in other)
    assert not any(each.get("conclusion") == "failure" for each in other)


def test_with_keys_the_index_leads_to_the_items(dynamodb_server: RunningServer) -> None:
    """The entries have no status, so nobody mistakes an absent one for an answer; their items have it."""
    jobs = Jobs(dynamodb_server.url, IndexProjection.KEYS)
    lived(jobs)
    entries = jobs.query("GSI3", "12345#54321#1")
    assert set(entries[0]) == {"PK", "SK", "GSI3-PK", "created_at"}
    assert all(each["status"] == "completed" for each in jobs.whole(entries))
    repository = jobs.whole(jobs.query("GSI2", "12345#runs-on/test"))
    assert Counter(each["status"] for each in repository) == {"completed": 2, "in_progress": 1}
    jobs.client.close()


def test_history_and_duplicates(jobs: Jobs) -> None:
    """The history is one query of the job's partition. A repeated webhook is one event, delivered twice."""
    events = jobs.event_table.query(KeyConditionExpression=Key("PK").eq("12345#67890"))["Items"]
    assert [each["event_type"] for each in events] == [
        "webhook_queued",
        "runner_scheduled",
        "webhook_in_progress",
        "webhook_completed",
    ]
    jobs.tracker.receive(seed_delivery(67890, 54321, "queued", "failure"))
    again: Found = jobs.event_table.query(KeyConditionExpression=Key("PK").eq("12345#67890"))["Items"]
    assert [each["event_type"] for each in again if each.get("deliveries", 1) > 1] == ["webhook_queued"]
