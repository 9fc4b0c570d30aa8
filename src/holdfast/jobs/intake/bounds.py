"""Text from webhooks, cut to fit into an item. A job's item stays under 4 KB whatever a webhook contains."""

import re
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, Final

from holdfast.jobs.intake.payloads import UnusablePayload
from holdfast.kernel.text import cut
from holdfast.ports.store.values import value_bytes

MARK: Final = "…"  # the end of a text that was cut
_MARK_BYTES: Final = 30  # of a mark as a property, and of the attribute's own name
NAME_BYTES_MOST: Final = 200
BRANCH_BYTES_MOST: Final = 100
SHA_BYTES_MOST: Final = 64
LABELS_MOST: Final = 64
LABEL_BYTES_MOST: Final = 256
LABELS_BYTES_MOST: Final = 800
# What every webhook repeats. The rest of the 4 KB is for what happens to the job: runner, machines, marks.
IDENTITY_BYTES_MOST: Final = 1990
_REPOSITORY: Final = re.compile(r"[A-Za-z0-9_-]{1,64}/(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}")


def bounded(text: str, most_bytes: int = NAME_BYTES_MOST) -> str:
    """The text if it is short, otherwise its beginning and a mark."""
    if len(text) * 4 <= most_bytes or len(text.encode()) <= most_bytes:
        return text
    room = most_bytes - len(MARK.encode())
    return text.encode()[:room].decode(errors="ignore") + MARK


@lru_cache(maxsize=1024)
def is_repository_name(text: str) -> bool:
    """Whether GitHub allows it as owner/name. It becomes part of a key, so nothing else is accepted."""
    return _REPOSITORY.fullmatch(text) is not None


def repository_name(full_name: str) -> str:
    """The name, checked."""
    if not is_repository_name(full_name):
        raise UnusablePayload(f"repository {cut(full_name)!r}: expected owner/name")
    return full_name


def labels(found: Sequence[str]) -> list[str]:
    whole = "".join(found)
    if len(found) <= LABELS_MOST and len(whole) <= LABEL_BYTES_MOST and whole.isascii():
        return list(found)  # the usual case: no label can be too long
    kept: list[str] = []
    room = LABELS_BYTES_MOST
    for label in found:
        text = bounded(label, LABEL_BYTES_MOST)
        room -= len(text) if text.isascii() else len(text.encode())
        if len(kept) == LABELS_MOST or room < 0:
            return [*kept, MARK]
        kept.append(text)
    return kept


def properties(found: Any, room: int) -> dict[str, Any]:
    """A repository's custom properties (text, flags, whole numbers, lists of text), as many as fit into the room."""
    kept: dict[str, Any] = {}
    room -= _MARK_BYTES
    for name, value in sorted(found.items()) if isinstance(found, Mapping) else ():
        plain = _plain(value)
        if plain is None or not name:
            continue
        one = {bounded(str(name)): plain}
        room -= value_bytes(one)
        if room < 0:
            return {**kept, MARK: MARK}
        kept |= one
    return kept


def _plain(value: Any) -> Any:
    if isinstance(value, str):
        return bounded(value)
    if isinstance(value, list):
        return [bounded(element) for element in value if isinstance(element, str)]
    return value if isinstance(value, bool | int) else None
