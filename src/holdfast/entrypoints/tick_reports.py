"""What follows a tick: a log line, metrics and notifications. None of it affects the tick."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.cluster.notifications import (
    announcement_of_no_dead_letters,
    announcement_of_queue_error,
    announcements_of,
)
from holdfast.cluster.plan import TickResult
from holdfast.cluster.tick import Cluster
from holdfast.control.failures import as_our_error
from holdfast.control.lease import LeaseHeld
from holdfast.control.notifications import Announcement, NotificationSender, announcement_of_error
from holdfast.entrypoints.folded_lines import FoldedLines
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.ports.notify import Notifier

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class TickCallbacks:
    """Called after each tick, for metrics and pages. Lambda has neither."""

    ticked: Callable[[TickResult], None] = lambda _ticked: None
    failed: Callable[[HoldfastError], None] = lambda _error: None


class TickReports:
    """Logs, counts and announces the outcome of ticks."""

    def __init__(self, cluster: Cluster, notifiers: Sequence[Notifier], callbacks: TickCallbacks | None = None) -> None:
        self._clock = cluster.writes.clock
        self._notifications = NotificationSender(cluster.writes.store, cluster.reads.cluster, notifiers)
        self._callbacks = callbacks or TickCallbacks()
        self._problems = FoldedLines(_log, self._clock)
        self._queue_problems = FoldedLines(_log, self._clock)

    def ticked(self, ticked: TickResult) -> None:
        done = ", ".join(map(str, ticked.done))
        if done:
            _log.info("tick: %s", done)
        if ticked.stopped:
            level = logging.WARNING if ticked.has_failed else logging.INFO
            self._problems.log(level, f"tick stopped: {ticked.stopped}")
        else:
            self._problems.is_over("a tick succeeded again")
        self._callbacks.ticked(ticked)
        self._notify(announcements_of(ticked))

    def failed(self, error: HoldfastError) -> None:
        self._callbacks.failed(error)
        if isinstance(error, LeaseHeld):
            self._problems.log(logging.INFO, f"tick skipped: {error}")
        elif isinstance(error, NeedsOperator):
            self._problems.log(logging.ERROR, f"tick failed: {error}")
        else:
            self._problems.log(logging.WARNING, f"tick failed: {error}; the next tick is the retry")
        self._notify([announcement_of_error(error)])

    def failed_unexpectedly(self, error: Exception) -> None:
        """A bug. Reported like an error that needs an operator: it will not go away by itself."""
        _log.error("a tick failed with an unexpected error", exc_info=error)
        self.failed(as_our_error(error))

    def queue_failed(self, error: HoldfastError) -> None:
        """The queue of EC2 events cannot be read."""
        self._queue_problems.log(logging.WARNING, f"EC2 events: {error}")
        self._notify([announcement_of_queue_error(error)])

    def no_dead_letter_queue(self, queue: str) -> None:
        announcement = announcement_of_no_dead_letters(queue)
        _log.warning("EC2 events: %s", announcement.notification.text)
        self._notify([announcement])

    @contextmanager
    def reporting_errors(self) -> Iterator[None]:
        """Report an error before it reaches the caller."""
        try:
            yield
        except HoldfastError as error:
            self.failed(error)
            raise
        except Exception as error:
            self.failed_unexpectedly(error)
            raise

    def _notify(self, announcements: Sequence[Announcement]) -> None:
        self._notifications.send(announcements, self._clock.now())
