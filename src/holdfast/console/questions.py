"""Questions to the store that anybody may ask who reaches the port."""

import threading
from collections.abc import Callable
from concurrent.futures import Future
from typing import Generic, TypeVar

from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.clock import Clock

T = TypeVar("T")


class Question(Generic[T]):
    """Asked once at a time, however many want to know, and not waited for longer than `patience_seconds`.

    So a store that hangs fills no pool of threads, and keeps neither a health check nor the end of the process
    waiting. An answer stays good for `fresh_seconds`, whoever asks again.
    """

    def __init__(
        self, ask: Callable[[], T], clock: Clock, *, patience_seconds: float, fresh_seconds: float = 0.0
    ) -> None:
        self._ask = ask
        self._clock = clock
        self._patience_seconds = patience_seconds
        self._fresh_seconds = fresh_seconds
        self._lock = threading.Lock()
        self._asked: Future[T] | None = None
        self._asked_at_seconds = 0.0

    def answer(self) -> T:
        """The answer, or the error that came instead of it; StoreUnavailable when it takes too long."""
        with self._lock:
            asked = self._asked
            if asked is None or (asked.done() and not self._is_fresh()):
                self._asked = asked = Future()
                self._asked_at_seconds = self._clock.monotonic_seconds()
                threading.Thread(target=self._put, args=(asked,), daemon=True).start()
        try:
            return asked.result(self._patience_seconds)
        except TimeoutError as error:
            raise StoreUnavailable(f"no answer from the store within {self._patience_seconds:g} s") from error

    def _is_fresh(self) -> bool:
        return self._clock.monotonic_seconds() - self._asked_at_seconds < self._fresh_seconds

    def _put(self, asked: "Future[T]") -> None:
        try:
            asked.set_result(self._ask())
        except BaseException as error:
            # Whatever it is, it is raised where the answer is waited for.
            asked.set_exception(error)
