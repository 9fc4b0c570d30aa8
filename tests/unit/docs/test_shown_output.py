"""Command output in the pages is what the commands print, and figures in prose are correct."""

import ast
import re
from pathlib import Path
from typing import Final

import pytest

from holdfast.simulator.checkers import EVERY
from tools import docs
from tools.planted import MUTANTS
from tools.shown_output import LONGEST_LINE, PinnedCommand, ShownOutput, outputs_of, requests_in, with_output

ROOT: Final = Path(__file__).parents[3]
# The changelog and decisions describe their own time.
PAGES: Final = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    ROOT / "model" / "README.md",
    *(ROOT / "docs").glob("*.md"),
]
PAGE: Final = """\
<!-- output of: holdfast tick --dry-run | after 1 tick | first 2 lines -->
```text
stale
```

```text
not marked
```
"""


@pytest.mark.parametrize(
    "name", ["README.md", "docs/cluster.md", "docs/how-it-decides.md", "docs/proof.md", "docs/runners.md"]
)
def test_a_page_with_command_output_is_kept_current(name: str) -> None:
    """`python -m tools.docs --check`, which another test runs, compares what it shows."""
    assert requests_in((ROOT / name).read_text(encoding="utf-8"))


def test_a_marked_block_gets_the_output_of_its_command_and_others_stay() -> None:
    written = with_output(PAGE, outputs_of(requests_in(PAGE)))
    assert written.startswith(PAGE.partition("stale")[0] + "workers 2,")
    assert "RULE" in written
    assert "…\n```\n\n```text\nnot marked\n```\n" in written
    assert "stale" not in written


def test_lines_beyond_the_width_of_a_page_are_cut() -> None:
    assert ShownOutput(PinnedCommand("holdfast status"), None).cut("x" * 200).rstrip() == "x" * (LONGEST_LINE - 1) + "…"


def test_an_invalid_marker_is_an_error() -> None:
    with pytest.raises(SystemExit, match="expected COMMAND"):
        requests_in(PAGE.replace("holdfast tick --dry-run", "rm -rf"))


def test_a_page_whose_output_is_stale_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(docs, "DOCS", tmp_path / "docs")
    (tmp_path / "README.md").write_text(PAGE)
    assert docs.main(["--check"]) == 1
    assert "docs: README.md is not current; run: python -m tools.docs" in capsys.readouterr().err


def counted(pattern: str) -> set[tuple[str, int]]:
    """The pages in which the pattern occurs, with its number."""
    texts = {str(page.relative_to(ROOT)): page.read_text(encoding="utf-8") for page in PAGES}
    return {(name, int(number)) for name, text in texts.items() for number in re.findall(pattern, text)}


def test_the_number_of_checkers_in_a_page_is_right() -> None:
    said = counted(r"\b(\d+)\s+(?:checkers|invariants)\b")
    assert said == {("README.md", len(EVERY)), ("docs/proof.md", len(EVERY))}


def test_the_number_of_planted_mistakes_in_a_page_is_right() -> None:
    assert counted(r"planted mistakes \|[^|]*\| all (\d+)") == {("docs/proof.md", len(MUTANTS))}


def test_the_number_of_mutants_of_the_models_is_right() -> None:
    tree = ast.parse((ROOT / "tests" / "real" / "test_model.py").read_text(encoding="utf-8"))
    lists = {
        node.target.id: node.value
        for node in tree.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    }
    mutants = lists["MUTANTS"]
    assert isinstance(mutants, ast.List)
    assert counted(r"`tests/real/test_model.py`: (\d+)") == {("model/README.md", len(mutants.elts))}


def test_the_number_of_fixed_seeds_is_right() -> None:
    text = (ROOT / "tests" / "simulation" / "test_seeds_fixed.py").read_text(encoding="utf-8")
    quick, slow = (int(end) - 1 for end in re.findall(r"range\(\d+, (\d+), \d+\)", text))
    assert f"| seeds | the first {quick} | the first {slow:,} |" in (ROOT / "docs" / "proof.md").read_text("utf-8")
