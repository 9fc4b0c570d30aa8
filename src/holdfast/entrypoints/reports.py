"""What follows a tick, for those who watch: a log line, metrics, notices. Nothing of it changes what the tick did."""

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from holdfast.cluster.failure import foreseen
from holdfast.cluster.plan import Ticked
from holdfast.cluster.tell import Teller, Told, told_of, told_of_error, told_of_no_dead_letters, told_of_queue
from holdfast.cluster.tick import Cluster
from holdfast.kernel.errors import HoldfastError, NeedsOperator
from holdfast.ports.notify import Notifier

_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Meters:
    """Whoever counts ticks. In Lambda nobody does: its log has them."""

    ticked: Callable[[Ticked], None] = lambda _ticked: None
    failed: Callable[[HoldfastError], None] = lambda _error: None


class Reports:
    def __init__(self, cluster: Cluster, notifiers: Sequence[Notifier], meters: Meters | None = None) -> None:
        self._clock = cluster.hands.clock
        self._teller = Teller(cluster.hands.store, cluster.senses.cluster, notifiers)
        self._meters = meters or Meters()

    def ticked(self, ticked: Ticked) -> None:
        done = ", ".join(map(str, ticked.done))
        if done:
            _log.info("tick: %s", done)
        if ticked.stopped:
            _log.warning("tick stopped: %s", ticked.stopped)
        self._meters.ticked(ticked)
        self._tell(told_of(ticked))

    def failed(self, error: HoldfastError) -> None:
        self._meters.failed(error)
        if isinstance(error, NeedsOperator):
            _log.error("tick failed: %s", error)
        else:
            _log.info("no tick: %s", error)
        self._tell([told_of_error(error)])

    def unexpected(self, error: Exception) -> None:
        """A mistake in the program. It is told like one that needs an operator: nobody else can end it."""
        _log.error("a tick failed in a way that was not foreseen", exc_info=error)
        self.failed(foreseen(error))

    def deaf(self, error: HoldfastError) -> None:
        """EC2's events cannot be read."""
        _log.warning("events: %s", error)
        self._tell([told_of_queue(error)])

    def without_dead_letters(self, queue: str) -> None:
        told = told_of_no_dead_letters(queue)
        _log.warning("events: %s", told.notice.text)
        self._tell([told])

    @contextmanager
    def of_errors(self) -> Iterator[None]:
        """Around what is called from outside: an error is told before it goes there."""
        try:
            yield
        except HoldfastError as error:
            self.failed(error)
            raise
        except Exception as error:
            self.unexpected(error)
            raise

    def _tell(self, what: Sequence[Told]) -> None:
        self._teller.tell(what, self._clock.now())
