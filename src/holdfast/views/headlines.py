"""The overview in words: what happens now, and what needs attention."""

from collections.abc import Iterator, Sequence
from typing import Final

from msgspec import UNSET

from holdfast.cluster.rules import EVERY_POD_FITS
from holdfast.kernel.json_types import Shape
from holdfast.kernel.text import age, some
from holdfast.views.cluster_now import ClusterNow
from holdfast.views.cluster_status import ScaleUpAction
from holdfast.views.decisions import RuleResult
from holdfast.views.jobs_now import JobCount, JobsNow
from holdfast.views.rule_groups import holds_words
from holdfast.views.tick_health import allowed_seconds

# By the kind of the notice.
_LEAVING: Final = {
    "interruption": ("EC2 is reclaiming", "spot machine", ""),
    "rebalance": ("Replacing", "spot machine", " at risk of interruption"),
    "not-ready": ("Replacing", "NotReady worker", ""),
}


class Alert(Shape, frozen=True):
    """Something that needs attention: at once if `is_urgent`. `link` leads to the details."""

    what: str
    text: str
    act: str
    link: str
    is_urgent: bool = False


def headline(cluster: ClusterNow, jobs: JobsNow) -> list[str]:
    """Up to three sentences: the workers, the actions in progress, the jobs."""
    return [sentence for sentence in (_there(cluster), _doing(cluster), _running(jobs)) if sentence]


def _there(cluster: ClusterNow) -> str:
    workers, pods, pending = cluster.workers, cluster.pods, cluster.pending
    if workers is None:
        verb = "completed" if cluster.failure else "been recorded"
        return f"The state of the cluster is unknown: no tick has {verb} yet."
    carry = f" with {some(pods, 'pod')}" if pods is not None else ""
    wait = "" if pending is None else f"; {some(pending, 'pod')} pending" if pending else "; no pods pending"
    return f"{some(workers, 'worker')}{carry}{wait}."


def _doing(cluster: ClusterNow) -> str:
    action = cluster.action
    found = []
    if action:
        if isinstance(action, ScaleUpAction):
            verb, number, away = "Adding", action.requested, ""
        else:
            verb, number, away = "Removing", len(action.targets), ""
        phase = f"{action.phase.lower()} for {age(action.seconds)}"
        found.append(f"{verb} {some(number, 'worker')}{away}: {phase}.")
    found += _leaving(cluster)
    if cluster.paused:
        found.append("Paused: no new action is started.")
    return " ".join(found)


def _leaving(cluster: ClusterNow) -> Iterator[str]:
    """Machines that leave without an action, and why."""
    kinds = [node.notice.kind for node in cluster.nodes if node.notice and node.status == "leaving"]
    for kind, (before, noun, after) in _LEAVING.items():
        if number := kinds.count(kind):
            yield f"{before} {some(number, noun)}{after}."


def _running(jobs: JobsNow) -> str:
    if not jobs.installations:
        return ""
    counts = jobs.counts
    held = f", {_many(counts.waiting)} held back by GitHub" if counts.waiting.jobs else ""
    running, queue = counts.in_progress, _many(counts.queued, counts.scheduled)
    jobs_running = f"{_many(running)} {'job' if running.jobs == 1 else 'jobs'}"
    return f"{jobs_running} running, {queue} queued{held}."


def _many(*counts: JobCount) -> str:
    """The sum, with a plus if there are more."""
    return f"{sum(count.jobs for count in counts)}{'+' if any(count.more for count in counts) else ''}"


def alerts(cluster: ClusterNow, jobs: JobsNow, tick_seconds: float) -> list[Alert]:
    found = [*_ticking(cluster, tick_seconds), *_capacity(cluster), *_pods(cluster), *_nodes(cluster), *_jobs(jobs)]
    return sorted(found, key=lambda alert: not alert.is_urgent)


def _ticking(cluster: ClusterNow, tick_seconds: float) -> Iterator[Alert]:
    failure, seconds = cluster.failure, cluster.last_tick_seconds
    if failure:
        yield Alert(
            "tick_failed",
            f"The last tick failed: {failure.why}.",
            "see the decisions" if cluster.last_tick_seconds is not None else "check everything that Holdfast needs",
            "/cluster/decisions" if cluster.last_tick_seconds is not None else "/system#checks",
            True,
        )
    elif seconds is None:
        yield Alert(
            "no_tick",
            "No tick has been recorded in the last day.",
            "start one with: holdfast run",
            "/cluster/decisions",
            True,
        )
    elif seconds > allowed_seconds(tick_seconds):
        yield Alert(
            "no_tick",
            f"The last tick was {age(int(seconds))} ago.",
            "check that holdfast run, or the Lambda function, is running",
            "/cluster/decisions",
            True,
        )
    yield from _unknown(cluster.rules)
    if cluster.paused:
        who, why = cluster.paused.by, cluster.paused.reason
        yield Alert(
            "paused", f"Paused by {who}" + (f": {why}" if why else "") + ".", "resume when done", "/cluster#pause"
        )


def _unknown(rules: Sequence[RuleResult]) -> Iterator[Alert]:
    """One alert per reason, however many rules share it."""
    found: dict[str, list[str]] = {}
    for rule in rules:
        if rule.verdict == "unknown":
            found.setdefault(rule.value, []).append(holds_words(rule))
    for why, words in found.items():
        what = " or ".join(dict.fromkeys(words))
        act = "nothing is scaled while this is unknown"
        yield Alert("unknown", f"It is unknown whether {what}: {why}.", act, "/cluster#why")


def _capacity(cluster: ClusterNow) -> Iterator[Alert]:
    failing = [pool for pool in cluster.capacity if pool.is_failing]
    if failing:
        names = ", ".join(f"{pool.type} {pool.market} in {pool.zone}" for pool in failing[:3])
        more = f" and {len(failing) - 3} more" if len(failing) > 3 else ""
        yield Alert(
            "no_capacity",
            f"EC2 has no capacity for {names}{more}.",
            "other pools are used until it recovers",
            "/cluster#capacity",
        )
    if cluster.up_failures:
        yield Alert(
            "up_failed",
            "The last scale-up failed."
            if cluster.up_failures == 1
            else f"The last {cluster.up_failures} scale-ups failed.",
            "see the decisions",
            "/cluster/decisions?acted=yes",
            True,
        )


def _pods(cluster: ClusterNow) -> Iterator[Alert]:
    for rule in cluster.rules:
        if rule.name == EVERY_POD_FITS.name and rule.verdict == "no":
            first = "" if rule.details is UNSET or not rule.details else f": {rule.details[0]}"
            more = "" if rule.value == "1 pod" else f" ({rule.value} in total)"
            yield Alert(
                "impossible_pods",
                f"A pod fits on no machine{first}{more}.",
                "request less, or add a larger type to INSTANCE_TYPES",
                "/cluster#why",
            )


def _nodes(cluster: ClusterNow) -> Iterator[Alert]:
    lost = [node.id for node in cluster.nodes if node.status == "not ready"]
    if lost:
        yield Alert(
            "not_ready",
            f"Not ready: {', '.join(lost[:3])}.",
            "replaced automatically after NOT_READY_SEC",
            "/cluster#nodes",
            True,
        )
    for held in cluster.undrainable:
        if held.is_failing:
            yield Alert(
                "undrainable",
                f"{held.id} could not be drained.",
                "see the decisions for the pod that stays",
                "/cluster/decisions?acted=yes",
            )


def _jobs(jobs: JobsNow) -> Iterator[Alert]:
    stuck = jobs.stuck
    if stuck.jobs:
        more = " or more" if stuck.more else ""
        yield Alert(
            "stuck_jobs",
            f"{some(stuck.jobs, 'job')}{more} stuck.",
            "see the list",
            "/jobs?tab=stuck",
            True,
        )
    if jobs.problem:
        yield Alert("jobs_unknown", f"The jobs could not be read: {jobs.problem}", "check the store", "/system", True)
