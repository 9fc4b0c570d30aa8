"""The one place that builds things: settings in, ports out.

Lambda imports this, so what only one backend or only a long-running process needs is imported where it is used.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Final

from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.tables import NothingYet, Tables
from holdfast.kernel.errors import BadSetting, NeedsOperator, StoreRefused
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.ports.store.schema import Billing
from holdfast.ports.store.tables import TABLES, renamed

if TYPE_CHECKING:
    from holdfast.adapters.dynamodb_calls import DynamoCalls, Transport

WORLD_FILE: Final = "world"  # of the simulated world, in the data directory


def open_store(settings: Settings, clock: Clock | None = None, *, writable: bool = True) -> Store:
    """The store that HOLDFAST_STORE names. Opened for writing, a SQLite file and its tables are made when absent."""
    clock = clock or SystemClock()
    if settings.holdfast_store.path is None:
        from holdfast.adapters.dynamodb import DynamoStore

        return DynamoStore(_dynamodb_calls(settings, clock), _table_names(settings))
    from holdfast.adapters.sqlite import sqlite_store

    refuse_another_world(settings)
    if writable:
        make_data_directory(settings)
    elif not settings.holdfast_store.path.exists():
        raise StoreRefused(f"{settings.holdfast_store}: nothing is stored there yet; begin with: holdfast run")
    return sqlite_store(settings.holdfast_store.path, clock, tables=TABLES, writable=writable)


@contextmanager
def opened_tables(settings: Settings, clock: Clock | None = None, *, writable: bool = False) -> Iterator[Tables]:
    """The declared tables, and what can be said and done about them on the backend that HOLDFAST_STORE names.

    To carry out steps it is opened as writable: the directory of a SQLite file is then made when absent.
    """
    clock = clock or SystemClock()
    billing = Billing(settings.dynamodb_billing)
    if settings.holdfast_store.path is None:
        from holdfast.adapters.dynamodb_tables import DynamoTables

        calls = _dynamodb_calls(settings, clock)
        with closing(calls.transport):
            yield Tables(DynamoTables(calls, billing=billing), renamed(TABLES, _table_names(settings)), billing)
    else:
        from holdfast.adapters.sqlite import SqliteTables

        if writable:
            make_data_directory(settings)
        path = settings.holdfast_store.path
        refuse_another_world(settings)
        # The file is Holdfast's own: its tables have the names they are declared with, whatever DynamoDB's are.
        yield Tables(SqliteTables(path, clock) if path.parent.is_dir() else NothingYet(), TABLES, billing)


def refuse_another_world(settings: Settings) -> None:
    """A file that a simulated world's machines and jobs are in is not taken for a real cluster's."""
    path = settings.holdfast_store.path
    if path is not None and settings.holdfast_world != "sim" and (path.parent / WORLD_FILE).exists():
        raise BadSetting(
            f"HOLDFAST_WORLD={settings.holdfast_world}: {path} holds what a simulated world left, which is beside it; "
            "name another directory with --data, or another file with HOLDFAST_STORE"
        )


def make_data_directory(settings: Settings) -> None:
    """The directory of the SQLite file, for this user alone."""
    path = settings.holdfast_store.path
    if path is not None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise NeedsOperator(
                f"cannot make the directory {path.parent}: {error.strerror}; name another with --data or HOLDFAST_STORE"
            ) from error


def _dynamodb_calls(settings: Settings, clock: Clock) -> "DynamoCalls":
    from holdfast.adapters.dynamodb_calls import DynamoCalls, Retries

    return DynamoCalls(_transport(settings), clock, Retries(deadline_seconds=settings.dynamodb_deadline_sec))


def _transport(settings: Settings) -> "Transport":
    if settings.dynamodb_client == "lean":
        from holdfast.adapters.dynamodb_lean import lean_transport

        lean = lean_transport()
        if lean is not None:
            return lean
    from holdfast.adapters.dynamodb_boto3 import Boto3Transport

    return Boto3Transport()


def _table_names(settings: Settings) -> dict[str, str]:
    return {table.setting: str(getattr(settings, table.setting.lower())) for table in TABLES}
