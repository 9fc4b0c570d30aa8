"""How much JSON is taken in before anybody looks at it.

A body that GitHub signed may still hold what a stranger wrote: nested a thousand levels deep, or with a number of a
million digits. These checks run over the raw bytes, faster than parsing does, so that no parser ever sees such a body.
Repeated keys are not looked for: only one parser reads the body, so no two readers can disagree about them.
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
# An even number of quotation marks with nothing in between says nothing of what stands before and after them.
_EVEN_QUOTES: Final = (b'"' * 16, b'"' * 4, b'"' * 2)


def check_json(body: bytes) -> None:
    """Raise BadRequest if the body is not UTF-8, or past a limit. Whether it is JSON, the parser says."""
    if not body.isascii():
        try:
            body.decode()
        except UnicodeDecodeError as error:
            raise BadRequest(f"the body is not UTF-8 (at byte {error.start})") from error
    if not _is_surely_small(body):
        _check_structure(_outside_of_texts(body))


def _is_surely_small(body: bytes) -> bool:
    """Most bodies pass by this alone: of a short one, only the depth has to be known exactly."""
    return len(body) <= NODES_MOST and _LONG_NUMBER not in body.translate(_NUMBERS_AS_ZEROS) and _is_surely_flat(body)


def _check_structure(outside: bytes) -> None:
    nodes = 1 + outside.count(b",") + outside.count(b"{") + outside.count(b"[")
    if nodes > NODES_MOST:
        raise BadRequest(f"the body has {nodes} values; at most {NODES_MOST} are read")
    if _is_too_deep(outside):
        raise BadRequest(f"the body is nested deeper than {DEPTH_MOST} levels, or its brackets do not match")
    if _LONG_NUMBER in outside.translate(_NUMBERS_AS_ZEROS):
        raise BadRequest(f"the body has a number of more than {NUMBER_CHARACTERS_MOST} characters")


def _is_surely_flat(body: bytes) -> bool:
    """Whether few brackets are left when empty pairs are gone, be they in a text or not.

    No quotation mark stands within such a pair, so all of it is in a text, or all of it is one level.
    """
    marks = _unescaped(body).translate(None, _NO_MARKS)
    for quotes in _EVEN_QUOTES:
        marks = marks.replace(quotes, b"")
    left = marks.replace(b"{}", b"").replace(b"[]", b"")
    return left.count(b"{") + left.count(b"[") <= DEPTH_MOST - 2


def _unescaped(body: bytes) -> bytes:
    """The body without the quotation marks that end no text."""
    return body.replace(b"\\\\", b"").replace(b'\\"', b"") if b"\\" in body else body


def _outside_of_texts(body: bytes) -> bytes:
    """The body without what stands between quotation marks."""
    body = _unescaped(body)
    # A value has at most two texts, its key and itself. More would be split into millions of pieces, for nothing.
    if body.count(b'"') > 4 * NODES_MOST:
        raise BadRequest(f"the body has too many texts; at most {NODES_MOST} values are read")
    return b"".join(body.split(b'"')[::2])


def _is_too_deep(outside: bytes) -> bool:
    """Take away the innermost pairs, level by level: what is left after the last level was too deep."""
    brackets = outside.translate(None, _NO_BRACKETS)
    for _ in range(DEPTH_MOST):
        if not brackets:
            return False
        # By way of a dot, so that what encloses a pair is not taken away with it.
        fewer = brackets.replace(b"[]", b".").replace(b"{}", b".").replace(b".", b"")
        if len(fewer) == len(brackets):
            return True
        brackets = fewer
    return bool(brackets)
