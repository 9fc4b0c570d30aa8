"""The tree of errors.

    HoldfastError
    ├── Retryable            transient: a later attempt may succeed
    │   ├── WriteConflict        another writer was first; carries the current item
    │   └── StoreUnavailable     throttled, timed out, unreachable, disk full
    ├── NeedsOperator        permanent until a person acts; the message names the remedy
    │   ├── BadSetting           a setting is unknown or has a bad value (exit code 2)
    │   ├── MissingExtra         a package of an extra is not installed (exit code 2)
    │   ├── TableProblem         a table is missing, or differs from its declaration
    │   └── StoreRefused         the file is corrupt, locked, or of a newer version; or permission is denied
    └── BadRequest           the call itself is invalid and will always fail: bad item, key, update or cursor
        ├── NotFound             the requested thing does not exist, or no longer
        └── ItemTooLarge         over DynamoDB's 400 KB

Each adapter translates foreign errors in one place, always with ``raise … from``. A message names the thing, what was
expected, what was found, and what happens next. On the command line it is one line on stderr, with the exit code below.
"""

from collections.abc import Sequence
from typing import Any, ClassVar


class HoldfastError(Exception):
    """Base of all errors that Holdfast raises."""

    exit_code: ClassVar[int] = 1
    words: ClassVar[str] = "an error"  # for people: what kind of error it is


class Retryable(HoldfastError):
    """A later attempt may succeed."""

    words = "a temporary error"


class NeedsOperator(HoldfastError):
    """Fails until a person acts."""

    words = "an error that needs an operator"


class BadRequest(HoldfastError, ValueError):
    """The call itself is invalid: it fails every time, on every backend."""


class WriteConflict(Retryable):
    """A condition did not hold, so nothing was written.

    `item` is the item at the moment the condition failed (None: it did not exist). It shows without a second read who
    won, or that the caller's own earlier write had succeeded. For a transaction, `failed` says for each write whether
    its condition failed, `items` has the items of those that did (None for the others), and `item` is the first.
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
    """The store did not answer within the deadline. A write may or may not have happened."""

    words = "no answer from the store"


class BadSetting(NeedsOperator):
    """A setting is unknown or has a bad value. Nothing was touched."""

    exit_code = 2
    words = "a wrong setting"


class MissingExtra(NeedsOperator):
    """A package is not installed that only an extra of Holdfast brings. Nothing was touched."""

    exit_code = 2

    def __init__(self, what: str, package: str | None, extras: str) -> None:
        super().__init__(
            f"{what} needs {package or 'a package'}, which is not installed; "
            f"in the directory of Holdfast's source, run: pip install '.[{extras}]'"
        )


class TableProblem(NeedsOperator):
    """A table is missing, or differs from its declaration."""

    words = "a missing or different table"


class StoreRefused(NeedsOperator):
    """The store cannot be opened or used. Nothing was changed."""

    words = "a refusal by the store"


class NotFound(BadRequest):
    """The requested thing is not stored: it never existed, or it has expired."""


class ItemTooLarge(BadRequest):
    """The item is over DynamoDB's limit of 400 KB. Nothing was sent."""
