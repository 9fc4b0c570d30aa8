"""The types of settings. Each parses text (from the environment or a flag) or a TOML value."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Literal, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Stricter than int() and float(), which also accept "1_000", " 7 ", "nan" and non-ASCII digits.
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class Kind(Protocol[T_co]):
    @property
    def expected(self) -> str:
        """Completes the sentence "… is not …"."""
        ...

    def parse(self, raw: object) -> T_co:
        """The parsed value; raises ValueError for anything else than `expected`."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """Printable text that matches a pattern."""

    expected: str
    pattern: str = ".+"

    def parse(self, raw: object) -> str:
        if not isinstance(raw, str) or not raw.isprintable() or not re.fullmatch(self.pattern, raw):
            raise ValueError(self.expected)
        return raw


@dataclass(frozen=True, slots=True)
class Maybe(Generic[T]):
    """An optional value. Empty text means not set: templates often pass an empty variable."""

    kind: Kind[T]

    @property
    def expected(self) -> str:
        return self.kind.expected

    def parse(self, raw: object) -> T | None:
        return None if raw == "" else self.kind.parse(raw)


@dataclass(frozen=True, slots=True)
class Location:
    """A file or a directory, relative to the working directory even if a config file elsewhere names it."""

    expected: str

    def parse(self, raw: object) -> Path:
        return Path(Text(self.expected).parse(raw))


@dataclass(frozen=True, slots=True)
class Whole:
    least: int
    most: int

    @property
    def expected(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def parse(self, raw: object) -> int:
        value = int(raw) if isinstance(raw, str) and _WHOLE.fullmatch(raw) else raw
        # Not isinstance(): it accepts `true`, because bool is a subclass of int.
        if type(value) is not int or not self.least <= value <= self.most:
            raise ValueError(self.expected)
        return value


@dataclass(frozen=True, slots=True)
class Number:
    least: float
    most: float

    @property
    def expected(self) -> str:
        return f"a number from {self.least:g} to {self.most:g}"

    def parse(self, raw: object) -> float:
        value = float(raw) if isinstance(raw, str) and _NUMBER.fullmatch(raw) else raw
        if (type(value) is not int and type(value) is not float) or not self.least <= value <= self.most:
            raise ValueError(self.expected)
        return float(value)


@dataclass(frozen=True, slots=True)
class Seconds(Number):
    @property
    def expected(self) -> str:
        return f"a number of seconds from {self.least:g} to {self.most:g}"


@dataclass(frozen=True, slots=True)
class WholeSeconds(Whole):
    @property
    def expected(self) -> str:
        return f"a whole number of seconds from {self.least} to {self.most}"


@dataclass(frozen=True, slots=True)
class Flag:
    expected: str = "true or false"

    def parse(self, raw: object) -> bool:
        if isinstance(raw, bool):
            return raw
        if isinstance(raw, str) and raw.lower() in ("true", "false"):
            return raw.lower() == "true"
        raise ValueError(self.expected)


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One of several words, in upper or lower case."""

    options: tuple[T, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(map(str, self.options))}"

    def parse(self, raw: object) -> T:
        for option in self.options:
            if isinstance(raw, str) and raw.lower() == option:
                return option
        raise ValueError(self.expected)


@dataclass(frozen=True, slots=True)
class WordList:
    """A list of words: separated by commas, or as a TOML list."""

    expected: str
    pattern: str

    def parse(self, raw: object) -> tuple[str, ...]:
        words = raw.split(",") if isinstance(raw, str) else raw
        if not isinstance(words, list) or not words:
            raise ValueError(self.expected)
        return tuple(
            Text(self.expected, self.pattern).parse(word.strip() if isinstance(word, str) else word) for word in words
        )


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where state is stored: a SQLite file, or DynamoDB (region, endpoint and credentials are boto3's settings)."""

    backend: Literal["sqlite", "dynamodb"]
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.backend}:{self.path or ''}"


@dataclass(frozen=True, slots=True)
class Address:
    expected: str = "a store address (sqlite:PATH or dynamodb:)"

    def parse(self, raw: object) -> StoreAddress:
        text = Text(self.expected).parse(raw)
        backend, _, rest = text.partition(":")
        # SQLite's ":memory:" would lose everything at exit.
        if backend == "sqlite" and rest and rest != ":memory:":
            return StoreAddress("sqlite", Path(rest))
        if text == "dynamodb:":
            return StoreAddress("dynamodb")
        raise ValueError(self.expected)
