"""How the command line finds the daemon that holds the SQLite file: through a small private file beside it.

The daemon holds a lock (flock) on that file, which the kernel releases however the process ends. A file without a lock
was left behind by a killed daemon.
"""

import fcntl
import json
import os
import secrets
import signal
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, TypeVar

import msgspec

from holdfast.adapters.http_calls import HttpEndpoint, HttpFailed, HttpLimits
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadSetting, NeedsOperator, NotFound, Retryable
from holdfast.kernel.file_trust import distrust_reason, distrusted
from holdfast.kernel.settings import Settings
from holdfast.kernel.settings.own_commands import own_command
from holdfast.views.command_answers import ErrorAnswer

T = TypeVar("T")
_LIMITS: Final = HttpLimits(connect_seconds=1.0, whole_seconds=15.0, body_bytes=1024 * 1024)
_FOR_OTHERS: Final = stat.S_IRWXG | stat.S_IRWXO


class DaemonUnavailable(Retryable):
    """The daemon that holds the store did not answer. The command may or may not have been carried out."""


@dataclass(frozen=True)
class Daemon:
    """A running daemon, and the token for its API."""

    url: str
    token: str = field(repr=False)

    def post(self, path: str, body: dict[str, str], kind: type[T]) -> T:
        """POST to its API; returns the answer as a `kind`, or raises its error."""
        headers = {"Authorization": f"Bearer {self.token}", "Content-Type": "application/json"}
        place = HttpEndpoint(self.url, SystemClock(), setting="daemon.json", limits=_LIMITS)
        try:
            answer = place.post(json.dumps(body).encode(), headers, path=path)
            if answer.status == 200:
                return typed_json.decoded(answer.body, kind)
            message = typed_json.decoded(answer.body, ErrorAnswer).error.message
        except HttpFailed as error:
            raise DaemonUnavailable(f"the daemon: {error}; check its log") from error
        except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError) as error:
            raise DaemonUnavailable(f"the daemon at {place} sent an invalid answer") from error
        raise (NeedsOperator if answer.status < 500 else DaemonUnavailable)(f"the daemon: {message}")


def new_token() -> str:
    return secrets.token_urlsafe(32)


@contextmanager
def announce_daemon(settings: Settings, daemon: Daemon) -> Iterator[None]:
    """Write the file, and remove it at the end."""
    path = _path(settings)
    content = json.dumps({"url": daemon.url, "token": daemon.token, "pid": os.getpid()})
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        held = _written(path, content)
    except OSError as error:
        raise NeedsOperator(
            f"{path} cannot be written: {error.strerror}; choose another directory with --data"
        ) from error
    try:
        yield
    finally:
        # Only our own: a second daemon may have started on the same directory.
        with suppress(OSError):
            if path.read_text(encoding="utf-8") == content:
                path.unlink()
        os.close(held)


def _written(path: Path, content: str) -> int:
    """The file, open and locked. It is locked before it gets its name, so it is never seen unlocked."""
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    temporary.unlink(missing_ok=True)  # an earlier process with the same pid may have left one, with other permissions
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
    """The daemon that uses this data directory, if one is running. A file that others may write does not count."""
    try:
        found = _announced(_path(settings))
        HttpEndpoint(str(found["url"]), SystemClock(), setting="daemon.json")
        return Daemon(str(found["url"]), str(found["token"]))
    except (OSError, ValueError, LookupError, TypeError, RecursionError, BadSetting):
        return None


def kill_daemon(settings: Settings, *, dry_run: bool = False) -> int:
    """Kill the daemon that uses this data directory with SIGKILL, and return its process id.

    In the simulated world only: there it shows that nothing is lost. A real daemon is stopped by its supervisor.
    """
    if settings.holdfast_world != "sim":
        raise NeedsOperator(
            "'holdfast kill' is for the simulated world, and HOLDFAST_WORLD is aws; "
            "stop a daemon of a real cluster with SIGTERM, or with what started it"
        )
    try:
        # Locked by the process that wrote it, so it lives, and its id is not another process's by now.
        pid = _announced(_path(settings))["pid"]
    except (OSError, ValueError, LookupError, TypeError, RecursionError):
        pid = None
    if type(pid) is not int or pid <= 1:
        again = own_command(settings, "run")
        raise NotFound(f"no daemon is running on {settings.holdfast_data}; start one with: {again}")
    if not dry_run:
        os.kill(pid, signal.SIGKILL)
    return pid


def _announced(path: Path) -> Any:
    """What a running daemon wrote there. Raises LookupError if none is running, or if others may have written it."""
    # Not blocking: a pipe in its place would wait for a writer.
    with open(path, encoding="utf-8", opener=lambda name, flags: os.open(name, flags | os.O_NONBLOCK)) as file:
        found = os.fstat(file.fileno())
        # The open file is examined, and not its path: in a directory like /tmp, a link could lead elsewhere by now.
        is_trusted = stat.S_ISREG(found.st_mode) and not distrust_reason(found) and not distrusted(path.parent)
        # One that others can open is not ours, and its lock may be theirs.
        if not is_trusted or found.st_mode & _FOR_OTHERS or not _is_held(file.fileno()):
            raise LookupError(f"{path}: no daemon")
        return json.load(file)


def _is_held(file: int) -> bool:
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    return False


def _path(settings: Settings) -> Path:
    return settings.holdfast_data / "daemon.json"
