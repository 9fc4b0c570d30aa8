"""GitHub's jobs: what the tracker stores, compared with what GitHub has.

Attribute names are repeated here on purpose: a checker must not depend on the code it checks.
"""

from collections.abc import Callable, Mapping
from itertools import accumulate
from typing import Final

from holdfast.kernel.ids import JobId
from holdfast.ports.store import Item
from holdfast.ports.store.values import item_bytes
from holdfast.simulator.checkers.base import Checker, Violation
from holdfast.simulator.proof.facts import Facts
from holdfast.simulator.proof.processes import Process
from holdfast.simulator.world.github import FAILED
from holdfast.simulator.world.github_objects import SimJob, Webhook

ITEM_BYTES_MOST: Final = 4096
_INDEXES: Final = ("GSI1-PK", "GSI2-PK", "GSI3-PK")
_RUN_STATUSES: Final = ("queued", "in_progress", "completed")


class JobChecker(Checker):
    """A checker of the job tracker. It needs a run with a GitHub."""

    def __init__(self, facts: Facts, report: Callable[[Violation], None]) -> None:
        super().__init__(facts, report)
        if facts.jobs is None:
            raise ValueError(f"{self.name} needs a GitHub to compare with")
        self.jobs = facts.jobs


class OncePerDelivery(JobChecker):
    name = "OncePerDelivery"
    says = "no two events of a job share a key, no delivery is in its history twice, and none is forgotten"

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        if len(new.get("dl", ())) < len(old.get("dl", ())):
            self.fail(by, f"job {new['PK']} forgot a delivery")

    def event_written(self, by: Process, old: Item, new: Item) -> None:
        if old and old.get("delivery") != new.get("delivery"):
            self.fail(by, f"two events of job {new['PK']} share the key {new['SK']}")

    def healed(self) -> None:
        for job in self.jobs.github.jobs.values():
            seen = [entry["delivery"] for entry in self.jobs.history(job) if "delivery" in entry]
            if len(seen) != len(set(seen)):
                self.fail(None, f"job {job.id} has a duplicate delivery in its history")


class NoFactLost(JobChecker):
    name = "NoFactLost"
    says = "an acknowledged webhook is stored; in the end every job and every review is, even if its webhook was lost"

    def acknowledged(self, by: Process, webhook: Webhook) -> None:
        if webhook.event == "workflow_job" and webhook.job and not self.jobs.is_recorded(webhook.job, webhook.guid):
            self.fail(by, f"{webhook.action} of job {webhook.job.id} was acknowledged but is not in its history")
        if webhook.event == "workflow_run" and "status" not in self.jobs.run_item(webhook.run, webhook.run_attempt):
            self.fail(by, f"{webhook.action} of run {webhook.run.id} was acknowledged but its status is not stored")

    def healed(self) -> None:
        for job in self.jobs.settled_jobs(self.facts.now()):
            if self.jobs.job_item(job) is None:
                self.fail(None, f"job {job.id} ({job.name}) is not stored")
            elif job.review is not None:
                self._check_review(job)

    def _check_review(self, job: SimJob) -> None:
        found = self.jobs.deployment_item(job).get("status")
        if found != job.review and self.jobs.plan.reads_log:
            self.fail(None, f"the deployment of job {job.id} was {job.review} but is stored as {found}")


class StatusMonotone(JobChecker):
    name = "StatusMonotone"
    says = "the status of a job or a run, and a job's scheduling attempt, never go backwards"

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        self.run_written(by, old, new)
        before, after = old.get("scheduling_attempt", 0), new.get("scheduling_attempt", 0)
        if after < before:
            self.fail(by, f"{new['PK']} went from scheduling attempt {before} to {after}")

    def run_written(self, by: Process, old: Item, new: Item) -> None:
        if new.get("rk", 0) < old.get("rk", 0):
            self.fail(by, f"{new['PK']} went from {old.get('status')} ({old['rk']}) to {new.get('status')}")


class CountersExact(JobChecker):
    name = "CountersExact"
    says = "a job that a run counts stays counted; in the end a run counts exactly the jobs that GitHub has"

    def run_written(self, by: Process, old: Item, new: Item) -> None:
        lost = {*old.get("gates", ())} - {*new.get("gates", ())}
        if new["SK"].startswith("job#") and lost:
            self.fail(by, f"run {new['PK']}: {new['SK']} lost its gates {sorted(lost)}")

    def healed(self) -> None:
        for run, attempt, jobs in self.jobs.settled_attempts(self.facts.now()):
            states = {job.id: self.jobs.state_of(job) for job in jobs}
            counted = self.jobs.counted_jobs(run, attempt)
            for name, wanted in _by_state(states).items():
                stored = {number: (item.get("status", ""), item.get("conclusion")) for number, item in counted.items()}
                found = _by_state(stored)[name]
                if found != wanted:
                    text = f"run {run.id}, attempt {attempt}: {name} are {sorted(found)}; GitHub says {sorted(wanted)}"
                    self.fail(None, text)


def _by_state(states: Mapping[JobId, tuple[str, str | None]]) -> dict[str, set[JobId]]:
    done = {job for job, (status, _) in states.items() if status == "completed"}
    failed = {job for job, (_, conclusion) in states.items() if conclusion in FAILED}
    return {"open": set(states) - done, "done": done, "failed": failed}


class IndexAgrees(JobChecker):
    name = "IndexAgrees"
    says = "a job is in the index of its status and, once GitHub has reported it, in all three indexes"

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        installation = new["PK"].partition("#")[0]
        if "status" in new and new.get("GSI1-PK") != f"{installation}#{new['status']}":
            self.fail(by, f"job {new['PK']} is {new['status']} but in the index {new.get('GSI1-PK')}")
        missing = [name for name in _INDEXES if name not in new]
        if "created_at" in new and missing:
            self.fail(by, f"job {new['PK']} is not in {', '.join(missing)}")


class AttemptIsolated(JobChecker):
    name = "AttemptIsolated"
    says = "a job stays with its own attempt of its run, and a run counts no job of another attempt"

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        job = self.jobs.github.jobs.get(JobId(int(new["PK"].split("#")[1])))
        where = new.get("GSI3-PK", "")
        if job is not None and where and not where.endswith(f"#{job.run_id}#{job.run_attempt}"):
            self.fail(by, f"job {job.id} of run {job.run_id}, attempt {job.run_attempt}, is in {where}")

    def run_written(self, by: Process, old: Item, new: Item) -> None:
        _, run, attempt = new["PK"].split("#")
        kind, _, number = new["SK"].partition("#")
        job = self.jobs.github.jobs.get(JobId(int(number))) if kind == "job" else None
        if job is not None and (str(job.run_id), str(job.run_attempt)) != (run, attempt):
            self.fail(by, f"run {run}, attempt {attempt}, counts job {number} of another attempt")


class TenantIsolated(JobChecker):
    name = "TenantIsolated"
    says = "what is stored of a job stays in its own installation"

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        installation, number = new["PK"].split("#")
        others = sorted({new[name].partition("#")[0] for name in _INDEXES if name in new} - {installation})
        if others:
            self.fail(by, f"job {new['PK']} is in an index of installation {', '.join(others)}")
        job = self.jobs.github.jobs.get(JobId(int(number)))
        if job is not None and new["PK"] != self.jobs.key_of(job):
            self.fail(by, f"job {self.jobs.key_of(job)} was stored as {new['PK']}")


class DecisionOnce(JobChecker):
    name = "DecisionOnce"
    says = "a deployment is approved or rejected once, and that does not change"

    def deployment_written(self, by: Process, old: Item, new: Item) -> None:
        before, after = old.get("status", "pending"), new.get("status")
        if before not in ("pending", after):
            self.fail(by, f"deployment {new['PK']} went from {before} to {after}")


class ItemBound(JobChecker):
    name = "ItemBound"
    says = "what is stored of a job stays below 4 KB"

    def job_written(self, by: Process, old: Item, new: Item) -> None:
        size = item_bytes(new)
        if size >= ITEM_BYTES_MOST:
            self.fail(by, f"job {new['PK']} takes {size} bytes")


class CursorKept(JobChecker):
    name = "CursorKept"
    says = (
        "the cursor in GitHub's delivery log never moves back, and passes no failed delivery without a "
        "redelivery request; in the end every failed delivery was requested, even one that appeared in the log late"
    )

    def cursor_moved(self, by: Process, old: Item, new: Item) -> None:
        before, after = old.get("high", 0), new.get("high", 0)
        if after < before:
            self.fail(by, f"the cursor moved back from {before} to {after}")
        if after == before:
            return
        github = self.jobs.github
        # A record that appeared late may do so after the sweep has listed its page: the end shows whether it was found.
        newest = accumulate((record.id for record in github.log), max)
        passed = [
            record
            for record, so_far in zip(github.log, newest, strict=True)
            if before < record.id <= after and record.id == so_far
            if not record.is_success and record.guid not in github.redelivered
        ]
        succeeded = {record.guid for record in github.log if record.is_success} if passed else set()
        for record in passed:
            if record.guid not in succeeded:
                self.fail(by, f"the cursor passed delivery {record.id}, which failed and was not redelivered")

    def healed(self) -> None:
        github, now = self.jobs.github, self.facts.now()
        if not self.jobs.plan.reads_log:
            return
        settled = {record.guid for record in github.log if record.is_success} | github.redelivered
        for record in github.log:
            is_old = now.seconds_since(record.delivered_at) > self.jobs.plan.settle_seconds
            if is_old and record.guid not in settled:
                self.fail(None, f"delivery {record.id} failed and was never requested again")


class NoSilentStuck(JobChecker):
    name = "NoSilentStuck"
    says = "in the end, each job is stored with the status and the conclusion that it has at GitHub"

    def healed(self) -> None:
        for job in self.jobs.settled_jobs(self.facts.now()):
            item = self.jobs.job_item(job)
            if item is None:
                continue  # NoFactLost reports it
            ours = (item.get("status"), item.get("conclusion"))
            ours = ("queued", None) if ours == ("scheduled", None) else ours
            theirs = self.jobs.state_of(job)
            if ours != theirs:
                self.fail(None, f"job {job.id} is stored as {_state(ours)} but is {_state(theirs)}")


def _state(state: tuple[str | None, str | None]) -> str:
    return " with ".join(each or "nothing" for each in state if each or each is state[0])


CHECKERS: tuple[type[Checker], ...] = (
    OncePerDelivery,
    NoFactLost,
    StatusMonotone,
    CountersExact,
    IndexAgrees,
    AttemptIsolated,
    TenantIsolated,
    DecisionOnce,
    ItemBound,
    CursorKept,
    NoSilentStuck,
)
