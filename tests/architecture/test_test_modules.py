"""Test modules are independent: code that several of them need is in a support module."""

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def imported_test_modules(text: str) -> set[str]:
    """Names of the modules ``test_*`` and ``conftest`` that a file imports, in whatever form."""
    names: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            package = node.module or ""
            names |= {package} | {f"{package}.{alias.name}" for alias in node.names}
    return {name for name in names if any(map(_is_test_module, name.split(".")))}


def _is_test_module(part: str) -> bool:
    return part.startswith("test_") or part == "conftest"


def test_no_module_imports_a_test_module() -> None:
    files = [path for folder in ("tests", "bench", "tools") for path in sorted((ROOT / folder).rglob("*.py"))]
    found = {path.relative_to(ROOT).as_posix(): imported_test_modules(path.read_text()) for path in files}
    assert {name: modules for name, modules in found.items() if modules} == {}, "move what is shared to tests/support"


@pytest.mark.parametrize(
    "line",
    [
        "from tests.unit.console.test_access import OPEN",
        "from tests.unit.console import test_access",
        "from tests.conftest import settings",
        "from . import test_access",
        "from .test_access import OPEN",
        "import tests.unit.console.test_access",
        "import tests.unit.console.test_access as access",
        "def use() -> None:\n    from tests.unit.console.test_access import OPEN",
    ],
)
def test_an_import_of_a_test_module_is_noticed(line: str) -> None:
    assert imported_test_modules(line)


def test_an_import_of_a_support_module_is_allowed() -> None:
    assert not imported_test_modules("from tests.support.console_access import OPEN\nimport pytest")
