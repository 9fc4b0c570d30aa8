"""The objects of the simulated world as JSON, and back.

Objects refer to each other in circles, and events that are due are methods of them. So each object is written once,
with a number, and a reference is a list with that number: `[3]`. The class of an object is a name in a fixed table.
Reading creates objects of these classes and of no other, imports nothing and calls nothing but their constructors, so a
file from elsewhere can describe an odd world, but cannot run code.
"""

import base64
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import StrEnum
from functools import partial
from inspect import getattr_static
from threading import RLock
from types import FunctionType, MethodType
from typing import Any, Final, TypeAlias

import msgspec

_Lock: Final = type(RLock())
_SCALARS: Final = (type(None), bool, int, float, str)
# Created empty and filled later, so that circles can be closed.
_CONTAINERS: Final = {"list": list, "dict": dict, "set": set}
# Of an immutable object with its parts, each counted as often as it occurs: computing its hash takes that long. Without
# a limit, sixty tuples, each with the one before it twice, would take centuries.
_PARTS_MOST: Final = 100_000
_Value: TypeAlias = Any  # a scalar, or a reference: a list with one number
_Row: TypeAlias = list[Any]  # the object's kind, and its values


class UnreadableObjects(Exception):
    """The text is not what `written` returns for these classes."""


class StoredObjects:
    """Writes and reads objects of these classes.

    `mutable` are plain classes and dataclasses, restored attribute by attribute. `frozen` are restored by their
    constructor. `functions` are the only ones that a stored object can refer to.
    """

    def __init__(
        self, mutable: Sequence[type], frozen: Sequence[type], functions: Mapping[str, Callable[..., Any]]
    ) -> None:
        self._mutable = {each.__name__: each for each in mutable}
        self._frozen = {each.__name__: each for each in frozen}
        self._functions = functions
        self._function_names = {function: name for name, function in functions.items()}

    def written(self, root: object) -> list[_Row]:
        """One row for each object, the root first."""
        objects: list[object] = []  # also keeps them alive: an id is unique only as long as its object lives
        numbers: dict[int, int] = {}

        def value(each: object) -> _Value:
            if type(each) in _SCALARS:
                return each
            if id(each) not in numbers:
                numbers[id(each)] = len(objects)
                objects.append(each)
            return [numbers[id(each)]]

        value(root)
        rows: list[_Row] = []
        while len(rows) < len(objects):
            rows.append(self._row(objects[len(rows)], value))
        return rows

    def read(self, rows: Sequence[_Row]) -> object:
        """The root. Raises `UnreadableObjects` for anything else than such rows."""
        try:
            return _Reading(rows, self._mutable, self._frozen, self._functions).root()
        except (LookupError, TypeError, ValueError, AttributeError, RecursionError, OverflowError) as error:
            raise UnreadableObjects(f"not a stored object: {type(error).__name__}") from error

    def _row(self, each: object, value: Callable[[object], _Value]) -> _Row:
        match each:
            case list() | tuple() | set():
                return [type(each).__name__, *map(value, each)]
            case dict():
                return ["dict", *([value(key), value(item)] for key, item in each.items())]
            case bytes():
                return ["bytes", base64.b64encode(each).decode()]
            case random.Random():
                return ["Random", value(each.getstate())]
            case partial():
                return ["partial", value(each.func), value(each.keywords), *map(value, each.args)]
            case MethodType():
                return ["method", value(each.__self__), each.__name__]
            case FunctionType():
                return ["function", self._function_names[each]]
            case _Lock():
                return ["lock"]
            case _:
                return self._instance_row(each, value)

    def _instance_row(self, each: object, value: Callable[[object], _Value]) -> _Row:
        name = type(each).__name__
        if type(each) not in (self._mutable.get(name), self._frozen.get(name)):
            raise TypeError(f"{type(each)} is not among the classes of the stored world")
        if isinstance(each, StrEnum):
            return [name, each.value]
        return [name, *([attribute, value(item)] for attribute, item in _attributes(each).items())]


class _Reading:
    """One reading: mutable objects exist before anything refers to them, immutable ones are made when first needed."""

    def __init__(
        self,
        rows: Sequence[_Row],
        mutable: Mapping[str, type],
        frozen: Mapping[str, type],
        functions: Mapping[str, Callable[..., Any]],
    ) -> None:
        self._rows = rows
        self._mutable = mutable
        self._frozen = frozen
        self._functions = functions
        self._made: dict[int, Any] = {}
        self._parts: dict[int, int] = {}  # of immutable objects

    def root(self) -> object:
        for number, (kind, *_) in enumerate(self._rows):
            if kind in _CONTAINERS:
                self._made[number] = _CONTAINERS[kind]()
            elif kind in self._mutable:
                self._made[number] = object.__new__(self._mutable[kind])
        empty = list(self._made)
        for number in empty:
            self._fill(self._made[number], self._rows[number])
        return self._value([0])

    def _value(self, value: _Value) -> Any:
        if not isinstance(value, list):
            return value
        (number,) = value
        if number not in self._made:
            self._made[number] = self._immutable(self._rows[number])
            self._parts[number] = self._parts_in(self._rows[number])
        return self._made[number]

    def _parts_in(self, row: _Row) -> int:
        """How many objects a row has, directly or not. A value is `[number]`, or with its name `[name, [number]]`."""
        values = [value if len(value) == 1 else value[1] for value in row[1:] if isinstance(value, list)]
        found = 1 + sum(self._parts.get(value[0], 0) for value in values if isinstance(value, list))
        if found > _PARTS_MOST:
            raise ValueError("an object has too many parts")
        return found

    def _fill(self, made: Any, row: _Row) -> None:
        match made:
            case list():
                made.extend(map(self._value, row[1:]))
            case set():
                made.update(map(self._value, row[1:]))
            case dict():
                made.update((self._value(key), self._value(item)) for key, item in row[1:])
            case _:
                for name, item in row[1:]:
                    object.__setattr__(made, name, self._value(item))

    def _immutable(self, row: _Row) -> Any:
        kind, *values = row
        match kind:
            case "tuple":
                return tuple(map(self._value, values))
            case "bytes":
                return base64.b64decode(values[0], validate=True)
            case "Random":
                chance = random.Random()  # noqa: S311 -- a simulation wants chance that can be repeated
                chance.setstate(self._value(values[0]))
                return chance
            case "partial":
                return partial(self._callable(values[0]), *map(self._value, values[2:]), **self._filled_dict(values[1]))
            case "method":
                return self._method(self._value(values[0]), values[1])
            case "function":
                return self._functions[values[0]]
            case "lock":
                return RLock()
            case _:
                return self._frozen_instance(self._frozen[kind], values)

    def _frozen_instance(self, kind: type, values: list[Any]) -> Any:
        if issubclass(kind, StrEnum):
            return kind(values[0])
        return kind(**{name: self._value(item) for name, item in values})

    def _filled_dict(self, value: _Value) -> dict[str, Any]:
        """The keywords of a partial are needed at once, and their dictionary may not be filled yet."""
        (number,) = value
        return {self._value(key): self._value(item) for key, item in self._rows[number][1:]}

    def _callable(self, value: _Value) -> Callable[..., Any]:
        (number,) = value
        if self._rows[number][0] not in ("method", "function"):
            raise ValueError("only a method or a function of the table can be called")
        found: Callable[..., Any] = self._value(value)
        return found

    def _method(self, owner: object, name: str) -> MethodType:
        function = getattr_static(type(owner), name)
        if type(owner) not in self._mutable.values() or not isinstance(function, FunctionType):
            raise ValueError(f"{type(owner).__name__} has no method of that name")
        return MethodType(function, owner)


def _attributes(each: object) -> dict[str, Any]:
    if isinstance(each, msgspec.Struct):
        return msgspec.structs.asdict(each)
    if is_dataclass(each):
        return {field.name: getattr(each, field.name) for field in fields(each)}
    return vars(each)
