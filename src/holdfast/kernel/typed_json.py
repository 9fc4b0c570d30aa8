"""Decode JSON into typed values.

msgspec inspects a type when it creates a decoder, and caches the result in the type itself: two threads that do so at
once for types with a common struct crash the process. So all decoders are created here, under a lock.
"""

from threading import Lock
from typing import Any, TypeVar

import msgspec

T = TypeVar("T")

_making = Lock()
_made: dict[Any, msgspec.json.Decoder[Any]] = {}


def decoder(kind: type[T]) -> msgspec.json.Decoder[T]:
    """The shared decoder of this type."""
    found = _made.get(kind)
    if found is None:
        with _making:
            found = _made.setdefault(kind, msgspec.json.Decoder(kind))
    return found


def decoded(body: bytes | str | msgspec.Raw, kind: type[T]) -> T:
    """The decoded value. Raises msgspec.MsgspecError if the body is not JSON or does not match the type."""
    return decoder(kind).decode(body)
