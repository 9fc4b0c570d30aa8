"""One call to the API server: sent, retried while that helps, its errors translated.

Reads are retried for a few seconds. Changes never are: the next tick is the retry, and it sees fresher facts. The
exception for both is a 401: nothing was done, and the token may just have been replaced.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.adapters.kube.transport import KubeResponse, KubeTransport, KubeTransportError, Request, Stream
from holdfast.adapters.retry_waits import RetryWaits
from holdfast.kernel import typed_json
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.kube import KubeRefused, KubeUnavailable

_ROLE: Final = "grant it with deploy/kubernetes/role.yaml"


@dataclass(frozen=True, slots=True)
class KubeRetries:
    """How long a read may be retried; the last attempt has its own timeout."""

    deadline_seconds: float = 8.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_seconds=0.1, most_seconds=2.0))


class Cause(msgspec.Struct):
    reason: str = ""
    message: str = ""
    field: str = ""


class _Details(msgspec.Struct):
    causes: list[Cause] | None = None


class _Status(msgspec.Struct):
    message: str = ""
    reason: str = ""
    code: int = 0
    details: _Details | None = None


@dataclass(frozen=True, slots=True)
class KubeRefusal:
    """The API server's explanation of a response that is not a success."""

    code: int
    message: str
    causes: tuple[Cause, ...] = ()

    @classmethod
    def read(cls, status: int, body: bytes) -> "KubeRefusal":
        """From a Status object, or from any other text, such as a proxy's error page."""
        try:
            found = _STATUS.decode(body)
        except msgspec.MsgspecError:
            return cls(status, cut(body.decode("utf-8", "replace"), 200))
        causes = tuple((found.details and found.details.causes) or ())
        return cls(found.code or status, cut(found.message or found.reason, 400), causes)

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)

    def __str__(self) -> str:
        more = "; ".join(cause.message for cause in self.causes if cause.message and cause.message not in self.message)
        return f"{self.code}: {self.message}" + (f" ({cut(more, 200)})" if more else "")


_STATUS: Final = typed_json.decoder(_Status)


class KubeCalls:
    """Calls to the API server, with retries and translated errors."""

    def __init__(
        self,
        transport: KubeTransport,
        clock: Clock,
        retries: KubeRetries | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._retries = retries or KubeRetries()
        self._chance = chance or random.Random()  # noqa: S311 -- spreads retries; nothing secret

    def read(self, request: Request, expected: Collection[int] = ()) -> KubeResponse:
        """Send until there is a response, up to the deadline. Responses with an `expected` status are returned."""
        waits = RetryWaits(self._clock, self._retries.backoff, self._retries.deadline_seconds, self._chance)
        while True:
            try:
                return self._once(request, expected)
            except _Transient as failure:
                if not waits.wait(failure.retry_after_seconds):
                    limit = f"gave up after {self._retries.deadline_seconds:g} s of retries"
                    raise KubeUnavailable(f"Kubernetes, {request}: {failure}; {limit}") from failure

    def change(self, request: Request, expected: Collection[int] = ()) -> KubeResponse:
        """Send once."""
        try:
            return self._once(request, expected)
        except _Transient as failure:
            outcome = "it was not executed" if failure.was_not_executed else "it may have been executed"
            raise KubeUnavailable(f"Kubernetes, {request}: {failure}; {outcome}, and is not retried") from failure

    def open(self, request: Request, idle_seconds: float, expected: Collection[int] = ()) -> Stream:
        """Send once, and return the response as a stream."""
        try:
            stream = self._transport.open(request, idle_seconds)
            if stream.status == 401 and self._transport.forget_token():
                stream.close()
                stream = self._transport.open(request, idle_seconds)
            if stream.status in (200, *expected):
                return stream
            refusal = KubeRefusal.read(stream.status, stream.body())
            stream.close()
        except KubeTransportError as error:
            raise failed(request, error) from error
        raise translated(request, refusal)

    def close(self) -> None:
        self._transport.close()

    def _once(self, request: Request, expected: Collection[int]) -> KubeResponse:
        try:
            answer = self._transport.send(request)
            if answer.status == 401 and self._transport.forget_token():
                answer = self._transport.send(request)
        except KubeTransportError as error:
            if error.refused:
                raise failed(request, error) from error
            raise _Transient(str(error)) from error
        if 200 <= answer.status < 300 or answer.status in expected:
            return answer
        refusal = KubeRefusal.read(answer.status, answer.body)
        if answer.status == 429 or answer.status >= 500:
            raise _Transient(str(refusal), answer.retry_after_seconds, was_not_executed=answer.status == 429)
        raise translated(request, refusal)


class _Transient(Exception):
    """No response, or a transient failure. `was_not_executed` if the request certainly had no effect."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0, *, was_not_executed: bool = False) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.was_not_executed = was_not_executed


def failed(request: Request, error: KubeTransportError) -> HoldfastError:
    """A missing response as one of our errors."""
    if error.refused:
        remedy = "check the server's URL and its CA certificate"
        return KubeRefused(f"Kubernetes, {request}: TLS failed: {error}; {remedy}")
    return KubeUnavailable(f"Kubernetes, {request}: {error}")


def translated(request: Request, refusal: KubeRefusal) -> HoldfastError:
    """A refusal as one of our errors."""
    where = f"Kubernetes, {request}: {refusal}"
    if refusal.code == 401:
        return KubeRefused(f"{where}; the token or client certificate is invalid or has expired: replace it")
    if refusal.code == 403:
        return KubeRefused(f"{where}; {_ROLE}")
    if refusal.code == 429 or refusal.code >= 500:
        return KubeUnavailable(where)
    return KubeRefused(f"{where}; unexpected, find and fix the cause")
