"""What a SQLite store refuses or survives when it is misused."""

import os
import signal
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from holdfast.adapters.embedded import EmbeddedStore, Transaction
from holdfast.adapters.sqlite import ApswDriver, Driver, StandardDriver, sqlite_rows
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.errors import StoreRefused, StoreUnavailable
from holdfast.ports.store import Key, attr
from holdfast.ports.store.tables import STATE

DRIVERS: dict[str, Callable[[], Driver]] = {"sqlite3": StandardDriver, "apsw": ApswDriver}


@pytest.fixture(params=list(DRIVERS))
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[EmbeddedStore]:
    clock = SystemClock()
    rows = sqlite_rows(tmp_path / "abused.db", clock, tables=[STATE], driver=DRIVERS[request.param]())
    opened = EmbeddedStore(rows, clock)
    yield opened
    opened.close()


def test_concurrent_closes_wait_for_the_write_in_progress(store: EmbeddedStore) -> None:
    """The second close must not close the file under it."""
    has_begun, may_end = threading.Event(), threading.Event()

    def work(transaction: Transaction) -> None:
        has_begun.set()
        may_end.wait(60)
        transaction.read(STATE, Key("a"))

    def write() -> None:
        store._rows.write(work)

    threads = [threading.Thread(target=target, daemon=True) for target in (write, store.close, store.close)]
    threads[0].start()
    assert has_begun.wait(60)
    for thread in threads[1:]:
        thread.start()
    may_end.set()
    for thread in threads:
        thread.join(60)
        assert not thread.is_alive()
    with pytest.raises((StoreUnavailable, StoreRefused)):
        store.put(STATE, {"pk": "late"})


def test_a_removed_file_accepts_no_more_writes(store: EmbeddedStore, tmp_path: Path) -> None:
    """Otherwise an acknowledged write could never be read again."""
    store.put(STATE, {"pk": "kept"})
    away = tmp_path / "away.db"
    (tmp_path / "abused.db").rename(away)
    with pytest.raises(StoreRefused, match="removed or replaced"):
        store.put(STATE, {"pk": "lost"})
    away.rename(tmp_path / "abused.db")
    store.put(STATE, {"pk": "again"})
    assert store.get(STATE, Key("kept")) is not None


def test_a_file_with_two_names_is_refused(store: EmbeddedStore, tmp_path: Path) -> None:
    """Each name would have its own log and lock."""
    store.close()
    os.link(tmp_path / "abused.db", tmp_path / "other.db")
    with pytest.raises(StoreRefused, match="2 names"):
        sqlite_rows(tmp_path / "other.db", SystemClock(), tables=[STATE])


def test_a_write_from_a_signal_handler_within_a_write_is_refused_and_does_not_hang(store: EmbeddedStore) -> None:
    refused: list[Exception] = []

    def handler(*_: object) -> None:
        try:
            store.put(STATE, {"pk": "from the handler"})
        except StoreRefused as error:
            refused.append(error)

    before = signal.signal(signal.SIGUSR1, handler)
    try:
        store._rows.write(lambda _: signal.raise_signal(signal.SIGUSR1))
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 1
    store.update(STATE, Key("a"), attr("n").plus(1))


def test_a_write_from_a_signal_handler_while_another_write_waits_is_refused(store: EmbeddedStore) -> None:
    """The waiting thread is needed to wake or lead the others: it cannot wait a second time."""
    is_leading, may_end, is_handled = threading.Event(), threading.Event(), threading.Event()
    refused: list[Exception] = []

    def lead(_: Transaction) -> None:
        is_leading.set()
        may_end.wait(60)

    def interrupt_the_waiting_thread() -> None:
        while not store._rows._writer._queue:  # type: ignore[attr-defined]
            os.sched_yield()
        # Again and again: a signal that arrives just before the thread blocks does not wake it.
        while not is_handled.wait(0.01):
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGUSR1)

    def handler(*_: object) -> None:
        if is_handled.is_set():
            return
        is_handled.set()
        try:
            store.put(STATE, {"pk": "from the handler"})
        except StoreRefused as error:
            refused.append(error)
        may_end.set()

    before = signal.signal(signal.SIGUSR1, handler)
    threads = [
        threading.Thread(target=store._rows.write, args=(lead,)),
        threading.Thread(target=interrupt_the_waiting_thread),
    ]
    try:
        threads[0].start()
        is_leading.wait(60)
        threads[1].start()
        store.put(STATE, {"pk": "a"})
    finally:
        for thread in threads:
            thread.join()
        signal.signal(signal.SIGUSR1, before)
    assert len(refused) == 1
    assert store.get(STATE, Key("a")) is not None
    assert store.get(STATE, Key("from the handler")) is None


def test_a_fork_of_the_process_is_refused_instead_of_hanging(store: EmbeddedStore) -> None:
    store.put(STATE, {"pk": "a"})
    writer = store._rows._writer  # type: ignore[attr-defined]
    writer._process = os.getpid() + 1  # as a forked child sees it; a real fork of a test worker has side effects
    with pytest.raises(StoreRefused, match="forked"):
        store.put(STATE, {"pk": "b"})
    writer._process = os.getpid()
    assert store.get(STATE, Key("b")) is None
