"""The API stays as it was: paths, methods, parameters, and the attributes of every answer. Prose may change.

A difference is intended and listed here with its reason, or a mistake.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from holdfast.console.schema.openapi import openapi

BEFORE: Final = json.loads(Path(__file__).with_name("openapi.json").read_text(encoding="utf-8"))
NOW: Final = openapi("1.2.3")
PROSE: Final = frozenset({"summary", "description", "title"})
# Intended, by the place of the difference in the schemas. A place may be the end of several.
_ALWAYS_THERE: Final = "it was always in the answer, and is required now"
_DESCRIBED: Final = "it was described as any object"
_UNKNOWN: Final = "before the first tick, the number of workers is unknown, not 0"
_SLOW: Final = "the simulated world can be slower during actions"
_OLDER: Final = "entries that an older deployment wrote may lack it"
_CARRIED: Final = "a job that an earlier attempt executed is not counted again"
_COUNTED: Final = "figures cover every job of their range, and say as of when, and which days are unknown"
INTENDED: Final = {
    "properties/counted_at": _COUNTED,
    "properties/unknown_days": _COUNTED,
    "properties/notes": _COUNTED,
    "required: counted_at, notes, unknown_days": _COUNTED,
    "lastTick/required: ticks, told": _ALWAYS_THERE,
    "items/required: ticks, told": _ALWAYS_THERE,
    "items/required: groups, ticks, told, why_nothing": _ALWAYS_THERE,
    "rules/items/required: words": _ALWAYS_THERE,
    "job-queue/properties/items/items/required: is_carried_over, position, why": _ALWAYS_THERE,
    "dynamodb-cost/required: prices_as_of, prices_source": _ALWAYS_THERE,
    "dynamodb-cost/properties/prices_as_of": _ALWAYS_THERE,
    "dynamodb-cost/properties/prices_source": _ALWAYS_THERE,
    "event-taken/properties/result/enum: too old": "it was always one of the answers",
    "rules/items/properties/group": "a rule carries its group",
    "rules/items/properties/details": "a rule names the workers that stay, and the pods that fit on no machine",
    "nodes/items/properties/kept_by": "each protection of a worker is named",
    "nodes/items/required: kept_by": "each protection of a worker is named",
    "properties/workers": _UNKNOWN,
    "properties/workers/minimum": _UNKNOWN,
    "properties/workers/type": _UNKNOWN,
    "properties/runs_ticks": "distinguishes a process without ticks from one whose ticks fail",
    "required: runs_ticks": "distinguishes a process without ticks from one whose ticks fail",
    "properties/failedTicks": "the status says that ticks fail, as the decisions do",
    "required: failedTicks": "the status says that ticks fail, as the decisions do",
    "simulator/properties/slow_motion": _SLOW,
    "simulator/required: slow_motion": _SLOW,
    "properties/is_carried_over": _CARRIED,
    "required: is_carried_over": _CARRIED,
    "properties/status/enum: cancelled, not_required": "a deployment that nobody decides does not stay pending",
    "slots/items/properties": _DESCRIBED,
    "slots/items/required": _DESCRIBED,
    "policy/properties": _DESCRIBED,
    "policy/required": _DESCRIBED,
    "job-events/properties/items/items/required: "
    "deliveries, event_type, received_at, received_by, source, status, ttl": _OLDER,
}


# The responses of access control, which every operation of the API had before they were described.
OF_ACCESS: Final = frozenset({"401", "403", "429"})
# Intended: (path, method, parameter) that is new, each with its reason beside it.
NEW_PARAMETERS: Final = frozenset(
    {
        ("/api/jobs", "get", "instance_id"),  # a runner fleet looks its jobs up by machine
    }
)


# Intended: answers that are new.
NEW_ANSWERS: Final = frozenset({"runner-classes", "runner-labels", "runner-types"})  # `holdfast runners`


def test_every_path_method_and_parameter_is_as_it_was() -> None:
    added = set()
    now = without_prose(NOW["paths"])
    for path, methods in now.items():
        for method, call in methods.items():
            names = {each["name"] for each in BEFORE["paths"][path][method].get("parameters", ())}
            new = [each for each in call.get("parameters", ()) if each["name"] not in names]
            added |= {(path, method, each["name"]) for each in new}
            for each in new:
                call["parameters"].remove(each)
            _leave_out_what_is_now_described(BEFORE["paths"][path][method], call)
    assert added == NEW_PARAMETERS
    assert now == without_prose(BEFORE["paths"])
    assert NOW["components"]["securitySchemes"].keys() == BEFORE["components"]["securitySchemes"].keys()


def _leave_out_what_is_now_described(before: dict[str, Any], now: dict[str, Any]) -> None:
    """Limits that the server always had. `tests/unit/console/test_openapi_limits.py` compares them with the server."""
    for each in now.get("parameters", ()):
        if each["in"] == "query":
            each["schema"] = {"type": "string"}
    if "requestBody" not in before:
        now.pop("requestBody", None)
    for status in OF_ACCESS - before["responses"].keys():
        now["responses"].pop(status, None)


def test_every_attribute_of_every_answer_is_as_it_was() -> None:
    before, now = BEFORE["components"]["schemas"], NOW["components"]["schemas"]
    assert now.keys() == before.keys() | NEW_ANSWERS
    found = [place for name in before for place in differences(before[name], now[name], name)]
    unintended = [place for place in found if not place.endswith(tuple(INTENDED))]
    assert unintended == []
    unused = [place for place in INTENDED if not any(each.endswith(place) for each in found)]
    assert unused == []


def without_prose(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: without_prose(inner) for name, inner in value.items() if name not in PROSE}
    return [without_prose(inner) for inner in value] if isinstance(value, list) else value


def differences(before: Any, now: Any, place: str) -> Iterator[str]:
    """Where two schemas differ. The order of attributes and of enumerated values does not matter."""
    if isinstance(before, dict) and isinstance(now, dict):
        for name in sorted(before.keys() | now.keys()):
            inner = place if name == "anyOf" else f"{place}/{name}"
            if name in before and name in now:
                yield from differences(before[name], now[name], inner)
            else:
                yield inner
    elif place.endswith(("required", "enum")):
        if changed := set(before) ^ set(now):
            yield f"{place}: {', '.join(sorted(changed))}"
    elif isinstance(before, list) and isinstance(now, list) and len(before) == len(now):
        for one, other in zip(before, now, strict=True):
            yield from differences(one, other, place)
    elif before != now:
        yield place


def test_a_difference_is_found() -> None:
    before = {"type": "object", "properties": {"a": {"enum": ["x", "y"]}}, "required": ["a"]}
    now = {"type": "object", "properties": {"a": {"enum": ["x"]}, "b": {}}, "required": ["a", "b"]}
    assert list(differences(before, now, "it")) == ["it/properties/a/enum: y", "it/properties/b", "it/required: b"]
    assert list(differences(before, before, "it")) == []
