"""Servers' time, from the Date header of their responses: it shows that this machine's clock is wrong."""

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from email.utils import parsedate_to_datetime
from typing import Any

from holdfast.kernel.instants import Instant


class ServerDate:
    """The date of a server's latest response. The time since then is measured with a clock that is never set."""

    def __init__(self) -> None:
        self._seen: tuple[str, float] | None = None  # the header, and our monotonic seconds then

    def record(self, http_response: Any, **_: object) -> None:
        """A hook of a boto3 client, called with every response."""
        self.note(http_response.headers.get("date", ""))

    def note(self, header: str) -> None:
        if header:  # a proxy or a test server may omit it
            self._seen = (header, time.monotonic())

    def now(self) -> Instant | None:
        """Parsed here, and not for each response: few callers ask."""
        if self._seen is None:
            return None
        header, then = self._seen
        try:
            theirs = parsedate_to_datetime(header).timestamp()
        except (TypeError, ValueError, OverflowError):
            return None
        return Instant(int(theirs * 1000)).plus(time.monotonic() - then)


@dataclass(frozen=True, slots=True)
class ServerTimes:
    """The times of the servers that a process calls, besides EC2, whose port has its time."""

    dynamodb: ServerDate = field(default_factory=ServerDate)
    github: ServerDate = field(default_factory=ServerDate)

    def known(self) -> Mapping[str, Instant | None]:
        """The most reliable first. A GitHub server of one's own may be wrong itself."""
        return {"DynamoDB": self.dynamodb.now(), "GitHub": self.github.now()}
