"""A query as SQL: a search in one index, in that index's own order, which touches no row that it does not return."""

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
    """The statement and its parameters. `after` has the keys of the last item of the page before."""
    index = None if query.index is None else query.table.index(query.index)
    columns = key_columns(query.table.partition, query.table.sort, index)
    partition, *order = columns
    # SQLite takes an index over some of the rows only for a search that says which rows.
    terms = [f"{partition} = ?", *(f"{column} IS NOT NULL" for column in optional_columns(columns))]
    parameters: list[str | int] = [query.partition]
    low, high = _bounds(query.sort)
    if after is not None:
        # It lies within the range, so it takes the place of the bound on its side.
        low, high = (low, None) if query.reverse else (None, high)
        terms.append(f"({', '.join(order)}) {'<' if query.reverse else '>'} ({', '.join('?' * len(order))})")
        parameters += [after[attribute] if attribute else "" for attribute in map(columns.get, order)]
    for operator, text in filter(None, (low, high)):
        terms.append(f"{order[0]} {operator} ?")
        parameters.append(text)
    source = quoted(query.table.name)
    if index is not None:
        # Named, not left to the planner: should it be missing, that is an error, and not a slow search.
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
    """The first text that comes after all that begin with the prefix; None: there is none."""
    kept = prefix.rstrip(_LAST_CHARACTER)
    if not kept:
        return None
    # What follows U+D7FF are the halves of surrogate pairs, which no text holds.
    last = kept[-1]
    return kept[:-1] + (_AFTER_SURROGATES if last == _BEFORE_SURROGATES else chr(ord(last) + 1))
