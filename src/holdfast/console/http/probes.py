"""Store checks that unauthenticated clients can trigger."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.clock import Clock

T = TypeVar("T")


class StoreProbe(Generic[T]):
    """Runs one check at a time for all callers, who wait at most `patience_seconds`.

    A store that hangs therefore exhausts no thread pool and delays neither a health check nor the shutdown. A result is
    reused for `fresh_seconds`.
    """

    def __init__(
        self, check: Callable[[], T], clock: Clock, *, patience_seconds: float, fresh_seconds: float = 0.0
    ) -> None:
        self._check = check
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._running: Future[T] | None = None
        self._started_at_seconds = 0.0

    def answer(self) -> T:
        """The result or the error of the check; StoreUnavailable if it takes too long."""
        with self._lock:
            running = self._running
            if running is None or (running.done() and not self._is_fresh()):
                self._running = running = Future()
                self._started_at_seconds = self._clock.monotonic_seconds()
                threading.Thread(target=self._run, args=(running,), daemon=True).start()
        try:
            return running.result(self._patience_seconds)
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer from the store within {self._patience_seconds:g} s") from error

    def _is_fresh(self) -> bool:
        return self._clock.monotonic_seconds() - self._started_at_seconds < self._fresh_seconds

    def _run(self, result: "Future[T]") -> None:
        try:
            result.set_result(self._check())
        except BaseException as error:
            # Raised again in the waiting caller.
            result.set_exception(error)
