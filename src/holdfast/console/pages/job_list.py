"""The page that lists jobs: its tabs, its filters, and the queue."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from msgspec import structs
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.http.answers import answer_to
from holdfast.console.pages.installations import chosen_installation, url_with
from holdfast.console.pages.shell import Shell
from holdfast.jobs.read.explain import waits_for
from holdfast.jobs.read.item_views import JobView
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Shape
from holdfast.kernel.text import cut
from holdfast.views.job_types import JobQueue, ListPage, QueuedJob, StuckJob
from holdfast.views.job_views import QUEUE_MOST, JobViews

PAGE: Final = 50
NAMES_KEPT_SECONDS: Final = 60
SUGGESTED_FROM: Final = 100  # jobs whose names the filters suggest
# The tab, its name, and the status of its jobs.
TABS: Final = (
    ("all", "All", None),
    ("queue", "Queue", "queued"),
    ("running", "Running", "in_progress"),
    ("waiting", "Held back", "waiting"),
    ("stuck", "Stuck", None),
    ("finished", "Finished", "completed"),
)
ENDED_TABS: Final = ("all", "finished")  # where jobs have a conclusion
FILTERS: Final = ("repo", "workflow", "label", "conclusion")
SPANS: Final = {"": "any time", "1": "last hour", "24": "last day", "168": "last 7 days"}


class JobFilters(Shape, frozen=True, kw_only=True):
    """As they stand in the form; `since`: how many hours back."""

    repo: str
    workflow: str
    label: str
    conclusion: str
    since: str


class JobNames(Shape, frozen=True, kw_only=True):
    """What the filters suggest: names of recent jobs."""

    repos: list[str]
    workflows: list[str]
    labels: list[str]


class JobLine(JobView, frozen=True, kw_only=True):
    """A job with what its tab shows beside it."""

    why: str
    position: int | None = None
    seconds_there: int | None = None
    limit_seconds: int | None = None


class JobsPage(Shape, frozen=True, kw_only=True):
    """`clear`, `more`: links to the page without filters, and to the next one."""

    now: str
    tab: str
    tabs: list[tuple[str, str, str]]
    spans: Mapping[str, str]
    filters: JobFilters
    names: JobNames
    is_filtered: bool
    clear: str
    installations: Sequence[int]
    chosen: int | None
    items: list[JobLine]
    examined: int
    queue_most: int
    more: str | None


@dataclass(frozen=True, slots=True)
class JobListPages:
    shell: Shell
    views: JobViews
    installations: Callable[[], Sequence[int]]
    now: Callable[[], Instant]
    recent_names: dict[int, tuple[Instant, JobNames]] = field(default_factory=dict)

    def routes(self) -> list[Route]:
        return [
            Route("/jobs", self._list, methods=["GET"]),
            Route("/api/jobs/queue", self._queue_json, methods=["GET"]),
        ]

    # Plain functions, since they read the store: Starlette runs them in its threads.

    def _list(self, request: Request) -> Response:
        params = dict(request.query_params)
        tab = params.get("tab", "all")
        return self.shell.page(
            request,
            "jobs.html",
            lambda: self._jobs_page(tab, params),
            title="Jobs",
            json_path=self._json_path(tab, params),
        )

    def _jobs_page(self, tab: str, params: Mapping[str, str]) -> JobsPage:
        statuses = {name: status for name, _, status in TABS}
        if tab not in statuses:
            raise BadRequest(f"tab {cut(tab)!r}: expected one of {', '.join(statuses)}")
        installations, chosen = chosen_installation(self.installations(), params)
        found = None if chosen is None else self._jobs_of(tab, self._query(params, chosen, tab, statuses[tab]))
        filters = {name: params.get(name, "") for name in (*FILTERS, "since")}
        return JobsPage(
            now=self.now().iso(),
            tab=tab,
            tabs=[(name, title, url_with("/jobs", {**_kept(params, name), "tab": name})) for name, title, _ in TABS],
            spans=SPANS,
            filters=JobFilters(**filters),
            names=self._names(chosen),
            is_filtered=any(filters.values()) and tab != "stuck",
            clear=url_with("/jobs", {"tab": tab, "installation_id": params.get("installation_id", "")}),
            installations=installations,
            chosen=chosen,
            items=[_line(job) for job in found.items] if found else [],
            examined=found.examined if found else 0,
            queue_most=QUEUE_MOST,
            more=url_with("/jobs", {**params, "cursor": found.cursor}) if found and found.cursor else None,
        )

    def _names(self, chosen: int | None) -> JobNames:
        """Kept for a minute: a page that refreshes each second would read a hundred jobs each time."""
        if chosen is None:
            return JobNames(repos=[], workflows=[], labels=[])
        known, now = self.recent_names.get(chosen), self.now()
        if known is None or not 0 <= now.seconds_since(known[0]) < NAMES_KEPT_SECONDS:
            known = self.recent_names[chosen] = (now, self._read_names(chosen))
        return known[1]

    def _read_names(self, chosen: int) -> JobNames:
        recent = self.views.jobs({"installation_id": str(chosen), "limit": str(SUGGESTED_FROM)}).items
        return JobNames(
            repos=_sorted_names(job.repo_full_name for job in recent),
            workflows=_sorted_names(job.workflow_name for job in recent),
            labels=_sorted_names(label for job in recent for label in job.labels or ()),
        )

    def _jobs_of(self, tab: str, query: dict[str, str]) -> ListPage[JobView] | ListPage[StuckJob] | JobQueue:
        match tab:
            case "queue":
                return self.views.queue(query)
            case "stuck":
                return self.views.stuck(query)
        return self.views.jobs(query)

    def _query(self, params: Mapping[str, str], chosen: int, tab: str, status: str | None) -> dict[str, str]:
        query = {"installation_id": str(chosen), "limit": str(QUEUE_MOST if tab == "queue" else PAGE)}
        if params.get("cursor"):
            query["cursor"] = params["cursor"]
        if tab == "stuck":
            return query
        if status is not None:
            query["status"] = status
        query |= {name: params[name] for name in FILTERS if params.get(name)}
        if params.get("since"):
            if params["since"] not in SPANS:
                raise BadRequest(f"since {cut(params['since'])!r}: expected one of {', '.join(filter(None, SPANS))}")
            query["since"] = self._since(params["since"])
        return query

    def _json_path(self, tab: str, params: Mapping[str, str]) -> str:
        """Where the same jobs are as JSON."""
        names = ["installation_id", "cursor"] if tab == "stuck" else ["installation_id", "cursor", *FILTERS]
        query = {name: params.get(name, "") for name in names}
        if params.get("since", "") in SPANS and tab != "stuck":
            query["since"] = self._since(params.get("since", ""))
        if tab in ("stuck", "queue"):
            return url_with(f"/api/jobs/{tab}", query)
        status = next((status for name, _, status in TABS if name == tab), None)
        return url_with("/api/jobs", {"status": status or "", "limit": str(PAGE), **query})

    def _since(self, hours: str) -> str:
        return self.now().plus(-int(hours) * 3600).iso_seconds() if hours else ""

    def _queue_json(self, request: Request) -> Response:
        def queue() -> JobQueue:
            params = dict(request.query_params)
            _, chosen = chosen_installation(self.installations(), params)
            for name in ("status", "limit", "cursor"):
                if name in params:
                    raise BadRequest(f"unknown parameter {name!r}: this is the whole queue, up to {QUEUE_MOST} jobs")
            if chosen is None:
                return JobQueue(items=[], examined=0)
            return self.views.queue({**params, "installation_id": str(chosen), "limit": str(QUEUE_MOST)})

        return answer_to(queue)


def _sorted_names(names: Iterable[str | None]) -> list[str]:
    return sorted({name for name in names if name}, key=str.casefold)


def _line(job: JobView) -> JobLine:
    shown = structs.asdict(job)
    return JobLine(**shown) if isinstance(job, QueuedJob) else JobLine(**shown, why=waits_for(job))


def _kept(params: Mapping[str, str], tab: str) -> dict[str, str]:
    """The filters that another tab keeps; one that it does not show would empty it unnoticed."""
    names: tuple[str, ...] = (*FILTERS, "since")
    if tab == "stuck":
        names = ()
    elif tab not in ENDED_TABS:
        names = tuple(name for name in names if name != "conclusion")
    return {name: params[name] for name in ("installation_id", *names) if params.get(name)}
