"""Opens the store and its tables, as configured.

Lambda imports this, so what only one backend or a long-running process needs is imported locally.
"""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Final

from holdfast.adapters.server_date import ServerDate
from holdfast.adapters.system_clock import SystemClock
from holdfast.entrypoints.wiring.tables import MissingStore, Tables
from holdfast.kernel.errors import BadSetting, NeedsOperator, StoreRefused
from holdfast.kernel.file_trust import distrusted
from holdfast.kernel.settings import Settings
from holdfast.kernel.settings.own_commands import own_command
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.ports.store.schema import Billing, Table
from holdfast.ports.store.tables import TABLES, IndexProjection, projecting, renamed

if TYPE_CHECKING:
    from holdfast.adapters.dynamodb.calls import DynamoCalls, DynamoTransport

WORLD_FILE: Final = "world"  # the simulated world's file in the data directory


def open_store(
    settings: Settings, clock: Clock | None = None, *, writable: bool = True, date: ServerDate | None = None
) -> Store:
    """The store that HOLDFAST_STORE names. If writable, a missing SQLite file and its tables are created.

    `date` gets DynamoDB's time.
    """
    clock = clock or SystemClock()
    if settings.holdfast_store.path is None:
        from holdfast.adapters.dynamodb.store import DynamoStore

        return DynamoStore(_dynamodb_calls(settings, clock, date), _table_names(settings))
    from holdfast.adapters.sqlite import sqlite_store

    refuse_another_world(settings)
    if writable:
        make_data_directory(settings)
    elif not settings.holdfast_store.path.exists():
        raise StoreRefused(f"{settings.holdfast_store} does not exist yet; start with: {own_command(settings, 'run')}")
    _refuse_untrusted(settings.holdfast_store.path)
    return sqlite_store(settings.holdfast_store.path, clock, tables=_declared(settings), writable=writable)


@contextmanager
def opened_tables(settings: Settings, clock: Clock | None = None, *, writable: bool = False) -> Iterator[Tables]:
    """The declared tables on the backend that HOLDFAST_STORE names, to check or create them.

    If writable, a missing directory for the SQLite file is created.
    """
    clock = clock or SystemClock()
    billing = Billing(settings.dynamodb_billing)
    if settings.holdfast_store.path is None:
        from holdfast.adapters.dynamodb.tables import DynamoTables

        calls = _dynamodb_calls(settings, clock)
        with closing(calls.transport):
            named = renamed(_declared(settings), _table_names(settings))
            yield Tables(DynamoTables(calls, billing=billing), named, billing)
    else:
        from holdfast.adapters.sqlite import SqliteTables

        if writable:
            make_data_directory(settings)
        path = settings.holdfast_store.path
        refuse_another_world(settings)
        # In our own file, tables have their declared names; the settings rename only DynamoDB's.
        _refuse_untrusted(path)
        admin = SqliteTables(path, clock) if path.parent.is_dir() else MissingStore()
        yield Tables(admin, _declared(settings), billing)


def refuse_another_world(settings: Settings) -> None:
    """Refuse to use a simulated world's file for a real cluster."""
    path = settings.holdfast_store.path
    if path is not None and settings.holdfast_world != "sim" and (path.parent / WORLD_FILE).exists():
        raise BadSetting(
            f"HOLDFAST_WORLD={settings.holdfast_world}: {path} belongs to a simulated world; "
            "choose another directory with --data, or another file with HOLDFAST_STORE"
        )


def _refuse_untrusted(path: Path) -> None:
    """Refuse a file that another user could have written: it decides what is launched and terminated."""
    if found := distrusted(path.parent, path):
        raise NeedsOperator(
            f"the store {path} was not opened: {found}; take ownership of it and run chmod go-w, "
            "or choose another directory with --data or HOLDFAST_STORE"
        )


def make_data_directory(settings: Settings) -> None:
    """Create the directory of the SQLite file, private to this user."""
    path = settings.holdfast_store.path
    if path is not None:
        try:
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise NeedsOperator(
                f"cannot create directory {path.parent}: {error.strerror}; choose another with --data or HOLDFAST_STORE"
            ) from error


def _dynamodb_calls(settings: Settings, clock: Clock, date: ServerDate | None = None) -> "DynamoCalls":
    from holdfast.adapters.dynamodb.calls import DynamoCalls, DynamoRetries

    retries = DynamoRetries(deadline_seconds=settings.dynamodb_deadline_sec)
    return DynamoCalls(_transport(settings, date), clock, retries)


def _transport(settings: Settings, date: ServerDate | None) -> "DynamoTransport":
    if settings.dynamodb_client == "lean":
        from holdfast.adapters.dynamodb.lean_transport import lean_transport

        lean = lean_transport(date)
        if lean is not None:
            return lean
    from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport

    return Boto3Transport(date=date)


def _declared(settings: Settings) -> tuple[Table, ...]:
    return projecting(TABLES, IndexProjection(settings.jobs_index_projection))


def _table_names(settings: Settings) -> dict[str, str]:
    return {table.setting: str(getattr(settings, table.setting.lower())) for table in TABLES}
