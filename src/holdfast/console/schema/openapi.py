"""The OpenAPI document, at /api/openapi.json, with the same schemas as the pages under docs/schema."""

import re
from typing import Any, Final

from holdfast.console.schema.api_calls import CALLS, Call
from holdfast.console.schema.documents import SCHEMAS

_SECURED: Final = {
    "events": "EVENTS_SECRET.",
    "operator": "CONSOLE_TOKEN, or the token in daemon.json of the data directory.",
}
_MEANINGS: Final = {
    400: "The request is invalid.",
    401: "The token, or the signature, is missing or wrong.",
    403: "This needs an operator, or the request came from another site.",
    404: "Not found, or expired.",
    408: "The body did not arrive in time.",
    413: "The body is too large.",
    415: "The body is not JSON, or is encoded.",
    429: "The address has sent too many wrong tokens.",
    503: "The store is unavailable, or an operator is needed.",
}
_OF_ACCESS: Final = (401, 403, 429)


def openapi(version: str) -> dict[str, Any]:
    paths: dict[str, dict[str, Any]] = {}
    for call in CALLS:
        paths.setdefault(call.path, {})[call.method] = _operation(call)
    return {
        "openapi": "3.1.0",
        "info": {"title": "Holdfast", "version": version},
        "paths": paths,
        "components": {
            "schemas": SCHEMAS,
            "securitySchemes": {
                name: {"type": "http", "scheme": "bearer", "description": text} for name, text in _SECURED.items()
            },
        },
    }


def errors_of(call: Call) -> list[int]:
    """The error statuses of an operation. Those of access control apply to the whole API."""
    guarded = _OF_ACCESS if call.path.startswith("/api/") else ()
    return sorted({*call.errors, *guarded})


def _operation(call: Call) -> dict[str, Any]:
    operation: dict[str, Any] = {
        "summary": call.does,
        "responses": {
            "200": _response("Done.", call.answer),
            **{str(status): _response(_MEANINGS[status], "error") for status in errors_of(call)},
        },
    }
    in_path = [
        {"name": name, "in": "path", "required": True, "schema": {"type": "string", "pattern": "^[0-9]{1,18}$"}}
        for name in re.findall(r"{(\w+)}", call.path)
    ]
    in_query = [
        {"name": each.name, "in": "query", "description": each.text, "schema": each.schema} for each in call.query
    ]
    in_headers = [
        {"name": name, "in": "header", "required": True, "schema": {"type": "string"}} for name in call.headers
    ]
    if found := in_path + in_query + in_headers:
        operation["parameters"] = found
    if call.body is not None:
        content = {"application/json": {"schema": call.body}}
        operation["requestBody"] = {"required": call.needs_body, "content": content}
    if call.secured_by:
        operation["security"] = [{call.secured_by: []}]
    return operation


def _response(text: str, schema: str) -> dict[str, Any]:
    return {
        "description": text,
        "content": {"application/json": {"schema": {"$ref": f"#/components/schemas/{schema}"}}},
    }
