"""Tables in a SQLite file: their layout, and how they are migrated to their declaration."""

import json
import sqlite3
from contextlib import closing
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.sqlite import Driver, SqliteTables, StandardDriver
from holdfast.adapters.sqlite.schema import MIGRATIONS
from holdfast.kernel.errors import StoreRefused, TableProblem
from holdfast.ports.store import Index, Key, Projection, Query, Table, attr
from holdfast.ports.store.admin import AddIndex, CreateTable, EnableTtl, differences
from holdfast.ports.store.schema import Billing
from holdfast.ports.store.tables import TABLES
from tests.clocks import START, StillClock
from tests.unit.adapters.sqlite.cases import DRIVERS, FLAGS, THINGS, OpenStore, thing

BARE = replace(THINGS, indexes=(), ttl=None)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "holdfast.db"


@pytest.fixture(params=DRIVERS, ids=lambda driver: driver.name)
def driver(request: pytest.FixtureRequest) -> Driver:
    driver: Driver = request.param
    return driver


def problems(path: Path, table: Table) -> dict[str, tuple[str, str]]:
    admin = SqliteTables(path, StillClock(), StandardDriver())
    return {d.attribute: (d.declared, d.found) for d in differences(table, admin.find(table), Billing.ON_DEMAND)}


def sorts(opened: OpenStore, table: Table, index: str, partition: str) -> list[str]:
    return [item["SK"] for item in opened.store.query(Query(table, partition, index=index)).items]


# Layout


def test_the_items_can_be_read_in_the_sqlite_shell(driver: Driver, path: Path) -> None:
    """Under the table's own name, with key columns, as JSON that SQLite's own functions can parse."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "s", kind="k", at="1", price=Decimal("1.5"), tags={"b", "a"}, ttl=99))
    with closing(sqlite3.connect(path)) as shell:
        rows = shell.execute(
            'SELECT pk, sk, expires, "key:kind", "key:at", "key:owner", json_extract(item, \'$.price."$n"\')'
            ' FROM "some.things-1"'
        ).fetchall()
        assert rows == [("p", "s", 99, "k", "1", None, "1.5")]
        [(text,)] = shell.execute('SELECT item FROM "some.things-1"').fetchall()
        assert json.loads(text)["tags"] == {"$ss": ["a", "b"]}


def test_indexes_contain_only_items_with_all_their_keys(driver: Driver, path: Path) -> None:
    """They are as sparse in the file as in DynamoDB."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "both", kind="k", at="1"))
        opened.store.put(THINGS, thing("p", "one", kind="k"))
        statements = dict(opened.sql("SELECT name, sql FROM sqlite_schema WHERE type = 'index' AND sql IS NOT NULL"))
        assert statements["some.things-1:by-kind"] == (
            'CREATE INDEX "some.things-1:by-kind" ON "some.things-1" ("key:kind", "key:at", pk, sk)'
            ' WHERE "key:kind" IS NOT NULL AND "key:at" IS NOT NULL'
        )
        assert statements["some.things-1:by-sort"] == (
            'CREATE INDEX "some.things-1:by-sort" ON "some.things-1" (sk, "key:at", pk) WHERE "key:at" IS NOT NULL'
        )
        assert sorts(opened, THINGS, "by-kind", "k") == ["both"]


def test_an_update_that_moves_an_index_key_moves_the_entry(driver: Driver, path: Path) -> None:
    """Set, changed, removed, and set again; and an update of anything else leaves it where it is."""
    with OpenStore(path, driver) as opened:
        key = Key("p", "s")
        opened.store.update(THINGS, key, attr("kind").set_to("a") + attr("at").set_to("1"))
        assert sorts(opened, THINGS, "by-kind", "a") == ["s"]
        opened.store.update(THINGS, key, attr("note").set_to("x"))
        assert sorts(opened, THINGS, "by-kind", "a") == ["s"]
        opened.store.update(THINGS, key, attr("kind").set_to("b"))
        assert (sorts(opened, THINGS, "by-kind", "a"), sorts(opened, THINGS, "by-kind", "b")) == ([], ["s"])
        opened.store.update(THINGS, key, attr("at").remove())
        assert sorts(opened, THINGS, "by-kind", "b") == []
        opened.store.put(THINGS, thing("p", "s", kind="b", at="2"))
        assert sorts(opened, THINGS, "by-kind", "b") == ["s"]
        opened.store.delete(THINGS, key)
        assert sorts(opened, THINGS, "by-kind", "b") == []


@pytest.mark.parametrize(
    ("ttl", "expires"),
    [(5, 5), (2**70, 2**63 - 1), (-(2**70), -(2**63)), (True, None), ("5", None), (Decimal("5.5"), None)],
)
def test_an_item_expires_by_whole_numbers_only(driver: Driver, path: Path, ttl: object, expires: int | None) -> None:
    """Also by numbers too large for SQLite: their order is kept."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "s", ttl=ttl))
        assert opened.sql('SELECT expires FROM "some.things-1"') == [(expires,)]
        gone = expires is not None and expires <= START.epoch_seconds
        assert opened.store.remove_expired(THINGS) == int(gone)


def test_a_change_from_one_to_true_is_seen(driver: Driver, path: Path) -> None:
    """Python considers them equal; the store does not, and one of them expires."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "s", ttl=1))
        opened.store.update(THINGS, Key("p", "s"), attr("ttl").set_to(value=True))
        assert opened.sql('SELECT expires FROM "some.things-1"') == [(None,)]


@pytest.mark.parametrize("edited", ["[0.5]", '[{"of": 0.5}]', '{"of": [0.5]}'])
def test_an_update_keeps_attributes_that_were_edited_by_hand(driver: Driver, path: Path, edited: str) -> None:
    """A fraction in plain JSON, without a tag, within an attribute."""
    with OpenStore(path, driver) as opened:
        opened.store.put(FLAGS, {"pk": "a", "seen": 1})
        opened.sql(f"""UPDATE "{FLAGS.name}" SET item = '{{"pk":"a","seen":1,"prices":{edited}}}'""")  # noqa: S608
        written = opened.store.update(FLAGS, Key("a"), attr("seen").plus(1) + attr("half").set_to([Decimal("1.5")]))
        assert opened.store.get(FLAGS, Key("a")) == written.new
        assert written.new["prices"] == json.loads(edited, parse_float=Decimal)
        assert (written.new["seen"], written.new["half"]) == (2, [Decimal("1.5")])


def test_a_badly_edited_row_is_named(driver: Driver, path: Path) -> None:
    """By reads, writes and pages; other rows are not affected."""
    with OpenStore(path, driver) as opened:
        opened.store.put(FLAGS, {"pk": "bad"})
        opened.store.put(FLAGS, {"pk": "good"})
        opened.sql("UPDATE flags SET item = 'not JSON' WHERE pk = 'bad'")
        for call in (
            lambda: opened.store.get(FLAGS, Key("bad")),
            lambda: opened.store.update(FLAGS, Key("bad"), attr("x").set_to(1)),
            lambda: opened.store.query(Query(FLAGS, "bad")),
        ):
            with pytest.raises(StoreRefused, match=r"item flags.* cannot be read.*fix it in the sqlite3 shell"):
                call()
        opened.store.update(FLAGS, Key("good"), attr("x").set_to(1))


# Compared with their declaration


def test_our_own_tables_are_found_as_declared(path: Path) -> None:
    """Everything that the port declares can be created and compared."""
    assert problems(path, TABLES[0]) == {"table": ("present", "absent")}
    assert not path.exists()
    with OpenStore(path, StandardDriver(), tables=TABLES):
        pass
    assert [problems(path, table) for table in TABLES] == [{}] * len(TABLES)


def test_the_tables_found_are_those_in_the_file(path: Path) -> None:
    """A dropped index is missing, whatever our own records say; the next opening creates it again."""
    with OpenStore(path, StandardDriver()) as opened:
        opened.store.put(THINGS, thing("p", "s", kind="k", at="1"))
    with closing(sqlite3.connect(path)) as shell:
        shell.execute('DROP INDEX "some.things-1:by-kind"')
    assert problems(path, THINGS) == {"index by-kind": ("present", "absent")}
    with OpenStore(path, StandardDriver()) as opened:
        assert sorts(opened, THINGS, "by-kind", "k") == ["s"]
    assert problems(path, THINGS) == {}


def test_a_dropped_table_is_missing(path: Path) -> None:
    """And is created again, empty."""
    with OpenStore(path, StandardDriver()) as opened:
        opened.store.put(FLAGS, {"pk": "f"})
    with closing(sqlite3.connect(path)) as shell:
        shell.execute("DROP TABLE flags")
    assert problems(path, FLAGS) == {"table": ("present", "absent")}
    with OpenStore(path, StandardDriver()) as opened:
        assert opened.store.get(FLAGS, Key("f")) is None


def test_the_store_and_the_commands_find_the_same(driver: Driver, path: Path) -> None:
    """While the store has the file open, the commands inspect it."""
    with OpenStore(path, driver, tables=(BARE,)):
        found = SqliteTables(path, StillClock(), driver).find(THINGS)
        assert found is not None
        assert (found.key_attributes, found.indexes, found.ttl) == (("PK", "SK"), (), None)
        assert (found.stream, found.point_in_time_recovery, found.billing) == (None, None, None)


def test_a_new_index_is_filled_from_the_existing_items(driver: Driver, path: Path) -> None:
    """More of them than are read at once. One whose attribute is not text has no entry, as in DynamoDB."""
    with OpenStore(path, driver, tables=(BARE,)) as opened:

        def work(transaction: Any) -> None:
            for number in range(1203):
                item = thing("p", f"{number:04}", kind="k", at=f"{number % 7}", ttl=START.epoch_seconds + 10)
                transaction.replace(BARE, Key("p", f"{number:04}"), None, item)

        opened.rows.write(work)
        opened.store.put(BARE, thing("p", "number", kind=5, at="1"))
        opened.store.put(BARE, thing("p", "lacking", kind="k"))
    admin = SqliteTables(path, StillClock(), driver)
    for _ in range(2):
        for index in THINGS.indexes:
            admin.carry_out(AddIndex(THINGS, index))
        admin.carry_out(EnableTtl(THINGS))
    assert problems(path, THINGS) == {}
    clock = StillClock()
    with OpenStore(path, driver, tables=(THINGS,), clock=clock) as opened:
        assert len(sorts(opened, THINGS, "by-kind", "k")) == 1203
        assert sorts(opened, THINGS, "by-kind", "k")[:2] == ["0000", "0007"]
        assert opened.store.remove_expired(THINGS, most=2000) == 0
        clock.advance(10)
        assert opened.store.remove_expired(THINGS, most=1000) == 1000
        assert opened.store.remove_expired(THINGS, most=1000) == 203


def test_an_index_that_cannot_be_filled_leaves_the_table_unchanged(driver: Driver, path: Path) -> None:
    """Columns, index and record are one transaction."""
    with OpenStore(path, driver, tables=(BARE,)) as opened:
        opened.store.put(BARE, thing("p", "s", kind="k", at="1"))
        opened.sql("""UPDATE "some.things-1" SET item = '{"PK":' """)
    with pytest.raises(StoreRefused, match=r"item some\.things-1 cannot be read"):
        SqliteTables(path, StillClock(), driver).carry_out(AddIndex(THINGS, THINGS.indexes[0]))
    assert problems(path, THINGS)["index by-kind"] == ("present", "absent")
    with closing(sqlite3.connect(path)) as shell:
        assert [row[1] for row in shell.execute('PRAGMA table_info("some.things-1")')] == [
            "pk",
            "sk",
            "item",
            "expires",
        ]


def test_an_index_with_other_keys_is_rebuilt(driver: Driver, path: Path) -> None:
    """DynamoDB cannot do that in place; SQLite can, so that a newer Holdfast just opens the file."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "s", kind="k", at="1", place="here"))
    moved = replace(THINGS, indexes=(Index("by-kind", "kind", "place"), *THINGS.indexes[1:]))
    assert problems(path, moved) == {"index by-kind: keys": ("kind, place", "kind, at")}
    with OpenStore(path, driver, tables=(moved, FLAGS)) as opened:
        assert sorts(opened, moved, "by-kind", "k") == ["s"]
    assert problems(path, moved) == {}


def test_another_projection_is_only_recorded(driver: Driver, path: Path) -> None:
    """An SQL index leads to the whole item: the projection is applied when it is read."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "s", kind="k", at="1", note="x"))
        version = opened.sql("PRAGMA schema_version")
    slim = replace(THINGS.indexes[0], projection=Projection.INCLUDE, included=("note", "ttl"))
    changed = replace(THINGS, indexes=(slim, *THINGS.indexes[1:]))
    with OpenStore(path, driver, tables=(changed,)) as opened:
        assert opened.sql("PRAGMA schema_version") == version
    assert problems(path, changed) == {}


def test_an_undeclared_index_is_still_maintained(driver: Driver, path: Path) -> None:
    """After a downgrade, the older Holdfast finds in it what the newer one wrote."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "s", kind="a", at="1"))
    with OpenStore(path, driver, tables=(replace(BARE, ttl="ttl"),)) as opened:
        opened.store.update(BARE, Key("p", "s"), attr("kind").set_to("b"))
        opened.store.put(BARE, thing("p", "t", kind="b", at="2"))
    with OpenStore(path, driver) as opened:
        assert sorts(opened, THINGS, "by-kind", "a") == []
        assert sorts(opened, THINGS, "by-kind", "b") == ["s", "t"]


def test_another_ttl_attribute_applies_from_the_opening_on(driver: Driver, path: Path) -> None:
    """Also for existing items."""
    with OpenStore(path, driver) as opened:
        opened.store.put(THINGS, thing("p", "s", ttl=1, until=2**40))
    with OpenStore(path, driver, tables=(replace(THINGS, ttl="until"),)) as opened:
        assert opened.sql('SELECT expires FROM "some.things-1"') == [(2**40,)]


@pytest.mark.parametrize(
    ("tables", "message"),
    [
        ((replace(FLAGS, partition="id"),), "table flags, keys: declared id, found pk; cannot be changed in place"),
        ((replace(FLAGS, sort="sk"),), "table flags, keys: declared pk, sk, found pk"),
        (
            (replace(FLAGS, name="Flags"),),
            "already has a table 'flags', which is not ours or differs only in case.*FLAGS_TABLE",
        ),
        ((replace(FLAGS, name="sqlite_flags"),), "SQLite reserves names that begin with sqlite_"),
        ((FLAGS, THINGS, FLAGS), "table flags is declared twice"),
        (
            (replace(FLAGS, name="f2", indexes=(Index("a", "Kind"), Index("b", "kind"))),),
            "index keys Kind, kind differ only in case",
        ),
    ],
)
def test_a_table_that_sqlite_cannot_implement_is_refused(
    driver: Driver, path: Path, tables: tuple[Table, ...], message: str
) -> None:
    """With an error that names the setting to change; the file is unchanged."""
    with OpenStore(path, driver) as opened:
        opened.store.put(FLAGS, {"pk": "f"})
    before = path.read_bytes()
    with pytest.raises(TableProblem, match=message):
        OpenStore(path, driver, tables=tables)
    assert path.read_bytes() == before


def test_a_table_name_may_contain_quotes(driver: Driver, path: Path) -> None:
    """Settings do not allow them, but nothing here relies on that."""
    odd = replace(THINGS, name='odd"; DROP TABLE flags; --', indexes=(Index('i"x', 'k"y', "at"),))
    with OpenStore(path, driver, tables=(odd, FLAGS)) as opened:
        opened.store.put(odd, {"PK": "p", "SK": "s", 'k"y': "k", "at": "1"})
        assert sorts(opened, odd, 'i"x', "k") == ["s"]
        assert opened.store.get(FLAGS, Key("f")) is None
    with pytest.raises(TableProblem, match="NUL"):
        OpenStore(path, driver, tables=(replace(FLAGS, name="a\0b"),))


def test_reading_a_missing_table_is_an_error_with_the_remedy(driver: Driver, path: Path) -> None:
    """By get, by query, and by a write."""
    with OpenStore(path, driver, tables=(FLAGS,)) as opened:
        for call in (
            lambda: opened.store.get(THINGS, Key("p", "s")),
            lambda: opened.store.query(Query(THINGS, "p")),
            lambda: opened.store.put(THINGS, thing("p", "s")),
            lambda: opened.store.remove_expired(THINGS),
        ):
            with pytest.raises(TableProblem, match="run: holdfast tables create"):
                call()


def test_creating_a_table_creates_the_file(driver: Driver, path: Path) -> None:
    """`holdfast tables create` needs no store before it."""
    SqliteTables(path, StillClock(), driver).carry_out(CreateTable(FLAGS))
    assert problems(path, FLAGS) == {}
    with closing(sqlite3.connect(path)) as shell:
        assert shell.execute("PRAGMA user_version").fetchall() == [(len(MIGRATIONS),)]
