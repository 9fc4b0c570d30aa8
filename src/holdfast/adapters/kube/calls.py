"""One call to the API server: sent, repeated while that helps, its errors turned into ours.

Reads are repeated for a few seconds. Changes never are: the next tick is the retry, and it sees fresher facts. An
answer of 401 is the one exception for both, since nothing was done and the token may just have been replaced.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final

import msgspec

from holdfast.adapters.kube.transport import Answer, Request, Stream, Transport, TransportError
from holdfast.kernel import typed_json
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.kube import KubeRefused, KubeUnavailable

_ROLE: Final = "grant it with deploy/kubernetes/role.yaml"


@dataclass(frozen=True, slots=True)
class Retries:
    """How long a read may take with all its tries, not counting the last one's own time limit."""

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
class Refusal:
    """What the API server says with an answer that is not a success."""

    code: int
    message: str
    causes: tuple[Cause, ...] = ()

    @classmethod
    def read(cls, status: int, body: bytes) -> "Refusal":
        """Its Status, or what else it sent: a proxy in between answers with a page."""
        try:
            told = _STATUS.decode(body)
        except msgspec.MsgspecError:
            return cls(status, cut(body.decode("utf-8", "replace"), 200))
        causes = tuple((told.details and told.details.causes) or ())
        return cls(told.code or status, cut(told.message or told.reason, 400), causes)

    def has_cause(self, reason: str) -> bool:
        return any(cause.reason == reason for cause in self.causes)

    def __str__(self) -> str:
        more = "; ".join(cause.message for cause in self.causes if cause.message and cause.message not in self.message)
        return f"{self.code}: {self.message}" + (f" ({cut(more, 200)})" if more else "")


_STATUS: Final = typed_json.decoder(_Status)


class KubeCalls:
    """Calls to the API server as the client here makes them."""

    def __init__(
        self, transport: Transport, clock: Clock, retries: Retries | None = None, chance: random.Random | None = None
    ) -> None:
        self._transport = transport
        self._clock = clock
        self._retries = retries or Retries()
        self._chance = chance or random.Random()  # noqa: S311 -- spreads retries; nothing secret

    def read(self, request: Request, expected: Collection[int] = ()) -> Answer:
        """Ask until there is an answer, inside the deadline. Those that are `expected` reach the caller as they are."""
        waits = self._retries.backoff.waits(self._chance)
        end_seconds = self._clock.monotonic_seconds() + self._retries.deadline_seconds
        while True:
            try:
                return self._once(request, expected)
            except _MayPass as told:
                wait_seconds = max(next(waits), told.retry_after_seconds)
                if self._clock.monotonic_seconds() + wait_seconds > end_seconds:
                    limit = f"gave up after {self._retries.deadline_seconds:g} s of tries"
                    raise KubeUnavailable(f"Kubernetes, {request}: {told}; {limit}") from told
                self._clock.sleep(wait_seconds)

    def change(self, request: Request, expected: Collection[int] = ()) -> Answer:
        """Ask once."""
        try:
            return self._once(request, expected)
        except _MayPass as told:
            outcome = "it was not done" if told.is_turned_away else "it may have been done"
            raise KubeUnavailable(f"Kubernetes, {request}: {told}; {outcome}, and is not repeated") from told

    def open(self, request: Request, idle_seconds: float, expected: Collection[int] = ()) -> Stream:
        """Ask once for an answer that goes on."""
        try:
            stream = self._transport.open(request, idle_seconds)
            if stream.status == 401 and self._transport.forget_token():
                stream.close()
                stream = self._transport.open(request, idle_seconds)
            if stream.status in (200, *expected):
                return stream
            refusal = Refusal.read(stream.status, stream.body())
            stream.close()
        except TransportError as error:
            raise failed(request, error) from error
        raise translated(request, refusal)

    def close(self) -> None:
        self._transport.close()

    def _once(self, request: Request, expected: Collection[int]) -> Answer:
        try:
            answer = self._transport.send(request)
            if answer.status == 401 and self._transport.forget_token():
                answer = self._transport.send(request)
        except TransportError as error:
            if error.refused:
                raise failed(request, error) from error
            raise _MayPass(str(error)) from error
        if 200 <= answer.status < 300 or answer.status in expected:
            return answer
        refusal = Refusal.read(answer.status, answer.body)
        if answer.status == 429 or answer.status >= 500:
            raise _MayPass(str(refusal), answer.retry_after_seconds, is_turned_away=answer.status == 429)
        raise translated(request, refusal)


class _MayPass(Exception):
    """No answer, or one that says: not now. `is_turned_away` when it is certain that nothing was done."""

    def __init__(self, message: str, retry_after_seconds: float = 0.0, *, is_turned_away: bool = False) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds
        self.is_turned_away = is_turned_away


def failed(request: Request, error: TransportError) -> HoldfastError:
    """No answer, as an error of ours."""
    if error.refused:
        remedy = "check the server's address and the CA that it is to be recognised by"
        return KubeRefused(f"Kubernetes, {request}: not the server that was expected: {error}; {remedy}")
    return KubeUnavailable(f"Kubernetes, {request}: {error}")


def translated(request: Request, refusal: Refusal) -> HoldfastError:
    """A refusal as an error of ours."""
    where = f"Kubernetes, {request}: {refusal}"
    if refusal.code == 401:
        return KubeRefused(f"{where}; the token or client certificate is unknown or has expired: give a valid one")
    if refusal.code == 403:
        return KubeRefused(f"{where}; {_ROLE}")
    if refusal.code == 429 or refusal.code >= 500:
        return KubeUnavailable(where)
    return KubeRefused(f"{where}; nothing is known to help but looking at the cause")
