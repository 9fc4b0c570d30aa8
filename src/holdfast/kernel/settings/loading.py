"""Load settings from flags, environment and file. All problems are reported together, one line each."""

import difflib
import json
import re
import shlex
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.file_trust import UntrustedFile, read_trusted
from holdfast.kernel.settings.declaring import NOT_SHOWN, Declaration, Setting, settings_of
from holdfast.kernel.settings.tables import tables_of
from holdfast.kernel.text import cut

D = TypeVar("D", bound=Declaration)

OUR_PREFIX: Final = "HOLDFAST_"
CONFIG: Final = "HOLDFAST_CONFIG"


@dataclass(frozen=True, slots=True)
class _RawValue:
    """A value before parsing, and its source."""

    setting: Setting
    source: str
    value: object
    in_file: bool = False

    def as_written(self, value: str) -> str:
        """In the syntax of its source: NAME=value, --flag value, or NAME = value."""
        if self.in_file:
            return f"{self.setting.name} = {value}"
        return f"{self.setting.name}={value}" if self.source == "environment" else f"{self.source} {value}"

    def problem(self) -> str:
        """One line that describes the problem. It never contains a secret."""
        where = f"{self.source}: " if self.in_file else ""
        written = self.as_written(NOT_SHOWN if self.setting.secret else self._shown_value())
        return f"{where}{written} is not {self.setting.kind.expected}; for example {self.as_written(self._example())}"

    def _shown_value(self) -> str:
        # For a file, in the file's syntax, so that "10" and 10 look different.
        return cut(json.dumps(self.value, default=str, ensure_ascii=False) if self.in_file else str(self.value))

    def _example(self) -> str:
        example = self.setting.example
        is_number = isinstance(self.setting.kind.parse(example), int | float)
        return json.dumps(example) if self.in_file and not is_number else example


def load(declaration: type[D], environment: Mapping[str, str], flags: Mapping[str, str] | None = None) -> D:
    """Settings from all sources, or one `BadSetting` with a line per problem.

    `flags` maps names of settings to values from the command line.
    """
    known = {row.name: row for row in settings_of(declaration)}
    problems = [_unknown(name, known) for name in environment if name.startswith(OUR_PREFIX) and name not in known]
    found = {name: _RawValue(known[name], "environment", value) for name, value in environment.items() if name in known}
    # A file after --data is short for two settings; the second has no flag of its own.
    found |= {
        name: _RawValue(known[name], known[name].flag or "--data", value) for name, value in (flags or {}).items()
    }
    label, entries, file_problems = _from_file(known, found.get(CONFIG))
    problems += file_problems
    values, table_problems = _tables(declaration, label, entries)
    problems += table_problems
    from_file = {
        name: _RawValue(known[name], label, value, in_file=True) for name, value in entries.items() if name in known
    }
    sources: dict[str, str] = {}
    for row in known.values():
        values[row.attribute] = row.default_after(values)
        sources[row.name] = "default"
        if chosen := found.get(row.name) or from_file.get(row.name):
            try:
                values[row.attribute] = row.kind.parse(chosen.value)
                sources[row.name] = chosen.source
            except ValueError:
                problems.append(chosen.problem())
    if problems:
        raise BadSetting("\n".join(problems))
    return declaration(**values, sources=sources)


def _from_file(known: Mapping[str, Setting], named: _RawValue | None) -> tuple[str, Mapping[str, object], list[str]]:
    """The file's label, its entries and its problems. Only a file that was named explicitly must exist."""
    try:
        path: Path = known[CONFIG].kind.parse(named.value) if named else known[CONFIG].default
    except ValueError:
        return "", {}, []  # reported with the other bad values
    label = cut(str(path))
    try:
        entries = tomllib.loads(read_trusted(path))
    except FileNotFoundError:
        return label, {}, [f"{named.as_written(label)}: no such file"] if named else []
    except UntrustedFile as error:
        return label, {}, [f"{label} was not read: it {error}; run: {error.remedy} {shlex.quote(label)}"]
    except OSError as error:
        return label, {}, [f"{label} cannot be read: {error.strerror}"]
    except UnicodeDecodeError as error:
        return label, {}, [f"{label} is not UTF-8 text (at byte {error.start})"]
    except (ValueError, RecursionError) as error:
        return label, {}, [_syntax_problem(label, error)]
    return label, entries, []


def _tables(
    declaration: type[Declaration], label: str, entries: Mapping[str, object]
) -> tuple[dict[str, Any], list[str]]:
    """The file's tables by attribute, their problems, and every entry that is neither a table nor a setting."""
    known = {row.name: row for row in settings_of(declaration)}
    tables = tables_of(declaration)
    values: dict[str, Any] = {}
    problems = []
    for name, entry in entries.items():
        if name in tables:
            attribute, table = tables[name]
            values[attribute], own = table.parse(label, entry)
            problems += own
        elif name == CONFIG:
            problems.append(
                f"{label}: {CONFIG} cannot be set in the file that it names; use --config or the environment"
            )
        elif name not in known:
            problems.append(f"{label}: {_unknown(name, known)}")
    return values, problems


def _syntax_problem(label: str, error: Exception) -> str:
    """Put the position first: tomllib writes "Expected … (at line 3, column 5)"."""
    message = cut(str(error), most=200)
    found = re.fullmatch(r"(.*) \(at line ([0-9]+), column ([0-9]+)\)", message)
    if found:
        return f"{label} line {found[2]}, column {found[3]}: {found[1]}"
    what, at_end, _ = message.partition(" (at end of document)")
    return f"{label}, at its end: {what}; a value or a bracket is missing" if at_end else f"{label}: {message}"


def _unknown(name: str, known: Mapping[str, Setting]) -> str:
    """Suggests the closest name. The value is left out: it may be a secret under a mistyped name."""
    # Without the prefix, which would make any two of our names similar.
    names = {known_name.removeprefix(OUR_PREFIX): known_name for known_name in known}
    close = difflib.get_close_matches(name.upper().removeprefix(OUR_PREFIX), names, n=1)
    hint = "'holdfast settings' lists all settings"
    if close:
        row = known[names[close[0]]]
        hint = f"did you mean {row.name}? for example {row.name}={row.example}"
    return f"{cut(name)} is not a setting; {hint}"
