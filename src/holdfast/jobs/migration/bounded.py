"""Calls to the store that are waited for so long, and no longer.

GitHub waits ten seconds. A store that is away uses up more than that in tries of its own; while S3 is the source of
truth, nobody is to wait for it.
"""

from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from holdfast.kernel.errors import StoreUnavailable

T = TypeVar("T")


class Bounded:
    """A call that is given up goes on by itself: its write may take place or not, as with any answer that is lost."""

    def __init__(self, seconds: float, threads: int, name: str) -> None:
        self._seconds = seconds
        self._threads = ThreadPoolExecutor(threads, thread_name_prefix=name)

    def __call__(self, ask: Callable[[], T]) -> T:
        asked = self._threads.submit(ask)
        try:
            return asked.result(self._seconds)
        except TimeoutError as error:
            asked.cancel()  # if it still waits for a thread
            raise StoreUnavailable(f"the store did not answer within {self._seconds:g} s") from error
