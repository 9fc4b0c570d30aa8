"""Log lines that would repeat with every tick: an outage of an hour must not fill the log."""

import logging
import re
from typing import Final

from holdfast.kernel.instants import Instant
from holdfast.kernel.text import some
from holdfast.ports.clock import Clock

REPEAT_SECONDS: Final = 600.0
_NUMBER: Final = re.compile(r"\d+")


class FoldedLines:
    """Logs a line that differs from the last one; the same line again after ten minutes, with its count.

    Two lines that differ only in numbers (seconds, times, ports) count as the same.
    """

    def __init__(self, log: logging.Logger, clock: Clock) -> None:
        self._log = log
        self._clock = clock
        self._last = ""
        self._level = logging.NOTSET
        self._count = 0
        self._logged = Instant(0)

    def log(self, level: int, line: str) -> None:
        now, last = self._clock.now(), _NUMBER.sub("#", line)
        is_same = last == self._last
        self._count = self._count + 1 if is_same else 1
        # A clock that was set back must not silence the log.
        if is_same and 0 <= now.seconds_since(self._logged) < REPEAT_SECONDS:
            self._log.debug("%s", line)
            return
        times = f" ({self._count} times in a row)" if is_same else ""
        self._log.log(level, "%s%s", line, times)
        self._last, self._level, self._logged = last, level, now

    def is_over(self, line: str) -> None:
        """Log `line` if the last one was a warning or an error, and start over."""
        if self._level >= logging.WARNING:
            self._log.info("%s, after %s", line, some(self._count, "failure"))
        self._last, self._level, self._count = "", logging.NOTSET, 0
