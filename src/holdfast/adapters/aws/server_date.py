"""AWS's time, from the Date header of its responses: it shows that this machine's clock is wrong."""

import time
from email.utils import parsedate_to_datetime
from typing import Any

from holdfast.kernel.instants import Instant


class ServerDate:
    """The date of the latest response. The time since then is measured with a clock that is never set."""

    def __init__(self) -> None:
        self._seen: tuple[Instant, float] | None = None  # their time, and our monotonic seconds then

    def record(self, http_response: Any, **_: object) -> None:
        """A hook of a boto3 client, called with every response."""
        try:
            theirs = parsedate_to_datetime(http_response.headers["date"])
        except (LookupError, TypeError, ValueError, AttributeError):
            return  # a proxy or a test server may omit it
        self._seen = (Instant(int(theirs.timestamp() * 1000)), time.monotonic())

    def now(self) -> Instant | None:
        if self._seen is None:
            return None
        theirs, then = self._seen
        return theirs.plus(time.monotonic() - then)
