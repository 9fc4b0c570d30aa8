"""Parameters of a URL or a command line: names and texts, none of them trusted.

Unknown parameters are refused, never ignored: a mistyped filter would show far too much.
"""

import re
from collections.abc import Mapping
from datetime import date
from typing import Final

from holdfast.jobs.intake.bounds import repository_name
from holdfast.jobs.intake.payloads import UnusablePayload
from holdfast.jobs.model.facts import Status
from holdfast.jobs.read.queries import LIMIT_MOST, Paging, Span
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut

TEXT_MOST: Final = 1000
CURSOR_MOST: Final = 8000
# ASCII digits only: int() would accept those of other alphabets, and any number of them.
_NUMBER: Final = re.compile(r"[0-9]{1,19}", re.ASCII)
_NUMBER_MOST: Final = 2**63 - 1  # of GitHub's ids: as large as can be stored
_DAY: Final = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}", re.ASCII)
_WORD: Final = re.compile(r"[a-z_]{1,40}", re.ASCII)


def number(name: str, text: str) -> int:
    """An id, an attempt or a count."""
    if not _NUMBER.fullmatch(text) or int(text) > _NUMBER_MOST:
        raise BadRequest(f"{name} {cut(text)!r} is not a number; for example 12345678")
    return int(text)


def _expected(names: tuple[str, ...]) -> str:
    if not names:
        return "none is expected"
    *others, last = names
    return f"expected {', '.join(others)} or {last}" if others else f"expected {last}"


class QueryParams:
    """The parameters of one request."""

    def __init__(self, params: Mapping[str, str], *known: str) -> None:
        unknown = sorted(set(params) - set(known))
        if unknown:
            raise BadRequest(f"unknown parameter {cut(unknown[0])!r}; {_expected(known)}")
        self._params = params

    def text(self, name: str, most: int = TEXT_MOST) -> str | None:
        found = self._params.get(name)
        if found is not None and not 1 <= len(found) <= most:
            raise BadRequest(f"{name}: expected 1 to {most} characters, not {len(found)}")
        return found

    def texts(self, *names: str) -> dict[str, str]:
        """Those of them that are present."""
        found = {name: self.text(name) for name in names}
        return {name: text for name, text in found.items() if text is not None}

    def number(self, name: str) -> int | None:
        found = self._params.get(name)
        return None if found is None else number(name, found)

    def time(self, name: str) -> Instant | None:
        found = self.text(name)
        try:
            return None if found is None else Instant.from_iso(found)
        except ValueError as error:
            raise BadRequest(f"{name} {cut(found or '')!r}: expected a time, such as 2026-01-15T10:00:00Z") from error

    def span(self) -> Span:
        span = Span(self.time("since"), self.time("until"))
        span.sort_range()  # an empty span is refused here, before anything is read
        return span

    def paging(self, *, is_newest_first: bool = True) -> Paging:
        return Paging(self.limit(LIMIT_MOST, 50), self.cursor(), is_newest_first=is_newest_first)

    def cursor(self) -> str | None:
        return self.text("cursor", CURSOR_MOST)

    def limit(self, most: int, default: int) -> int:
        found = self.number("limit")
        if found is not None and not 1 <= found <= most:
            raise BadRequest(f"limit {found}: expected 1 to {most}")
        return found or default

    def status(self) -> Status | None:
        found = self.text("status")
        if found is not None and found not in set(Status):
            raise BadRequest(f"status {cut(found)!r}: expected one of {', '.join(Status)}")
        return None if found is None else Status(found)

    def repository(self) -> str | None:
        found = self.text("repo")
        try:
            return None if found is None else repository_name(found)
        except UnusablePayload as error:
            raise BadRequest(str(error)) from error

    def day(self) -> str | None:
        found = self.text("day")
        if found is not None and not (_DAY.fullmatch(found) and _is_day(found)):
            raise BadRequest(f"day {cut(found)!r}: expected a date, such as 2026-01-15")
        return found

    def event_type(self) -> str | None:
        found = self.text("event_type")
        if found is not None and not _WORD.fullmatch(found):
            raise BadRequest(f"event_type {cut(found)!r}: expected a type, such as runner_scheduled")
        return found


def _is_day(text: str) -> bool:
    try:
        date.fromisoformat(text)
    except ValueError:
        return False
    return True
