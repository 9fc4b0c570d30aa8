"""The cluster's HTTP API: status, decisions, pause, resume, and EC2 events.

Requests that change something need a bearer token, which a browser never sends by itself.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.cluster.spot.events import EventOutcome
from holdfast.console.http.access import refusal_without_token
from holdfast.console.http.answers import answer_to, answer_to_body, body_of, error_response, has_token, unauthorized
from holdfast.control.pause import PauseAnswer
from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.views.cluster_status import ClusterStatus
from holdfast.views.command_answers import Ec2EventAnswer
from holdfast.views.decisions import DecisionPage

EVENT_BYTES_MOST: Final = 256 * 1024  # EventBridge's own limit
ORDER_BYTES_MOST: Final = 16 * 1024


class PauseRequest(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of pause and resume; may be empty."""

    by: str = ""
    reason: str = ""  # for pause
    since: str = ""  # for resume: ends only the pause that began then


@dataclass(frozen=True, slots=True)
class ClusterApi:
    """Routes of the cluster's API. Each callable may raise a `HoldfastError`."""

    overview: Callable[[], ClusterStatus]
    decisions: Callable[[Instant | None, Instant | None, str | None], DecisionPage]
    pause: Callable[[str, str], PauseAnswer]
    resume: Callable[[str, str], PauseAnswer]
    take_event: Callable[[Mapping[str, Any]], EventOutcome]
    token: str
    events_secret: str | None = None

    def routes(self) -> list[Route]:
        routes = [
            Route("/api/cluster", self._overview, methods=["GET"]),
            Route("/api/decisions", self._decisions, methods=["GET"]),
            Route("/api/pause", self._pause, methods=["POST"]),
            Route("/api/resume", self._resume, methods=["POST"]),
        ]
        if self.events_secret is not None:
            routes.append(Route("/events/aws", self._event, methods=["POST"]))
        return routes

    # Handlers that read the store are plain functions: Starlette runs them in threads.

    def _overview(self, _request: Request) -> Response:
        return answer_to(self.overview)

    def _decisions(self, request: Request) -> Response:
        def read() -> DecisionPage:
            params = request.query_params
            unknown = sorted(set(params) - {"since", "until", "cursor"})
            if unknown:
                raise BadRequest(f"unknown parameter {unknown[0]!r}; expected since, until or cursor")
            return self.decisions(_time(params, "since"), _time(params, "until"), params.get("cursor"))

        return answer_to(read)

    async def _pause(self, request: Request) -> Response:
        return await self._carry_out(request, lambda order: self.pause(order.by, order.reason))

    async def _resume(self, request: Request) -> Response:
        return await self._carry_out(request, lambda order: self.resume(order.by, order.since))

    async def _carry_out(self, request: Request, carry_out: Callable[[PauseRequest], PauseAnswer]) -> Response:
        refusal = refusal_without_token(request, self.token)
        if refusal is not None:
            return refusal
        return await answer_to_body(request, PauseRequest, ORDER_BYTES_MOST, carry_out)

    async def _event(self, request: Request) -> Response:
        if not has_token(request, self.events_secret or ""):
            return unauthorized("EVENTS_SECRET")
        body = await body_of(request, EVENT_BYTES_MOST)
        if body is None:
            return error_response(413, "too_large", f"the event exceeds {EVENT_BYTES_MOST} bytes")

        def take() -> Ec2EventAnswer:
            try:
                event = typed_json.decoded(body, dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise BadRequest(f"not a JSON object: {error}") from error
            return Ec2EventAnswer(result=self.take_event(event))

        return await run_in_threadpool(answer_to, take)


def _time(params: Mapping[str, str], name: str) -> Instant | None:
    if name not in params:
        return None
    try:
        return Instant.from_iso(params[name])
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from error
