"""The views are fully typed: they contain no `Any`."""

import ast
from pathlib import Path

import pytest

VIEWS = Path(__file__).parents[2] / "src" / "holdfast" / "views"


def lines_with_any(tree: ast.AST) -> list[int]:
    names = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Name) and node.id == "Any"}
    attributes = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.Attribute) and node.attr == "Any"}
    imports = {node.lineno for node in ast.walk(tree) if isinstance(node, ast.alias) and node.name == "Any"}
    return sorted(names | attributes | imports)


@pytest.mark.parametrize("path", sorted(VIEWS.rglob("*.py")), ids=lambda path: path.name)
def test_a_view_has_no_any(path: Path) -> None:
    assert lines_with_any(ast.parse(path.read_text(encoding="utf-8"))) == []


@pytest.mark.parametrize("line", ["from typing import Any", "x: dict[str, Any] = {}", "x: typing.Any = 1"])
def test_any_is_found(line: str) -> None:
    assert lines_with_any(ast.parse(line)) == [1]
