"""The pages of a job, a run, deployments and costs."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from typing import Final

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.http.answers import answer_to
from holdfast.console.pages.charts import (
    CostBar,
    CostColumn,
    Gantt,
    StageBar,
    cost_bars,
    cost_columns,
    gantt,
    stage_bars,
)
from holdfast.console.pages.installations import chosen_installation, url_with
from holdfast.console.pages.shell import Shell
from holdfast.jobs.read.item_views import JobEventView, JobView
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Shape
from holdfast.kernel.text import cut
from holdfast.views.job_types import (
    DeploymentWithJobs,
    ExplainedJob,
    JobCosts,
    RunWithJobs,
    WaitingDeployments,
)
from holdfast.views.job_views import JobViews
from holdfast.views.query_params import QueryParams

RUN_JOBS_MOST: Final = 200
EVENTS_MOST: Final = 200
COST_GROUPS: Final = ("repo", "workflow", "team", "pool", "day")


class JobPage(Shape, frozen=True, kw_only=True):
    now: str
    job: JobView
    explained: ExplainedJob
    stages: list[StageBar]
    events: list[JobEventView]
    has_more_events: bool
    deployment: DeploymentWithJobs | None


class RunPage(Shape, frozen=True, kw_only=True):
    now: str
    run: RunWithJobs
    chart: Gantt
    has_more: bool
    usd: Decimal | None
    is_estimate: bool


class DeploymentPage(Shape, frozen=True, kw_only=True):
    now: str
    deployment: DeploymentWithJobs


class CostsPage(Shape, frozen=True, kw_only=True):
    installations: Sequence[int]
    chosen: int | None
    by: str
    tabs: list[tuple[str, str]]
    found: JobCosts | None
    rows: list[CostBar]
    days: list[CostColumn]


@dataclass(frozen=True, slots=True)
class JobPages:
    shell: Shell
    views: JobViews
    installations: Callable[[], Sequence[int]]
    now: Callable[[], Instant]

    def routes(self) -> list[Route]:
        return [
            Route("/jobs/{installation_id}/{job_id}", self._job, methods=["GET"]),
            Route("/runs/{installation_id}/{run_id}/{run_attempt}", self._run, methods=["GET"]),
            Route("/deployments", self._deployments, methods=["GET"]),
            Route("/deployments/{installation_id}/{deployment_id}", self._deployment, methods=["GET"]),
            Route("/costs", self._costs, methods=["GET"]),
            Route("/api/deployments", self._deployments_json, methods=["GET"]),
        ]

    # Plain functions, since they read the store: Starlette runs them in its threads.

    def _job(self, request: Request) -> Response:
        path = request.path_params

        def make_context() -> JobPage:
            now = self.now().iso()
            job = self.views.job(**path, params={})
            events = self.views.events(**path, params={"limit": str(EVENTS_MOST)})
            return JobPage(
                now=now,
                job=job,
                explained=self.views.explain(**path, params={}),
                stages=stage_bars(job, now),
                events=events.items,
                has_more_events=events.cursor is not None,
                deployment=self.views.deployment_of(job),
            )

        json_path = f"/api/jobs/{path['installation_id']}/{path['job_id']}"
        title = f"Job {cut(path['job_id'], 30)}"
        return self.shell.page(request, "job.html", make_context, title=title, json_path=json_path)

    def _run(self, request: Request) -> Response:
        path = request.path_params

        def make_context() -> RunPage:
            now = self.now().iso()
            run = self.views.run(**path, params={"limit": str(RUN_JOBS_MOST)})
            jobs = run.jobs.items
            costs = [job.usage_in_dollars for job in jobs if job.usage_in_dollars is not None]
            return RunPage(
                now=now,
                run=run,
                chart=gantt(jobs, now),
                has_more=run.jobs.cursor is not None,
                usd=sum(costs, Decimal(0)) if costs else None,
                is_estimate=any(job.usage_in_dollars_is_estimate for job in jobs),
            )

        json_path = f"/api/runs/{path['installation_id']}/{path['run_id']}/{path['run_attempt']}"
        title = f"Run {cut(path['run_id'], 30)}"
        return self.shell.page(request, "run.html", make_context, title=title, json_path=json_path)

    def _deployments(self, request: Request) -> Response:
        params = dict(request.query_params)
        path = url_with("/api/deployments", {"installation_id": params.get("installation_id", "")})
        return self.shell.page(
            request, "deployments.html", lambda: self._waiting(params), title="Deployments", json_path=path
        )

    def _deployments_json(self, request: Request) -> Response:
        return answer_to(lambda: self._waiting(dict(request.query_params)))

    def _waiting(self, params: Mapping[str, str]) -> WaitingDeployments:
        QueryParams(params, "installation_id")
        installations, chosen = chosen_installation(self.installations(), params)
        items, has_more = ([], False) if chosen is None else self.views.waiting_deployments(str(chosen))
        return WaitingDeployments(
            now=self.now().iso(), installations=list(installations), chosen=chosen, items=items, more=has_more
        )

    def _deployment(self, request: Request) -> Response:
        path = request.path_params
        json_path = f"/api/deployments/{path['installation_id']}/{path['deployment_id']}"

        def make_context() -> DeploymentPage:
            return DeploymentPage(now=self.now().iso(), deployment=self.views.deployment(**path, params={}))

        return self.shell.page(request, "deployment.html", make_context, title="Deployment", json_path=json_path)

    def _costs(self, request: Request) -> Response:
        params = dict(request.query_params)
        by = params.get("by", "repo")
        installation = {"installation_id": params.get("installation_id", "")}

        def make_context() -> CostsPage:
            installations, chosen = chosen_installation(self.installations(), params)
            query = {"installation_id": str(chosen), "by": by}
            found = None if chosen is None else self.views.costs(query)
            return CostsPage(
                installations=installations,
                chosen=chosen,
                by=by,
                tabs=[(name, url_with("/costs", {"by": name, **installation})) for name in COST_GROUPS],
                found=found,
                rows=cost_bars(found.items) if found else [],
                days=cost_columns(found.days) if found else [],
            )

        json_path = url_with("/api/costs", {"by": by, **installation})
        return self.shell.page(request, "costs.html", make_context, title="Costs", json_path=json_path)
