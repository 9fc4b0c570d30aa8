"""How the command line finds a daemon that holds the SQLite file: by a small file beside it, for this user alone.

The daemon holds a lock (flock) on that very file, which goes with its process however that ends. A file that nobody
holds was left behind by one that was killed.
"""

import fcntl
import json
import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from holdfast.adapters.http_calls import HttpFailed, HttpLimits, HttpPlace
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.errors import BadSetting, NeedsOperator, Retryable
from holdfast.kernel.settings import Settings

_LIMITS: Final = HttpLimits(connect_seconds=1.0, whole_seconds=15.0, body_bytes=1024 * 1024)


class DaemonUnavailable(Retryable):
    """The daemon that holds the store did not answer. What was ordered may or may not have been done."""


@dataclass(frozen=True)
class Daemon:
    """A running daemon, and the token that its API wants for changes."""

    url: str
    token: str = field(repr=False)

    def order(self, path: str, order: dict[str, str]) -> dict[str, Any]:
        """POST to its API; the answer, or the error that it told."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        place = HttpPlace(self.url, SystemClock(), setting="daemon.json", limits=_LIMITS)
        try:
            answer = place.post(json.dumps(order).encode(), headers, path=path)
            told = json.loads(answer.body)
            if answer.status == 200 and isinstance(told, dict):
                return told
            message = str(told["error"]["message"])
        except HttpFailed as error:
            raise DaemonUnavailable(f"the daemon: {error}; look at its log") from error
        except (ValueError, LookupError, TypeError) as error:
            raise DaemonUnavailable(f"the daemon at {place} gave an answer that is not understood") from error
        raise (NeedsOperator if answer.status < 500 else DaemonUnavailable)(f"the daemon: {message}")


def new_token() -> str:
    return secrets.token_urlsafe(32)


@contextmanager
def announced(settings: Settings, daemon: Daemon) -> Iterator[None]:
    """Be found, until the end."""
    path = _path(settings)
    content = json.dumps({"url": daemon.url, "token": daemon.token, "pid": os.getpid()})
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = _written(path, content)
    except OSError as error:
        raise NeedsOperator(
            f"{path} cannot be written: {error.strerror}; name another directory with --data"
        ) from error
    try:
        yield
    finally:
        # Only ours: a second daemon on the same directory may have come after us.
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == content:
                path.unlink()
        os.close(held)


def _written(path: Path, content: str) -> int:
    """The file, open and held. It is held before it has its name: whoever finds it finds it held."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)  # a process of the same number may have left one, with other permissions
    held = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(held, fcntl.LOCK_EX | fcntl.LOCK_NB)
        os.write(held, content.encode())
        temporary.replace(path)
    except BaseException:
        os.close(held)
        raise
    return held


def running_daemon(settings: Settings) -> Daemon | None:
    """The daemon that works on this data directory, if one does. A file that a killed one left behind is no daemon."""
    try:
        with _path(settings).open(encoding="utf-8") as file:
            if not _is_held(file.fileno()):
                return None
            found = json.load(file)
        HttpPlace(str(found["url"]), SystemClock(), setting="daemon.json")
        return Daemon(str(found["url"]), str(found["token"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError, BadSetting):
        return None


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _path(settings: Settings) -> Path:
    return settings.holdfast_data / "daemon.json"
