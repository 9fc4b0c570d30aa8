"""Answers of every page: errors have one shape, and nothing that changes is kept by a browser or a proxy."""

import hmac
from collections.abc import Callable, Mapping
from typing import Any, Final, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadRequest, HoldfastError, NotFound, Retryable

NOT_STORED: Final = {"Cache-Control": "no-store"}
RETRY_SECONDS: Final = 5

T = TypeVar("T")


class Unchanged(BadRequest):
    """An order that came to nothing: things are no longer as whoever sent it saw them."""


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(
        {"error": {"code": code, "message": message}}, status, headers={**NOT_STORED, **(headers or {})}
    )


def answer_to(ask: Callable[[], Mapping[str, Any]]) -> Response:
    """What the question comes to; an error of ours is an answer as well."""
    try:
        return JSONResponse(dict(ask()), headers=NOT_STORED)
    except HoldfastError as error:
        return answer_of_error(error)


def answer_of_error(error: HoldfastError) -> Response:
    if isinstance(error, NotFound):
        return error_response(404, "not_found", str(error))
    if isinstance(error, Unchanged):
        return error_response(409, "unchanged", str(error))
    if isinstance(error, BadRequest):
        return error_response(400, "bad_request", str(error))
    if isinstance(error, Retryable):
        return error_response(503, "unavailable", str(error), {"Retry-After": str(RETRY_SECONDS)})
    return error_response(503, "needs_operator", str(error))


def has_token(request: Request, expected: str) -> bool:
    scheme, _, given = request.headers.get("authorization", "").partition(" ")
    # Compared as bytes: text that is not ASCII would be refused with an error of its own.
    is_same = hmac.compare_digest(given.strip().encode("latin-1", "replace"), expected.encode())
    return scheme.lower() == "bearer" and bool(expected) and is_same


def unauthorized(which: str) -> Response:
    message = f"this needs a header 'Authorization: Bearer …' with {which}"
    return error_response(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


async def body_of(request: Request, most: int) -> bytes | None:
    """The body, or None when it is larger than `most`: then the rest is not read."""
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > most:
            return None
    return bytes(parts)


async def answer_to_body(
    request: Request, kind: type[T], most: int, carry_out: Callable[[T], Mapping[str, Any]], what: str = "an order"
) -> Response:
    """What comes of a JSON body of this kind. An empty one says nothing: all is as it is by default."""
    body = await body_of(request, most)
    if body is None:
        return error_response(413, "too_large", f"at most {most} bytes")

    def ask() -> Mapping[str, Any]:
        try:
            said = typed_json.decoded(body or b"{}", kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRequest(f"not {what}: {error}") from error
        return carry_out(said)

    return await run_in_threadpool(answer_to, ask)
