"""A store that hangs holds nobody up: not who asks, nor the next one, nor the end of the process."""

import subprocess
import sys
import threading
from threading import Event

import pytest

from holdfast.jobs.migration.bounded import Bounded
from holdfast.kernel.errors import StoreUnavailable

_HANGS = """
from threading import Event
from holdfast.jobs.migration.bounded import Bounded
from holdfast.kernel.errors import StoreUnavailable
try:
    Bounded(0.01, 1, "test")(Event().wait)
except StoreUnavailable as error:
    print(error)
"""


def test_a_process_ends_although_a_call_hangs() -> None:
    ended = subprocess.run([sys.executable, "-c", _HANGS], capture_output=True, text=True, timeout=60, check=True)
    assert ended.stdout == "the store did not answer within 0.01 s\n"


def test_no_more_calls_are_under_way_than_there_is_room_for() -> None:
    bounded, answers = Bounded(0.01, 2, "test-room"), Event()
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
    assert [bounded(lambda: 7) for _ in range(3)] == [7, 7, 7], "who has answered makes room"


@pytest.mark.parametrize("error", [ValueError("no"), TimeoutError("its own"), StoreUnavailable("away")])
def test_what_the_call_raises_is_raised_and_makes_room(error: Exception) -> None:
    def fail() -> None:
        raise error

    bounded = Bounded(60, 1, "test")
    for _ in range(2):
        with pytest.raises(type(error)) as raised:
            bounded(fail)
        assert raised.value is error
