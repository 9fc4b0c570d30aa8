"""One DynamoDB call: sent by a transport, retried while that helps, its errors translated.

A transport sends a request once and never retries it, so that deadlines, waits and unknown outcomes are handled only
here.
"""

import random
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Final, Protocol

from holdfast.adapters.dynamodb.wire import Wire
from holdfast.adapters.retry_waits import RetryWaits
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


class DynamoTransportError(Exception):
    """A response that is not a success, or no response.

    `code` is DynamoDB's, or the name of the connection error; `status` is HTTP's, 0 without a response. `sent` is False
    if the request certainly never reached DynamoDB.
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


class DynamoTransport(Protocol):
    def call(self, operation: str, request: Wire) -> Wire:
        """Send one request, once. Raises DynamoTransportError for anything but success."""
        ...

    def close(self) -> None: ...


# Refused before execution: a retry is always safe.
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
# A transaction that was cancelled only for these reasons may succeed later.
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
class DynamoRetries:
    """How long one call may take with all its attempts, and how it waits between them."""

    deadline_seconds: float = 8.0
    backoff: Backoff = field(default_factory=lambda: Backoff(first_seconds=0.05, most_seconds=2.0))


class DynamoCalls:
    """Calls to DynamoDB, with retries and translated errors."""

    def __init__(
        self,
        transport: DynamoTransport,
        clock: Clock,
        retries: DynamoRetries | None = None,
        chance: random.Random | None = None,
    ) -> None:
        self.transport = transport
        self.clock = clock
        self.retries = retries or DynamoRetries()
        self._chance = chance or random.Random()  # noqa: S311 -- spreads retries; nothing secret

    def retry_waits(self) -> RetryWaits:
        return RetryWaits(self.clock, self.retries.backoff, self.retries.deadline_seconds, self._chance)

    def call(self, operation: str, request: Wire, *, repeatable: bool = True, expected: Collection[str] = ()) -> Wire:
        """Send until there is a response, up to the deadline. Errors with an `expected` code are not translated.

        A request that is not repeatable (it adds to a number) is retried only if it certainly was not executed: a lost
        response must not count twice.
        """
        waits = self.retry_waits()
        while True:
            try:
                return self.transport.call(operation, request)
            except DynamoTransportError as error:
                if not is_transient(error):
                    if error.code in expected:
                        raise
                    raise translated(error, operation, request) from error
                if not repeatable and not was_not_executed(error):
                    raise _unavailable(operation, request, error, "it may have been executed; not retried") from error
                if not waits.wait():
                    limit = f"gave up after {self.retries.deadline_seconds:g} s of retries"
                    raise _unavailable(operation, request, error, limit) from error


def was_not_executed(error: DynamoTransportError) -> bool:
    return not error.sent or error.code in _NOT_EXECUTED or error.code == "TransactionCanceledException"


def is_transient(error: DynamoTransportError) -> bool:
    if error.code == "TransactionCanceledException":
        return {reason.get("Code") for reason in error.answer.get("CancellationReasons", [])} <= _CANCELLED_FOR_NOW
    return error.code in _NOT_EXECUTED or (error.status == 0 and error.code not in _NO_ACCESS) or error.status >= 500


def translated(error: DynamoTransportError, operation: str, request: Wire) -> HoldfastError:
    """The error as one of ours."""
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
        if "specified index" in message or "backfilling" in message:
            return TableProblem(f"{where}: {message}; if it is not being rebuilt, run: holdfast tables create")
        return BadRequest(f"{where}: {message}")
    return StoreRefused(f"{where}: {error}; unexpected, find and fix the cause")


def _unavailable(operation: str, request: Wire, error: DynamoTransportError, what_now: str) -> StoreUnavailable:
    return StoreUnavailable(f"DynamoDB {operation} on {_table_names(request)}: {error}; {what_now}")


def _table_names(request: Wire) -> str:
    if "TableName" in request:
        return str(request["TableName"])
    writes = (body for write in request.get("TransactItems", []) for body in write.values())
    names = {*request.get("RequestItems", {}), *(str(body["TableName"]) for body in writes)}
    return ", ".join(sorted(names)) or "all tables"
