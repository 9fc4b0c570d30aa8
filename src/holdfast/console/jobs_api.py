"""Jobs, runs and deployments over HTTP: every question that the command line answers, and the runner fleet's events.

Whatever a URL holds goes on as text to who reads it; here nothing is understood, and nothing is ignored.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.access import refusal_without_token
from holdfast.console.answers import answer_to, answer_to_body
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import cut

EVENT_BYTES_MOST: Final = 16 * 1024
_JOB: Final = "/api/jobs/{installation_id}/{job_id}"

Given = Mapping[str, str]
Answer = Mapping[str, Any]
Tell = Callable[[str, str, Mapping[str, Any]], Answer]


class JobQuestions(Protocol):
    """What can be asked. Each may raise a `HoldfastError`: `BadRequest` for what is not understood."""

    def jobs(self, given: Given) -> Answer: ...
    def in_line(self, installation_id: str, status: str, limit: int) -> Answer: ...
    def stuck(self, given: Given) -> Answer: ...
    def stats(self, given: Given) -> Answer: ...
    def costs(self, given: Given) -> Answer: ...
    def job(self, installation_id: str, job_id: str, given: Given) -> Answer: ...
    def events(self, installation_id: str, job_id: str, given: Given) -> Answer: ...
    def explain(self, installation_id: str, job_id: str, given: Given) -> Answer: ...
    def run(self, installation_id: str, run_id: str, run_attempt: str, given: Given) -> Answer: ...
    def deployment(self, installation_id: str, deployment_id: str, given: Given) -> Answer: ...


class Event(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of what the runner fleet tells. `at` stays the same when an event is told again."""

    type: str
    at: str
    attempt: int = 1
    instance_id: str | None = None
    attributes: dict[str, str] = {}


@dataclass(frozen=True, slots=True)
class JobsApi:
    """`tell` records an event of the runner fleet; it needs the process's own token, or an operator's."""

    questions: JobQuestions
    tell: Tell
    token: str

    def routes(self) -> list[Route]:
        ask = self.questions
        return [
            # Before those with an id in this place.
            _route("/api/jobs", ask.jobs),
            _route("/api/jobs/stuck", ask.stuck),
            _route("/api/jobs/stats", ask.stats),
            _route("/api/costs", ask.costs),
            _route(_JOB, ask.job),
            _route(f"{_JOB}/explain", ask.explain),
            _route(f"{_JOB}/events", ask.events),
            Route(f"{_JOB}/events", self._told, methods=["POST"]),
            _route("/api/runs/{installation_id}/{run_id}/{run_attempt}", ask.run),
            _route("/api/deployments/{installation_id}/{deployment_id}", ask.deployment),
        ]

    async def _told(self, request: Request) -> Response:
        refusal = refusal_without_token(request, self.token)
        if refusal is not None:
            return refusal

        def tell(event: Event) -> Answer:
            _given(request, none=True)
            path = request.path_params
            return self.tell(path["installation_id"], path["job_id"], msgspec.structs.asdict(event))

        return await answer_to_body(request, Event, EVENT_BYTES_MOST, tell, "an event")


def _route(path: str, ask: Callable[..., Answer]) -> Route:
    """A question: its path's parts in their order, and then what the query says."""

    # A plain function, since it asks the store: Starlette runs it in a thread of its own.
    def answer(request: Request) -> Response:
        return answer_to(lambda: ask(**request.path_params, given=_given(request)))

    return Route(path, answer, methods=["GET"])


def _given(request: Request, *, none: bool = False) -> dict[str, str]:
    found = request.query_params.multi_items()
    given = dict(found)
    if len(given) < len(found):
        raise BadRequest("a parameter is given twice; say each once")
    if none and given:
        raise BadRequest(f"{cut(min(given))!r} is not asked for here; there are none")
    return given
