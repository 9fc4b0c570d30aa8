"""The pages are correct: what they name exists, their links work, and their code runs."""

import ast
import re
import runpy
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Final

import click
import pytest

from holdfast.cli.main import cli
from holdfast.cluster.rules import RULE_KINDS
from holdfast.control.steps import Step
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.settings import SETTINGS
from tests.support.runbook import ROOT, RUNBOOK, anchors, needs_operator, text_of

SOURCE: Final = ROOT / "src" / "holdfast"
PAGES: Final = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "bench").glob("*.md")])
ARCHITECTURE: Final = ROOT / "docs" / "ARCHITECTURE.md"
DECISIONS: Final = sorted((ROOT / "docs" / "decisions").glob("*.md"))

# In capitals, but not a setting: foreign environment variables, words of SQLite and DynamoDB, constants.
NOT_SETTINGS: Final = {
    "ALL_PROXY",
    "API_KEY",
    "CONTAINERD_HTTPS_PROXY",
    "HTTPS_PROXY",
    "HTTP_PROXY",
    "JAVA_HOME",
    "K3S_SHA256_ARCH",
    "KEYS_ONLY",
    "NO_COLOR",
    "NO_PROXY",
    "PARAMETER_ARN",
    "PROFILE_KEYS",
    "RULE_KINDS",
    "SQLITE_BUSY",
    "XDG_CACHE_HOME",
}

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@each_page
def test_every_link_between_pages_works(page: Path) -> None:
    """Also to headings."""
    for target in re.findall(r"\]\(([^)\s]+)\)", text_of(page)):
        if target.startswith("https://"):
            continue
        path, _, anchor = target.partition("#")
        linked = page.parent / path if path else page
        assert linked.exists(), target
        assert not anchor or anchor in anchors(linked), target


@cache
def names_of_tests() -> set[str]:
    """Tests and their files."""
    paths = list((ROOT / "tests").rglob("test_*.py"))
    return {path.stem for path in paths} | {
        name for path in paths for name in re.findall(r"def (test_\w+)", text_of(path))
    }


@each_page
def test_every_test_that_a_page_names_exists(page: Path) -> None:
    assert set(re.findall(r"\btest_[a-z0-9_]+\b", text_of(page))) - names_of_tests() == set()


@each_page
def test_every_file_that_a_page_names_exists(page: Path) -> None:
    """Those with a path from the root, or from the package."""
    for name in re.findall(r"`((?:\w[\w.-]*/)+[\w.-]+\.(?:py|md|toml|lock|txt))`", text_of(page)):
        assert (ROOT / name).exists() or (SOURCE / name).exists() or name == "bench/RESULTS.md", name


@each_page
def test_every_setting_that_a_page_names_exists(page: Path) -> None:
    named = set(re.findall(r"\b[A-Z][A-Z0-9]*(?:_[A-Z0-9]+)+\b", text_of(page)))
    ours = {name for name in named if not name.startswith("AWS_")} - NOT_SETTINGS
    assert ours - {row.name for row in SETTINGS} == set()


@each_page
def test_every_command_that_a_page_names_exists(page: Path) -> None:
    """Targets of make and commands of Holdfast, with the words that follow them in code."""
    code = "\n".join(code_of(page))
    targets = set(re.findall(r"^([a-z-]+):", text_of(ROOT / "Makefile"), re.MULTILINE))
    for words in re.findall(r"(?:^|\n)make ((?:[a-z-]+ ?)+)", code):
        assert set(words.split()) <= targets, words
    for group, command in re.findall(r"(?:^|\n)(?:[A-Z_]+=\S+ )?holdfast ([a-z]+)(?: ([a-z][a-z-]*))?", code):
        found = cli.commands[group]
        assert not command or (isinstance(found, click.Group) and command in found.commands), f"{group} {command}"


def code_of(page: Path) -> Iterator[str]:
    """What a reader might type: shell blocks and inline code."""
    for block, inline in re.findall(r"```sh\n(.*?)```|`([^`\n]+)`", text_of(page), re.DOTALL):
        yield block or inline


def test_the_code_in_the_page_about_the_store_runs(tmp_path: Path) -> None:
    """All of its blocks as one program, each on its own line of the page, so that an error names that line."""
    page = ROOT / "docs" / "store.md"
    lines, is_code = [], False
    for line in text_of(page).splitlines():
        is_code = line == "```python" or (is_code and line != "```")
        lines.append(line if is_code and line != "```python" else "")
    program = tmp_path / "store.py"
    program.write_text("\n".join(lines), encoding="utf-8")
    assert "store" in runpy.run_path(str(program))


def test_every_error_that_needs_an_operator_has_an_entry_in_the_runbook() -> None:
    headings = re.findall(r"^## (\w+)$", text_of(RUNBOOK), re.MULTILINE)
    assert {kind.__name__ for kind in needs_operator()} - set(headings) == set()


def files_of(module: str) -> list[Path]:
    """The file of a module, and those of the packages that it is in."""
    place = SOURCE.parent
    found = []
    for part in module.split("."):
        place /= part
        found += [path for path in (place / "__init__.py", place.with_suffix(".py")) if path.exists()]
    return found


def in_use() -> set[Path]:
    """Errors that the command line can raise. A part that is not wired yet has no operator."""
    found: set[Path] = set()
    unseen = files_of("holdfast.cli.main")
    while unseen:
        path = unseen.pop()
        if path in found:
            continue
        found.add(path)
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("holdfast."):
                for name in ["", *(f".{alias.name}" for alias in node.names)]:
                    unseen += files_of(node.module + name)
    return found


def messages(kinds: set[str]) -> Iterator[tuple[str, str]]:
    """The fixed beginnings of these errors' messages: their first words of eight letters or more."""
    for path in sorted(in_use()):
        for node in ast.walk(ast.parse(text_of(path))):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id in kinds and node.args:
                parts = node.args[0].values if isinstance(node.args[0], ast.JoinedStr) else [node.args[0]]
                fixed = [
                    p.value.strip(" :;,") for p in parts if isinstance(p, ast.Constant) and isinstance(p.value, str)
                ]
                long = [words for words in fixed if len(words) >= 8]
                if long:
                    yield f"{path.relative_to(ROOT)}:{node.lineno}", long[0][:25]


def test_every_message_for_an_operator_is_in_the_runbook() -> None:
    """A reworded error message must be reworded in the runbook too."""
    page = text_of(RUNBOOK)
    kinds = {kind.__name__ for kind in needs_operator()} | {StoreUnavailable.__name__}
    assert [(place, words) for place, words in messages(kinds) if words not in page] == []


def test_every_folder_of_the_package_is_in_the_architecture() -> None:
    page = text_of(ARCHITECTURE)
    folders = [path.parent.name for path in SOURCE.glob("*/__init__.py")]
    assert [name for name in folders if f"`{name}/`" not in page and f"`src/holdfast/{name}/`" not in page] == []


def test_every_decision_is_linked_from_the_architecture() -> None:
    page = text_of(ARCHITECTURE)
    assert DECISIONS
    assert [path.name for path in DECISIONS if f"(decisions/{path.name})" not in page] == []


@pytest.mark.parametrize("decision", DECISIONS, ids=lambda path: path.name)
def test_a_decision_has_its_number_and_its_four_parts(decision: Path) -> None:
    text = text_of(decision)
    assert text.startswith(f"# {int(decision.name[:4])}. ")
    for heading in ("Context", "Choice", "Alternatives refused", "Consequences"):
        assert f"\n## {heading}\n" in text
    assert text.count("\n") < 60


def test_every_notification_of_a_step_is_in_the_reference() -> None:
    page = text_of(ROOT / "docs" / "cluster-reference.md")
    titles = {kind.title for kind in step_types() if kind.title}
    assert {title for title in titles if f"\n| {title} | " not in page} == set()


def step_types() -> Iterator[type[Step]]:
    unseen = [*Step.__subclasses__()]
    while unseen:
        kind = unseen.pop()
        unseen += kind.__subclasses__()
        yield kind


def test_every_rule_is_in_the_reference() -> None:
    page = text_of(ROOT / "docs" / "cluster-reference.md")
    assert {name for name in RULE_KINDS if f"`{name}`" not in page} == set()
