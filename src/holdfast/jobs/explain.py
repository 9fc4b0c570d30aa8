"""Where a job is, since when, why, and what will happen next: in words."""

from dataclasses import dataclass

from holdfast.jobs.durations import Moments, moments_of
from holdfast.jobs.facts import Status
from holdfast.jobs.retry import was_taken_down
from holdfast.jobs.stuck import Patience, seconds_there
from holdfast.jobs.views import repository_of
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import age, cut
from holdfast.ports.store import Item


@dataclass(frozen=True, slots=True)
class Explanation:
    status: str
    since: str | None
    because: str
    next: str
    is_stuck: bool = False

    def lines(self) -> list[str]:
        first = f"{self.status} since {self.since}" if self.since else self.status
        return [first + (" (stuck)" if self.is_stuck else ""), self.because, f"Next: {self.next}"]


def explained(
    job: Item, deployment: Item | None, now: Instant, patience: Patience, run: Item | None = None
) -> Explanation:
    """What can be said of the job. `deployment` is the one that it waits for, `run` its run: where there are any."""
    status = job.get("status")
    moments = moments_of(job)
    if status not in set(Status) or "created_at" not in job:
        return Explanation(
            "unknown to GitHub so far",
            None,
            "The runner fleet has told of this job, but no webhook has.",
            "the first webhook completes it; if GitHub lost it, the sweep of the delivery log asks for it again",
        )
    match Status(status):
        case Status.WAITING:
            found = _waiting(moments, deployment)
        case Status.QUEUED:
            found = _queued(job, moments)
        case Status.SCHEDULED:
            found = _scheduled(job, moments)
        case Status.IN_PROGRESS:
            found = _in_progress(job, moments)
        case Status.COMPLETED:
            return _completed(job, moments, run)
    is_stuck = seconds_there(job, Status(status), now) > patience.seconds(Status(status))
    return Explanation(found.status, found.since, found.because, found.next, is_stuck)


def _waiting(moments: Moments, deployment: Item | None) -> Explanation:
    since = _iso(moments.waiting)
    if deployment is None:
        because = "It is held back before it may queue: an approval, a wait timer, or a limit on concurrency."
        return Explanation("waiting", since, because, "GitHub queues it when it is released")
    where = cut(str(deployment.get("environment", "an environment")))
    match deployment.get("status"):
        case "approved":
            because = f"Its deployment to {where} was approved at {deployment.get('approved_at')}."
            return Explanation("waiting", since, because, "GitHub queues it; the webhook is on its way, or was lost")
        case "rejected":
            because = f"Its deployment to {where} was rejected at {deployment.get('rejected_at')}."
            return Explanation("waiting", since, because, "GitHub ends it as failed")
    because = f"Its deployment to {where} waits for an approval."
    return Explanation("waiting", since, because, "somebody approves or rejects it; after 30 days GitHub fails it")


def _queued(job: Item, moments: Moments) -> Explanation:
    labels = ", ".join(cut(label) for label in job.get("labels", ())) or "no labels"
    because = f"No runner has been asked for yet. It wants: {labels}."
    if moments.released is not None:
        because = f"It was released after {age(moments.approval_ms // 1000)} of waiting. " + because
    return Explanation(
        "queued", _iso(moments.queued or moments.created), because, "the runner fleet schedules a runner"
    )


def _scheduled(job: Item, moments: Moments) -> Explanation:
    what = " ".join(str(job[name]) for name in ("instance_lifecycle", "instance_type") if name in job) or "machine"
    attempt = job.get("scheduling_attempt", 1)
    because = f"A {what} was asked for" + (f" in attempt {attempt}" if attempt > 1 else "")
    if job.get("interrupted_attempt", 0) >= attempt:
        because += "; it is being taken away by EC2"
        return Explanation("scheduled", _iso(moments.scheduled), because + ".", "another one is asked for")
    if "instance_id" in job:
        because += f"; it is {job['instance_id']}"
        return Explanation("scheduled", _iso(moments.scheduled), because + ".", "it boots, registers and takes a job")
    return Explanation("scheduled", _iso(moments.scheduled), because + ".", "EC2 gives the machine")


def _in_progress(job: Item, moments: Moments) -> Explanation:
    because = f"It runs on {cut(str(job.get('runner_name', 'a runner')))}"
    if moments.overall_queue_ms is not None:
        because += f", {age(moments.overall_queue_ms // 1000)} after it was created"
        because += f" (and {age(moments.approval_ms // 1000)} of approval)" if moments.approval_ms else ""
    is_lost = job.get("interrupted_attempt", 0) >= job.get("scheduling_attempt", 1)
    following = "EC2 takes its machine away; it will fail, and may be run again" if is_lost else "it ends"
    return Explanation("in_progress", _iso(moments.started), because + ".", following)


def _completed(job: Item, moments: Moments, run: Item | None) -> Explanation:
    conclusion = cut(str(job.get("conclusion", "unknown")))
    if moments.started is None:
        because = f"It ended as {conclusion} without ever running."
    else:
        because = f"It ended as {conclusion} after running for {age(moments.run_seconds or 0)}."
    if job.get("interrupted_attempt", 0) >= job.get("scheduling_attempt", 1):
        because += " EC2 had taken its machine away."
    repository = repository_of(job) or "its repository"
    following = f"nothing; {repository} has the log for a while"
    if was_taken_down(job):
        following = _after_interruption(run or {})
    return Explanation("completed", _iso(moments.completed), because, following)


def _after_interruption(run: Item) -> str:
    """What becomes of the run: it may be run again, on machines that EC2 does not take."""
    retry = run.get("retry", {})
    match retry.get("state"):
        case "requested":
            return "nothing; GitHub was asked to run what failed again, on on-demand machines"
        case "intended":
            return "GitHub is asked to run what failed again, on on-demand machines"
        case "refused":
            return f"nothing; it is not run again: {cut(str(retry.get('because', 'GitHub refused')), 200)}"
    if run.get("open"):
        return "when the other jobs of its run have ended, what failed may be run again, on on-demand machines"
    return "what failed of its run may be run again, on on-demand machines, if EC2 took the machines of all that failed"


def _iso(moment: Instant | None) -> str | None:
    return moment.iso_seconds() if moment else None
