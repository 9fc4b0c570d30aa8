"""One DynamoDB call: sent by a transport, repeated while that helps, its errors turned into ours.

The transport can be replaced; `dynamodb_boto3` is one. It sends a request once and never repeats it by itself, so that
deadlines, waits and the question "did it take place?" are answered here and nowhere else.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from holdfast.adapters.dynamodb_wire import Wire
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import (
    BadRequest,
    HoldfastError,
    ItemTooLarge,
    StoreRefused,
    StoreUnavailable,
    TableProblem,
)
from holdfast.kernel.text import one_line
from holdfast.ports.clock import Clock


class TransportError(Exception):
    """An answer that is not a success, or none at all.

    `code` is DynamoDB's, or the name of what befell the connection; `status` is HTTP's, 0 without an answer. `sent` is
    False when it is certain that the request never reached DynamoDB.
    """

    def __init__(
        self, code: str, message: str, *, status: int = 0, sent: bool = True, answer: Wire | None = None
    ) -> None:
        super().__init__(one_line(f"{code}: {message}"))
        self.code = code
        self.message = message
        self.status = status
        self.sent = sent
        self.answer: Wire = answer or {}


class Transport(Protocol):
    def call(self, operation: str, request: Wire) -> Wire:
        """Send one request, once. TransportError tells of anything but success."""
        ...

    def close(self) -> None: ...


# Refused before anything was done: asking again is always safe.
_NOT_EXECUTED: Final = frozenset(
    {
        "ProvisionedThroughputExceededException",
        "ThrottlingException",
        "Throttling",
        "RequestLimitExceeded",
        "RequestThrottled",
        "TransactionConflictException",
        "TransactionInProgressException",
    }
)
# A transaction that was cancelled for nothing but these may go through later.
_CANCELLED_FOR_NOW: Final = frozenset(
    {"None", "TransactionConflict", "ThrottlingError", "ProvisionedThroughputExceeded"}
)
_NO_ACCESS: Final = frozenset(
    {
        "AccessDeniedException",
        "ExpiredTokenException",
        "IncompleteSignature",
        "InvalidClientTokenId",
        "InvalidSignatureException",
        "MissingAuthenticationTokenException",
        "UnrecognizedClientException",
        "NoCredentialsError",
        "NoRegionError",
        "PartialCredentialsError",
    }
)


@dataclass(frozen=True, slots=True)
class Retries:
    """How long one call may take with all its tries, and how it waits between them."""

    deadline_seconds: float = 8.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_seconds=0.05, most_seconds=2.0))


class Patience:
    """Waits that grow, until a deadline."""

    def __init__(self, clock: Clock, retries: Retries, chance: random.Random) -> None:
        self._clock = clock
        self._waits = retries.backoff.waits(chance)
        self._end_seconds = clock.monotonic_seconds() + retries.deadline_seconds

    def wait(self) -> bool:
        """Wait for the next try; False, at once, when the deadline would pass meanwhile."""
        seconds = next(self._waits)
        if self._clock.monotonic_seconds() + seconds > self._end_seconds:
            return False
        self._clock.sleep(seconds)
        return True


class DynamoCalls:
    """Calls to DynamoDB as the adapters here make them."""

    def __init__(
        self, transport: Transport, clock: Clock, retries: Retries | None = None, chance: random.Random | None = None
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.retries = retries or Retries()
        self._chance = chance or random.Random()  # noqa: S311 -- spreads retries; nothing secret

    def patience(self) -> Patience:
        return Patience(self.clock, self.retries, self._chance)

    def call(self, operation: str, request: Wire, *, repeatable: bool = True, expected: Collection[str] = ()) -> Wire:
        """Ask until there is an answer, inside the deadline. Refusals that are `expected` reach the caller as they are.

        A request that is not repeatable (it adds to a number) is sent again only when it is certain that it did not
        take place: a lost answer must not count twice.
        """
        patience = self.patience()
        while True:
            try:
                return self.transport.call(operation, request)
            except TransportError as error:
                if not may_go_through_later(error):
                    if error.code in expected:
                        raise
                    raise translated(error, operation, request) from error
                if not repeatable and not did_not_take_place(error):
                    raise _unavailable(operation, request, error, "it may have taken place; not repeated") from error
                if not patience.wait():
                    limit = f"gave up after {self.retries.deadline_seconds:g} s of tries"
                    raise _unavailable(operation, request, error, limit) from error


def did_not_take_place(error: TransportError) -> bool:
    return not error.sent or error.code in _NOT_EXECUTED or error.code == "TransactionCanceledException"


def may_go_through_later(error: TransportError) -> bool:
    if error.code == "TransactionCanceledException":
        return {reason.get("Code") for reason in error.answer.get("CancellationReasons", [])} <= _CANCELLED_FOR_NOW
    return error.code in _NOT_EXECUTED or (error.status == 0 and error.code not in _NO_ACCESS) or error.status >= 500


def translated(error: TransportError, operation: str, request: Wire) -> HoldfastError:
    """The error as ours."""
    where = f"DynamoDB {operation} on {_table_names(request)}"
    if error.code == "ResourceNotFoundException":
        return TableProblem(f"{where}: no such table or index in this region and account; run: holdfast tables create")
    if error.code in _NO_ACCESS:
        return StoreRefused(f"{where}: {error}; check the credentials, the region and the role's permissions")
    reasons = [
        str(reason.get("Message")) for reason in error.answer.get("CancellationReasons", []) if reason.get("Message")
    ]
    message = one_line("; ".join(reasons) or error.message)
    if error.code in ("ValidationException", "SerializationException", "TransactionCanceledException"):
        if "Item size" in message:
            return ItemTooLarge(f"{where}: {message}; nothing was written")
        return BadRequest(f"{where}: {message}")
    return StoreRefused(f"{where}: {error}; nothing is known to help but looking at the cause")


def _unavailable(operation: str, request: Wire, error: TransportError, what_now: str) -> StoreUnavailable:
    return StoreUnavailable(f"DynamoDB {operation} on {_table_names(request)}: {error}; {what_now}")


def _table_names(request: Wire) -> str:
    if "TableName" in request:
        return str(request["TableName"])
    writes = (body for write in request.get("TransactItems", []) for body in write.values())
    names = {*request.get("RequestItems", {}), *(str(body["TableName"]) for body in writes)}
    return ", ".join(sorted(names)) or "all tables"
