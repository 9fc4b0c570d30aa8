"""Calls to the store with a timeout.

GitHub waits ten seconds for a response, and a store that is unavailable retries for longer. While S3 is the source of
truth, no webhook waits for the store.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import BoundedSemaphore, Thread
from typing import TypeVar

from holdfast.kernel.errors import StoreUnavailable

T = TypeVar("T")


class StoreTimeout:
    """A call that times out continues in its thread: its write may or may not take place, as with any lost response.

    At most `threads` calls run at once, in daemon threads: a store that hangs does not delay the end of the process.
    """

    def __init__(self, seconds: float, threads: int, name: str) -> None:
        self._seconds = seconds
        self._free = BoundedSemaphore(threads)
        self._name = name

    def __call__(self, call: Callable[[], T]) -> T:
        until = time.monotonic() + self._seconds
        if not self._free.acquire(timeout=self._seconds):
            raise StoreUnavailable(f"the store does not respond: no free thread within {self._seconds:g} s")
        answer: Future[T] = Future()
        try:
            Thread(target=self._run, args=(call, answer), name=self._name, daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise StoreUnavailable(f"no thread could be started to call the store: {error}") from error
        try:
            return answer.result(max(0.0, until - time.monotonic()))
        except TimeoutError as error:
            if answer.done() and answer.exception() is error:
                raise  # raised by the call itself
            raise StoreUnavailable(f"the store did not respond within {self._seconds:g} s") from error

    def _run(self, call: Callable[[], T], answer: "Future[T]") -> None:
        try:
            try:
                result = call()
            finally:
                self._free.release()
        except BaseException as error:
            answer.set_exception(error)
        else:
            answer.set_result(result)
