"""Group commit: writers who come at the same time share one transaction, and one wait for the disk.

There is no thread of its own. A writer who finds nobody at work leads: it takes everything that waits, runs it in one
transaction, commits, and wakes the next of its group, who wakes the next. The last one hands on to the first of those
who came meanwhile, and that one leads.

    a leads     takes [a b c] ── BEGIN a b c COMMIT ──► wakes b, who wakes c, who wakes d
    d, e        arrive and wait                         d leads, takes [d e a b c] ── BEGIN …

The group is woken one by the other: a crowd that wakes at once only queues up for Python's interpreter lock. And nobody
leads until all of it are awake: who writes again at once is then in the next group, and not in its leader's way.

One writer's failure is not the others'. Work that raises before it wrote anything has changed nothing, and the rest
goes on. If anything else fails, the whole group is rolled back and each work runs again in a transaction of its own.

An interrupt (Ctrl-C) is held back until the write has come to its end. Were its thread to go at once, those who wait
for it to lead, or to wake them, would wait for ever.
"""

import os
from _thread import allocate_lock, get_ident
from collections.abc import Callable, Sequence
from contextlib import suppress
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

from msgspec import Struct

from holdfast.adapters.sqlite.driver import Connection
from holdfast.adapters.sqlite.file import SqliteFile
from holdfast.adapters.sqlite.transaction import SqliteTransaction
from holdfast.kernel.errors import StoreRefused, StoreUnavailable

T = TypeVar("T")


class _Writer(Struct, eq=False):
    """One who writes: its work, what became of it, and its place among the others."""

    work: Callable[[SqliteTransaction], Any]
    turn: Any  # a lock, held while it waits
    result: Any = None
    error: Exception | None = None
    group: Sequence["_Writer"] = ()  # whom it leads, itself the first of them
    following: "_Writer | None" = None  # whom it wakes when it wakes
    has_joined: bool = False
    is_awake: bool = False
    has_begun: bool = False
    is_done: bool = False
    has_left: bool = False

    def wake(self) -> None:
        self.is_awake = True
        if self.turn.locked():
            self.turn.release()

    def outcome(self) -> Any:
        if self.error is None:
            return self.result
        try:
            raise self.error
        finally:
            self.error = None  # its traceback leads back here: let go, or only the garbage collector could


class GroupCommit:
    """Runs work in transactions. `writes` and `commits` count what became durable."""

    def __init__(self, file: SqliteFile, connection: Connection) -> None:
        self._file = file
        self._connection = connection
        self._transaction = SqliteTransaction(connection, file.driver)
        self._lock = allocate_lock()  # guards the queue, and who leads it
        self._queue: list[_Writer] = []
        self._leader: _Writer | None = None
        self._is_closed = False
        self._threads: set[int] = set()  # those within a write
        self._process = os.getpid()
        self._identity = file_identity(file.path)
        self.writes = 0
        self.commits = 0

    def write(self, work: Callable[[SqliteTransaction], T]) -> T:
        """Run the work and make it durable. It may run on another thread, and more than once."""
        self._refuse_the_impossible()
        result: T = self._seen_through(_Writer(work, allocate_lock())).outcome()
        return result

    def _refuse_the_impossible(self) -> None:
        """What would wait for ever: a write within a write (from a signal handler), or in a fork of this process."""
        if get_ident() in self._threads:
            raise StoreRefused(
                f"{self._file.path}: a write within a write, as from a signal handler; nothing was written"
            )
        if self._process != os.getpid():
            raise StoreRefused(
                f"{self._file.path} was opened before this process was forked off; nothing was written. Open it again"
            )

    def close(self) -> None:
        """Finish what waits, and take no more."""
        last = _Writer(lambda _: None, allocate_lock())
        with self._lock:
            if self._is_closed:
                return
            last.turn.acquire()
            self._join(last)
            self._is_closed = True
        self._seen_through(last)
        self._connection.close()

    # Who leads, who waits

    def _seen_through(self, mine: _Writer) -> _Writer:
        interrupt: BaseException | None = None
        while not mine.has_left:
            # Two loops: a second interrupt may come just as the inner one turns, where no `except` reaches.
            try:
                while not mine.has_left:
                    try:
                        self._go_on(mine)
                    except BaseException as error:
                        interrupt = error
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return mine

    def _go_on(self, mine: _Writer) -> None:
        """From wherever it is to its end. After an interrupt it is called again, so each step may come twice."""
        self._threads.add(get_ident())
        if not mine.has_joined:
            mine.turn.acquire(blocking=False)
            with self._lock:
                self._join(mine)
        while not mine.is_awake:
            mine.turn.acquire()
        # Awake, and yet not done: it is ours to lead.
        if not mine.is_done:
            self._lead(mine)
        if self._leader is mine:
            with self._lock:
                self._leader = mine.following = self._queue[0] if self._queue else None
        if mine.following is not None:
            mine.following.wake()
        self._threads.discard(get_ident())
        mine.group, mine.has_left = (), True  # it is in its own group: let go, or only the garbage collector could

    def _join(self, mine: _Writer) -> None:
        if self._is_closed:
            mine.error = StoreUnavailable(f"{self._file.path} is closed; nothing was written")
            mine.is_awake = mine.is_done = mine.has_joined = True
            return
        # No call in between: interrupts come at calls and loops, so this is done as a whole or not at all.
        if self._leader is None:
            self._leader = mine
            mine.is_awake = True
        mine.has_joined = True
        self._queue.append(mine)

    def _lead(self, mine: _Writer) -> None:
        if not mine.has_begun:
            with self._lock:
                mine.group, self._queue, mine.has_begun = self._queue, [], True
            self._run(mine.group)
        elif not mine.is_done:
            self._give_up(mine.group)
        for writer, following in pairwise(mine.group):
            writer.following = following
        self._leader = mine.group[-1]
        # Itself last: were it interrupted in between, it would do all of this again.
        for writer in reversed(mine.group):
            writer.is_done = True

    def _give_up(self, group: Sequence[_Writer]) -> None:
        """The leader was interrupted in the midst of it, and cannot tell how far it came."""
        self._roll_back()
        for writer in group:
            message = f"{self._file.path}: interrupted; it is not known whether anything was written"
            writer.error = writer.error or StoreUnavailable(message)

    # What the leader does

    def _run(self, group: Sequence[_Writer]) -> None:
        has_begun = False
        try:
            self._begin()
            has_begun = True
            writes = [self._has_written(writer) for writer in group].count(True)
            self._connection.execute("COMMIT")
        except Exception as error:
            self._roll_back()
            for writer in group:
                writer.error = self._error_of_ours(error)
                # Not if it could not even begin: each would only wait in vain for the same.
                if has_begun and len(group) > 1:
                    writer.error = None
                    self._run([writer])
        else:
            if writes:
                self.writes += writes
                self.commits += 1

    def _has_written(self, writer: _Writer) -> bool:
        """Run the work. If it fails when it has written something, or has broken the transaction, all are to know."""
        transaction = self._transaction
        before = transaction.writes_begun
        try:
            writer.result = writer.work(transaction)
        except Exception as error:
            if transaction.writes_begun > before or not self._connection.in_transaction:
                raise
            writer.error = self._error_of_ours(error)
        return transaction.writes_begun > before

    def _begin(self) -> None:
        self._roll_back()
        # Removed or replaced, the open file would take writes that nobody could ever read again.
        if file_identity(self._file.path) != self._identity:
            raise StoreRefused(
                f"{self._file.path} was removed or replaced while it was open; nothing was written. "
                "Put it back, and start again"
            )
        self._file.patiently(lambda: self._connection.execute("BEGIN IMMEDIATE"))

    def _roll_back(self) -> None:
        """Undo what is not committed. Should that fail too, the next transaction begins with another try."""
        with suppress(self._file.driver.errors):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _error_of_ours(self, error: Exception) -> Exception:
        ours = self._file.translated(error)
        if ours is not error:
            ours.__cause__ = error
        return ours


def file_identity(path: Path) -> tuple[int, int] | None:
    """Which file a path leads to; None: to none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
