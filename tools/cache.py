"""The user's cache: things that can be fetched again, shared by all clones and by processes that run at once."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path


def cache_directory() -> Path:
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    path = base / "holdfast"
    try:
        path.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        remedy = "set XDG_CACHE_HOME to a directory that you may write"
        raise OSError(f"cannot make {path} ({error.strerror}); {remedy}") from error
    return path


@contextlib.contextmanager
def one_at_a_time(what: str) -> Iterator[None]:
    """Let one process of this user in, in whichever clone.

    The system drops the lock when the last holder dies; children may hold it too.
    """
    with (cache_directory() / f"{what}.lock").open("w") as lock:
        os.set_inheritable(lock.fileno(), True)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print(f"{what}: waiting for another one to finish", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


@contextlib.contextmanager
def directory_made_whole(final: Path) -> Iterator[Path]:
    """A directory to fill, which gets its final name only when the block succeeds: no process ever sees it half full.

    Use it under `one_at_a_time`: it also removes what a killed predecessor left.
    """
    for leftover in final.parent.glob(f".{final.name}-*"):
        shutil.rmtree(leftover)
    with tempfile.TemporaryDirectory(prefix=f".{final.name}-", dir=final.parent) as scratch:
        unfinished = Path(scratch) / final.name
        unfinished.mkdir()
        yield unfinished
        if final.exists():  # damaged, or the caller would not be here; a rename replaces only an empty directory
            shutil.rmtree(final)
        unfinished.rename(final)
