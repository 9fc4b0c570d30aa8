"""If a server or a program is missing, `make test` skips and `make test-real` fails."""

import os
from typing import Final, NoReturn

import pytest

REAL: Final = os.environ.get("REAL_SERVERS") == "1"


def skip_or_fail(reason: object) -> NoReturn:
    if REAL:
        pytest.fail(str(reason))
    pytest.skip(str(reason))
