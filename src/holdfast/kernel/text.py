"""Text for people. Untrusted text is made safe to show: one line, no control characters, limited length."""


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


def age(seconds: int) -> str:
    """``2 d 3 h``, ``3 h 12 min``, ``40 s``: the two largest units."""
    parts = []
    for unit, size in (("d", 86400), ("h", 3600), ("min", 60), ("s", 1)):
        count, seconds = divmod(seconds, size)
        if count:
            parts.append(f"{count} {unit}")
    return " ".join(parts[:2]) or "0 s"
