"""Is the store there, with its tables, and may we use them? Nothing is changed."""

import os
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Final

from holdfast.entrypoints.doctor.findings import Finding, failed, of_error, ok, warning
from holdfast.entrypoints.doctor.granted import denied_by
from holdfast.entrypoints.wiring import open_store, opened_tables
from holdfast.kernel.errors import HoldfastError, WriteConflict
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import CheckItem, Key, Query, Store, attr, set_all
from holdfast.ports.store.admin import Difference
from holdfast.ports.store.schema import Table
from holdfast.ports.store.tables import STATE, TABLES

REACHED: Final = "store"
# They cost money or safety, and everything works without.
_MILD: Final = ("billing", "stream", "point-in-time recovery")
_NOBODY: Final = "holdfast-doctor"  # an item that is not there


def reached(settings: Settings, clock: Clock) -> Iterator[Finding]:
    path = settings.holdfast_store.path
    if path is not None and not path.exists():
        yield warning(REACHED, f"{settings.holdfast_store}: nothing is stored there yet", "holdfast run makes it")
        return
    with closing(open_store(settings, clock, writable=False)) as store:
        store.get(STATE, Key(settings.cluster_id))
    if path is not None and not os.access(path, os.W_OK):
        yield failed(REACHED, f"{settings.holdfast_store} cannot be written by this user", "see to its permissions")
    else:
        yield ok(REACHED, f"{settings.holdfast_store} answers")


def tables(settings: Settings, clock: Clock) -> Iterator[Finding]:
    path = settings.holdfast_store.path
    if path is not None and not path.exists():
        yield warning("tables", "there is no file, and so no table", "holdfast run makes them")
        return
    with opened_tables(settings, clock) as there:
        checks = there.check()
    found = [difference for check in checks for difference in check.differences]
    yield from map(_difference, found)
    if not found:
        yield ok("tables", f"all {len(checks)} are as declared: keys, indexes, TTL")


def _difference(found: Difference) -> Finding:
    tell = warning if found.attribute in _MILD or found.found == "present" else failed
    return tell(f"table {found.table}", f"{found.attribute}: {found.found}, expected {found.declared}", found.remedy)


def permissions(settings: Settings, clock: Clock) -> Iterator[Finding]:
    """Reads of an item that is not there, and writes whose condition cannot hold: DynamoDB answers both, or denies."""
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
            pass  # as meant: it was allowed, and changed nothing
        except HoldfastError as error:
            refused = denied_by(action, error)
            missing.append(failed(name, str(refused), refused.fix) if refused else of_error(name, error))
    yield from missing
    if not missing:
        yield ok(name, "get, batch get, query, put, update, delete and check are allowed")


def _calls(store: Store, table: Table) -> dict[str, Callable[[], object]]:
    key = Key(_NOBODY, None if table.sort is None else _NOBODY)
    is_there = attr(table.partition).equals("never")
    item = dict(zip(table.key_attributes, (_NOBODY, _NOBODY), strict=False))
    partition = Query(table, _NOBODY, limit=1)
    indexes = [Query(table, _NOBODY, index=index.name, limit=1) for index in table.indexes]
    return {
        "dynamodb:GetItem": lambda: store.get(table, key),
        "dynamodb:BatchGetItem": lambda: store.batch_get(table, [key]),
        "dynamodb:Query": lambda: [store.query(query) for query in (partition, *indexes)],
        "dynamodb:PutItem": lambda: store.put(table, item, is_there),
        "dynamodb:UpdateItem": lambda: store.update(table, key, set_all({"doctor": True}), is_there),
        "dynamodb:DeleteItem": lambda: store.delete(table, key, is_there),
        "dynamodb:ConditionCheckItem": lambda: store.transact([CheckItem(table, key, is_there)]),
    }
