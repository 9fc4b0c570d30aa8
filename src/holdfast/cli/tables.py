"""`holdfast tables`: create missing tables, and compare the existing ones with their declarations."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from holdfast.cli.options import as_json, dry_run, with_settings
from holdfast.cli.terminal.colours import Style
from holdfast.cli.terminal.layout import wrapped
from holdfast.cli.terminal.output import print_json, print_table, print_words, terminal_width
from holdfast.kernel.errors import BadRequest, TableProblem
from holdfast.kernel.settings.own_commands import own_command
from holdfast.kernel.text import cut

if TYPE_CHECKING:
    from holdfast.entrypoints.wiring.tables import TableCheck
    from holdfast.kernel.settings import Settings
    from holdfast.ports.store.admin import TableDifference
    from holdfast.ports.store.schema import Index


@click.group("tables")
def tables_commands() -> None:
    """Create, check and describe the store's tables."""


@tables_commands.command("create")
@as_json
@dry_run
@with_settings("--data")
def create_command(settings: Settings, *, as_json: bool, dry_run: bool) -> None:
    """Create missing tables and indexes, and enable TTL.

    Existing tables are never changed or removed; 'holdfast tables check' shows how to fix differences.
    """
    from holdfast.entrypoints.wiring.stores import opened_tables

    with opened_tables(settings, writable=not dry_run) as tables:
        items = []
        for step in tables.planned() if dry_run else tables.create():
            items.append({"table": step.table.name, "step": str(step), "done": not dry_run})
            if not as_json:
                click.echo(f"would {step}" if dry_run else f"{step}: done")
        left = [] if dry_run else _differences(tables.check())
    if as_json:
        print_json({"items": items, "cursor": None})
    elif not items and not left:
        print_words(f"nothing to create: all tables exist in {settings.holdfast_store}")
    _fail_if_different(left, f"run '{own_command(settings, 'tables check')}' for details")


@tables_commands.command("check")
@as_json
@with_settings("--data")
def check_command(settings: Settings, *, as_json: bool) -> None:
    """Compare the tables with their declarations.

    Shows each difference and how to fix it. The exit code is 1 if there is one.
    """
    from holdfast.entrypoints.wiring.stores import opened_tables

    with opened_tables(settings) as tables:
        checks = tables.check()
    found = _differences(checks)
    if as_json:
        print_json({"items": [_difference_json(difference) for difference in found], "cursor": None})
    elif found:
        columns = ("table", "attribute", "declared", "found", "remedy")
        rows = [[str(getattr(difference, column)) for column in columns] for difference in found]
        print_table(["TABLE", "ATTRIBUTE", "DECLARED", "FOUND", "FIX"], rows)
    else:
        print_words(f"all {len(checks)} tables in {settings.holdfast_store} are as declared")
    _fail_if_different(found, "each difference above has its fix")


@tables_commands.command("rebuild-index")
@click.argument("index")
@click.option("--yes", "is_confirmed", is_flag=True, help="Confirm that the index may be away for a while.")
@as_json
@dry_run
@with_settings("--data")
def rebuild_command(settings: Settings, *, index: str, is_confirmed: bool, as_json: bool, dry_run: bool) -> None:
    """Rebuild an index that is not as declared.

    It is deleted and created again: DynamoDB cannot change what an index contains. Until the new one is filled,
    which may take hours, queries along it fail with a message that says so, and webhooks are stored as usual.
    """
    from holdfast.entrypoints.wiring.stores import opened_tables

    with opened_tables(settings, writable=not dry_run) as tables:
        step = tables.to_rebuild(index)
        if step is None:
            raise BadRequest(f"index {cut(index)}: no table has one of this name that differs from its declaration")
        if not dry_run and not is_confirmed:
            raise BadRequest(f"{step}: queries along it would fail until it is filled; add --yes to do it")
        if not dry_run:
            tables.admin.carry_out(step)
    if as_json:
        print_json({"items": [{"table": step.table.name, "step": str(step), "done": not dry_run}], "cursor": None})
    else:
        click.echo(f"would {step}" if dry_run else f"{step}: done")


@tables_commands.command("describe")
@as_json
@with_settings("--data")
def describe_command(settings: Settings, *, as_json: bool) -> None:
    """Show each table and whether it exists as declared."""
    from holdfast.entrypoints.wiring.stores import opened_tables

    with opened_tables(settings) as tables:
        checks = tables.check()
    if as_json:
        print_json({"items": [_table_json(check) for check in checks], "cursor": None})
        return
    for number, check in enumerate(checks):
        if number:
            click.echo()
        print_words(f"{check.table.name}  ({check.table.setting})", Style.TITLE)
        for line in _description(check, settings, terminal_width()):
            click.echo(line)


def _fail_if_different(left: list[TableDifference], next_step: str) -> None:
    if left:
        names = ", ".join(dict.fromkeys(difference.table for difference in left))
        raise TableProblem(f"not as declared: {names}; {next_step}")


def _differences(checks: list[TableCheck]) -> list[TableDifference]:
    return [difference for check in checks for difference in check.differences]


def _difference_json(difference: TableDifference) -> dict[str, str]:
    columns = ("table", "attribute", "declared", "found", "remedy")
    return {column: str(getattr(difference, column)) for column in columns}


def _table_json(check: TableCheck) -> dict[str, object]:
    return {
        **asdict(check.table),
        "found": asdict(check.found) if check.found else None,
        "differences": [_difference_json(difference) for difference in check.differences],
    }


def _description(check: TableCheck, settings: Settings, width: int | None) -> Iterator[str]:
    table = check.table
    facts = [("holds", table.purpose), ("keys", ", ".join(table.key_attributes))]
    facts += [("index", _index_words(index)) for index in table.indexes]
    facts += [("expires by", table.ttl or "nothing"), ("exists", _existence(check, settings))]
    indent = " " * 14
    for name, words in facts:
        first, *rest = [words] if width is None else wrapped(words, max(width - len(indent), 20))
        yield f"  {name:<12}{first}"
        yield from (indent + line for line in rest)


def _index_words(index: Index) -> str:
    included = f" ({', '.join(index.included)})" if index.included else ""
    return f"{index.name}: {', '.join(index.key_attributes)}; {index.projection}{included}"


def _existence(check: TableCheck, settings: Settings) -> str:
    if check.found is None:
        return f"no; run: {own_command(settings, 'tables create')}"
    if check.differences:
        see = own_command(settings, "tables check")
        return f"yes, but not as declared ({len(check.differences)}); see: {see}"
    return "yes, as declared"
