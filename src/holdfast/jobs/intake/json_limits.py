"""Limits on JSON, checked before it is parsed.

A body that GitHub signed may still contain text of strangers: nested a thousand levels deep, or with a number of a
million digits. These checks scan the raw bytes, faster than parsing, so that no parser ever sees such a body.
Repeated keys are not checked: only one parser reads the body, so no two readers can disagree about them.
"""

from typing import Final

from holdfast.kernel.errors import BadRequest

BODY_BYTES_MOST: Final = 25 * 1024 * 1024  # GitHub sends no more
DEPTH_MOST: Final = 32
NODES_MOST: Final = 50_000
NUMBER_CHARACTERS_MOST: Final = 20

_LONG_NUMBER: Final = b"0" * (NUMBER_CHARACTERS_MOST + 1)
_NUMBERS_AS_ZEROS: Final = bytes(ord("0") if byte in b"0123456789+-.eE" else ord(" ") for byte in range(256))
_NO_BRACKETS: Final = bytes(set(range(256)) - set(b"[]{}"))
_NO_MARKS: Final = bytes(set(range(256)) - set(b'"[]{}'))
# An even number of adjacent quotation marks does not change whether what follows is inside a text.
_EVEN_QUOTES: Final = (b'"' * 16, b'"' * 4, b'"' * 2)


def check_json(body: bytes) -> None:
    """Raise BadRequest if the body is not UTF-8 or exceeds a limit. Whether it is valid JSON is left to the parser."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"the body is not UTF-8 (at byte {error.start})") from error
    if not _is_surely_small(body):
        _check_structure(_outside_of_texts(body))


def _is_surely_small(body: bytes) -> bool:
    """Most bodies pass by this check alone: a short body can only be too deep, or have a long number."""
    return len(body) <= NODES_MOST and _LONG_NUMBER not in body.translate(_NUMBERS_AS_ZEROS) and _is_surely_flat(body)


def _check_structure(outside: bytes) -> None:
    nodes = 1 + outside.count(b",") + outside.count(b"{") + outside.count(b"[")
    if nodes > NODES_MOST:
        raise BadRequest(f"the body has {nodes} values; at most {NODES_MOST} are allowed")
    if _is_too_deep(outside):
        raise BadRequest(f"the body is nested deeper than {DEPTH_MOST} levels, or its brackets do not match")
    if _LONG_NUMBER in outside.translate(_NUMBERS_AS_ZEROS):
        raise BadRequest(f"the body has a number of more than {NUMBER_CHARACTERS_MOST} characters")


def _is_surely_flat(body: bytes) -> bool:
    """Whether few brackets are left once empty pairs are removed, inside texts or not.

    No quotation mark is within such a pair, so the whole pair is inside a text, or is one level.
    """
    marks = _unescaped(body).translate(None, _NO_MARKS)
    for quotes in _EVEN_QUOTES:
        marks = marks.replace(quotes, b"")
    left = marks.replace(b"{}", b"").replace(b"[]", b"")
    return left.count(b"{") + left.count(b"[") <= DEPTH_MOST - 2


def _unescaped(body: bytes) -> bytes:
    """The body without escaped quotation marks."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _outside_of_texts(body: bytes) -> bytes:
    """The body without its quoted texts."""
    body = _unescaped(body)
    # A value has at most two texts, its key and itself. More are refused before they are split into millions of pieces.
    if body.count(b'"') > 4 * NODES_MOST:
        raise BadRequest(f"the body has too many texts; at most {NODES_MOST} values are allowed")
    return b"".join(body.split(b'"')[::2])


def _is_too_deep(outside: bytes) -> bool:
    """Remove the innermost pairs, level by level: anything left after the last level is too deep."""
    brackets = outside.translate(None, _NO_BRACKETS)
    for _ in range(DEPTH_MOST):
        if not brackets:
            return False
        # Through a dot, so that the brackets around a pair are not removed in the same pass.
        fewer = brackets.replace(b"[]", b".").replace(b"{}", b".").replace(b".", b"")
        if len(fewer) == len(brackets):
            return True
        brackets = fewer
    return bool(brackets)
