"""The reference pages are generated from the declarations, and are current."""

from pathlib import Path

import click
import pytest

from holdfast.cli.main import cli
from holdfast.kernel.settings import SETTINGS
from tools import docs


def test_the_reference_pages_are_current(capsys: pytest.CaptureFixture[str]) -> None:
    """After a change of a setting, a command or its output, `python -m tools.docs` was run."""
    assert docs.main(["--check"]) == 0, capsys.readouterr().err


def test_the_settings_page_has_every_setting() -> None:
    """Name, default, example, expected values and description."""
    page = docs.settings_page()
    for row in SETTINGS:
        (line,) = (line for line in page.splitlines() if line.startswith(f"| `{row.name}` |"))
        for words in (row.default_words, row.unit, row.example, row.kind.expected, row.help_text, row.flag or ""):
            assert words in line


def test_the_command_page_has_every_command_and_option() -> None:
    """Also those of groups within groups."""
    page = docs.cli_page()
    for path, command in docs.commands(cli, "holdfast"):
        section = page.partition(f"\n## {path}\n")[2].partition("\n## ")[0]
        assert command.help is not None
        names = (one.opts[0] if isinstance(one, click.Option) else one.human_readable_name for one in command.params)
        assert all(name in section for name in names), path


def test_a_stale_page_is_named_and_not_touched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The check says what to run; running it makes the check pass."""
    page = tmp_path / "docs" / "settings.md"
    page.parent.mkdir()
    page.write_text("old")
    monkeypatch.setattr(docs, "DOCS", page.parent)
    assert docs.main(["--check"]) == 1
    assert "docs/settings.md is not current; run: python -m tools.docs" in capsys.readouterr().err
    assert page.read_text() == "old"
    assert docs.main([]) == 0
    assert docs.main(["--check"]) == 0


def test_the_pages_do_not_depend_on_the_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Otherwise the check would fail on a narrow one."""
    wide = docs.cli_page()
    monkeypatch.setenv("COLUMNS", "40")
    assert docs.cli_page() == wide
