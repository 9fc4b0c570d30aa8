"""Where the bearer token comes from. A token changes during the life of a process, so it is asked for on every call."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

from holdfast.kernel.errors import BadSetting, NeedsOperator
from holdfast.ports.clock import Clock
from holdfast.ports.kube import KubeRefused

# As long as a secret may stay in memory.
KEPT_SECONDS: Final = 300.0


class Token(Protocol):
    def value(self) -> str: ...

    def forget(self) -> None:
        """The server did not know it: the next `value` is fetched anew where it can be."""
        ...


class FixedToken:
    """The token that a kubeconfig holds."""

    def __init__(self, value: str) -> None:
        self._value = _fit(value, "the kubeconfig", BadSetting)

    def value(self) -> str:
        return self._value

    def forget(self) -> None:
        """Nothing to do: there is no other."""


class FileToken:
    """A token in a file that is replaced now and then: a service account's, every hour, by the kubelet."""

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
            raise KubeRefused(f"token file {self._path}: {reason}; mount or write it where it is expected") from error
        return self._value

    def forget(self) -> None:
        self._read_at = None


class FetchedToken:
    """A token that a call fetches (from SSM, say), kept for a few minutes."""

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
    """The token without white space around it. HTTP would refuse a bad one, but with a message that quotes it."""
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise error(f"the token from {where} is empty or has characters that no token has; put a valid one there")
    return token
