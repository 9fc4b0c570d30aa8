"""Tables in `holdfast.toml`: several values of one kind under names of the operator's choice.

A table is for the file only, since an environment variable holds a single value. Each of its keys is declared like a
setting. An undeclared key is an error that names the closest one.
"""

import difflib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, fields
from typing import Any, Final, Generic, TypeVar

from holdfast.kernel.settings.kinds import Kind
from holdfast.kernel.text import cut

T = TypeVar("T")
REQUIRED: Final = object()


@dataclass(frozen=True, slots=True)
class TableKey:
    """The declaration of one key. `example` is a value as it stands in TOML."""

    name: str
    kind: Kind[Any]
    default: Any
    example: str
    help_text: str


@dataclass(frozen=True, slots=True)
class FileTable(Generic[T]):
    """A table at the top of the file. `parse` gets the file's label and the table, and returns also its problems."""

    name: str
    parse: Callable[[str, object], tuple[T, list[str]]]


def file_table(name: str, parse: Callable[[str, object], tuple[T, list[str]]], default: T) -> T:
    """A dataclass field for a table. Typed as its value, as `setting()` is."""
    declared: T = field(default=default, metadata={"table": FileTable(name, parse)})
    return declared


def tables_of(declaration: type[Any]) -> dict[str, tuple[str, FileTable[Any]]]:
    """The attribute and the declaration of each table, by its name in the file."""
    found = [(row.name, row.metadata["table"]) for row in fields(declaration) if "table" in row.metadata]
    return {table.name: (attribute, table) for attribute, table in found}


def read_table(where: str, raw: object, keys: Sequence[TableKey]) -> tuple[dict[str, Any], list[str]]:
    """The value of each key, and the problems. `where` names file and table: ``holdfast.toml: runners.bounds``."""
    if not isinstance(raw, Mapping):
        return {}, [f"{where} = {_shown(raw)} is not a table; expected the keys {_names(keys)}"]
    values = {key.name: key.default for key in keys}
    return values, [*_unknown_keys(where, raw, keys), *_read_values(where, raw, keys, values)]


def nearest(word: str, known: Sequence[str], *, cutoff: float = 0.6) -> str | None:
    """The known word that is most like this one. Only the beginning is compared: the word may be hostile and long."""
    found = difflib.get_close_matches(word[:80].lower(), known, n=1, cutoff=cutoff)
    return found[0] if found else None


def _unknown_keys(where: str, raw: Mapping[str, object], keys: Sequence[TableKey]) -> Iterator[str]:
    by_name = {key.name: key for key in keys}
    for name in raw:
        if name not in by_name:
            close = by_name.get(nearest(name, [*by_name]) or "")
            hint = f"did you mean {close.name}? for example {close.name} = {close.example}" if close else ""
            yield f"{where}.{cut(name)} is not a key; {hint or f'expected one of {_names(keys)}'}"


def _read_values(
    where: str, raw: Mapping[str, object], keys: Sequence[TableKey], values: dict[str, Any]
) -> Iterator[str]:
    for key in keys:
        example = f"for example {key.name} = {key.example}"
        if key.name not in raw:
            if key.default is REQUIRED:
                yield f"{where} needs {key.name}, {key.kind.expected}; {example}"
            continue
        try:
            values[key.name] = key.kind.parse(raw[key.name])
        except ValueError:
            yield f"{where}.{key.name} = {_shown(raw[key.name])} is not {key.kind.expected}; {example}"


def _names(keys: Sequence[TableKey]) -> str:
    return ", ".join(key.name for key in keys)


def _shown(raw: object) -> str:
    return cut(json.dumps(raw, default=str, ensure_ascii=False))
