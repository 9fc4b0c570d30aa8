"""One line for each step that takes a while."""

from __future__ import annotations

import contextlib
import os
import sys
import time
from collections.abc import Iterator


@contextlib.contextmanager
def step(what: str, *, who: str = "set-up") -> Iterator[None]:
    """Say what is being done, and then how long it took."""
    print(f"{who}: {what} ... ", end="", flush=True)
    started = time.monotonic()
    try:
        yield
    except BaseException:
        print("failed", flush=True)
        raise
    print(_dim(f"{time.monotonic() - started:.1f} s"), flush=True)


def _dim(text: str) -> str:
    return f"\033[2m{text}\033[0m" if sys.stdout.isatty() and "NO_COLOR" not in os.environ else text
