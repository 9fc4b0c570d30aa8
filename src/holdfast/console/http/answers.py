"""HTTP responses: one shape for errors, and no caching of anything that changes."""

import hmac
from collections.abc import Callable, Mapping
from typing import Final, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadRequest, HoldfastError, NotFound, Retryable
from holdfast.views.command_answers import error_of
from holdfast.views.plain_json import json_object, to_json

NOT_STORED: Final = {"Cache-Control": "no-store"}
RETRY_SECONDS: Final = 5

T = TypeVar("T")


class Unchanged(BadRequest):
    """A command had no effect: the state has changed since its sender saw it."""


def error_response(status: int, code: str, message: str, headers: Mapping[str, str] | None = None) -> JSONResponse:
    return JSONResponse(json_object(error_of(code, message)), status, headers={**NOT_STORED, **(headers or {})})


def answer_to(read: Callable[[], object]) -> Response:
    """The result as JSON, or one of our errors as an error response."""
    try:
        return JSONResponse(to_json(read()), headers=NOT_STORED)
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
    scheme, _, token = request.headers.get("authorization", "").partition(" ")
    # As bytes: compare_digest raises an error for text that is not ASCII.
    is_same = hmac.compare_digest(token.strip().encode("latin-1", "replace"), expected.encode())
    return scheme.lower() == "bearer" and bool(expected) and is_same


def unauthorized(which: str) -> Response:
    message = f"send the header 'Authorization: Bearer …' with {which}"
    return error_response(401, "unauthorized", message, {"WWW-Authenticate": "Bearer"})


async def body_of(request: Request, most: int) -> bytes | None:
    """The body, or None if it exceeds `most` bytes; the rest is then not read."""
    parts = bytearray()
    async for part in request.stream():
        parts += part
        if len(parts) > most:
            return None
    return bytes(parts)


async def answer_to_body(
    request: Request,
    kind: type[T],
    most: int,
    carry_out: Callable[[T], object],
    what: str = "a valid command",
) -> Response:
    """Decode the JSON body as `kind` and carry it out. An empty body means all defaults."""
    body = await body_of(request, most)
    if body is None:
        return error_response(413, "too_large", f"the body exceeds {most} bytes")

    def decode_and_run() -> object:
        try:
            command = typed_json.decoded(body or b"{}", kind)
        except (msgspec.MsgspecError, UnicodeDecodeError) as error:
            raise BadRequest(f"not {what}: {error}") from error
        return carry_out(command)

    return await run_in_threadpool(answer_to, decode_and_run)
