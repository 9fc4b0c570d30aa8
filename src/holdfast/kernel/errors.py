"""What can go wrong, as one tree.

    HoldfastError
    ├── Retryable            the next look may differ: nothing to repair, try again later
    │   ├── WriteConflict        somebody else wrote first; carries the item that won
    │   └── StoreUnavailable     throttled, timed out, unreachable, disk full
    ├── NeedsOperator        stays wrong until a person acts; the message names the remedy
    │   ├── BadSetting           a setting is unknown or has a wrong value (exit code 2)
    │   ├── TableProblem         a table is missing, or differs from its declaration
    │   └── StoreRefused         a file that is corrupt, newer than us, or written by another process; no permission
    └── BadRequest           the call itself is wrong and never will be right: bad item, key, update or cursor
        ├── NotFound             what was asked for is not there, or no longer
        └── ItemTooLarge         over DynamoDB's 400 KB

Adapters turn foreign errors into these in one place each, always with ``raise … from``. A message names the
thing, what was expected, what was found, and what happens next. On the command line it is one line on stderr
and the exit code below.
"""

from collections.abc import Sequence
from typing import Any, ClassVar


class HoldfastError(Exception):
    """Every error that Holdfast raises on purpose."""

    exit_code: ClassVar[int] = 1


class Retryable(HoldfastError):
    """The next look may differ."""


class NeedsOperator(HoldfastError):
    """Stays wrong until a person acts."""


class BadRequest(HoldfastError, ValueError):
    """The call itself is wrong: the same call fails for ever, on every backend."""


class WriteConflict(Retryable):
    """A condition did not hold, so nothing was written.

    `item` is the item as it was when the condition failed (None: there was none), so that the loser learns
    without a second read who won, or that its own earlier write had already succeeded. For a transaction, `failed`
    tells for each write whether its condition failed, `items` has the items of those that did (None for the others),
    and `item` is that of the first.
    """

    def __init__(
        self,
        message: str,
        item: dict[str, Any] | None,
        *,
        items: Sequence[dict[str, Any] | None] = (),
        failed: Sequence[bool] = (),
    ) -> None:
        super().__init__(message)
        self.item = item
        self.items = tuple(items) or (item,)
        self.failed = tuple(failed) or (True,)


class StoreUnavailable(Retryable):
    """The store did not answer within the deadline. A write may or may not have taken place."""


class BadSetting(NeedsOperator):
    """A setting that is unknown or has a wrong value. Nothing was touched."""

    exit_code = 2


class TableProblem(NeedsOperator):
    """A table is missing, or is not as declared."""


class StoreRefused(NeedsOperator):
    """The store will not be opened or used like this. Nothing was changed."""


class NotFound(BadRequest):
    """What was asked for by its name is not stored: it never was, or it has expired."""


class ItemTooLarge(BadRequest):
    """The item is over DynamoDB's limit of 400 KB. Nothing was sent."""
