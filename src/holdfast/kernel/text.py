"""Text for people. Untrusted text is made safe to show: one line, no control characters, limited length."""

from decimal import Decimal
from math import floor, log10
from typing import Final

_DIGITS_MOST: Final = 6  # of a dollar


def one_line(text: str) -> str:
    """The text with line breaks, control characters and lone surrogates escaped."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() else c.encode("unicode_escape").decode("ascii") for c in text)


def cut(text: str, most: int = 60) -> str:
    """One line of at most `most` characters, with an ellipsis if it was longer."""
    line = one_line(text)
    return line if len(line) <= most else f"{line[:most]}…"


def some(number: int, what: str) -> str:
    """``1 pod``, ``2 pods``."""
    return f"{number} {what}" if number == 1 else f"{number} {what}s"


def dollars(amount: float | Decimal) -> str:
    """With cents, and below ten cents with two digits that count: ``1,234.50``, ``0.49``, ``0.042``, ``0.0034``."""
    digits = 2 if not amount else min(_DIGITS_MOST, max(2, 1 - floor(log10(abs(float(amount))))))
    whole, _, part = f"{amount:,.{digits}f}".partition(".")
    return f"{whole}.{part[:2]}{part[2:].rstrip('0')}"


def age(seconds: int) -> str:
    """``2 d 3 h``, ``3 h 12 min``, ``40 s``: the two largest units."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
