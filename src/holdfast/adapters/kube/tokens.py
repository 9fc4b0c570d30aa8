"""Sources of the bearer token. A token changes during the life of a process, so every call asks for it."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from holdfast.kernel.errors import BadSetting, NeedsOperator
from holdfast.ports.clock import Clock
from holdfast.ports.kube import KubeRefused

# How long a secret may stay in memory.
KEPT_SECONDS: Final = 300.0


class Token(Protocol):
    def value(self) -> str: ...

    def forget(self) -> None:
        """The server refused it: fetch the next `value` again, if possible."""
        ...


class FixedToken:
    """The token in a kubeconfig."""

    def __init__(self, value: str) -> None:
        self._value = _fit(value, "the kubeconfig", BadSetting)

    def value(self) -> str:
        return self._value

    def forget(self) -> None:
        """Nothing to do: there is no other token."""


class FileToken:
    """A token in a file that is replaced from time to time: a service account's, hourly, by the kubelet."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._value = ""
        self._read_at: tuple[int, int] | None = None

    def value(self) -> str:
        try:
            found = self._path.stat()
            if (at := (found.st_mtime_ns, found.st_ino)) != self._read_at:
                self._value = _fit(self._path.read_text(encoding="utf-8"), str(self._path))
                self._read_at = at
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not text"
            raise KubeRefused(f"token file {self._path}: {reason}; mount or create it there") from error
        return self._value

    def forget(self) -> None:
        self._read_at = None


class FetchedToken:
    """A token that is fetched (from SSM, say) and kept for a few minutes."""

    def __init__(self, fetch: Callable[[], str], clock: Clock, kept_seconds: float = KEPT_SECONDS) -> None:
        self._fetch = fetch
        self._clock = clock
        self._kept_seconds = kept_seconds
        self._value = ""
        self._until_seconds = float("-inf")

    def value(self) -> str:
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds >= self._until_seconds:
            self._value = _fit(self._fetch(), "the parameter store")
            self._until_seconds = now_seconds + self._kept_seconds
        return self._value

    def forget(self) -> None:
        self._until_seconds = float("-inf")


def _fit(text: str, where: str, error: type[NeedsOperator] = KubeRefused) -> str:
    """The token without surrounding whitespace. Bad ones are refused here: urllib3's message would quote them."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise error(f"the token from {where} is empty or contains invalid characters; put a valid one there")
    return token
