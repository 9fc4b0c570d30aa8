"""The OpenAPI document is as strict as the server: what it allows is accepted, what it forbids is refused.

The checks of Schemathesis, without its dependencies: accepted and refused data for each parameter and body, described
statuses, and the methods of each path.
"""

import json
from collections.abc import Iterator
from datetime import date, timedelta
from functools import cache
from typing import Any, Final

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jsonschema import Draft202012Validator

from holdfast.console.http.sign_in_limits import WRONG_PER_ADDRESS_MOST, SignInLimits
from holdfast.console.schema.api_calls import CALLS, Call
from holdfast.console.schema.openapi import openapi
from holdfast.console.schema.parameters import CURSOR, RUN_BODY, Parameter
from holdfast.entrypoints.simulation.runs import SEED_MOST, SEEDS_MOST
from holdfast.simulator.proof.swarm import Faultiness
from tests.payloads import CREATED
from tests.support.console_access import TOKENS, bearer
from tests.support.console_world import OPERATOR, OWN, ConsoleWorld, Page

DOCUMENT: Final = openapi("1.2.3")
# Served by this world: no simulator, no cluster API of a process.
ABSENT: Final = ("/api/simulator", "/api/pause", "/api/resume", "/events/aws", "/webhooks/github")
SERVED: Final = [
    call for call in CALLS if not call.path.startswith(ABSENT) and call.path not in ("/api/cluster", "/api/decisions")
]
QUERIES: Final = [(call, each) for call in SERVED for each in call.query if each is not CURSOR]
METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS", "TRACE")
EVENT_PATH: Final = "/api/jobs/12345678/1/events"

each_query = pytest.mark.parametrize(
    ("call", "parameter"), QUERIES, ids=[f"{call.path}?{each.name}" for call, each in QUERIES]
)


@cache
def world() -> ConsoleWorld:
    found = ConsoleWorld(access=TOKENS)
    found.job("queued")
    return found


def path_of(call: Call) -> str:
    return call.path.format(installation_id=12345678, job_id=1, run_id=1, run_attempt=1, deployment_id=1)


def asked(call: Call, name: str, value: object) -> Page:
    return world().get(path_of(call), bearer(OPERATOR), **{name: str(value)})


def described(call: Call) -> set[int]:
    return {int(status) for status in DOCUMENT["paths"][call.path][call.method]["responses"]}


def times() -> st.SearchStrategy[str]:
    return st.datetimes().filter(lambda at: at.year >= 1000).map(lambda at: f"{at:%Y-%m-%dT%H:%M:%S}Z")


def days() -> st.SearchStrategy[str]:
    """Of the last month: an older day is well-formed, but not in the log."""
    today = date.fromisoformat(CREATED.date())
    return st.integers(0, 28).map(lambda back: (today - timedelta(days=back)).isoformat())


def accepted(schema: dict[str, Any]) -> st.SearchStrategy[Any]:
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    if schema["type"] == "integer":
        return st.integers(schema["minimum"], schema["maximum"])
    if schema.get("format") == "date-time":
        return times()
    if schema.get("format") == "date":
        return days()
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"), fullmatch=True)
    return st.text(st.characters(codec="utf-8"), min_size=schema.get("minLength", 0), max_size=40)


def refused(schema: dict[str, Any]) -> Iterator[str]:
    """Texts just outside of the schema."""
    if "minimum" in schema:
        yield from (str(schema["minimum"] - 1), str(schema["maximum"] + 1), "1.5", "one", "1" * 30, "\u0661")
    elif "enum" in schema or "pattern" in schema:
        yield from ("\u00e9", "no such value", "2026-13-45", "2026-13-45T00:00:00Z", "A" * 300)
    elif "minLength" in schema:
        yield from ("", "x" * (schema["maxLength"] + 1))


@each_query
@settings(max_examples=8, deadline=None)
@given(st.data())
def test_what_the_document_allows_is_accepted(call: Call, parameter: Parameter, data: st.DataObject) -> None:
    page = asked(call, parameter.name, data.draw(accepted(parameter.schema)))
    assert page.status in (200, 404), page.text


@each_query
def test_what_the_document_forbids_is_refused(call: Call, parameter: Parameter) -> None:
    for text in refused(parameter.schema):
        # A path under an unknown installation is "not found", whatever it is.
        assert asked(call, parameter.name, text).status in (400, 404 if parameter.name == "installation_id" else 400)


def test_there_is_something_to_refuse_for_all_but_the_search() -> None:
    assert {each.name for _, each in QUERIES if not list(refused(each.schema))} == {"q"}


@pytest.mark.parametrize("call", SERVED, ids=lambda call: f"{call.method} {call.path}")
def test_an_unknown_parameter_is_refused(call: Call) -> None:
    body = json.dumps({"type": "runner_scheduled", "at": CREATED.iso()}).encode()
    found = world().ask(call.method.upper(), path_of(call), bearer(OPERATOR), b"unknown=1", body)
    assert found.status == 400


@pytest.mark.parametrize("call", SERVED, ids=lambda call: f"{call.method} {call.path}")
def test_every_status_is_described(call: Call) -> None:
    headers = {"right": bearer(OPERATOR), "wrong": bearer("x" * 20), "none": {}}
    for body in (b"", b"{", b"{}", b"x" * 20_000):
        for sent in headers.values():
            found = world().ask(call.method.upper(), path_of(call), sent, body=body, client="192.0.2.77")
            assert found.status in described(call), found.text


def test_too_many_wrong_tokens_are_described() -> None:
    found = ConsoleWorld(access=type(TOKENS)(TOKENS.clock, "0.0.0.0", OWN, OPERATOR, limits=SignInLimits()))  # noqa: S104
    for number in range(WRONG_PER_ADDRESS_MOST):
        found.get("/api/overview", bearer(f"wrong-{number}"))
    assert found.get("/api/overview", bearer("wrong")).status == 429
    assert all(
        "429" in call["responses"]
        for path, calls in DOCUMENT["paths"].items()
        if path.startswith("/api/")
        for call in calls.values()
    )


@pytest.mark.parametrize("path", sorted({call.path for call in SERVED} | {"/login", "/static/x", "/logout"}))
def test_allow_names_every_method_of_the_path_and_no_other(path: str) -> None:
    """Also if the path has several routes: `GET` and `POST` of a job's events are two."""
    filled = path.format(installation_id=12345678, job_id=1, run_id=1, run_attempt=1, deployment_id=1)
    answers = {method: world().ask(method, filled, bearer(OPERATOR)) for method in METHODS}
    works = {method for method, found in answers.items() if found.status != 405 and method != "HEAD"}
    for method, found in answers.items():
        if method not in works and method != "HEAD":
            assert set(found.headers["allow"].split(", ")) - {"HEAD"} == works, method
    if path in DOCUMENT["paths"]:
        assert {method.lower() for method in works} == set(DOCUMENT["paths"][path])


BODIES: Final = Draft202012Validator(
    DOCUMENT["paths"]["/api/jobs/{installation_id}/{job_id}/events"]["post"]["requestBody"]["content"][
        "application/json"
    ]["schema"]
)
GOOD: Final = {"type": "runner_scheduled", "at": "2026-01-15T10:00:00Z"}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"attempt": 0},
        {"attempt": 1},
        {"attempt": 1000},
        {"attempt": 1001},
        {"attempt": "1"},
        {"attempt": 1.5},
        {"type": "runner_vanished"},
        {"type": None},
        {"at": "yesterday"},
        {"at": "0999-01-01T00:00:00Z"},
        {"instance_id": None},
        {"instance_id": "i-0123456789abcdef0"},
        {"instance_id": "m-1"},
        {"attributes": {"pool_name": "a"}},
        {"attributes": {"pool_name": 1}},
        {"attributes": []},
        {"other": 1},
    ],
    ids=str,
)
def test_an_event_is_accepted_as_its_schema_says(changes: dict[str, Any]) -> None:
    body = {**GOOD, **changes}
    found = world().ask("POST", EVENT_PATH, bearer(OPERATOR), body=json.dumps(body).encode())
    assert (found.status == 200) == BODIES.is_valid(body), found.text


@pytest.mark.parametrize("missing", ["type", "at"])
def test_an_event_needs_its_type_and_its_time(missing: str) -> None:
    body = {name: value for name, value in GOOD.items() if name != missing}
    assert not BODIES.is_valid(body)
    assert world().ask("POST", EVENT_PATH, bearer(OPERATOR), body=json.dumps(body).encode()).status == 400


def test_the_limits_of_a_run_are_the_simulators() -> None:
    limits = RUN_BODY["properties"]
    assert (limits["seed"]["maximum"], limits["seeds"]["maximum"]) == (SEED_MOST, SEEDS_MOST)
    assert set(limits["faults"]["enum"]) == {"", *Faultiness}
