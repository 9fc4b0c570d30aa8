"""A hanging store delays neither the caller, nor the next one, nor the exit of the process."""

import subprocess
import sys
import threading
from threading import Event

import pytest

from holdfast.jobs.migration.store_timeout import StoreTimeout
from holdfast.kernel.errors import StoreUnavailable

_HANGS = """
from threading import Event
from holdfast.jobs.migration.store_timeout import StoreTimeout
from holdfast.kernel.errors import StoreUnavailable
try:
    StoreTimeout(0.01, 1, "test")(Event().wait)
except StoreUnavailable as error:
    print(error)
"""


def test_a_process_exits_although_a_call_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "the store did not respond within 0.01 s\n"


def test_the_number_of_concurrent_calls_is_limited() -> None:
    bounded, answers = StoreTimeout(0.01, 2, "test-room"), Event()
    asked: list[int] = []

    def ask() -> None:
        asked.append(1)
        answers.wait()

    for _ in range(4):
        with pytest.raises(StoreUnavailable):
            bounded(ask)
    answers.set()
    for thread in threading.enumerate():
        if thread.name == "test-room":
            thread.join()
    assert len(asked) == 2
    bounded._seconds = 60
    assert [bounded(lambda: 7) for _ in range(3)] == [7, 7, 7], "a finished call makes room"


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own"), StoreUnavailable("away")])
def test_an_error_of_the_call_is_raised_and_makes_room(error: Exception) -> None:
    def fail() -> None:
        raise error

    bounded = StoreTimeout(60, 1, "test")
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            bounded(fail)
        assert raised.value is error
