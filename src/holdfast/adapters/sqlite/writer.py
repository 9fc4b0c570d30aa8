"""Group commit: concurrent writers share one transaction, and one wait for the disk.

There is no writer thread. A writer that finds no leader becomes one: it takes the whole queue, runs it in one
transaction, commits, and wakes the next writer of its group, which wakes the next. The last one wakes the first of
those that arrived meanwhile, and that one leads.

    a leads     takes [a b c] ── BEGIN a b c COMMIT ──► wakes b, which wakes c, which wakes d
    d, e        arrive and wait                         d leads, takes [d e a b c] ── BEGIN …

Writers wake each other in turn: if they all woke at once, they would only queue for Python's interpreter lock. And the
next leader starts only when all are awake: a writer that writes again immediately then joins the next group.

Failures are isolated. If work raises before it wrote anything, the rest of the group continues. On any other failure,
the whole group is rolled back, and each work runs again in its own transaction.

An interrupt (Ctrl-C) is deferred until the write has ended. If its thread left at once, the writers that wait for it to
lead, or to wake them, would wait forever.
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
    """One writer: its work, its result, and its place in the queue."""

    work: Callable[[SqliteTransaction], Any]
    turn: Any  # a lock that is held while it waits
    result: Any = None
    error: Exception | None = None
    group: Sequence["_Writer"] = ()  # the writers it leads, itself first
    following: "_Writer | None" = None  # the writer that it wakes
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
            self.error = None  # its traceback refers to this frame: break the cycle


class GroupCommit:
    """Runs work in transactions. `writes` and `commits` count durable ones."""

    def __init__(self, file: SqliteFile, connection: Connection) -> None:
        self._file = file
        self._connection = connection
        self._transaction = SqliteTransaction(connection, file.driver)
        self._lock = allocate_lock()  # guards the queue and its leader
        self._queue: list[_Writer] = []
        self._leader: _Writer | None = None
        self._is_closed = False
        self._threads: set[int] = set()  # threads within a write
        self._process = os.getpid()
        self._identity = file_identity(file.path)
        self.writes = 0
        self.commits = 0

    def write(self, work: Callable[[SqliteTransaction], T]) -> T:
        """Run the work and make it durable. It may run on another thread, and more than once."""
        self._refuse_deadlocks()
        result: T = self._run_to_end(_Writer(work, allocate_lock())).outcome()
        return result

    def _refuse_deadlocks(self) -> None:
        """Refuse a write within a write (from a signal handler) or in a forked process: it would wait forever."""
        if get_ident() in self._threads:
            raise StoreRefused(f"{self._file.path}: nested write, for example in a signal handler; nothing was written")
        if self._process != os.getpid():
            raise StoreRefused(
                f"{self._file.path} was opened before this process was forked; nothing was written. Open it again"
            )

    def close(self) -> None:
        """Finish pending writes, and accept no more."""
        last = _Writer(lambda _: None, allocate_lock())
        with self._lock:
            if self._is_closed:
                return
            last.turn.acquire()
            self._join(last)
            self._is_closed = True
        self._run_to_end(last)
        self._connection.close()

    # Leading and waiting

    def _run_to_end(self, mine: _Writer) -> _Writer:
        interrupt: BaseException | None = None
        while not mine.has_left:
            # Two loops: a second interrupt may arrive between two turns of the inner one, outside its `try`.
            try:
                while not mine.has_left:
                    try:
                        self._advance(mine)
                    except BaseException as error:
                        interrupt = error
            except BaseException as error:
                interrupt = error
        if interrupt is not None:
            raise interrupt
        return mine

    def _advance(self, mine: _Writer) -> None:
        """Continue from the current state to the end. Called again after an interrupt, so each step may repeat."""
        self._threads.add(get_ident())
        if not mine.has_joined:
            mine.turn.acquire(blocking=False)
            with self._lock:
                self._join(mine)
        while not mine.is_awake:
            mine.turn.acquire()
        # Awake but not done: this writer leads.
        if not mine.is_done:
            self._lead(mine)
        if self._leader is mine:
            with self._lock:
                self._leader = mine.following = self._queue[0] if self._queue else None
        if mine.following is not None:
            mine.following.wake()
        self._threads.discard(get_ident())
        mine.group, mine.has_left = (), True  # it is part of its own group: break the cycle

    def _join(self, mine: _Writer) -> None:
        if self._is_closed:
            mine.error = StoreUnavailable(f"{self._file.path} is closed; nothing was written")
            mine.is_awake = mine.is_done = mine.has_joined = True
            return
        # No call in between: interrupts arrive at calls and loops, so this runs completely or not at all.
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
            self._abandon(mine.group)
        for writer, following in pairwise(mine.group):
            writer.following = following
        self._leader = mine.group[-1]
        # Itself last: if interrupted in between, it repeats all of this.
        for writer in reversed(mine.group):
            writer.is_done = True

    def _abandon(self, group: Sequence[_Writer]) -> None:
        """The leader was interrupted during the transaction: its outcome is unknown."""
        self._roll_back()
        for writer in group:
            message = f"{self._file.path}: interrupted; a write may or may not have happened"
            writer.error = writer.error or StoreUnavailable(message)

    # Running a group

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
                writer.error = self._translated(error)
                # Not if BEGIN failed: each retry would only wait for the same lock.
                if has_begun and len(group) > 1:
                    writer.error = None
                    self._run([writer])
        else:
            if writes:
                self.writes += writes
                self.commits += 1

    def _has_written(self, writer: _Writer) -> bool:
        """Run the work. Raises if it failed after a write, or broke the transaction: then the group is affected."""
        transaction = self._transaction
        before = transaction.writes_begun
        try:
            writer.result = writer.work(transaction)
        except Exception as error:
            if transaction.writes_begun > before or not self._connection.in_transaction:
                raise
            writer.error = self._translated(error)
        return transaction.writes_begun > before

    def _begin(self) -> None:
        self._roll_back()
        # If the file was removed or replaced, writes to the open one would be lost.
        if file_identity(self._file.path) != self._identity:
            raise StoreRefused(
                f"{self._file.path} was removed or replaced while it was open; nothing was written. "
                "Restore it, and restart Holdfast"
            )
        self._file.retry_while_busy(lambda: self._connection.execute("BEGIN IMMEDIATE"))

    def _roll_back(self) -> None:
        """Undo uncommitted writes. If that fails too, the next transaction starts with another attempt."""
        with suppress(self._file.driver.errors):
            if self._connection.in_transaction:
                self._connection.execute("ROLLBACK")

    def _translated(self, error: Exception) -> Exception:
        ours = self._file.translated(error)
        if ours is not error:
            ours.__cause__ = error
        return ours


def file_identity(path: Path) -> tuple[int, int] | None:
    """Identifies the file at a path; None if there is none."""
    try:
        found = path.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
