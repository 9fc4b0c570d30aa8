"""From flags, environment and file to settings. Everything that is wrong is found at once, one line each."""

import difflib
import json
import re
import tomllib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, TypeVar

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings.declaring import NOT_SHOWN, Declaration, Setting, settings_of
from holdfast.kernel.text import cut

D = TypeVar("D", bound=Declaration)

OUR_PREFIX: Final = "HOLDFAST_"
CONFIG: Final = "HOLDFAST_CONFIG"


@dataclass(frozen=True, slots=True)
class _Given:
    """A value that somebody gave, and where."""

    setting: Setting
    source: str
    value: object
    in_file: bool = False

    def as_written(self, value: str) -> str:
        """In the language of its source: NAME=value, --flag value, or NAME = value."""
        if self.in_file:
            return f"{self.setting.name} = {value}"
        return f"{self.setting.name}={value}" if self.source == "environment" else f"{self.source} {value}"

    def problem(self) -> str:
        """The line that says what is wrong. It never holds a secret."""
        where = f"{self.source}: " if self.in_file else ""
        written = self.as_written(NOT_SHOWN if self.setting.secret else self._shown_value())
        return f"{where}{written} is not {self.setting.kind.expected}; for example {self.as_written(self._example())}"

    def _shown_value(self) -> str:
        # As a file writes it where it came from one, so that "10" and 10 look different.
        return cut(json.dumps(self.value, default=str, ensure_ascii=False) if self.in_file else str(self.value))

    def _example(self) -> str:
        example = self.setting.example
        is_number = isinstance(self.setting.kind.parse(example), int | float)
        return json.dumps(example) if self.in_file and not is_number else example


def load(declaration: type[D], environment: Mapping[str, str], flags: Mapping[str, str] | None = None) -> D:
    """Settings from all sources, or one `BadSetting` with a line for each problem.

    `flags` holds what the command line gave, by the name of the setting.
    """
    known = {row.name: row for row in settings_of(declaration)}
    problems = [_unknown(name, known) for name in environment if name.startswith(OUR_PREFIX) and name not in known]
    given = {name: _Given(known[name], "environment", value) for name, value in environment.items() if name in known}
    given |= {name: _Given(known[name], known[name].flag or name, value) for name, value in (flags or {}).items()}
    from_file, file_problems = _from_file(known, given.get(CONFIG))
    problems += file_problems

    values: dict[str, Any] = {}
    sources: dict[str, str] = {}
    for row in known.values():
        values[row.attribute] = row.default_after(values)
        sources[row.name] = "default"
        if chosen := given.get(row.name) or from_file.get(row.name):
            try:
                values[row.attribute] = row.kind.parse(chosen.value)
                sources[row.name] = chosen.source
            except ValueError:
                problems.append(chosen.problem())
    if problems:
        raise BadSetting("\n".join(problems))
    return declaration(**values, sources=sources)


def _from_file(known: Mapping[str, Setting], named: _Given | None) -> tuple[dict[str, _Given], list[str]]:
    """What the file gives, and what is wrong with it. Only a file that somebody named must be there."""
    try:
        path: Path = known[CONFIG].kind.parse(named.value) if named else known[CONFIG].default
    except ValueError:
        return {}, []  # a bad value like any other: reported with them
    label = cut(str(path))
    try:
        entries = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        return {}, [f"{named.as_written(label)}: there is no such file"] if named else []
    except OSError as error:
        return {}, [f"{label} cannot be read: {error.strerror}"]
    except UnicodeDecodeError as error:
        return {}, [f"{label} is not UTF-8 text (at byte {error.start})"]
    except (ValueError, RecursionError) as error:
        return {}, [_syntax_problem(label, error)]
    given = {name: _Given(known[name], label, value, in_file=True) for name, value in entries.items() if name in known}
    return given, list(_misplaced(label, known, entries))


def _misplaced(label: str, known: Mapping[str, Setting], entries: Mapping[str, object]) -> Iterator[str]:
    for name in entries:
        if name == CONFIG:
            yield f"{label}: {CONFIG} cannot be set in the file that it names; use --config or the environment"
        elif name not in known:
            yield f"{label}: {_unknown(name, known)}"


def _syntax_problem(label: str, error: Exception) -> str:
    """tomllib writes "Expected … (at line 3, column 5)"; the place comes first here."""
    message = cut(str(error), most=200)
    found = re.fullmatch(r"(.*) \(at line ([0-9]+), column ([0-9]+)\)", message)
    return f"{label} line {found[2]}, column {found[3]}: {found[1]}" if found else f"{label}: {message}"


def _unknown(name: str, known: Mapping[str, Setting]) -> str:
    """The value stays out of it: behind a mistyped name there may well be a secret."""
    # The prefix stays out of the comparison: it would make any two of our names look alike.
    names = {known_name.removeprefix(OUR_PREFIX): known_name for known_name in known}
    close = difflib.get_close_matches(name.upper().removeprefix(OUR_PREFIX), names, n=1)
    hint = "'holdfast settings' lists all there are"
    if close:
        row = known[names[close[0]]]
        hint = f"did you mean {row.name}? for example {row.name}={row.example}"
    return f"{cut(name)} is not a setting; {hint}"
