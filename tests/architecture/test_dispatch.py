"""Every step and port call can be followed with "go to definition": nothing is dispatched by name."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
# Rooms that decide and act, and the views. Elsewhere a setting or a foreign error may be read by its name.
ROOMS = ("control", "fleet", "cluster", "runners", "views", "ports")
# `Step.shown` reads a dataclass's own fields.
ALLOWED = {"control/steps.py": 1}


def named_lookups(source: str) -> list[int]:
    """The lines that call hasattr or getattr, or define `__getattr__`."""
    calls = {"hasattr", "getattr"}
    return [
        node.lineno
        for node in ast.walk(ast.parse(source))
        if (isinstance(node, ast.Call) and ast.unparse(node.func) in calls)
        or (isinstance(node, ast.FunctionDef) and node.name == "__getattr__")
    ]


@pytest.mark.parametrize("room", ROOMS)
def test_nothing_is_dispatched_by_name(room: str) -> None:
    found = {
        path.relative_to(SOURCE).as_posix(): len(named_lookups(path.read_text(encoding="utf-8")))
        for path in (SOURCE / room).rglob("*.py")
    }
    assert {name: count for name, count in found.items() if count > ALLOWED.get(name, 0)} == {}


def test_a_lookup_by_name_is_found() -> None:
    assert named_lookups("x = getattr(y, f'{z}_act')\nif hasattr(y, 'z'): pass") == [1, 2]
    assert named_lookups("class C:\n    def __getattr__(self, name): ...") == [2]
    assert named_lookups("x.z()") == []
