"""Group commit: which writers share a transaction, whose failure affects whom, and what remains of it."""

import gc
import os
import sqlite3
import subprocess
import sys
import threading
import weakref
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.embedded import Transaction
from holdfast.adapters.sqlite import Driver, StandardDriver, Tuning
from holdfast.adapters.sqlite.driver import Connection, Mode
from holdfast.kernel.errors import BadRequest, StoreRefused, StoreUnavailable, WriteConflict
from holdfast.ports.store import Item, Key, PutItem, Query, attr
from tests.clocks import StillClock
from tests.unit.adapters.sqlite.cases import DRIVERS, FLAGS, THINGS, OpenStore, thing

by_driver = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def opened(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[OpenStore]:
    with OpenStore(tmp_path / "holdfast.db", request.param) as opened:
        yield opened


def counted(opened: OpenStore, name: str) -> int:
    item = opened.store.get(FLAGS, Key(name))
    return item["count"] if item else 0


def count_up(opened: OpenStore, name: str) -> None:
    opened.store.update(FLAGS, Key(name), attr("count").plus(1))


def put_flag(transaction: Transaction, item: Item) -> None:
    transaction.replace(FLAGS, Key(item["pk"]), transaction.read(FLAGS, Key(item["pk"])), item)


def wait_for_queue(opened: OpenStore, writers: int) -> None:
    writer = opened.rows._writer
    assert writer is not None
    while len(writer._queue) < writers:
        os.sched_yield()


class Crowd:
    """Writers that wait for the same leader, and so form one group."""

    def __init__(self, opened: OpenStore) -> None:
        self._opened = opened
        self._pool = ThreadPoolExecutor(16)
        self._gate = threading.Event()
        self._leading = threading.Event()
        self._waiting = 0
        self._leader = self._pool.submit(opened.rows.write, self._hold)
        self._leading.wait()

    def _hold(self, _: Transaction) -> None:
        self._leading.set()
        self._gate.wait()

    def add(self, call: Callable[..., Any], *arguments: Any) -> "Future[Any]":
        """Start the call, and return when it waits in the queue."""
        future = self._pool.submit(call, *arguments)
        self._waiting += 1
        wait_for_queue(self._opened, self._waiting)
        return future

    def let_go(self) -> None:
        self._gate.set()
        self._leader.result()
        self._pool.shutdown()


@contextmanager
def crowd(opened: OpenStore) -> Iterator[Crowd]:
    crowd = Crowd(opened)
    try:
        yield crowd
    finally:
        crowd.let_go()


class Unreliable:
    """A connection on which chosen statements fail a number of times."""

    def __init__(self, connection: Connection, error: Exception, *, statement: str, times: int) -> None:
        self._connection = connection
        self._error = error
        self._statement = statement
        self.times = times

    def execute(self, sql: str, parameters: Any = ()) -> Any:
        if sql.startswith(self._statement) and self.times:
            self.times -= 1
            raise self._error
        return self._connection.execute(sql, parameters)

    def cursor(self) -> Any:
        return self

    @property
    def in_transaction(self) -> bool:
        return self._connection.in_transaction

    def close(self) -> None:
        self._connection.close()


def failing(opened: OpenStore, code: int, *, statement: str, times: int) -> Unreliable:
    """Let statements of the writer fail as with a broken disk."""
    error = sqlite3.OperationalError("the disk, for a test")
    error.sqlite_errorcode = code
    unreliable = Unreliable(opened.connection, error, statement=statement, times=times)
    assert opened.rows._writer is not None
    opened.rows._writer._connection = unreliable
    opened.rows._writer._transaction._cursor = unreliable.cursor()
    return unreliable


def fail_from_here_on(opened: OpenStore, commits: int) -> None:
    """As the first of a group: its commit fails, and that many in total."""
    runs = iter([True])

    def work(_: Transaction) -> None:
        # When it runs again after the failure, it must not start over.
        if next(runs, False):
            failing(opened, sqlite3.SQLITE_IOERR, statement="COMMIT", times=commits)

    with suppress(StoreUnavailable):
        opened.rows.write(work)


# Sharing


def test_concurrent_writers_share_one_commit(opened: OpenStore) -> None:
    """Ten writes that wait for the same leader are one transaction, and each has its own result."""
    with crowd(opened) as group:
        calls = [group.add(opened.store.update, FLAGS, Key(f"f{n}"), attr("count").plus(n)) for n in range(10)]
    assert [call.result().new["count"] for call in calls] == list(range(10))
    assert (opened.rows.writes, opened.rows.commits) == (10, 1)


def test_writers_of_one_group_see_each_other_in_turn(opened: OpenStore) -> None:
    """Ten increments of one counter in one transaction make ten."""
    with crowd(opened) as group:
        for _ in range(10):
            group.add(count_up, opened, "f")
    assert counted(opened, "f") == 10


def test_a_single_writer_works_on_its_own_thread(opened: OpenStore) -> None:
    """Nothing is passed to another thread and back."""
    assert opened.rows.write(lambda _: threading.get_ident()) == threading.get_ident()


def test_a_leader_returns_when_its_own_group_is_done(opened: OpenStore) -> None:
    """The next group has its own leader: the first one does not serve later writers."""
    hold, leads = threading.Event(), threading.Event()
    pool = ThreadPoolExecutor(3)

    def second(_: Transaction) -> int:
        leads.set()
        hold.wait()
        return threading.get_ident()

    def call() -> tuple[int, int]:
        return threading.get_ident(), opened.rows.write(second)

    with crowd(opened) as group:
        later = group.add(call)
        group._gate.set()
        group._leader.result()
        leads.wait()
        assert not later.done()
        hold.set()
        own, ran_on = later.result()
    assert own == ran_on
    pool.shutdown()


@by_driver
def test_many_threads_lose_no_increment(driver: Driver, tmp_path: Path) -> None:
    """Without staging: every increment of every thread is there, with fewer commits than writes."""
    with OpenStore(tmp_path / "holdfast.db", driver) as opened, ThreadPoolExecutor(16) as pool:
        for future in [pool.submit(count_up, opened, f"f{n % 3}") for n in range(600)]:
            future.result()
        assert sum(counted(opened, f"f{n}") for n in range(3)) == 600
        assert opened.rows.writes == 600
        assert opened.rows.commits < 600


def test_work_that_writes_nothing_makes_no_commit(opened: OpenStore) -> None:
    """A refused write waits for no disk."""
    with pytest.raises(WriteConflict):
        opened.store.put(FLAGS, {"pk": "a"}, attr("pk").exists())
    assert (opened.rows.writes, opened.rows.commits) == (0, 0)


def test_a_write_leaves_nothing_to_the_garbage_collector(opened: OpenStore) -> None:
    """With many writes per second, a collection of their garbage would stall all writers."""

    def work(transaction: Transaction) -> None:
        put_flag(transaction, {"pk": "a"})

    left = weakref.ref(work)
    gc.disable()
    try:
        opened.rows.write(work)
        del work
        assert left() is None
    finally:
        gc.enable()


# Failing alone


def test_a_conflict_in_a_group_affects_only_its_writer(opened: OpenStore) -> None:
    """The others commit as if it had not been there, and the loser gets the winning item of the same transaction."""
    with crowd(opened) as group:
        winner = group.add(opened.store.put, FLAGS, {"pk": "a", "by": 1}, attr("pk").is_absent())
        loser = group.add(opened.store.put, FLAGS, {"pk": "a", "by": 2}, attr("pk").is_absent())
        other = group.add(count_up, opened, "f")
    assert winner.result() is None
    assert other.result() is None
    with pytest.raises(WriteConflict) as conflict:
        loser.result()
    assert conflict.value.item == {"pk": "a", "by": 1}
    assert (opened.rows.writes, opened.rows.commits) == (2, 1)


def test_a_bad_request_in_a_group_affects_only_its_writer(opened: OpenStore) -> None:
    """An update that cannot be applied to what it finds."""
    opened.store.put(FLAGS, {"pk": "a", "text": "x"})
    with crowd(opened) as group:
        bad = group.add(opened.store.update, FLAGS, Key("a"), attr("text").plus(1))
        good = group.add(count_up, opened, "f")
    assert good.result() is None
    with pytest.raises(BadRequest):
        bad.result()
    assert counted(opened, "f") == 1


def test_a_bug_in_a_group_affects_only_its_writer(opened: OpenStore) -> None:
    """Even an unexpected error."""
    with crowd(opened) as group:
        bad = group.add(opened.rows.write, lambda _: 1 // 0)
        good = group.add(count_up, opened, "f")
    assert good.result() is None
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert (counted(opened, "f"), opened.rows.commits) == (1, 1)


def test_work_that_fails_halfway_leaves_nothing_and_affects_no_other_writer(opened: OpenStore) -> None:
    """The group is rolled back, and the others run again, each once."""

    def half(transaction: Transaction) -> None:
        put_flag(transaction, {"pk": "half"})
        raise ZeroDivisionError

    with crowd(opened) as group:
        before = group.add(count_up, opened, "f")
        bad = group.add(opened.rows.write, half)
        after = group.add(count_up, opened, "f")
    assert before.result() is after.result() is None
    with pytest.raises(ZeroDivisionError):
        bad.result()
    assert counted(opened, "f") == 2
    assert opened.store.get(FLAGS, Key("half")) is None


def test_a_missing_table_fails_only_its_writer(opened: OpenStore) -> None:
    """A transaction that reaches a missing table writes nothing to other tables."""
    unknown = type(FLAGS)(name="unknown", setting="UNKNOWN_TABLE", purpose="not in the file", partition="pk")
    with crowd(opened) as group:
        bad = group.add(opened.store.transact, [PutItem(FLAGS, {"pk": "a"}), PutItem(unknown, {"pk": "b"})])
        good = group.add(count_up, opened, "f")
    assert good.result() is None
    with pytest.raises(Exception, match="run: holdfast tables create"):
        bad.result()
    assert opened.store.get(FLAGS, Key("a")) is None


# Failing disks


def test_a_commit_that_fails_once_is_retried_and_counts_once(tmp_path: Path) -> None:
    """Each of the group runs again by itself, from what is on the disk: nothing is applied twice."""
    with OpenStore(tmp_path / "holdfast.db", StandardDriver()) as opened:
        with crowd(opened) as group:
            group.add(fail_from_here_on, opened, 1)
            calls = [group.add(count_up, opened, "f") for _ in range(3)]
        assert [call.result() for call in calls] == [None] * 3
        assert counted(opened, "f") == 3
        assert (opened.rows.writes, opened.rows.commits) == (3, 3)


def test_a_commit_that_keeps_failing_writes_nothing(tmp_path: Path) -> None:
    """Every writer gets an error, nothing is stored, not even for the next process; then writing resumes."""
    path = tmp_path / "holdfast.db"
    with OpenStore(path, StandardDriver()) as opened:
        count_up(opened, "f")
        with crowd(opened) as group:
            group.add(fail_from_here_on, opened, 1 + 4 + 1)
            calls = [group.add(count_up, opened, "f") for _ in range(3)]
        for call in calls:
            with pytest.raises(StoreUnavailable, match="disk I/O failed"):
                call.result()
        assert counted(opened, "f") == 1
        with pytest.raises(StoreUnavailable, match="disk I/O failed"):
            count_up(opened, "f")
        assert not opened.connection.in_transaction  # it would block other processes
        count_up(opened, "f")
    with OpenStore(path, StandardDriver()) as opened:
        assert counted(opened, "f") == 2


def test_a_statement_that_fails_within_a_transaction_leaves_nothing_of_it(tmp_path: Path) -> None:
    """Two items that are written together: both or neither."""
    with OpenStore(tmp_path / "holdfast.db", StandardDriver()) as opened:
        failing(opened, sqlite3.SQLITE_FULL, statement=f'INSERT INTO "{THINGS.name}"', times=1)
        with pytest.raises(StoreUnavailable, match="no space left"):
            opened.store.transact([PutItem(FLAGS, {"pk": "a"}), PutItem(THINGS, thing("p", "s"))])
        assert opened.store.get(FLAGS, Key("a")) is None


def test_damage_found_while_writing_is_refused(tmp_path: Path) -> None:
    """It stays until an operator acts, so it is not a temporary error."""
    with OpenStore(tmp_path / "holdfast.db", StandardDriver()) as opened:
        failing(opened, sqlite3.SQLITE_CORRUPT, statement="INSERT", times=1)
        with pytest.raises(StoreRefused, match="damaged"):
            count_up(opened, "f")


@by_driver
def test_a_full_disk_loses_nothing_that_was_acknowledged(driver: Driver, tmp_path: Path) -> None:
    """Writers get an error; acknowledged writes are there; when there is space again, writing resumes."""
    path = tmp_path / "holdfast.db"
    acknowledged: set[str] = set()
    reasons: set[str] = set()

    def write(name: str) -> bool:
        try:
            full.store.put(THINGS, thing(name, "s", kind=name, at="1", text="x" * 700))
        except StoreUnavailable as error:
            reasons.add(str(error))
            return False
        acknowledged.add(name)
        return True

    with OpenStore(path, driver) as full:
        [(pages,)] = full.sql("PRAGMA page_count")
        full.sql(f"PRAGMA max_page_count = {pages + 40}")
        with ThreadPoolExecutor(8) as pool:
            results = list(pool.map(write, [f"w{n:03}" for n in range(400)]))
        assert 20 < sum(results) < 400
        assert not write("still-full" * 3)
        full.sql("PRAGMA max_page_count = 100000")
        assert write("space-again")
    assert all("no space left" in reason for reason in reasons)
    with OpenStore(path, driver) as opened:
        assert opened.sql("PRAGMA integrity_check") == [("ok",)]
        stored = {name for (name,) in opened.sql('SELECT pk FROM "some.things-1"')}
        assert stored == acknowledged
        for name in acknowledged:
            assert len(opened.store.query(Query(THINGS, name, index="by-kind")).items) == 1


@by_driver
def test_an_item_too_large_for_the_disk_does_not_fail_small_ones(driver: Driver, tmp_path: Path) -> None:
    """In the same group: the large item finds no space, the others do."""
    with OpenStore(tmp_path / "holdfast.db", driver) as opened:
        [(pages,)] = opened.sql("PRAGMA page_count")
        opened.sql(f"PRAGMA max_page_count = {pages + 10}")
        with crowd(opened) as group:
            small = [group.add(count_up, opened, f"f{n}") for n in range(3)]
            large = group.add(opened.store.put, FLAGS, {"pk": "large", "text": "x" * 300_000})
            small += [group.add(count_up, opened, f"g{n}") for n in range(3)]
        assert [call.result() for call in small] == [None] * 6
        with pytest.raises(StoreUnavailable):
            large.result()
        assert opened.store.get(FLAGS, Key("large")) is None


# Other processes that block a write


class EventfulClock(StillClock):
    """Something happens at its third sleep."""

    def __init__(self) -> None:
        super().__init__()
        self.happens: Callable[[], object] = lambda: None

    def sleep(self, seconds: float) -> None:
        super().sleep(seconds)
        if len(self.slept_seconds) == 3:
            self.happens()


@by_driver
def test_a_write_waits_for_a_process_that_blocks_it(driver: Driver, tmp_path: Path) -> None:
    """SQLite's own error for it, busy, never reaches the caller."""
    clock = EventfulClock()
    with OpenStore(tmp_path / "holdfast.db", driver, clock=clock, tuning=Tuning(busy_seconds=0)) as opened:
        other = driver.open(tmp_path / "holdfast.db", Mode.WRITE)
        other.execute("BEGIN IMMEDIATE")
        clock.happens = lambda: other.execute("ROLLBACK")
        count_up(opened, "f")
        assert counted(opened, "f") == 1
        assert len(clock.slept_seconds) == 3
        other.close()


@by_driver
def test_a_write_times_out_if_another_process_keeps_blocking_it(driver: Driver, tmp_path: Path) -> None:
    """After the deadline all waiting writers get an error, and nothing of theirs is written later."""
    clock = EventfulClock()
    tuning = Tuning(busy_seconds=0, retry_seconds=2)
    with OpenStore(tmp_path / "holdfast.db", driver, clock=clock, tuning=tuning) as opened:
        other = driver.open(tmp_path / "holdfast.db", Mode.WRITE)
        other.execute("BEGIN IMMEDIATE")
        followers: list[threading.Thread] = []

        def follow() -> None:
            with pytest.raises(StoreUnavailable, match="locked by another process"):
                count_up(opened, "f")

        def come_in_between() -> None:
            followers.extend(threading.Thread(target=follow) for _ in range(3))
            for thread in followers:
                thread.start()
            wait_for_queue(opened, 3)

        clock.happens = come_in_between
        follow()
        for thread in followers:
            thread.join()
        # Once for the first, and once for the three that then formed a group.
        assert len(followers) == 3
        assert sum(clock.slept_seconds) == pytest.approx(2 * 2)
        other.execute("ROLLBACK")
        other.close()
        assert counted(opened, "f") == 0
        count_up(opened, "f")
        assert counted(opened, "f") == 1


def test_a_read_does_not_wait_for_a_write(opened: OpenStore) -> None:
    """During a transaction, readers see what was committed before it."""
    count_up(opened, "f")

    def work(transaction: Transaction) -> int:
        put_flag(transaction, {"pk": "f", "count": 50})
        return counted(opened, "f")

    assert opened.rows.write(work) == 1
    assert counted(opened, "f") == 50


# Interrupts and closing


@pytest.mark.parametrize("interrupt", [KeyboardInterrupt, SystemExit])
def test_an_interrupted_leader_leaves_no_thread_waiting(opened: OpenStore, interrupt: type[BaseException]) -> None:
    """The others of its group get an error that says that the outcome is unknown; later writes work."""

    def work(transaction: Transaction) -> None:
        put_flag(transaction, {"pk": "half"})
        raise interrupt

    with crowd(opened) as group:
        interrupted = group.add(opened.rows.write, work)
        calls = [group.add(count_up, opened, "f") for _ in range(3)]
    with pytest.raises(interrupt):
        interrupted.result()
    for call in calls:
        with pytest.raises(StoreUnavailable, match="interrupted"):
            call.result()
    assert opened.store.get(FLAGS, Key("half")) is None
    count_up(opened, "f")
    assert counted(opened, "f") == 1


@by_driver
def test_a_storm_of_interrupts_leaves_no_thread_waiting(driver: Driver, tmp_path: Path) -> None:
    """Real signals at any moment, while it leads and while it waits: every thread ends, and every count is right."""
    child = [sys.executable, "-m", "tests.unit.adapters.sqlite.interrupts", str(tmp_path / "holdfast.db"), driver.name]
    done = subprocess.run(child, capture_output=True, text=True, timeout=120, check=False)
    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "all threads ended, and the counts are right\n"


def test_closing_waits_for_a_write_in_progress(opened: OpenStore) -> None:
    """Writes that started before are durable, later ones are refused."""
    with crowd(opened) as group:
        call = group.add(count_up, opened, "f")
        closing = group.add(opened.rows.close)
    assert call.result() is None
    assert closing.result() is None
    with pytest.raises(StoreUnavailable, match="closed"):
        count_up(opened, "f")
    with pytest.raises(StoreRefused, match="closed"):
        opened.store.get(FLAGS, Key("f"))
    opened.rows.close()


@by_driver
def test_all_writes_are_there_after_the_close(driver: Driver, tmp_path: Path) -> None:
    """And the file alone is enough: the log has been checkpointed."""
    with OpenStore(tmp_path / "holdfast.db", driver) as opened:
        count_up(opened, "f")
    (tmp_path / "holdfast.db").rename(tmp_path / "moved.db")
    with OpenStore(tmp_path / "moved.db", driver) as opened:
        assert counted(opened, "f") == 1


@by_driver
def test_a_reader_cannot_write(driver: Driver, tmp_path: Path) -> None:
    """Neither next to a writer nor after it."""
    path = tmp_path / "holdfast.db"
    with OpenStore(path, driver) as opened:
        count_up(opened, "f")
        with OpenStore(path, driver, writable=False) as reader:
            assert counted(reader, "f") == 1
            count_up(opened, "f")
            assert counted(reader, "f") == 2
            with pytest.raises(StoreRefused, match="opened read-only"):
                count_up(reader, "f")
    with OpenStore(path, driver, writable=False) as reader:
        assert counted(reader, "f") == 2
        assert (reader.rows.writes, reader.rows.commits) == (0, 0)


@by_driver
def test_a_commit_is_on_the_disk_when_it_is_acknowledged(driver: Driver, tmp_path: Path) -> None:
    """The settings that guarantee this, as SQLite itself reports them."""
    with OpenStore(tmp_path / "holdfast.db", driver) as opened:
        assert opened.sql("PRAGMA journal_mode") == [("wal",)]
        assert opened.sql("PRAGMA synchronous") == [(2,)]
        assert opened.sql("PRAGMA fullfsync") == [(1,)]
