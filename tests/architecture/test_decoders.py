"""Two threads that create a decoder of the same type at once crash the process: decoders are created in one place."""

import ast
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "holdfast"
THE_PLACE = SOURCE / "kernel" / "typed_json.py"
FILES = [path for path in sorted(SOURCE.rglob("*.py")) if path != THE_PLACE]


def made_elsewhere(tree: ast.AST) -> list[int]:
    """The lines that make msgspec inspect a type."""
    return [node.lineno for node in ast.walk(tree) if isinstance(node, ast.Call) and looks_into_a_type(node)]


def looks_into_a_type(call: ast.Call) -> bool:
    name = ast.unparse(call.func)
    has_type = bool(call.args[1:]) or any(keyword.arg == "type" for keyword in call.keywords)
    return (name.endswith("msgspec.json.decode") and has_type) or name.endswith(("json.Decoder", "msgspec.convert"))


def test_decoders_of_types_are_created_in_one_place() -> None:
    found = {path.relative_to(SOURCE).as_posix(): made_elsewhere(ast.parse(path.read_text())) for path in FILES}
    # Of plain values, at import time: it inspects no struct.
    assert len(found.pop("adapters/sqlite/items.py")) == 1
    assert {name: lines for name, lines in found.items() if lines} == {}, "use holdfast.kernel.typed_json"


@pytest.mark.parametrize(
    "line",
    [
        "msgspec.json.decode(b, type=T)",
        "msgspec.json.decode(b, T)",
        "msgspec.json.Decoder(T)",
        "msgspec.convert(b, T)",
    ],
)
def test_a_decoder_created_elsewhere_is_found(line: str) -> None:
    assert made_elsewhere(ast.parse(line)) == [1]
    assert made_elsewhere(ast.parse("msgspec.json.decode(b)")) == []
