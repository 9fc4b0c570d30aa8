"""Calls to the store that are waited for so long, and no longer.

GitHub waits ten seconds. A store that is away uses up more than that in tries of its own; while S3 is the source of
truth, nobody is to wait for it.
"""

import time
from collections.abc import Callable
from concurrent.futures import Future
from threading import BoundedSemaphore, Thread
from typing import TypeVar

from holdfast.kernel.errors import StoreUnavailable

T = TypeVar("T")


class Bounded:
    """A call that is given up goes on by itself: its write may take place or not, as with any answer that is lost.

    At most `threads` are under way. The end of the process waits for none of them: a store that hangs would hold it up.
    """

    def __init__(self, seconds: float, threads: int, name: str) -> None:
        self._seconds = seconds
        self._free = BoundedSemaphore(threads)
        self._name = name

    def __call__(self, ask: Callable[[], T]) -> T:
        until = time.monotonic() + self._seconds
        if not self._free.acquire(timeout=self._seconds):
            raise StoreUnavailable(f"the store does not answer: it was not asked within {self._seconds:g} s")
        asked: Future[T] = Future()
        try:
            Thread(target=self._answer, args=(ask, asked), name=self._name, daemon=True).start()
        except RuntimeError as error:
            self._free.release()
            raise StoreUnavailable(f"the store was not asked: {error}") from error
        try:
            return asked.result(max(0.0, until - time.monotonic()))
        except TimeoutError as error:
            if asked.done() and asked.exception() is error:
                raise  # what was asked raised it
            raise StoreUnavailable(f"the store did not answer within {self._seconds:g} s") from error

    def _answer(self, ask: Callable[[], T], asked: "Future[T]") -> None:
        try:
            try:
                told = ask()
            finally:
                self._free.release()
        except BaseException as error:
            asked.set_exception(error)
        else:
            asked.set_result(told)
