"""Opening a SQLite file: locks, refusals, and older or incomplete files."""

import os
import random
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.adapters.sqlite import Driver, SqliteTables, StandardDriver, Tuning, best_driver
from holdfast.adapters.sqlite.driver import MANY_WRITERS_SINCE, ApswDriver
from holdfast.adapters.sqlite.file import SqliteFile
from holdfast.adapters.sqlite.opening import WritableFile
from holdfast.adapters.sqlite.schema import APPLICATION_ID, MIGRATIONS
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.errors import StoreRefused
from holdfast.ports.store import Index, Key, Query, Table
from holdfast.ports.store.admin import CreateTable
from tests.clocks import StillClock
from tests.unit.adapters.sqlite.cases import DRIVERS, FLAGS, THINGS, OpenStore, thing
from tests.unit.adapters.sqlite.lock_holder import second

by_driver = pytest.mark.parametrize("driver", DRIVERS, ids=lambda driver: driver.name)

OLD = replace(StandardDriver(), version=(3, 51, 2))
NEW = replace(StandardDriver(), version=MANY_WRITERS_SINCE)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


def contents(directory: Path) -> dict[str, bytes | None]:
    return {entry.name: entry.read_bytes() if entry.is_file() else None for entry in directory.iterdir()}


def filled(path: Path, driver: Driver, items: int = 50) -> None:
    with OpenStore(path, driver) as opened:
        opened.store.put(FLAGS, {"pk": "f", "count": 7})
        for number in range(items):
            opened.store.put(THINGS, thing("p", f"s{number:03}", kind="k", at=f"{number:03}", text="x" * 500))


def opened_with(path: Path, driver: Driver, *migrations: Callable[..., None]) -> WritableFile:
    return WritableFile(SqliteFile(path, driver, StillClock(), Tuning()), (*MIGRATIONS, *migrations))


class Holder:
    """Another process that has the file open for writing."""

    def __init__(self, path: Path, *driver: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.unit.adapters.sqlite.lock_holder", "hold", str(path), *driver],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        self.said = self._line()

    @property
    def pid(self) -> int:
        return self._process.pid

    def write(self) -> str:
        assert self._process.stdin is not None
        self._process.stdin.write("write\n")
        self._process.stdin.flush()
        return self._line()

    def kill(self) -> None:
        self._process.send_signal(signal.SIGKILL)
        self.end()

    def end(self) -> None:
        if self._process.returncode is None:
            self._process.communicate()

    def _line(self) -> str:
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()


@contextmanager
def held(path: Path, *driver: str) -> Iterator[Holder]:
    holder = Holder(path, *driver)
    try:
        yield holder
    finally:
        holder.end()


def run(task: str, path: Path, *driver: str) -> "subprocess.CompletedProcess[str]":
    child = [sys.executable, "-m", "tests.unit.adapters.sqlite.lock_holder", task, str(path), *driver]
    return subprocess.run(child, capture_output=True, text=True, check=False)


# One writer, or several


def test_a_second_writer_is_refused_with_the_process_id_of_the_first(path: Path) -> None:
    """Another process with an older SQLite: its process id, and the remedy."""
    with held(path, "sqlite3", "3.51.2") as holder:
        assert holder.said == "open"
        with pytest.raises(StoreRefused) as refusal:
            OpenStore(path, OLD)
        assert str(refusal.value) == (
            f"{path}: cannot write it: process {holder.pid} has it open for writing. Stop that process and try again, "
            "or use another file; SQLite 3.51.2 allows one writer per file, 3.51.3 and newer allow several: "
            "pip install '.[sqlite]', in the directory of Holdfast's source"
        )
        assert holder.write() == "written"
    with OpenStore(path, OLD) as opened:
        assert opened.store.get(FLAGS, Key("f")) == {"pk": "f", "count": 1}


def test_a_second_writer_in_the_same_process_is_refused(path: Path) -> None:
    """The lock belongs to the store, not to the process."""
    with OpenStore(path, OLD), pytest.raises(StoreRefused, match=f"process {os.getpid()} has it open for writing"):
        OpenStore(path, OLD)


def test_a_killed_writer_leaves_no_lock(path: Path) -> None:
    """However it ends, the kernel releases the lock, and its writes are there."""
    holder = Holder(path, "sqlite3", "3.51.2")
    assert holder.write() == "written"
    holder.kill()
    with OpenStore(path, OLD) as opened:
        assert opened.store.get(FLAGS, Key("f")) == {"pk": "f", "count": 1}


@pytest.mark.parametrize(("first", "then"), [("3.51.2", NEW), ("3.51.3", OLD)], ids=["old-first", "new-first"])
def test_an_older_sqlite_never_shares_a_file(path: Path, first: str, then: Driver) -> None:
    """Neither may it join a writer that would share, nor the other way round."""
    filled(path, OLD)
    with held(path, "sqlite3", first) as holder:
        assert holder.said == "open"
        with pytest.raises(StoreRefused, match=f"process {holder.pid} has it open for writing"):
            OpenStore(path, then)


def test_processes_with_a_newer_sqlite_write_together(path: Path) -> None:
    """Each sees what the others wrote, and no increment is lost between them."""
    if ApswDriver().version < MANY_WRITERS_SINCE:
        pytest.skip("apsw brings a SQLite older than 3.51.3")
    with OpenStore(path, ApswDriver(), clock=SystemClock()) as opened:
        opened.store.put(FLAGS, {"pk": "f", "count": 0})
        with held(path, "apsw") as first, held(path, "apsw") as last:
            assert first.said == last.said == "open"
            for _ in range(5):
                assert first.write() == last.write() == "written"
            assert opened.store.get(FLAGS, Key("f")) == {"pk": "f", "count": 10}


def test_a_refusal_names_all_processes_that_may_be_writing(path: Path) -> None:
    """Those that registered since the file was last free, without those that are known to be gone."""
    filled(path, OLD)
    with held(path, "sqlite3", "3.51.3") as first, held(path, "sqlite3", "3.51.3") as last:
        with pytest.raises(StoreRefused, match=f"one of the processes {first.pid}, {last.pid} has it open for writing"):
            OpenStore(path, OLD)
        first.kill()
        with pytest.raises(StoreRefused, match=f"process {last.pid} has it open for writing"):
            OpenStore(path, OLD)


def test_no_writer_changes_tables_while_it_shares_the_file(path: Path) -> None:
    """Another writer would continue without the new column, so the change waits until the file is free."""
    filled(path, NEW)
    grown = replace(THINGS, indexes=(*THINGS.indexes, Index("by-place", "place")))
    with OpenStore(path, NEW):
        with pytest.raises(StoreRefused, match=r"cannot add index by-place to table some\.things-1: process"):
            OpenStore(path, NEW, tables=(grown, FLAGS))
        with pytest.raises(StoreRefused, match="cannot create table flags"):
            SqliteTables(path, StillClock(), NEW).carry_out(CreateTable(FLAGS))
        with pytest.raises(StoreRefused, match="cannot migrate its layout"):
            opened_with(path, NEW, second)
    with OpenStore(path, NEW, tables=(grown, FLAGS)) as opened:
        assert opened.store.query(Query(grown, "x", index="by-place")).items == []


def test_a_symbolic_link_is_the_same_file(path: Path, tmp_path: Path) -> None:
    """It has the same lock and the same log, under whatever name it is opened."""
    link = tmp_path / "elsewhere" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with OpenStore(link, OLD) as opened:
        opened.store.put(FLAGS, {"pk": "f"})
        with pytest.raises(StoreRefused):
            OpenStore(path, OLD)
    assert [entry.name for entry in link.parent.iterdir()] == ["link.db"]


@by_driver
def test_other_processes_read_while_one_writes(driver: Driver, path: Path) -> None:
    """They see each commit, and neither waits for the other."""
    with OpenStore(path, driver) as opened:
        for count in (1, 2):
            opened.store.put(FLAGS, {"pk": "f", "count": count})
            assert run("read", path, driver.name).stdout == f"{count}\n"


@by_driver
def test_inspecting_an_open_file_keeps_its_locks(driver: Driver, path: Path) -> None:
    """Closing a descriptor of it would make the kernel drop the locks on which SQLite relies."""
    # The range of bytes on which SQLite keeps its shared locks.
    attempt = (
        "import fcntl, sys; f = open(sys.argv[1], 'r+b')\n"
        "try: fcntl.lockf(f, fcntl.LOCK_EX | fcntl.LOCK_NB, 510, 0x40000002)\n"
        "except OSError: print('locked')"
    )
    with OpenStore(path, driver) as opened:
        opened.store.put(FLAGS, {"pk": "f"})
        with OpenStore(path, driver, writable=False) as reader:
            assert reader.store.get(FLAGS, Key("f")) == {"pk": "f"}
        assert SqliteTables(path, StillClock(), driver).find(FLAGS) is not None
        with pytest.raises(StoreRefused):
            OpenStore(path, OLD)
        done = subprocess.run([sys.executable, "-c", attempt, str(path)], capture_output=True, text=True, check=True)
        assert done.stdout == "locked\n"


def test_the_best_driver_is_apsw_where_it_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """And Python's own where it is not."""
    assert best_driver().name == "apsw"
    monkeypatch.setitem(sys.modules, "apsw", None)
    assert best_driver().name == "sqlite3"


# What is refused


def _random_bytes(path: Path) -> None:
    path.write_bytes(random.Random(5).randbytes(20_000))


def _text(path: Path) -> None:
    path.write_text("not a database\n")


def _foreign(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE theirs (x)")


def _other_application(path: Path) -> None:
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA application_id = 77")
        connection.execute("PRAGMA user_version = 1")


def _newer(path: Path) -> None:
    filled(path, StandardDriver())
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("PRAGMA user_version = 9")


def _cut_off(path: Path) -> None:
    filled(path, StandardDriver())
    os.truncate(path, path.stat().st_size // 2)


def _cut_in_the_header(path: Path) -> None:
    filled(path, StandardDriver())
    os.truncate(path, 60)


def _damaged(path: Path) -> None:
    filled(path, StandardDriver())
    with path.open("r+b") as file:
        for page in range(1, path.stat().st_size // 4096):
            file.seek(page * 4096)
            file.write(random.Random(page).randbytes(4096))


def _damaged_tables(path: Path) -> None:
    filled(path, StandardDriver())
    with path.open("r+b") as file:
        file.seek(100)
        file.write(b"\xff" * 400)


def _directory(path: Path) -> None:
    path.mkdir()


def _queue(path: Path) -> None:
    os.mkfifo(path)


def _log_of_a_file_that_is_gone(path: Path) -> None:
    path.with_name(f"{path.name}-wal").write_bytes(b"x" * 100)


REFUSED: list[tuple[Callable[[Path], None], str]] = [
    (_random_bytes, "is not a SQLite file"),
    (_text, "is not a SQLite file"),
    (_cut_in_the_header, "is not a SQLite file"),
    (_foreign, "of another program"),
    (_other_application, r"of another program \(application id 0x4d"),
    (_newer, "written by a newer Holdfast: it has layout 9, this version knows up to 1"),
    (_cut_off, r"is damaged \(truncated to \d+ of \d+ bytes\)"),
    (_directory, "is a directory; name a file"),
    (_queue, "is not a file"),
    (_log_of_a_file_that_is_gone, "is the log of a file that is gone"),
]
DAMAGED: list[tuple[Callable[[Path], None], str]] = [(_damaged, "damaged"), (_damaged_tables, "damaged")]


def _refused_id(value: object) -> str:
    return str(getattr(value, "__name__", "")).strip("_")


@by_driver
@pytest.mark.parametrize(("make", "message"), REFUSED, ids=_refused_id)
@pytest.mark.parametrize("writable", [True, False], ids=["write", "read"])
def test_a_foreign_file_is_refused_and_left_unchanged(
    make: Callable[[Path], None], message: str, driver: Driver, tmp_path: Path, *, writable: bool
) -> None:
    """Byte for byte, and without new files next to it."""
    directory = tmp_path / "data"
    directory.mkdir()
    path = directory / "holdfast.db"
    make(path)
    path.with_name("holdfast.db.lock").unlink(missing_ok=True)
    before = contents(directory)
    with pytest.raises(StoreRefused, match=message):
        OpenStore(path, driver, writable=writable)
    assert contents(directory) == before


@by_driver
@pytest.mark.parametrize(("make", "message"), DAMAGED, ids=_refused_id)
def test_a_damaged_file_is_refused_before_it_is_written(
    make: Callable[[Path], None], message: str, driver: Driver, path: Path
) -> None:
    """It is checked first; the only new file is the lock."""
    make(path)
    before = contents(path.parent)
    with pytest.raises(StoreRefused, match=message):
        OpenStore(path, driver)
    assert {**contents(path.parent), "holdfast.db.lock": b""} == {**before, "holdfast.db.lock": b""}


@by_driver
def test_damage_found_while_reading_is_refused(driver: Driver, path: Path) -> None:
    """A reader does not check the whole file first; it reports the damage that it finds."""
    _damaged(path)
    with OpenStore(path, driver, writable=False) as opened, pytest.raises(StoreRefused, match="damaged"):
        opened.store.get(THINGS, Key("p", "s001"))


@by_driver
def test_a_newer_layout_that_is_only_in_the_log_is_refused(driver: Driver, path: Path, tmp_path: Path) -> None:
    """A newer Holdfast that was killed right after its migration: file and log stay as they were."""
    filled(path, driver)
    copied = tmp_path / "copied" / "holdfast.db"
    copied.parent.mkdir()
    with closing(opened_with(path, driver, second)):
        for suffix in ("", "-wal"):
            shutil.copy(f"{path}{suffix}", f"{copied}{suffix}")
    before = contents(copied.parent)
    for writable in (True, False):
        with pytest.raises(StoreRefused, match="it has layout 2, this version knows up to 1"):
            OpenStore(copied, driver, writable=writable)
    after = contents(copied.parent)
    assert {name: after[name] for name in before} == before


def test_a_missing_directory_is_named(tmp_path: Path) -> None:
    """It is not created silently: the path may be wrong."""
    with pytest.raises(StoreRefused, match=f"directory {tmp_path / 'none'} does not exist; create it"):
        OpenStore(tmp_path / "none" / "holdfast.db", StandardDriver())
    assert list(tmp_path.iterdir()) == []


def test_a_reader_creates_no_file(path: Path) -> None:
    """Neither if there is none, nor if there is an empty one."""
    with pytest.raises(StoreRefused, match="does not exist yet"):
        OpenStore(path, StandardDriver(), writable=False)
    path.touch()
    with pytest.raises(StoreRefused, match="does not exist yet"):
        OpenStore(path, StandardDriver(), writable=False)
    assert contents(path.parent) == {"holdfast.db": b""}


# New files, and older ones


@by_driver
def test_an_empty_file_is_a_new_one(driver: Driver, path: Path) -> None:
    """It becomes a Holdfast file, with our application id."""
    path.touch()
    filled(path, driver)
    header = path.read_bytes()[:100]
    assert int.from_bytes(header[68:72]) == APPLICATION_ID
    assert int.from_bytes(header[60:64]) == len(MIGRATIONS)


@by_driver
def test_a_file_whose_creation_was_killed_halfway_is_created_again(driver: Driver, path: Path) -> None:
    """The leftovers are removed, and it is created as if for the first time."""
    assert run("migrate", path, driver.name).returncode == -signal.SIGKILL
    assert not path.exists()
    assert path.with_name("holdfast.db.new").exists()
    filled(path, driver)
    assert sorted(contents(path.parent)) == ["holdfast.db", "holdfast.db.lock"]


@by_driver
def test_a_migration_that_was_killed_halfway_runs_again(driver: Driver, path: Path) -> None:
    """Each is done completely or not at all, and the items are unchanged."""
    filled(path, driver)
    assert run("migrate", path, driver.name).returncode == -signal.SIGKILL
    with closing(opened_with(path, driver)) as opened:
        assert opened.connection.execute("SELECT name FROM sqlite_schema WHERE name = 'extra'").fetchall() == []
    with closing(opened_with(path, driver, second)) as opened:
        assert opened.connection.execute("SELECT number FROM extra").fetchall() == [(0,), (1,), (2,)]
        assert opened.connection.execute("PRAGMA user_version").fetchall() == [(2,)]
        assert opened.connection.execute('SELECT count(*) FROM "some.things-1"').fetchall() == [(50,)]


@by_driver
def test_migrations_run_in_order_and_once(driver: Driver, path: Path) -> None:
    """Starting at the file's version; one that fails leaves the file at the version before."""
    filled(path, driver)
    ran: list[str] = []

    def failing(_: object) -> None:
        ran.append("third, failing")
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        opened_with(path, driver, lambda _: ran.append("second"), failing)
    opened_with(path, driver, lambda _: ran.append("second again"), lambda _: ran.append("third")).close()
    assert ran == ["second", "third, failing", "third"]


@by_driver
def test_a_file_that_could_not_be_opened_is_free_for_the_next(driver: Driver, path: Path) -> None:
    """A refusal releases lock and connections."""
    other = Table(name=FLAGS.name, setting="FLAGS_TABLE", purpose="with another key", partition="id")
    filled(path, OLD)
    for _ in range(2):
        with pytest.raises(Exception, match="declared id, found pk"):
            OpenStore(path, driver, tables=(other,))
    with OpenStore(path, OLD) as opened:
        assert opened.store.get(FLAGS, Key("f")) == {"pk": "f", "count": 7}
