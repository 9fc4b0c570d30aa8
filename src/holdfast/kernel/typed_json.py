"""JSON as values of a type.

msgspec looks into a type when its decoder is made, and notes what it found in the type itself: two threads that do so
at once, with a struct in common, crash the process. So every decoder of a type is made here, one after the other.
"""

from threading import Lock
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_making = Lock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The one decoder of this type."""
    found = _made.get(kind)
    if found is None:
        with _making:
            found = _made.setdefault(kind, msgspec.json.Decoder(kind))
    return found


def decoded(body: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """What the JSON says. msgspec.MsgspecError: it is no JSON, or says something else."""
    return decoder(kind).decode(body)
