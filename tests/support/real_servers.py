"""If a server or a program is missing, `make test` skips and `make test-real` fails. Servers' logs, for failures."""

import os
from pathlib import Path
from typing import Final, NoReturn

import pytest

REAL: Final = os.environ.get("REAL_SERVERS") == "1"
_LOGS: Final = pytest.StashKey[list[Path]]()


def skip_or_fail(reason: object) -> NoReturn:
    if REAL:
        pytest.fail(str(reason))
    pytest.skip(str(reason))


def show_on_failure(config: pytest.Config, *logs: Path) -> None:
    """Show the end of these logs with every failure from now on."""
    config.stash.setdefault(_LOGS, []).extend(logs)


def logs_of(config: pytest.Config) -> list[Path]:
    return config.stash.get(_LOGS, [])
