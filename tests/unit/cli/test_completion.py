"""Shell completion: in a real bash; for other shells, the scripts are checked."""

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Final

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.simulator.proof.scenarios import SCENARIOS
from tests.support.real_servers import skip_or_fail

# Calls the function that the tab key would call, with the words that readline would pass.
_ASK: Final = """
eval "$(holdfast completion bash)"
COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1))
command=$(complete -p holdfast); function=${command##*-F }; function=${function%% *}
compopt() { echo "shell's own: $2"; }
"$function" holdfast
printf '%s\\n' "${COMPREPLY[@]}"
"""


@pytest.fixture
def path(tmp_path: Path) -> str:
    """Where a shell finds `holdfast`."""
    program = tmp_path / "holdfast"
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m holdfast.cli.main "$@"\n')
    program.chmod(0o755)
    return f"{tmp_path}{os.pathsep}{os.environ['PATH']}"


def completed(path: str, *words: str) -> list[str]:
    bash = shutil.which("bash")
    if bash is None:
        skip_or_fail("there is no bash on this machine")
    done = subprocess.run(
        [bash, "--norc", "--noprofile", "-c", _ASK, "bash", *words],
        env={**os.environ, "PATH": path},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    assert done.stderr == ""
    return done.stdout.split("\n")[:-1]


def test_bash_completes_commands(path: str) -> None:
    assert completed(path, "holdfast", "st") == ["status"]
    assert completed(path, "holdfast", "jobs", "s") == ["show", "stats", "stuck"]
    assert set(completed(path, "holdfast", "")) == set(cli.commands)


def test_bash_completes_options_and_their_values(path: str) -> None:
    assert completed(path, "holdfast", "status", "--wa") == ["--watch"]
    assert completed(path, "holdfast", "jobs", "list", "--status", "in") == ["in_progress"]
    assert completed(path, "holdfast", "completion", "f") == ["fish"]


def test_bash_completes_scenarios(path: str) -> None:
    found = completed(path, "holdfast", "simulate", "--scenario", "spot")
    assert sorted(found) == sorted(name for name in SCENARIOS if name.startswith("spot"))
    assert found


def test_bash_completes_directories_and_files_itself(path: str) -> None:
    assert completed(path, "holdfast", "status", "--data", "x") == ["shell's own: dirnames", ""]
    assert completed(path, "holdfast", "status", "--config", "x") == ["shell's own: default", ""]


def test_completing_touches_nothing(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even with wrong settings."""
    empty = tmp_path / "empty"
    empty.mkdir()
    monkeypatch.chdir(empty)
    monkeypatch.setenv("MAX_WORKERS", "ten")
    assert completed(path, "holdfast", "expl") == ["explain"]
    assert list(empty.iterdir()) == []


@pytest.mark.parametrize(
    ("shell", "words"),
    [
        ("bash", "complete -o nosort -F _holdfast_completion holdfast"),
        ("zsh", "compdef _holdfast_completion holdfast"),
        ("fish", "complete --no-files --command holdfast"),
    ],
)
def test_there_is_a_script_for_each_shell(shell: str, words: str) -> None:
    result = CliRunner().invoke(cli, ["completion", shell], prog_name="holdfast")
    assert (result.exit_code, result.stderr) == (0, "")
    assert words in result.stdout
    assert f"_HOLDFAST_COMPLETE={shell}_complete" in result.stdout
    program = shutil.which(shell)
    if program is not None:
        subprocess.run([program, "-n"], input=result.stdout, text=True, check=True, timeout=60)


def test_fish_shows_a_complete_help_text_with_a_comma(path: str) -> None:
    script = CliRunner().invoke(cli, ["completion", "fish"], prog_name="holdfast").stdout
    assert script.count('string split --max 1 ","') == 1
    fish = shutil.which("fish")
    if fish is not None:
        ask = f'{script}\ncomplete -C "holdfast jobs e"'
        environment = {**os.environ, "PATH": path}
        done = subprocess.run(
            [fish, "--no-config", "-c", ask], env=environment, capture_output=True, text=True, check=True, timeout=60
        )
        assert "events\tShow what happened to a job, in its order." in done.stdout.splitlines()


def test_an_unknown_shell_is_a_usage_error() -> None:
    result = CliRunner().invoke(cli, ["completion", "fsh"], prog_name="holdfast")
    assert (result.exit_code, result.stderr) == (2, "holdfast: No such command 'fsh'. Did you mean 'fish'?\n")
