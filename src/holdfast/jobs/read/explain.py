"""Explains a job in words: its status, since when, why, and what happens next."""

from dataclasses import dataclass

from holdfast.jobs.model.durations import Moments, is_carried_over, moments_of
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.machines import is_taken_down
from holdfast.jobs.read.item_views import JobView, repository_of
from holdfast.jobs.read.stuck import StuckLimits, seconds_in_status
from holdfast.jobs.sweep.retry import failed_by_interruption
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


@dataclass(frozen=True, slots=True)
class LabelsAnswer:
    """What the runner fleet says to the labels of a queued job."""

    because: str
    next: str


def explanation_of(
    job: Item,
    deployment: Item | None,
    now: Instant,
    limits: StuckLimits,
    run: Item | None = None,
    answer: LabelsAnswer | None = None,
) -> Explanation:
    """The explanation of the job. `deployment` is the one that it waits for, `run` its run, if known."""
    status = job.get("status")
    moments = moments_of(job)
    if status not in set(Status) or "created_at" not in job:
        return Explanation(
            "not yet reported by GitHub",
            None,
            "The runner fleet has reported this job, but GitHub has sent no webhook for it.",
            "the first webhook completes it; a lost webhook is redelivered by the next sweep",
        )
    match Status(status):
        case Status.WAITING:
            found = _waiting(moments, deployment)
        case Status.QUEUED:
            found = _queued(job, moments, answer)
        case Status.SCHEDULED:
            found = _scheduled(job, moments)
        case Status.IN_PROGRESS:
            found = _in_progress(job, moments)
        case Status.COMPLETED:
            return _completed(job, moments, run)
    is_stuck = seconds_in_status(job, Status(status), now) > limits.seconds(Status(status))
    return Explanation(found.status, found.since, found.because, found.next, is_stuck)


def _waiting(moments: Moments, deployment: Item | None) -> Explanation:
    since = _iso(moments.waiting)
    if deployment is None:
        because = "It may not queue yet: it waits for an approval, a wait timer or a concurrency limit."
        return Explanation("waiting", since, because, "GitHub queues it once it is released")
    where = cut(str(deployment.get("environment", "an environment")))
    match deployment.get("status"):
        case "approved":
            because = f"Its deployment to {where} was approved at {deployment.get('approved_at')}."
            return Explanation("waiting", since, because, "GitHub queues it; its webhook is late or lost")
        case "rejected":
            because = f"Its deployment to {where} was rejected at {deployment.get('rejected_at')}."
            return Explanation("waiting", since, because, "GitHub fails it")
    because = f"Its deployment to {where} waits for approval."
    return Explanation("waiting", since, because, "a reviewer approves or rejects it; GitHub fails it after 30 days")


def _queued(job: Item, moments: Moments, answer: LabelsAnswer | None) -> Explanation:
    labels = ", ".join(cut(label) for label in job.get("labels", ())) or "no labels"
    because = f"No runner has been requested yet. Its labels: {labels}."
    if moments.released is not None:
        because = f"It was released after {age(moments.held_ms // 1000)} of waiting. " + because
    since = _iso(moments.queued or moments.created)
    if answer is None:
        return Explanation("queued", since, because, "the runner fleet schedules a runner")
    return Explanation("queued", since, f"{because} {answer.because}", answer.next)


def _scheduled(job: Item, moments: Moments) -> Explanation:
    what = " ".join(str(job[name]) for name in ("instance_lifecycle", "instance_type") if name in job) or "any type"
    attempt = job.get("scheduling_attempt", 1)
    because = f"A machine ({what}) was requested" + (f" in attempt {attempt}" if attempt > 1 else "")
    if is_taken_down(job):
        because += "; EC2 is reclaiming it"
        return Explanation("scheduled", _iso(moments.scheduled), because + ".", "another machine is requested")
    if "instance_id" in job:
        because += f"; it is {job['instance_id']}"
        return Explanation(
            "scheduled", _iso(moments.scheduled), because + ".", "it boots, registers and starts the job"
        )
    return Explanation("scheduled", _iso(moments.scheduled), because + ".", "EC2 launches the machine")


def _in_progress(job: Item, moments: Moments) -> Explanation:
    because = f"It runs on {cut(str(job.get('runner_name', 'a runner')))}"
    if moments.overall_queue_ms is not None:
        because += f", {age(moments.overall_queue_ms // 1000)} after it was created"
        because += f" (plus {_held(moments)})" if moments.held_ms else ""
    is_lost = is_taken_down(job)
    following = "EC2 is reclaiming its machine; it will fail, and may be rerun" if is_lost else "it completes"
    return Explanation("in_progress", _iso(moments.started), because + ".", following)


def _completed(job: Item, moments: Moments, run: Item | None) -> Explanation:
    conclusion = cut(str(job.get("conclusion", "unknown")))
    if is_carried_over(job):
        because = f"It was carried over: an earlier attempt of its run had executed it, with {conclusion}."
    elif moments.started is None:
        because = f"It ended with {conclusion} without running."
    else:
        because = f"It ended with {conclusion} after running for {age(moments.run_seconds or 0)}."
    if is_taken_down(job):
        because += " EC2 had reclaimed its machine."
    repository = repository_of(job) or "its repository"
    following = f"nothing; the log stays in {repository} for a while"
    if failed_by_interruption(job):
        following = _after_interruption(run or {})
    return Explanation("completed", _iso(moments.completed), because, following)


def _after_interruption(run: Item) -> str:
    """What happens to the run: its failed jobs may be rerun on on-demand machines."""
    retry = run.get("retry", {})
    match retry.get("state"):
        case "requested":
            return "nothing; a rerun of the failed jobs on on-demand machines was requested"
        case "intended":
            return "a rerun of the failed jobs on on-demand machines is being requested"
        case "refused":
            return f"nothing; it is not rerun: {cut(str(retry.get('because', 'GitHub refused')), 200)}"
    if run.get("open"):
        return "once the other jobs of its run have ended, the failed jobs may be rerun on on-demand machines"
    return "the failed jobs may be rerun on on-demand machines, if EC2 reclaimed the machines of all of them"


def _held(moments: Moments) -> str:
    duration = age(moments.held_ms // 1000)
    return f"{duration} of waiting for approval" if moments.has_gate else f"{duration} in which GitHub held it back"


def _iso(moment: Instant | None) -> str | None:
    return moment.iso_seconds() if moment else None


def waits_for(job: JobView) -> str:
    """Where a job is and what it waits for, in a line."""
    match job.status:
        case "queued":
            labels = ", ".join(map(str, job.labels or ()))
            return f"no runner requested yet; needs {labels}" if labels else "no runner requested yet"
        case "scheduled":
            what = " ".join(str(part) for part in (job.instance_lifecycle, job.instance_type) if part)
            attempt = job.scheduling_attempt or 1
            state = "is booting" if job.instance_id else "was requested"
            return f"{what or 'a machine'} {state}" + (f", attempt {attempt}" if attempt > 1 else "")
        case "waiting":
            return "waiting for approval" if job.deployment_id else "held back by GitHub"
        case "in_progress":
            return f"running on {job.runner_name or 'a runner'}"
    return "EC2 reclaimed its machine" if job.was_interrupted else ""
