"""Commands, options and settings stay as they were. A difference is intended and listed here, or a mistake."""

import json
from pathlib import Path
from typing import Any, Final

from holdfast.cli.main import cli
from holdfast.kernel.settings import SETTINGS
from tools.docs import commands

HERE: Final = Path(__file__).parent
COMMON: Final = ("as_json", "holdfast_config", "holdfast_data")
# Intended: (command, option) that is new or gone, each with its reason beside it.
NEW_OPTIONS: Final[frozenset[tuple[str, str]]] = frozenset(
    {
        ("holdfast jobs list", "instance_id"),  # a runner fleet looks its jobs up by machine
        # DynamoDB cannot change what an index contains
        *(
            ("holdfast tables rebuild-index", name)
            for name in ("index", "is_confirmed", "as_json", "dry_run", "holdfast_config", "holdfast_data")
        ),
        *(
            ("holdfast jobs recount", name)  # figures of past days are counted again
            for name in ("as_json", "dry_run", "holdfast_config", "holdfast_data", "installation_id", "since")
        ),
        ("holdfast help", "words"),  # people type `holdfast help run`
        # The runner fleet.
        *((f"holdfast runners {each}", name) for each in ("classes", "refresh", "try") for name in COMMON),
        ("holdfast runners classes", "waiting"),
        ("holdfast runners classes", "installation_id"),
        ("holdfast runners refresh", "saved"),
        ("holdfast runners refresh", "dry_run"),
        ("holdfast runners try", "labels"),
        ("holdfast runners try", "repository"),
        *(("holdfast kill", name) for name in ("as_json", "dry_run", "holdfast_config", "holdfast_data")),  # the tour
    }
)
GONE_OPTIONS: Final[frozenset[tuple[str, str]]] = frozenset()
NEW_SETTINGS: Final[frozenset[str]] = frozenset(
    {
        "CONSOLE_HOSTS",  # a user header is trusted under these hosts only
        "CONSOLE_PROXY_SECRET",  # and only with the proxy's secret
        "FIGURES_SEC",  # how often ended jobs are counted
        "GITHUB_INSTALLATIONS",  # one secret signs for every installation
        "JOBS_INDEX_PROJECTION",  # programs that query the tables themselves need the status
        "NEWEST_KEPT_SEC",  # the newest worker is protected for a time only
        "TEAM_PROPERTY",  # not every organization calls it team
        "ZONES_KEPT",  # the minimum can be reached with fewer workers than zones
    }
)


def before(name: str) -> Any:
    return json.loads((HERE / name).read_text(encoding="utf-8"))


def options_now() -> dict[tuple[str, str], tuple[Any, ...]]:
    return {
        (path, str(option.name)): (
            [*option.opts, *option.secondary_opts],
            option.param_type_name,
            option.required,
            option.type.name,
        )
        for path, command in commands(cli, "holdfast")
        for option in command.params
    }


def test_every_command_and_option_is_as_it_was() -> None:
    was = {
        (path, row["name"]): (row["flags"], row["kind"], row["required"], row["type"])
        for path, rows in before("commands.json").items()
        for row in rows
    }
    now = options_now()
    assert now.keys() - was.keys() == NEW_OPTIONS
    assert was.keys() - now.keys() == GONE_OPTIONS
    assert {key: now[key] for key in was.keys() & now.keys()} == {key: was[key] for key in was.keys() & now.keys()}


def test_every_command_is_still_there() -> None:
    assert before("commands.json").keys() <= {path for path, _ in commands(cli, "holdfast")}


def test_every_setting_keeps_its_name_default_unit_and_flag() -> None:
    now = {
        row.name: {
            "name": row.name,
            "default": row.default_words,
            "unit": row.unit,
            "flag": row.flag,
            "secret": row.secret,
        }
        for row in SETTINGS
    }
    was = {row["name"]: row for row in before("settings.json")}
    assert now.keys() - was.keys() == NEW_SETTINGS
    assert {name: now.get(name) for name in was} == was
