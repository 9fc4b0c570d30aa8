"""Tables: what exists, compared with what is declared, on every backend that has tables."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import replace
from itertools import count
from pathlib import Path

import pytest

from holdfast.adapters.dynamodb.calls import DynamoCalls, DynamoTransportError
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.tables import DynamoTables
from holdfast.adapters.sqlite import SqliteTables, sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.wiring.tables import Tables
from holdfast.kernel.errors import TableProblem
from holdfast.ports.store import Index, Key, Projection, Query, Store, Table
from holdfast.ports.store.admin import AddIndex, CreateTable, EnableTtl, RebuildIndex, TableAdmin, differences
from holdfast.ports.store.schema import Billing
from holdfast.ports.store.tables import JOBS, TABLES, IndexProjection, projecting
from tests.clocks import StillClock
from tests.contracts import backends
from tests.servers.processes import RunningServer

_NUMBERS = count(1)

Opener = Callable[[tuple[Table, ...]], Store]


class Place:
    """A backend without tables, and how to open a store on it."""

    def __init__(self, admin: TableAdmin, open_store: Opener, suffix: str) -> None:
        self.admin = admin
        self.open_store = open_store
        self._suffix = suffix
        self.names: list[str] = []

    def close(self, store: Store) -> None:
        """Only a SQLite file belongs to one test; the connections to DynamoDB Local are shared."""
        if not self._suffix:
            store.close()

    def own(self, table: Table) -> Table:
        """The table under a name for this test: all tests share one DynamoDB Local."""
        name = f"{table.name}{self._suffix}"
        self.names.append(name)
        return replace(table, name=name)


@pytest.fixture(scope="session")
def own_database(dynamodb_server: RunningServer) -> DynamoCalls:
    """DynamoDB Local needs a second more for a new index for each table with TTL in the same database.

    The real clock: an index is built beside us, and waiting for it must take time.
    """
    return backends.dynamodb_calls(dynamodb_server.url, SystemClock(), database="tables")


@pytest.fixture(params=["sqlite", pytest.param("dynamodb", marks=pytest.mark.real)])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    clock = StillClock()
    if request.param == "sqlite":
        path = tmp_path / "tables.db"
        yield Place(SqliteTables(path, clock), lambda tables: sqlite_store(path, clock, tables=tables), "")
    else:
        calls: DynamoCalls = request.getfixturevalue("own_database")
        place = Place(DynamoTables(calls), lambda _: DynamoStore(calls), f".t{next(_NUMBERS)}")
        yield place
        for name in dict.fromkeys(place.names):
            with suppress(DynamoTransportError):  # a table that the test never created
                calls.call("DeleteTable", {"TableName": name}, expected=["ResourceNotFoundException"])


@pytest.mark.parametrize("table", TABLES, ids=lambda table: table.name)
def test_a_created_table_is_as_declared(place: Place, table: Table) -> None:
    """Holdfast's own tables, attribute by attribute; creating one again is no error."""
    own = place.own(table)
    assert place.admin.find(own) is None
    place.admin.carry_out(CreateTable(own))
    place.admin.carry_out(CreateTable(own))
    assert differences(own, place.admin.find(own), Billing.ON_DEMAND) == []


BARE = Table(name="things", setting="THINGS_TABLE", purpose="to differ", partition="pk", sort="sk")
BY_TOPIC = Index("by-topic", "topic", "at")
FULL = replace(
    BARE,
    indexes=(BY_TOPIC, Index("by-kind", "kind", projection=Projection.INCLUDE, included=("b", "a", "ttl", "expires"))),
    ttl="ttl",
)


def test_missing_indexes_and_ttl_are_added_to_a_table_with_items(place: Place) -> None:
    """Indexes are filled from the items that are there already; then nothing differs."""
    bare, full = place.own(BARE), place.own(FULL)
    place.admin.carry_out(CreateTable(bare))
    store = place.open_store((bare,))
    store.put(bare, {"pk": "p", "sk": "1", "topic": "t", "at": "2", "kind": "k", "a": 1})
    store.put(bare, {"pk": "p", "sk": "2", "topic": "t", "at": "1"})
    store.put(bare, {"pk": "p", "sk": "3", "topic": "t"})
    place.close(store)
    found = differences(full, place.admin.find(full), Billing.ON_DEMAND)
    assert {(d.attribute, d.declared, d.found) for d in found} == {
        ("index by-topic", "present", "absent"),
        ("index by-kind", "present", "absent"),
        ("ttl", "ttl", "none"),
    }
    assert {type(d.step) for d in found} == {AddIndex, EnableTtl}
    for difference in found:
        assert difference.step is not None
        place.admin.carry_out(difference.step)
        place.admin.carry_out(difference.step)
    assert differences(full, place.admin.find(full), Billing.ON_DEMAND) == []
    reopened = place.open_store((full,))
    assert [i["sk"] for i in reopened.query(Query(full, "t", index="by-topic")).items] == ["2", "1"]
    assert [i["sk"] for i in reopened.query(Query(full, "k", index="by-kind")).items] == ["1"]
    assert reopened.get(full, Key("p", "3")) is not None
    place.close(reopened)


@pytest.mark.parametrize(
    ("there", "attribute", "declared", "found", "remedy"),
    [
        (replace(FULL, sort=None), "keys", "pk, sk", "pk", "move the items to a new table"),
        (replace(FULL, partition="other"), "keys", "pk, sk", "other, sk", "move the items to a new table"),
        (replace(FULL, ttl="expires"), "ttl", "ttl", "expires", "disable TTL"),
        (
            replace(FULL, indexes=(replace(BY_TOPIC, sort=None), FULL.indexes[1])),
            "index by-topic: keys",
            "topic, at",
            "topic",
            "delete the index by-topic",
        ),
        (
            replace(FULL, indexes=(replace(BY_TOPIC, projection=Projection.KEYS_ONLY), FULL.indexes[1])),
            "index by-topic: projection",
            "ALL",
            "KEYS_ONLY",
            "delete the index by-topic",
        ),
        (
            replace(FULL, indexes=(BY_TOPIC, replace(FULL.indexes[1], included=("a", "ttl", "expires")))),
            "index by-kind: included",
            "a, b, expires, ttl",
            "a, expires, ttl",
            "delete the index by-kind",
        ),
        (
            replace(FULL, indexes=(*FULL.indexes, Index("extra", "x"))),
            "index extra",
            "absent",
            "present",
            "it makes each write more expensive",
        ),
    ],
    ids=["no sort key", "another key", "another ttl", "index key", "projection", "included", "an index too many"],
)
def test_each_difference_is_reported_with_its_remedy(
    place: Place, there: Table, attribute: str, declared: str, found: str, remedy: str
) -> None:
    place.admin.carry_out(CreateTable(place.own(there)))
    table = place.own(FULL)
    (difference,) = differences(table, place.admin.find(table), Billing.ON_DEMAND)
    assert (difference.table, difference.attribute, difference.declared, difference.found) == (
        table.name,
        attribute,
        declared,
        found,
    )
    assert remedy in difference.remedy
    assert difference.step is None


def test_a_different_index_is_rebuilt_from_the_items(place: Place) -> None:
    """Only when asked to; a finished rebuild changes nothing when it is repeated."""
    before, after = (place.own(projecting((JOBS,), each)[0]) for each in (IndexProjection.KEYS, IndexProjection.STATUS))
    place.admin.carry_out(CreateTable(before))
    store = place.open_store((before,))
    store.put(before, {"PK": "1#2", "SK": "v", "GSI3-PK": "1#3#1", "created_at": "2026", "status": "completed"})
    place.close(store)
    found = differences(after, place.admin.find(after), Billing.ON_DEMAND)
    assert {(each.attribute, each.found, each.step) for each in found} == {
        ("index GSI2: projection", "KEYS_ONLY", None),
        ("index GSI2: included", "none", None),
        ("index GSI3: projection", "KEYS_ONLY", None),
        ("index GSI3: included", "none", None),
    }
    assert all("or set JOBS_INDEX_PROJECTION=keys" in each.remedy for each in found)
    tables = Tables(place.admin, (after,), Billing.ON_DEMAND)
    assert list(tables.create()) == []
    assert tables.to_rebuild("GSI1") is None
    for name in ("GSI2", "GSI3"):
        step = tables.to_rebuild(name)
        assert step == RebuildIndex(after, after.index(name))
        place.admin.carry_out(step)
        place.admin.carry_out(step)
        assert tables.to_rebuild(name) is None
    assert differences(after, place.admin.find(after), Billing.ON_DEMAND) == []
    reopened = place.open_store((after,))
    assert [each["status"] for each in reopened.query(Query(after, "1#3#1", index="GSI3")).items] == ["completed"]
    # Whatever declaration a query is made with, the store knows what its indexes contain.
    assert [each["status"] for each in reopened.query(Query(before, "1#3#1", index="GSI3")).items] == ["completed"]
    place.close(reopened)


@pytest.mark.real
def test_a_query_of_an_index_that_is_gone_says_what_to_do(own_database: DynamoCalls) -> None:
    """As between the two halves of a rebuild; whoever rebuilds it again gets the missing half done."""
    full = replace(FULL, name=f"halfway{next(_NUMBERS)}")
    admin = DynamoTables(own_database)
    admin.carry_out(CreateTable(full))
    removed = [{"Delete": {"IndexName": BY_TOPIC.name}}]
    own_database.call("UpdateTable", {"TableName": full.name, "GlobalSecondaryIndexUpdates": removed})
    while any(index.name == BY_TOPIC.name for index in (admin.find(full) or pytest.fail("no table")).indexes):
        own_database.clock.sleep(0.05)
    with pytest.raises(TableProblem, match=r"if it is not being rebuilt, run: holdfast tables create"):
        DynamoStore(own_database).query(Query(full, "t", index=BY_TOPIC.name))
    step = Tables(admin, (full,), Billing.ON_DEMAND).to_rebuild(BY_TOPIC.name)
    assert step is not None
    admin.carry_out(step)
    assert differences(full, admin.find(full), Billing.ON_DEMAND) == []
    own_database.call("DeleteTable", {"TableName": full.name})


@pytest.mark.real
def test_billing_is_created_and_compared(calls_of: DynamoCalls) -> None:
    """Only DynamoDB has it: a difference is reported, not fixed, since it changes the price."""
    table = replace(FULL, name="billed")
    admin = DynamoTables(DynamoCalls(calls_of.transport, StillClock()), billing=Billing.PROVISIONED)
    admin.carry_out(CreateTable(table))
    found = admin.find(table)
    assert differences(table, found, Billing.PROVISIONED) == []
    (difference,) = differences(table, found, Billing.ON_DEMAND)
    assert (difference.attribute, difference.declared, difference.found) == ("billing", "on-demand", "provisioned")
    assert "DYNAMODB_BILLING=provisioned" in difference.remedy


@pytest.mark.real
def test_an_unwanted_stream_is_reported(calls_of: DynamoCalls) -> None:
    """The seeds decided against streams and point-in-time recovery."""
    calls = DynamoCalls(calls_of.transport, StillClock())
    calls.call(
        "CreateTable",
        {
            "TableName": "streamed",
            "AttributeDefinitions": [{"AttributeName": n, "AttributeType": "S"} for n in ("pk", "sk")],
            "KeySchema": [{"AttributeName": "pk", "KeyType": "HASH"}, {"AttributeName": "sk", "KeyType": "RANGE"}],
            "BillingMode": "PAY_PER_REQUEST",
            "StreamSpecification": {"StreamEnabled": True, "StreamViewType": "KEYS_ONLY"},
        },
    )
    table = replace(BARE, name="streamed")
    (difference,) = differences(table, DynamoTables(calls).find(table), Billing.ON_DEMAND)
    assert (difference.attribute, difference.declared, difference.found) == ("stream", "off", "on")


def test_an_interrupted_creation_of_tables_is_resumed(place: Place) -> None:
    """Killed after any step: the next one does the rest, and then nothing is left to do."""
    declared = tuple(place.own(table) for table in TABLES)
    tables = Tables(place.admin, declared, Billing.ON_DEMAND)
    first = next(iter(tables.create()))
    assert isinstance(first, CreateTable)
    rest = list(tables.create())
    assert len(rest) == len(TABLES) - 1
    assert list(tables.create()) == []
    assert all(check.differences == () for check in tables.check())
