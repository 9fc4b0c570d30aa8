"""What people and programs ask about jobs, as plain data: the command line and the API show the same.

Parameters are texts, read here once for both. An answer holds what JSON can: no sets, no Decimals, times with Z.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from decimal import Decimal
from typing import Any, Final, Protocol

from holdfast.entrypoints.asking import Asked, number
from holdfast.entrypoints.job_pages import STUCK, all_jobs, all_stuck, now_whole
from holdfast.entrypoints.shown import page, plain
from holdfast.jobs import queries, statistics
from holdfast.jobs.deployment import PENDING
from holdfast.jobs.explain import explained
from holdfast.jobs.facts import Status
from holdfast.jobs.ingest import installations
from holdfast.jobs.keys import DeploymentKey, JobKey, RunKey, run_key_of
from holdfast.jobs.pending import Gates
from holdfast.jobs.queries import ANY, FILTERS, Filter, Found, Paging, Span
from holdfast.jobs.stuck import Patience, seconds_there
from holdfast.jobs.views import Viewing, deployment_view, event_view, job_view, run_view
from holdfast.kernel.errors import BadRequest, NotFound
from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.store import Item, Store
from holdfast.ports.store.tables import DEPLOYMENTS, RUNS

GATHERED_MOST: Final = 10_000  # jobs that figures are made of in one answer
GATHERED: Final = 1000
STATS_DAYS: Final = 7
COST_DAYS: Final = 30

Given = Mapping[str, str]
Answer = dict[str, Any]


@dataclass(frozen=True, slots=True)
class WithStatus(Filter):
    """Along the index by repository, which does not know the status."""

    status: str | None = None

    def __call__(self, job: Item) -> bool:
        return self.status in (None, job.get("status")) and Filter.__call__(self, job)


class Fresh(Protocol):
    """GitHub, asked about a run where the store's word on it is old, or where it has none."""

    def __call__(self, key: RunKey, run: Item) -> Item: ...

    def pending(self, key: RunKey, run: Item) -> Gates | None: ...


class Tracking:
    """Questions about one store, and to GitHub where it does not know enough."""

    def __init__(
        self,
        store: Store,
        clock: Clock,
        viewing: Viewing,
        patience: Patience,
        fresh: Fresh | None = None,
    ) -> None:
        self._fresh = fresh
        self._store = store
        self._clock = clock
        self._viewing = viewing
        self._patience = patience

    # Lists

    def jobs(self, given: Given) -> Answer:
        """By repository, by status, or all, the newest first."""
        return self._jobs(given)

    def in_line(self, installation_id: str, status: str, limit: int) -> Answer:
        """Jobs of a status, the oldest first: those that were there before the others."""
        given = {"installation_id": installation_id, "status": status, "limit": str(limit)}
        return self._jobs(given, is_newest_first=False)

    def _jobs(self, given: Given, *, is_newest_first: bool = True) -> Answer:
        asked = Asked(given, "installation_id", "status", "repo", "since", "until", "limit", "cursor", *FILTERS)
        span, status, repository = asked.span(), asked.status(), asked.repository()
        paging = asked.paging(is_newest_first=is_newest_first)
        texts = asked.texts(*FILTERS)
        installation = self._installation(asked)
        wanted = Filter(texts) if texts else ANY
        if repository is not None:
            wanted = WithStatus(texts, status) if texts or status else ANY
            found = queries.jobs_by_repository(self._store, installation, repository, span, paging, wanted)
        elif status is not None:
            found = queries.jobs_by_status(self._store, installation, status, span, paging, wanted)
            found = replace(found, items=now_whole(self._store, found.items))
        else:
            found = all_jobs(self._store, installation, span, paging, wanted)
        return page(self._shown(found.items), found)

    def stuck(self, given: Given) -> Answer:
        """Those that are where they are for too long; the worst status first, in it the oldest."""
        asked = Asked(given, "installation_id", "status", "limit", "cursor")
        status, paging = asked.status(), asked.paging()
        statuses = STUCK if status is None else (status,)
        now = self._clock.now()
        limits = {status: self._patience.seconds(status) for status in statuses}
        found = all_stuck(self._store, self._installation(asked), statuses, now, self._patience, paging)
        shown = self._shown(found.items)
        for item, job in zip(found.items, shown, strict=True):
            there = Status(item["status"])
            job |= {"seconds_there": int(seconds_there(item, there, now)), "limit_seconds": limits[there]}
        return page(shown, found)

    def events(self, installation_id: str, job_id: str, given: Given) -> Answer:
        """What happened to the job, in its order."""
        asked = Asked(given, "day", "event_type", "limit", "cursor")
        paging = asked.paging(is_newest_first=False)
        key = job_key(installation_id, job_id)
        day, event_type = asked.day(), asked.event_type()
        found = queries.events(self._store, key, paging, day=day, event_type=event_type)
        if not found.items and paging.cursor is None:
            self._job(key)  # no events, and no job: it is not known
        return page([plain(event_view(entry)) for entry in found.items], found)

    # Single things

    def job(self, installation_id: str, job_id: str, given: Given) -> Answer:
        Asked(given)
        return self._shown([self._job(job_key(installation_id, job_id))])[0]

    def explain(self, installation_id: str, job_id: str, given: Given) -> Answer:
        """Where the job is, since when, why, and what will happen next: in words."""
        Asked(given)
        key = job_key(installation_id, job_id)
        job = self._job(key)
        deployment = None
        if "deployment_id" in job:
            gate = DeploymentKey(key.installation_id, DeploymentId(int(job["deployment_id"])))
            deployment = self._store.get(DEPLOYMENTS, gate.item)
        is_lost = bool(job.get("was_interrupted")) and "GSI3-PK" in job
        run = queries.run(self._store, run_key_of(job["GSI3-PK"])) if is_lost else None
        words = explained(job, deployment, self._clock.now(), self._patience, run)
        ids = {"installation_id": key.installation_id, "job_id": key.job_id}
        return {**ids, **asdict(words), "lines": words.lines()}

    def run(self, installation_id: str, run_id: str, run_attempt: str, given: Given) -> Answer:
        """One attempt of a run, and a page of its jobs."""
        paging = Asked(given, "limit", "cursor").paging()
        installation = InstallationId(number("installation_id", installation_id))
        key = RunKey(installation, RunId(number("run_id", run_id)), number("run_attempt", run_attempt))
        run = queries.run(self._store, key)
        if run is None:
            raise NotFound(f"run {key.run_id}, attempt {key.run_attempt}, of installation {installation} is not known")
        if self._fresh is not None:
            run = self._fresh(key, run)
        found = queries.jobs_by_run(self._store, key, paging)
        later = RunKey(key.installation_id, key.run_id, key.run_attempt + 1)
        more = {
            "next_attempt": later.run_attempt if queries.run(self._store, later) is not None else None,
            "pending_deployments": self._pending_of(key, run, found.items),
        }
        return {**plain(run_view(run, self._viewing)), **more, "jobs": page(self._shown(found.items), found)}

    def deployment(self, installation_id: str, deployment_id: str, given: Given) -> Answer:
        """The deployment, and the jobs that wait or waited for it."""
        Asked(given)
        installation = InstallationId(number("installation_id", installation_id))
        key = DeploymentKey(installation, DeploymentId(number("deployment_id", deployment_id)))
        found = queries.deployment(self._store, key)
        if found is None:
            raise NotFound(f"deployment {key.deployment_id} of installation {installation} is not known")
        jobs = Found(found[1], None, len(found[1]))
        view = deployment_view(*found)
        view["is_pending_at_github"] = self._is_pending_at_github(installation, view)
        return {**plain(view), "jobs": page(self._shown(jobs.items), jobs)}

    def _pending_of(self, key: RunKey, run: Item, jobs: Sequence[Item]) -> list[Answer]:
        """The environments that these jobs wait for. GitHub is asked only of a job whose deployment nobody named."""
        waiting = [job for job in jobs if job.get("status") == Status.WAITING]
        if not waiting or run.get("status") == Status.COMPLETED:
            return []
        ids = {int(job["deployment_id"]) for job in waiting if "deployment_id" in job}
        keys = [DeploymentKey(key.installation_id, DeploymentId(number)).item for number in sorted(ids)]
        known = [each for each in (self._store.batch_get(DEPLOYMENTS, keys) if keys else ()) if each is not None]
        named = sorted({str(each.get("environment", "")) for each in known if each.get("status", PENDING) == PENDING})
        gates = [{"environment": name, "source": "store"} for name in named]
        told = None
        if self._fresh is not None and any("deployment_id" not in job for job in waiting):
            told = self._fresh.pending(key, run)
        return gates + [{**gate, "source": "github"} for gate in told or () if gate["environment"] not in named]

    def _is_pending_at_github(self, installation: InstallationId, view: Mapping[str, Any]) -> bool | None:
        """Whether GitHub still waits for it; None: it was not asked, since the store knows, or could not be."""
        if self._fresh is None or view["status"] != PENDING or view["run_id"] is None:
            return None
        key = RunKey(installation, RunId(int(view["run_id"])), int(view["run_attempt"] or 1))
        run = queries.run(self._store, key)
        if run is None or run.get("status") == Status.COMPLETED:
            return None
        told = self._fresh.pending(key, run)
        return None if told is None else any(gate["environment"] == view["environment"] for gate in told)

    # Figures

    def stats(self, given: Given) -> Answer:
        """How often jobs succeed, how long they take and wait: together, by workflow and job, by pool, by day."""
        asked = Asked(given, "installation_id", "repo", "since", "until", "limit", "cursor")
        found, told = self._gathered(asked, STATS_DAYS)
        shown = {
            "total": asdict(statistics.group_of("all", found.items)),
            "pools": statistics.pool_utilisation(found.items, self._clock.now()),
            "days": statistics.daily_counts(found.items),
        }
        groups = [asdict(group) for group in statistics.by_workflow_and_job(found.items)]
        return {**told, **plain(shown), **page(plain(groups), found)}

    def costs(self, given: Given) -> Answer:
        """What the jobs' machines cost, the dearest group first."""
        asked = Asked(given, "by", "installation_id", "repo", "since", "until", "limit", "cursor")
        by = asked.text("by") or "repo"
        if by not in statistics.COST_GROUPS:
            raise BadRequest(f"by {cut(by)!r}: expected one of {', '.join(statistics.COST_GROUPS)}")
        found, told = self._gathered(asked, COST_DAYS)
        prices = self._viewing.prices
        now = self._clock.now()
        groups, days = (statistics.costs(found.items, group, prices, now) for group in (by, "day"))
        total = {
            "usd": sum((group.usd for group in groups), Decimal(0)),
            "prices_as_of": prices.as_of,
            "prices_source": prices.source,
        }
        items = plain([asdict(group) for group in groups])
        by_day = plain([asdict(day) for day in sorted(days, key=lambda day: day.name)])
        return {"by": by, **told, **plain(total), "days": by_day, **page(items, found)}

    def _gathered(self, asked: Asked, days: int) -> tuple[Found, Answer]:
        """The jobs that figures are made of, and which they are. A cursor says that there are older ones."""
        repository, limit, start = asked.repository(), asked.limit(GATHERED_MOST, GATHERED), asked.cursor()
        now = self._clock.now()
        span = asked.span()
        since = span.since or (span.until or now).plus(-days * 86_400)
        span = Span(since, span.until)
        installation = self._installation(asked)

        def walk(paging: Paging) -> Found:
            paging = replace(paging, cursor=paging.cursor or start)
            if repository is not None:
                return queries.jobs_by_repository(self._store, installation, repository, span, paging)
            return all_jobs(self._store, installation, span, paging)

        found = queries.gathered(walk, limit)
        told = {"installation_id": installation, "repo": repository, "since": since.iso()}
        return found, {**told, "until": (span.until or now).iso(), "jobs": len(found.items)}

    # Parts

    def _installation(self, asked: Asked) -> InstallationId:
        given = asked.number("installation_id")
        return InstallationId(given) if given is not None else self.only_installation()

    def only_installation(self) -> InstallationId:
        """The one that is known; a person who has several says which."""
        known = installations(self._store)
        if len(known) == 1:
            return known[0]
        if not known:
            raise NotFound("no installation is known yet: GitHub has sent no webhook, or none was stored")
        some = ", ".join(map(str, known[:20])) + (" and more" if len(known) > 20 else "")
        raise BadRequest(f"installation_id: there are several; say which of {some}")

    def _job(self, key: JobKey) -> Item:
        found = queries.job(self._store, key)
        if found is None:
            raise NotFound(f"job {key.job_id} of installation {key.installation_id} is not known")
        return found

    def _shown(self, jobs: Sequence[Item]) -> list[Answer]:
        """The jobs with all attributes; what only their runs know is taken from there."""
        keys = list(dict.fromkeys(run_key_of(job["GSI3-PK"]).item for job in jobs if "GSI3-PK" in job))
        runs = zip(keys, self._store.batch_get(RUNS, keys) if keys else (), strict=True)
        workflows = {key.partition: run.get("workflow_id") for key, run in runs if run is not None}
        return [
            plain({**job_view(job, self._viewing), "workflow_id": workflows.get(job.get("GSI3-PK", ""))})
            for job in jobs
        ]


def job_key(installation_id: str, job_id: str) -> JobKey:
    return JobKey(InstallationId(number("installation_id", installation_id)), JobId(number("job_id", job_id)))
