"""Jobs, runs, deployments that wait, and costs: pages over the same questions that the API answers."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import urlencode

from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.answers import answer_to
from holdfast.console.jobs_api import JobQuestions
from holdfast.console.pages.charts import bars, columns, gantt, stages
from holdfast.console.pages.shell import Shell
from holdfast.kernel.errors import BadRequest, NotFound
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut

Answer = Mapping[str, Any]
Job = Mapping[str, Any]

PAGE: Final = 50
QUEUE_MOST: Final = 200
RUN_JOBS_MOST: Final = 200
EVENTS_MOST: Final = 200
COSTS_OF: Final = 2000
GATES_MOST: Final = 50
# The tab, its name, and the status that the API is asked for.
TABS: Final = (
    ("all", "All", None),
    ("queue", "Queue", "queued"),
    ("running", "Running", "in_progress"),
    ("waiting", "For approval", "waiting"),
    ("stuck", "Stuck", None),
    ("finished", "Finished", "completed"),
)
ENDED_TABS: Final = ("all", "finished")  # where jobs have a conclusion
_QUEUED: Final = ("queued", "scheduled")
FILTERS: Final = ("repo", "workflow", "label", "conclusion")
SPANS: Final = {"": "any time", "1": "last hour", "24": "last day", "168": "last 7 days"}
COST_GROUPS: Final = ("repo", "workflow", "team", "pool", "day")


@dataclass(frozen=True, slots=True)
class JobPages:
    shell: Shell
    questions: JobQuestions
    installations: Callable[[], Sequence[int]]
    now: Callable[[], Instant]

    def routes(self) -> list[Route]:
        return [
            Route("/jobs", self._list, methods=["GET"]),
            Route("/jobs/{installation_id}/{job_id}", self._job, methods=["GET"]),
            Route("/runs/{installation_id}/{run_id}/{run_attempt}", self._run, methods=["GET"]),
            Route("/deployments", self._deployments, methods=["GET"]),
            Route("/deployments/{installation_id}/{deployment_id}", self._deployment, methods=["GET"]),
            Route("/costs", self._costs, methods=["GET"]),
            Route("/api/jobs/queue", self._queue_json, methods=["GET"]),
            Route("/api/deployments", self._deployments_json, methods=["GET"]),
        ]

    # Plain functions ask the store: Starlette runs them in threads of its own.

    def _list(self, request: Request) -> Response:
        given = dict(request.query_params)
        tab = given.get("tab", "all")

        def ask() -> Answer:
            statuses = {name: status for name, _, status in TABS}
            if tab not in statuses:
                raise BadRequest(f"tab {cut(tab)!r}: expected one of {', '.join(statuses)}")
            known, chosen = self._installation(given)
            asked = {} if chosen is None else self._asked(given, chosen, tab, statuses[tab])
            found: Answer = {"items": [], "cursor": None, "examined": 0}
            if chosen is not None:
                found = self._queue(asked) if tab == "queue" else self._page(tab, asked)
            return {
                "now": self.now().iso(),
                "tab": tab,
                "tabs": [(name, title, _url("/jobs", {**_kept(given, name), "tab": name})) for name, title, _ in TABS],
                "spans": SPANS,
                "given": {name: given.get(name, "") for name in (*FILTERS, "since")},
                "is_filtered": any(given.get(name) for name in (*FILTERS, "since")) and tab != "stuck",
                "clear": _url("/jobs", {"tab": tab, "installation_id": given.get("installation_id", "")}),
                "installations": known,
                "chosen": chosen,
                "items": [{**job, "why": why(job)} for job in found["items"]],
                "examined": found["examined"],
                "queue_most": QUEUE_MOST,
                "more": _url("/jobs", {**given, "cursor": found["cursor"]}) if found["cursor"] else None,
            }

        return self.shell.page(request, "jobs.html", ask, title="Jobs", json_path=self._json_path(tab, given))

    def _json_path(self, tab: str, given: Mapping[str, str]) -> str:
        """Where the same jobs are as JSON."""
        names = ["installation_id", "cursor"] if tab == "stuck" else ["installation_id", "cursor", *FILTERS]
        query = {name: given.get(name, "") for name in names}
        if given.get("since", "") in SPANS and tab != "stuck":
            query["since"] = self._since(given.get("since", ""))
        if tab in ("stuck", "queue"):
            return _url(f"/api/jobs/{tab}", query)
        status = next((status for name, _, status in TABS if name == tab), None)
        return _url("/api/jobs", {"status": status or "", "limit": str(PAGE), **query})

    def _queue_json(self, request: Request) -> Response:
        def ask() -> Answer:
            given = dict(request.query_params)
            _, chosen = self._installation(given)
            for name in ("status", "limit", "cursor"):
                if name in given:
                    raise BadRequest(f"{name!r} is not asked for here: it is the whole queue, {QUEUE_MOST} at most")
            if chosen is None:
                return {"items": [], "cursor": None, "examined": 0}
            found = self._queue({**given, "installation_id": str(chosen), "limit": str(QUEUE_MOST)})
            return {**found, "items": [{**job, "why": why(job)} for job in found["items"]]}

        return answer_to(ask)

    def _deployments_json(self, request: Request) -> Response:
        return answer_to(lambda: self._waiting(dict(request.query_params)))

    def _since(self, hours: str) -> str:
        return self.now().plus(-int(hours) * 3600).iso_seconds() if hours else ""

    def _page(self, tab: str, asked: dict[str, str]) -> Answer:
        return self.questions.stuck(asked) if tab == "stuck" else self.questions.jobs(asked)

    def _queue(self, asked: dict[str, str]) -> Answer:
        """Those that wait for a runner, the first in line first. A place is one among all of them, filtered or not."""
        line = [self.questions.in_line(asked["installation_id"], status, QUEUE_MOST) for status in _QUEUED]
        places = {job["job_id"]: place for place, job in enumerate(_by_age(line), 1)}
        is_narrowed = not asked.keys() <= {"installation_id", "status", "limit"}
        found = [self.questions.jobs({**asked, "status": status}) for status in _QUEUED] if is_narrowed else line
        return {
            "items": [{**job, "position": places.get(job["job_id"])} for job in _by_age(found)],
            "cursor": None,
            "examined": sum(each["examined"] for each in found),
        }

    def _asked(self, given: Mapping[str, str], chosen: int, tab: str, status: str | None) -> dict[str, str]:
        asked = {"installation_id": str(chosen), "limit": str(QUEUE_MOST if tab == "queue" else PAGE)}
        if given.get("cursor"):
            asked["cursor"] = given["cursor"]
        if tab == "stuck":
            return asked
        if status is not None:
            asked["status"] = status
        asked |= {name: given[name] for name in FILTERS if given.get(name)}
        if given.get("since"):
            if given["since"] not in SPANS:
                raise BadRequest(f"since {cut(given['since'])!r}: expected one of {', '.join(filter(None, SPANS))}")
            asked["since"] = self._since(given["since"])
        return asked

    def _job(self, request: Request) -> Response:
        path = request.path_params

        def ask() -> Answer:
            now = self.now().iso()
            job = self.questions.job(**path, given={})
            events = self.questions.events(**path, given={"limit": str(EVENTS_MOST)})
            return {
                "now": now,
                "job": job,
                "explained": self.questions.explain(**path, given={}),
                "stages": stages(job, now),
                "events": events["items"],
                "has_more_events": events["cursor"] is not None,
                "deployment": self._gate(job) if job["deployment_id"] is not None else None,
            }

        json_path = f"/api/jobs/{path['installation_id']}/{path['job_id']}"
        return self.shell.page(request, "job.html", ask, title=f"Job {cut(path['job_id'], 30)}", json_path=json_path)

    def _run(self, request: Request) -> Response:
        path = request.path_params

        def ask() -> Answer:
            now = self.now().iso()
            run = self.questions.run(**path, given={"limit": str(RUN_JOBS_MOST)})
            jobs = run["jobs"]["items"]
            costs = [job["usage_in_dollars"] for job in jobs if job["usage_in_dollars"] is not None]
            return {
                "now": now,
                "run": run,
                "chart": gantt(jobs, now),
                "has_more": run["jobs"]["cursor"] is not None,
                "usd": sum(costs) if costs else None,
                "is_estimate": any(job["usage_in_dollars_is_estimate"] for job in jobs),
            }

        json_path = f"/api/runs/{path['installation_id']}/{path['run_id']}/{path['run_attempt']}"
        return self.shell.page(request, "run.html", ask, title=f"Run {cut(path['run_id'], 30)}", json_path=json_path)

    def _deployments(self, request: Request) -> Response:
        given = dict(request.query_params)
        path = _url("/api/deployments", {"installation_id": given.get("installation_id", "")})
        return self.shell.page(
            request, "deployments.html", lambda: self._waiting(given), title="Deployments", json_path=path
        )

    def _waiting(self, given: Mapping[str, str]) -> Answer:
        """Jobs that wait, by the deployment that they wait for; whatever else GitHub holds back is without one."""
        unknown = sorted(set(given) - {"installation_id"})
        if unknown:
            raise BadRequest(f"{cut(unknown[0])!r} is not asked for here; there is installation_id")
        known, chosen = self._installation(given)
        found: Answer = {"items": [], "cursor": None}
        if chosen is not None:
            found = self.questions.jobs({"installation_id": str(chosen), "status": "waiting", "limit": str(GATES_MOST)})
        gates: dict[object, dict[str, Any]] = {}
        for job in found["items"]:
            number = job["deployment_id"]
            if number not in gates:
                gates[number] = {"id": number, "deployment": self._gate(job) if number else None, "jobs": []}
            gates[number]["jobs"].append(job)
        return {
            "now": self.now().iso(),
            "installations": known,
            "chosen": chosen,
            "items": sorted(gates.values(), key=lambda gate: gate["jobs"][0]["created_at"] or ""),
            "more": found["cursor"] is not None,
        }

    def _deployment(self, request: Request) -> Response:
        path = request.path_params

        def ask() -> Answer:
            return {"now": self.now().iso(), "deployment": self.questions.deployment(**path, given={})}

        json_path = f"/api/deployments/{path['installation_id']}/{path['deployment_id']}"
        return self.shell.page(request, "deployment.html", ask, title="Deployment", json_path=json_path)

    def _gate(self, job: Job) -> Answer | None:
        """The deployment that a job waits for; it may have expired before the job."""
        try:
            return self.questions.deployment(str(job["installation_id"]), str(job["deployment_id"]), given={})
        except NotFound:
            return None

    def _costs(self, request: Request) -> Response:
        given = dict(request.query_params)
        by = given.get("by", "repo")
        own = {"installation_id": given.get("installation_id", "")}

        def ask() -> Answer:
            known, chosen = self._installation(given)
            tabs = [(name, _url("/costs", {"by": name, **own})) for name in COST_GROUPS]
            shown: dict[str, Any] = {"installations": known, "chosen": chosen, "by": by, "tabs": tabs}
            if chosen is None:
                return {**shown, "found": None, "rows": [], "days": []}
            asked = {"installation_id": str(chosen), "limit": str(COSTS_OF)}
            found = self.questions.costs({**asked, "by": by})
            return {
                **shown,
                "found": found,
                "rows": bars(found["items"], "usd"),
                "days": columns(found["days"], "usd"),
            }

        json_path = _url("/api/costs", {"by": by, "limit": str(COSTS_OF), **own})
        return self.shell.page(request, "costs.html", ask, title="Costs", json_path=json_path)

    def _installation(self, given: Mapping[str, str]) -> tuple[Sequence[int], int | None]:
        """Those that are known, and the one that is shown: what was asked for, or the first."""
        known = self.installations()
        text = given.get("installation_id", "")
        if not text:
            return known, known[0] if known else None
        found = next((each for each in known if str(each) == text), None)
        if found is None:
            raise NotFound(f"installation {cut(text)!r} is not known")
        return known, found


def why(job: Job) -> str:
    """Where a job is and what it waits for, in a line; its page says more."""
    match job["status"]:
        case "queued":
            labels = ", ".join(map(str, job["labels"] or ()))
            return f"no runner was asked for yet; it wants {labels}" if labels else "no runner was asked for yet"
        case "scheduled":
            what = " ".join(str(job[name]) for name in ("instance_lifecycle", "instance_type") if job[name])
            attempt = job["scheduling_attempt"] or 1
            state = "boots" if job["instance_id"] else "was asked for"
            return f"{what or 'a machine'} {state}" + (f", attempt {attempt}" if attempt > 1 else "")
        case "waiting":
            return "waits for an approval" if job["deployment_id"] else "is held back by GitHub"
        case "in_progress":
            return f"runs on {job['runner_name'] or 'a runner'}"
    return "its machine was taken away by EC2" if job["was_interrupted"] else ""


def _by_age(pages: Sequence[Answer]) -> list[Job]:
    """The oldest of several pages, as many as each may have: beyond them, one may lack what another has."""
    jobs = [job for page in pages for job in page["items"]]
    return sorted(jobs, key=lambda job: (job["created_at"], job["job_id"]))[:QUEUE_MOST]


def _kept(given: Mapping[str, str], tab: str) -> dict[str, str]:
    """The filters that go along to another tab: what it does not ask for would empty it, unseen."""
    names: tuple[str, ...] = (*FILTERS, "since")
    if tab == "stuck":
        names = ()
    elif tab not in ENDED_TABS:
        names = tuple(name for name in names if name != "conclusion")
    return {name: given[name] for name in ("installation_id", *names) if given.get(name)}


def _url(path: str, query: Mapping[str, str]) -> str:
    shown = {name: value for name, value in query.items() if value}
    return f"{path}?{urlencode(shown)}" if shown else path
