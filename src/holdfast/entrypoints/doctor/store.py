"""The store: whether it answers, has its tables, and whether we may use them. Changes nothing."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from holdfast.entrypoints.doctor.findings import Finding, failed, failed_by_error, ok, warning
from holdfast.entrypoints.doctor.granted import denied_by
from holdfast.entrypoints.wiring.stores import open_store, opened_tables
from holdfast.entrypoints.wiring.world import world_clock, world_path
from holdfast.kernel.errors import HoldfastError, WriteConflict
from holdfast.kernel.settings import Settings
from holdfast.kernel.settings.own_commands import own_command
from holdfast.ports.clock import Clock
from holdfast.ports.store import CheckItem, Key, Query, Store, attr, set_all
from holdfast.ports.store.admin import TableDifference
from holdfast.ports.store.schema import Table
from holdfast.ports.store.tables import STATE, TABLES

REACHED: Final = "store"
# These affect cost or safety, but everything works without them.
_MILD: Final = ("billing", "stream", "point-in-time recovery")
_ABSENT: Final = "holdfast-doctor"  # the key of an item that does not exist


def reached(settings: Settings, clock: Clock) -> Iterator[Finding]:
    path = settings.holdfast_store.path
    if path is not None and not path.exists():
        yield warning(
            REACHED, f"{settings.holdfast_store} does not exist yet", f"'{own_command(settings, 'run')}' creates it"
        )
        return
    with closing(open_store(settings, clock, writable=False)) as store:
        store.get(STATE, Key(settings.cluster_id))
    if path is not None and not os.access(path, os.W_OK):
        yield failed(REACHED, f"{settings.holdfast_store} is not writable by this user", "check its permissions")
    else:
        yield ok(REACHED, f"{settings.holdfast_store} answers")


def simulated_world(settings: Settings) -> Iterator[Finding]:
    """The file that stores it, which 'holdfast run' reads first. One that does not exist yet is created."""
    path = world_path(settings)
    if path.exists():
        world_clock(settings)
        yield ok("simulated world", f"{path} can be read")


def tables(settings: Settings, clock: Clock) -> Iterator[Finding]:
    path = settings.holdfast_store.path
    if path is not None and not path.exists():
        yield warning("tables", "the store does not exist yet", f"'{own_command(settings, 'run')}' creates the tables")
        return
    with opened_tables(settings, clock) as declared:
        checks = declared.check()
    found = [difference for check in checks for difference in check.differences]
    yield from map(_difference, found)
    if not found:
        projection = f"JOBS_INDEX_PROJECTION={settings.jobs_index_projection}"
        yield ok("tables", f"all {len(checks)} are as declared: keys, indexes ({projection}), TTL")


def _difference(found: TableDifference) -> Finding:
    outcome = warning if found.attribute in _MILD or found.found == "present" else failed
    return outcome(f"table {found.table}", f"{found.attribute}: {found.found}, expected {found.declared}", found.remedy)


def permissions(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Reads of an absent item, and writes whose condition cannot hold: DynamoDB checks permissions for both."""
    with closing(open_store(settings, clock)) as store:
        for table in TABLES:
            name = f"table {getattr(settings, table.setting.lower())}: permissions"
            yield from _allowed(name, store, table)


def _allowed(name: str, store: Store, table: Table) -> Iterator[Finding]:
    missing = []
    for action, call in _calls(store, table).items():
        try:
            call()
        except WriteConflict:
            pass  # expected: the call was allowed, and changed nothing
        except HoldfastError as error:
            refused = denied_by(action, error)
            missing.append(failed(name, str(refused), refused.fix) if refused else failed_by_error(name, error))
    yield from missing
    if not missing:
        yield ok(name, "get, batch get, query, put, update, delete and check are allowed")


def _calls(store: Store, table: Table) -> dict[str, Callable[[], object]]:
    key = Key(_ABSENT, None if table.sort is None else _ABSENT)
    never_holds = attr(table.partition).equals("never")
    item = dict(zip(table.key_attributes, (_ABSENT, _ABSENT), strict=False))
    partition = Query(table, _ABSENT, limit=1)
    indexes = [Query(table, _ABSENT, index=index.name, limit=1) for index in table.indexes]
    return {
        "dynamodb:GetItem": lambda: store.get(table, key),
        "dynamodb:BatchGetItem": lambda: store.batch_get(table, [key]),
        "dynamodb:Query": lambda: [store.query(query) for query in (partition, *indexes)],
        "dynamodb:PutItem": lambda: store.put(table, item, never_holds),
        "dynamodb:UpdateItem": lambda: store.update(table, key, set_all({"doctor": True}), never_holds),
        "dynamodb:DeleteItem": lambda: store.delete(table, key, never_holds),
        "dynamodb:ConditionCheckItem": lambda: store.transact([CheckItem(table, key, never_holds)]),
    }
