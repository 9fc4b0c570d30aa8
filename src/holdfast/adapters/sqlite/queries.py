"""Queries as SQL. Each searches one index in its own order, and reads only the rows that it returns."""

from functools import cache
from typing import Final

from holdfast.adapters.sqlite.schema import expiry_index_name, index_name, key_columns, optional_columns, quoted
from holdfast.ports.store import Query, SortRange

_LAST_CHARACTER: Final = "\U0010ffff"
_BEFORE_SURROGATES: Final = "\ud7ff"
_AFTER_SURROGATES: Final = "\ue000"

_Bound = tuple[str, str]  # an operator, and the text that a sort key is compared with


@cache
def select_item(table: str) -> str:
    return f"SELECT item FROM {quoted(table)} WHERE pk = ? AND sk = ?"  # noqa: S608 -- the name is quoted


@cache
def select_expired(table: str) -> str:
    source = f"{quoted(table)} INDEXED BY {quoted(expiry_index_name(table))}"
    return f"SELECT pk, sk FROM {source} WHERE expires <= ? ORDER BY expires LIMIT ?"  # noqa: S608 -- names are quoted


def select_in_order(query: Query, after: dict[str, str] | None) -> tuple[str, list[str | int]]:
    """The statement and its parameters. `after` has the keys of the last item of the previous page."""
    index = None if query.index is None else query.table.index(query.index)
    columns = key_columns(query.table.partition, query.table.sort, index)
    partition, *order = columns
    # SQLite uses a partial index only if the search repeats its condition.
    terms = [f"{partition} = ?", *(f"{column} IS NOT NULL" for column in optional_columns(columns))]
    parameters: list[str | int] = [query.partition]
    low, high = _bounds(query.sort)
    if after is not None:
        # It is within the range, so it replaces the bound on its side.
        low, high = (low, None) if query.reverse else (None, high)
        terms.append(f"({', '.join(order)}) {'<' if query.reverse else '>'} ({', '.join('?' * len(order))})")
        parameters += [after[attribute] if attribute else "" for attribute in map(columns.get, order)]
    for operator, text in filter(None, (low, high)):
        terms.append(f"{order[0]} {operator} ?")
        parameters.append(text)
    source = quoted(query.table.name)
    if index is not None:
        # Name the index: if it is missing, that is an error rather than a slow search.
        source += f" INDEXED BY {quoted(index_name(query.table.name, index))}"
    ordered = ", ".join(f"{column} DESC" if query.reverse else column for column in order)
    sql = f"SELECT item FROM {source} WHERE {' AND '.join(terms)} ORDER BY {ordered}"  # noqa: S608 -- names are quoted
    if query.limit is not None:
        sql += " LIMIT ?"
        parameters.append(query.limit)
    return sql, parameters


def _bounds(wanted: SortRange | None) -> tuple[_Bound | None, _Bound | None]:
    if wanted is None:
        return None, None
    if wanted.prefix is not None:
        end = end_of_prefix(wanted.prefix)
        return (">=", wanted.prefix), ("<", end) if end else None
    low = None if wanted.low is None else (">=" if wanted.low_included else ">", wanted.low)
    high = None if wanted.high is None else ("<=" if wanted.high_included else "<", wanted.high)
    return low, high


def end_of_prefix(prefix: str) -> str | None:
    """The first text after all texts with this prefix; None if there is none."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    # U+D7FF is followed by surrogates, which valid text does not contain.
    last = kept[-1]
    return kept[:-1] + (_AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1))
