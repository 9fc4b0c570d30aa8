"""Set-up: pip's settings reach uv, .venv is rebuilt exactly when needed, and the lock files are consistent."""

from __future__ import annotations

import ast
import dataclasses
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from tools.cache import directory_made_whole
from tools.environment import LOCKS, ROOT, Plan, Stamp, locked_version, plan, read_stamp, write_stamp
from tools.pip_settings import parse_pip_config, uv_environment, uv_flags

# pip's settings, as uv's variables


def test_the_environment_beats_the_install_section_which_beats_the_global_one() -> None:
    listing = "\n".join(
        [
            ":env:.timeout='60'",
            "global.index-url='https://global.example/simple'",
            "global.timeout='10'",
            "install.index-url='https://install.example/simple'",
            "download.index-url='https://download.example/simple'",
        ]
    )
    assert parse_pip_config(listing) == {"timeout": "60", "index-url": "https://install.example/simple"}


@pytest.mark.parametrize(
    ("name", "value", "variables"),
    [
        ("index-url", "https://u:p@a.example/simple", {"UV_DEFAULT_INDEX": "https://u:p@a.example/simple"}),
        ("find-links", "/wheels\nhttps://b.example/w", {"UV_FIND_LINKS": "/wheels,https://b.example/w"}),
        ("trusted-host", "a.example b.example:8443", {"UV_INSECURE_HOST": "a.example b.example:8443"}),
        ("cert", "/ca.pem", {"SSL_CERT_FILE": "/ca.pem"}),
        ("client-cert", "/me.pem", {"SSL_CLIENT_CERT": "/me.pem"}),
        ("timeout", "15.5", {"UV_HTTP_TIMEOUT": "16"}),
        ("default-timeout", "180", {"UV_HTTP_TIMEOUT": "180"}),
        ("retries", "9", {"UV_HTTP_RETRIES": "9"}),
        (
            "proxy",
            "http://c.example:3128",
            {"HTTPS_PROXY": "http://c.example:3128", "http_proxy": "http://c.example:3128"},
        ),
        ("disable-pip-version-check", "1", {}),
    ],
)
def test_a_setting_of_pip_means_the_same_to_uv(name: str, value: str, variables: dict[str, str]) -> None:
    environment = uv_environment({name: value}, {"HOME": "/home/me"})
    assert environment.items() >= variables.items()
    assert environment["HOME"] == "/home/me"


def test_more_indexes_are_all_searched_as_pip_does() -> None:
    environment = uv_environment({"extra-index-url": "https://a.example/s\nhttps://b.example/s"}, {})
    assert environment["UV_INDEX"] == "https://a.example/s https://b.example/s"
    assert environment["UV_INDEX_STRATEGY"] == "unsafe-best-match"


def test_no_index_is_an_option_because_uv_has_no_variable_for_it() -> None:
    assert uv_flags({"no-index": "true"}) == ["--no-index"]
    assert uv_flags({"no-index": "false"}) == []
    assert uv_flags({}) == []


def test_uvs_own_settings_win_over_pips() -> None:
    said = {"UV_DEFAULT_INDEX": "https://mine.example/simple"}
    assert uv_environment({"index-url": "https://pip.example/simple"}, said).items() >= said.items()


def test_without_a_cert_uv_looks_where_pip_looks() -> None:
    assert uv_environment({}, {"REQUESTS_CA_BUNDLE": "/a.pem"})["SSL_CERT_FILE"] == "/a.pem"
    assert uv_environment({}, {"REQUESTS_CA_BUNDLE": "/a.pem", "SSL_CERT_FILE": "/b.pem"})["SSL_CERT_FILE"] == "/b.pem"
    assert uv_environment({"cert": "/c.pem"}, {"SSL_CERT_FILE": "/b.pem"})["SSL_CERT_FILE"] == "/c.pem"


# What to do to .venv

RUN = Stamp("run", content="r1", root="/here", python="CPython 3.11.7")
DEV = Stamp("dev", content="d1", root="/here", python="CPython 3.11.7")
CURRENT = {"run": RUN, "dev": DEV}


@pytest.mark.parametrize("found", [RUN, DEV])
def test_a_current_venv_is_left_alone(found: Stamp) -> None:
    assert not plan(found.which, found, CURRENT, venv_runs=True).sync


def test_the_development_set_is_enough_for_running() -> None:
    assert not plan("run", DEV, CURRENT, venv_runs=True).sync


def test_the_running_set_is_extended_in_place_for_tests() -> None:
    assert plan("dev", RUN, CURRENT, venv_runs=True) == Plan("dev", sync=True, rebuild=False)


def test_a_changed_lock_file_is_installed_without_losing_the_development_set() -> None:
    older = dataclasses.replace(DEV, content="d0")
    assert plan("run", older, CURRENT, venv_runs=True) == Plan("dev", sync=True, rebuild=False)


@pytest.mark.parametrize("changed", [{"root": "/there"}, {"python": "CPython 3.12.1"}])
def test_a_copied_venv_or_another_python_needs_a_new_one(changed: dict[str, str]) -> None:
    assert plan("dev", dataclasses.replace(DEV, **changed), CURRENT, venv_runs=True).rebuild


def test_a_killed_set_up_or_a_missing_python_needs_a_new_one() -> None:
    assert plan("run", None, CURRENT, venv_runs=True) == Plan("run", sync=True, rebuild=True)
    assert plan("run", RUN, CURRENT, venv_runs=False) == Plan("run", sync=True, rebuild=True)


@pytest.mark.parametrize("text", ["", "{", "[]", '{"which": "run"}', '{"which": "run", "more": 1}'])
def test_an_unreadable_stamp_counts_as_missing(tmp_path: Path, text: str) -> None:
    path = tmp_path / "stamp"
    assert read_stamp(path) is None
    path.write_text(text)
    assert read_stamp(path) is None
    write_stamp(path, DEV)
    assert read_stamp(path) == DEV


def test_a_directory_gets_its_final_name_when_it_is_complete(tmp_path: Path) -> None:
    final = tmp_path / "it"
    with directory_made_whole(final) as unfinished:
        (unfinished / "file").touch()
        assert not final.exists()
    assert [path.name for path in final.iterdir()] == ["file"]
    assert list(tmp_path.iterdir()) == [final]


def test_a_directory_that_could_not_be_filled_leaves_nothing(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError), directory_made_whole(tmp_path / "it") as unfinished:
        (unfinished / "absent").read_text()
    assert list(tmp_path.iterdir()) == []


def test_leftovers_of_a_killed_download_are_removed_by_the_next(tmp_path: Path) -> None:
    (tmp_path / ".it-abc123").mkdir()
    with directory_made_whole(tmp_path / "it"):
        pass
    assert [path.name for path in tmp_path.iterdir()] == ["it"]


# The command


def test_wrong_usage_of_set_up_is_one_line_and_exit_code_2() -> None:
    done = subprocess.run([sys.executable, ROOT / "tools" / "setup.py", "all"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == "usage: python3 tools/setup.py run|dev\n"


def test_the_entry_point_can_be_parsed_by_an_old_python() -> None:
    """A syntax error would hide the message that says which version is needed."""
    ast.parse((ROOT / "tools" / "setup.py").read_text(), feature_version=(3, 3))


# The lock files

LOCK_LINE = re.compile(r"[a-z0-9-]+==[0-9a-z.]+( ; [\w .'!=<>()]+)? \\|    --hash=sha256:[0-9a-f]{64}( \\)?")


@pytest.mark.parametrize("name", ["core.lock", "run.lock", "dev.lock", "lowest.lock", "uv.txt"])
def test_a_lock_file_contains_only_names_versions_and_hashes(name: str) -> None:
    strange = [line for line in (LOCKS / name).read_text().splitlines() if not LOCK_LINE.fullmatch(line)]
    assert strange == []


def test_tests_and_production_use_the_same_versions() -> None:
    core, run, dev = (locked(f"{name}.lock") for name in ("core", "run", "dev"))
    assert core.items() <= run.items() <= dev.items()


def test_the_locks_satisfy_pyproject() -> None:
    """Fails when a dependency was changed and `make lock` forgotten."""
    declared = tomllib.loads((ROOT / "pyproject.toml").read_text())
    project = declared["project"]
    extras = [need for needs in project["optional-dependencies"].values() for need in needs]
    groups = [need for group in ("test", "lint") for need in declared["dependency-groups"][group]]
    assert unmet(project["dependencies"], "core.lock") == []
    assert unmet([*project["dependencies"], *extras, *declared["build-system"]["requires"]], "run.lock") == []
    assert unmet(groups, "dev.lock") == []
    assert unmet([*project["dependencies"], *extras], "lowest.lock") == []


def test_the_lowest_lock_has_the_oldest_versions_that_pyproject_allows() -> None:
    pins = locked("lowest.lock")
    assert (pins["click"], pins["starlette"], pins["msgspec"]) == ("8.5.0", "1.1.0", "0.21.0")


def test_an_unlocked_package_is_an_error_with_the_remedy() -> None:
    assert re.fullmatch(r"[0-9.]+", locked_version("uv", LOCKS / "uv.txt"))
    with pytest.raises(Exception, match=r"uv\.txt names no version of u; make it anew with make lock"):
        locked_version("u", LOCKS / "uv.txt")


def locked(name: str) -> dict[str, str]:
    pins = (line.partition("==") for line in (LOCKS / name).read_text().splitlines() if not line.startswith(" "))
    return {package: rest.split()[0] for package, _, rest in pins}


def unmet(requirements: list[str], lock: str) -> list[str]:
    pins = locked(lock)
    parsed = [Requirement(requirement) for requirement in requirements]
    return [str(need) for need in parsed if not need.specifier.contains(pins.get(canonicalize_name(need.name), "0"))]
