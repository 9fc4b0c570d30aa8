"""The cluster over HTTP: what it does and why, pause and resume, and EC2's events.

Whatever changes something needs a bearer token, so no page in somebody's browser can do it by chance.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.access import refusal_without_token
from holdfast.console.answers import answer_to, answer_to_body, body_of, error_response, has_token, unauthorized
from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant

EVENT_BYTES_MOST: Final = 256 * 1024  # EventBridge sends no larger ones
ORDER_BYTES_MOST: Final = 16 * 1024


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of pause and resume; it may be empty."""

    by: str = ""
    reason: str = ""  # of a pause
    since: str = ""  # of the pause to end, as it was shown; another one is not ended


@dataclass(frozen=True, slots=True)
class ClusterApi:
    """What the cluster answers and takes. Each may raise a `HoldfastError`."""

    overview: Callable[[], Mapping[str, Any]]
    decisions: Callable[[Instant | None, Instant | None, str | None], Mapping[str, Any]]
    pause: Callable[[str, str], Mapping[str, Any]]
    resume: Callable[[str, str], Mapping[str, Any]]
    take_event: Callable[[Mapping[str, Any]], str]
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

    # Plain functions ask the store: Starlette runs them in threads of its own.

    def _overview(self, _request: Request) -> Response:
        return answer_to(self.overview)

    def _decisions(self, request: Request) -> Response:
        def ask() -> Mapping[str, Any]:
            given = request.query_params
            unknown = sorted(set(given) - {"since", "until", "cursor"})
            if unknown:
                raise BadRequest(f"{unknown[0]!r} is not asked for here; there are since, until and cursor")
            return self.decisions(_time(given, "since"), _time(given, "until"), given.get("cursor"))

        return answer_to(ask)

    async def _pause(self, request: Request) -> Response:
        return await self._ordered(request, lambda order: self.pause(order.by, order.reason))

    async def _resume(self, request: Request) -> Response:
        return await self._ordered(request, lambda order: self.resume(order.by, order.since))

    async def _ordered(self, request: Request, carry_out: Callable[[Order], Mapping[str, Any]]) -> Response:
        refusal = refusal_without_token(request, self.token)
        if refusal is not None:
            return refusal
        return await answer_to_body(request, Order, ORDER_BYTES_MOST, carry_out)

    async def _event(self, request: Request) -> Response:
        if not has_token(request, self.events_secret or ""):
            return unauthorized("EVENTS_SECRET")
        body = await body_of(request, EVENT_BYTES_MOST)
        if body is None:
            return error_response(413, "too_large", f"EventBridge's events have at most {EVENT_BYTES_MOST} bytes")

        def ask() -> Mapping[str, Any]:
            try:
                event = typed_json.decoded(body, dict[str, Any])
            except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
                raise BadRequest(f"not a JSON object: {error}") from error
            return {"result": self.take_event(event)}

        return await run_in_threadpool(answer_to, ask)


def _time(given: Mapping[str, str], name: str) -> Instant | None:
    if name not in given:
        return None
    try:
        return Instant.from_iso(given[name])
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from error
