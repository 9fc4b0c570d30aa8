"""The HTTP API for jobs, runs and deployments: the same queries as the command line, and the runner fleet's events.

Query parameters are passed on as text; the queries parse them and reject unknown ones.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.http.access import refusal_without_token
from holdfast.console.http.answers import answer_to, answer_to_body
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import cut
from holdfast.views.job_views import JobViews

EVENT_BYTES_MOST: Final = 16 * 1024
_JOB: Final = "/api/jobs/{installation_id}/{job_id}"

RecordEvent = Callable[[str, str, Mapping[str, Any]], object]


class PostedEvent(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a runner fleet event. A repeated event has the same `at`."""

    type: str
    at: str
    attempt: int = 1
    instance_id: str | None = None
    attributes: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class JobsApi:
    """`record_event` stores an event of the runner fleet; it needs the process's own or an operator's token."""

    views: JobViews
    record_event: RecordEvent
    token: str

    def routes(self) -> list[Route]:
        queries = self.views
        return [
            # Before the routes with an id in the same position.
            _route("/api/jobs", queries.jobs),
            _route("/api/jobs/stuck", queries.stuck),
            _route("/api/jobs/stats", queries.stats),
            _route("/api/costs", queries.costs),
            _route(_JOB, queries.job),
            _route(f"{_JOB}/explain", queries.explain),
            _route(f"{_JOB}/events", queries.events),
            Route(f"{_JOB}/events", self._record, methods=["POST"]),
            _route("/api/runs/{installation_id}/{run_id}/{run_attempt}", queries.run),
            _route("/api/deployments/{installation_id}/{deployment_id}", queries.deployment),
        ]

    async def _record(self, request: Request) -> Response:
        refusal = refusal_without_token(request, self.token)
        if refusal is not None:
            return refusal

        def record(event: PostedEvent) -> object:
            _reject_params(request)
            path = request.path_params
            return self.record_event(path["installation_id"], path["job_id"], msgspec.structs.asdict(event))

        return await answer_to_body(request, PostedEvent, EVENT_BYTES_MOST, record, "a valid event")


def _route(path: str, query: Callable[..., object]) -> Route:
    """A query, called with the path's parts by name and the query parameters."""

    # A plain function, since it reads the store: Starlette runs it in a thread.
    def answer(request: Request) -> Response:
        return answer_to(lambda: query(**request.path_params, params=_params(request)))

    return Route(path, answer, methods=["GET"])


def _params(request: Request) -> dict[str, str]:
    items = request.query_params.multi_items()
    params = dict(items)
    if len(params) < len(items):
        raise BadRequest("duplicate parameter; pass each parameter once")
    return params


def _reject_params(request: Request) -> None:
    params = _params(request)
    if params:
        raise BadRequest(f"unknown parameter {cut(min(params))!r}; expected none")
