"""What a setting may be. Each kind takes text (environment, flag) or what TOML makes of an entry, and nothing else."""

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Final, Generic, Literal, Protocol, TypeVar

T = TypeVar("T")
T_co = TypeVar("T_co", covariant=True)

# Stricter than int() and float(), which also take "1_000", " 7 ", "nan" and other alphabets' digits.
_WHOLE: Final = re.compile(r"[+-]?[0-9]{1,18}")
_NUMBER: Final = re.compile(r"[+-]?([0-9]{1,18}(\.[0-9]{0,18})?|\.[0-9]{1,18})(e[+-]?[0-9]{1,2})?", re.IGNORECASE)


class Kind(Protocol[T_co]):
    @property
    def expected(self) -> str:
        """Completes the sentence "… is not …"."""
        ...

    def parse(self, given: object) -> T_co:
        """The value that was meant; ValueError when it is not what was expected."""
        ...


@dataclass(frozen=True, slots=True)
class Text:
    """Printable text that matches a pattern."""

    expected: str
    pattern: str = ".+"

    def parse(self, given: object) -> str:
        if not isinstance(given, str) or not given.isprintable() or not re.fullmatch(self.pattern, given):
            raise ValueError(self.expected)
        return given


@dataclass(frozen=True, slots=True)
class Maybe(Generic[T]):
    """What may be left out. Empty text is the same as leaving it out: templates often pass on an empty variable."""

    kind: Kind[T]

    @property
    def expected(self) -> str:
        return self.kind.expected

    def parse(self, given: object) -> T | None:
        return None if given == "" else self.kind.parse(given)


@dataclass(frozen=True, slots=True)
class Location:
    """A file or a directory. Relative to the working directory, also when a file elsewhere names it."""

    expected: str

    def parse(self, given: object) -> Path:
        return Path(Text(self.expected).parse(given))


@dataclass(frozen=True, slots=True)
class Whole:
    least: int
    most: int

    @property
    def expected(self) -> str:
        return f"a whole number from {self.least} to {self.most}"

    def parse(self, given: object) -> int:
        value = int(given) if isinstance(given, str) and _WHOLE.fullmatch(given) else given
        # isinstance would let `true` pass: to Python, a bool is an int.
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

    def parse(self, given: object) -> float:
        value = float(given) if isinstance(given, str) and _NUMBER.fullmatch(given) else given
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

    def parse(self, given: object) -> bool:
        if isinstance(given, bool):
            return given
        if isinstance(given, str) and given.lower() in ("true", "false"):
            return given.lower() == "true"
        raise ValueError(self.expected)


@dataclass(frozen=True, slots=True)
class Choice(Generic[T]):
    """One of a few words, in any case."""

    options: tuple[T, ...]

    @property
    def expected(self) -> str:
        return f"one of {', '.join(map(str, self.options))}"

    def parse(self, given: object) -> T:
        for option in self.options:
            if isinstance(given, str) and given.lower() == option:
                return option
        raise ValueError(self.expected)


@dataclass(frozen=True, slots=True)
class Words:
    """Several words: separated by commas, or a TOML list."""

    expected: str
    pattern: str

    def parse(self, given: object) -> tuple[str, ...]:
        words = given.split(",") if isinstance(given, str) else given
        if not isinstance(words, list) or not words:
            raise ValueError(self.expected)
        return tuple(
            Text(self.expected, self.pattern).parse(word.strip() if isinstance(word, str) else word) for word in words
        )


@dataclass(frozen=True, slots=True)
class StoreAddress:
    """Where the memory is: a SQLite file, or DynamoDB (its region, endpoint and credentials are boto3's settings)."""

    backend: Literal["sqlite", "dynamodb"]
    path: Path | None = None

    def __str__(self) -> str:
        return f"{self.backend}:{self.path or ''}"


@dataclass(frozen=True, slots=True)
class Address:
    expected: str = "a store address (sqlite:PATH or dynamodb:)"

    def parse(self, given: object) -> StoreAddress:
        text = Text(self.expected).parse(given)
        backend, _, rest = text.partition(":")
        # SQLite's own ":memory:" forgets everything at exit: nobody who sets an address wants that.
        if backend == "sqlite" and rest and rest != ":memory:":
            return StoreAddress("sqlite", Path(rest))
        if text == "dynamodb:":
            return StoreAddress("dynamodb")
        raise ValueError(self.expected)
