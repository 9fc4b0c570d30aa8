"""What the runner fleet tells of a job, as it comes over HTTP: checked, and recorded once however often it is told."""

from collections.abc import Mapping
from typing import Any

from holdfast.entrypoints.asking import Asked
from holdfast.entrypoints.shown import plain
from holdfast.entrypoints.tracking import job_key
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.internal import InternalEvent, InternalType
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.text import cut


def told(tracker: Tracker, installation_id: str, job_id: str, event: Mapping[str, Any]) -> dict[str, Any]:
    """Record the event, which has type, at, attempt, instance_id and attributes; tell what became of the job."""
    key = job_key(installation_id, job_id)
    if event["type"] not in set(InternalType):
        raise BadRequest(f"type {cut(event['type'])!r}: expected one of {', '.join(InternalType)}")
    at = Asked({"at": event["at"]}, "at").time("at")
    if at is None:
        raise BadRequest(f"at {cut(event['at'])!r}: expected when it happened")
    instance = None if event["instance_id"] is None else InstanceId(event["instance_id"])
    recorded = tracker.tell(
        InternalEvent(key, InternalType(event["type"]), at, event["attempt"], instance, event["attributes"])
    )
    return {
        "result": "duplicate" if recorded.is_duplicate else "stored",
        "installation_id": key.installation_id,
        "job_id": key.job_id,
        "status": recorded.job.get("status"),
        "scheduling_attempt": plain(recorded.job.get("scheduling_attempt")),
    }
