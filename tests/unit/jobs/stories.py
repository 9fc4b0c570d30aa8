"""Jobs of every kind, as the events that GitHub and the runner fleet would send."""

from holdfast.jobs.intake.internal_events import InternalEvent, InternalType, internal_event, interruption_of
from holdfast.jobs.intake.payloads import JobPayload, decoded
from holdfast.jobs.model.facts import JobEvent, job_event
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.ids import InstallationId, InstanceId, JobId
from holdfast.kernel.instants import Instant
from tests.payloads import CREATED, INSTALLATION_ID, JOB_ID, delivery, job_payload

KEY = JobKey(InstallationId(INSTALLATION_ID), JobId(JOB_ID))
DEPLOYMENT_ID = 1_600_000_001
TAKEN = "i-0123456789abcde77"  # the machine of the stolen runner


def webhook(
    action: str, seconds: float, *, number: int = 0, deployment: int | None = None, **fields: object
) -> JobEvent:
    """A webhook that GitHub sent that many seconds after the job was created, and that arrived at once."""
    at = CREATED.plus(seconds)
    started = CREATED.plus(float(str(fields.pop("started")))) if "started" in fields else None
    payload = job_payload(action, at=at, deployment=deployment, started=started, **fields)  # type: ignore[arg-type]
    sent = delivery("workflow_job", payload, at, number)
    return job_event(sent, decoded(sent.body, JobPayload), at)


def internal(kind: InternalType, seconds: float, attempt: int = 1, **fields: str) -> JobEvent:
    at = CREATED.plus(seconds)
    if kind in (InternalType.SCHEDULED, InternalType.RESCHEDULED):
        fields = {"instance_type": "m7i.xlarge", "instance_lifecycle": "spot", "pool_name": "small-x64"} | fields
    instance = InstanceId(f"i-0123456789abcde{attempt:02d}") if kind is not InternalType.SCHEDULED else None
    return internal_event(InternalEvent(KEY, kind, at, attempt, instance, attributes=fields), at)


def plain() -> list[JobEvent]:
    return [
        webhook("queued", 0.4),
        internal(InternalType.SCHEDULED, 2),
        internal(InternalType.ATTACHED, 4),
        webhook("in_progress", 31.2),
        webhook("completed", 90.9, started=31),
    ]


def gated() -> list[JobEvent]:
    """Queued, waiting for an approval, queued again."""
    return [
        webhook("queued", 0.4, deployment=DEPLOYMENT_ID),
        webhook("waiting", 1.9, deployment=DEPLOYMENT_ID),
        webhook("queued", 180.1, deployment=DEPLOYMENT_ID),
        internal(InternalType.SCHEDULED, 182),
        internal(InternalType.ATTACHED, 184),
        webhook("in_progress", 211.2, deployment=DEPLOYMENT_ID),
        webhook("completed", 270.9, started=211, deployment=DEPLOYMENT_ID),
    ]


def waiting_first() -> list[JobEvent]:
    """The other observed order, with a waiting webhook that does not name its deployment."""
    return [
        webhook("waiting", 0.5),
        webhook("queued", 180.1, deployment=DEPLOYMENT_ID),
        internal(InternalType.SCHEDULED, 182),
        webhook("in_progress", 211.2),
        webhook("completed", 270.9, started=211),
    ]


def skipped() -> list[JobEvent]:
    return [webhook("completed", 0.9, conclusion="skipped")]


def cancelled() -> list[JobEvent]:
    """Before a runner took it, although a machine had been launched."""
    return [
        webhook("queued", 0.4),
        internal(InternalType.SCHEDULED, 2),
        internal(InternalType.ATTACHED, 4),
        webhook("completed", 20, conclusion="cancelled"),
        internal(InternalType.TERMINATED, 25),
    ]


def rerun() -> list[JobEvent]:
    """The second attempt of a run; its jobs have their own ids."""
    return [
        webhook("queued", 1000.4, run_attempt=2),
        internal(InternalType.SCHEDULED, 1002, instance_lifecycle="on-demand"),
        webhook("in_progress", 1031.2, run_attempt=2),
        webhook("completed", 1090.9, started=1031, run_attempt=2),
    ]


def interrupted() -> list[JobEvent]:
    """The first machine was interrupted before the job started, the second while it ran."""
    return [
        webhook("queued", 0.4),
        internal(InternalType.SCHEDULED, 2),
        internal(InternalType.INTERRUPTED, 20),
        internal(InternalType.RESCHEDULED, 22, attempt=2, instance_lifecycle="on-demand"),
        internal(InternalType.ATTACHED, 24, attempt=2),
        webhook("in_progress", 51.2, runner_name="runs-on--i-0123456789abcde02--x7Qd"),
        webhook("completed", 95, started=51, conclusion="failure", runner_name="runs-on--i-0123456789abcde02--x7Qd"),
    ]


def stolen() -> list[JobEvent]:
    """Another job's machine took it, and EC2 reclaimed that one; its own machine took another job."""
    name = f"runs-on--{TAKEN}--x7Qd"
    interruption = InternalEvent(KEY, InternalType.INTERRUPTED, CREATED.plus(80), instance_id=InstanceId(TAKEN))
    return [
        webhook("queued", 0.4),
        internal(InternalType.SCHEDULED, 2, spot_price_usd_per_hour="0.08"),
        internal(InternalType.ATTACHED, 4),
        webhook("in_progress", 31.2, runner_name=name),
        interruption_of(KEY, interruption, CREATED.plus(80)),
        webhook("completed", 90.9, started=31, conclusion="failure", runner_name=name),
        internal(InternalType.TERMINATED, 3600),
    ]


STORIES = {
    "plain": plain,
    "gated": gated,
    "waiting first": waiting_first,
    "skipped": skipped,
    "cancelled": cancelled,
    "re-run": rerun,
    "interrupted": interrupted,
    "stolen": stolen,
}


def received(event: JobEvent, at: Instant) -> JobEvent:
    """The same event, arriving at another time."""
    from msgspec.structs import replace

    identity = dict(event.identity)
    if "received_at" in identity:
        identity |= {"received_at": at.iso(), "ttl": at.epoch_seconds + 90 * 86_400}
    return replace(event, received_at=at, identity=identity)
