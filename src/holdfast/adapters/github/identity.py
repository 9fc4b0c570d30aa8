"""Authentication to GitHub: as an App with a private key, or with a token.

An App signs a JSON web token (RS256) for requests about itself, and gets a token for each installation, which is kept
until shortly before it expires. Keys and tokens stay in memory, and never appear in messages.
"""

import base64
import json
import re
from collections.abc import Callable
from pathlib import Path
from typing import Final, Protocol

import msgspec

from holdfast.adapters.github.calls import GitHubCalls
from holdfast.kernel.errors import MissingExtra, NeedsOperator
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.github import GitHubUnavailable

Secret = Callable[[], str]

# GitHub accepts at most ten minutes; its clock may differ from ours.
_EARLY_SECONDS: Final = 60
_JWT_SECONDS: Final = 540
_SPARE_SECONDS: Final = 300
_NO_KEY: Final = "is not an RSA private key in PEM format without a password; download one from the App's settings"
_TOKEN: Final = re.compile(r"[!-~]{1,4000}")


class Identity(Protocol):
    def bearer(self, installation: InstallationId | None) -> str:
        """The bearer token: for an installation, or for the App itself."""
        ...

    def forget(self, installation: InstallationId | None) -> None:
        """The token was refused: fetch a new one next time."""
        ...


def secret_in(file: Path, setting: str) -> Secret:
    """The text of a file, read on each use: such files are replaced."""

    def read() -> str:
        try:
            return file.read_text(encoding="ascii")
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not ASCII text"
            raise NeedsOperator(f"{setting}={file} cannot be read: {reason}; check the file") from error

    return read


class TokenIdentity:
    """One token for all installations. It cannot read GitHub's log of deliveries."""

    def __init__(self, token: Secret) -> None:
        self._token = token

    def bearer(self, installation: InstallationId | None) -> str:
        if installation is None:
            raise NeedsOperator("only an App can read GitHub's log of deliveries; set GITHUB_APP_ID and its key")
        token = self._token().strip()
        if not _TOKEN.fullmatch(token):
            raise NeedsOperator("the GitHub token is empty or invalid; check GITHUB_TOKEN_FILE or _PARAMETER")
        return token

    def forget(self, installation: InstallationId | None) -> None:
        """Nothing is cached: the file or parameter is read on each call."""


class _Granted(msgspec.Struct):
    token: str
    expires_at: str


class AppIdentity:
    def __init__(self, app_id: int, key: Secret, calls: GitHubCalls, clock: Clock) -> None:
        self._app_id = app_id
        self._key = key
        self._calls = calls
        self._clock = clock
        self._kept: dict[InstallationId, tuple[str, Instant]] = {}

    def bearer(self, installation: InstallationId | None) -> str:
        now = self._clock.now()
        if installation is None:
            return signed_jwt(self._app_id, self._key(), now)
        token, until = self._kept.get(installation, ("", now))
        if now < until:
            return token
        token, until = self._granted(installation, now)
        self._kept[installation] = (token, until.plus(-_SPARE_SECONDS))
        return token

    def forget(self, installation: InstallationId | None) -> None:
        if installation is not None:
            self._kept.pop(installation, None)

    def _granted(self, installation: InstallationId, now: Instant) -> tuple[str, Instant]:
        jwt = signed_jwt(self._app_id, self._key(), now)
        answer = self._calls.send("POST", f"/app/installations/{installation}/access_tokens", jwt, "the App")
        granted = self._calls.decoded(answer.body, _Granted)
        try:
            until = Instant.from_iso(granted.expires_at)
        except (ValueError, OverflowError):
            until = now  # valid for this call
        if not _TOKEN.fullmatch(granted.token):
            raise GitHubUnavailable(f"{self._calls}: returned an invalid token")
        return granted.token, until


def signed_jwt(app_id: int, key_pem: str, now: Instant) -> str:
    """A JSON web token of the App, valid for a few minutes."""
    claims = {
        "iat": now.epoch_seconds - _EARLY_SECONDS,
        "exp": now.epoch_seconds + _JWT_SECONDS,
        "iss": str(app_id),
    }
    signed = f"{_part({'alg': 'RS256', 'typ': 'JWT'})}.{_part(claims)}"
    return f"{signed}.{_base64(_rs256(signed.encode(), key_pem))}"


def _rs256(text: bytes, key_pem: str) -> bytes:
    try:
        from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
        from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
        from cryptography.hazmat.primitives.hashes import SHA256
        from cryptography.hazmat.primitives.serialization import load_pem_private_key
    except ModuleNotFoundError as error:
        raise MissingExtra("a GitHub App", error.name, "github") from error
    try:
        key = load_pem_private_key(key_pem.encode(), password=None)
    except (ValueError, TypeError) as error:  # not PEM, or with a password
        raise NeedsOperator(f"the GitHub App key {_NO_KEY}") from error
    if not isinstance(key, RSAPrivateKey):
        raise NeedsOperator(f"the GitHub App key {_NO_KEY}")
    return key.sign(text, PKCS1v15(), SHA256())


def _part(content: dict[str, object]) -> str:
    return _base64(json.dumps(content, separators=(",", ":")).encode())


def _base64(content: bytes) -> str:
    return base64.urlsafe_b64encode(content).rstrip(b"=").decode("ascii")
