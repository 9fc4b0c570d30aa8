# ruff: noqa: RUF009  setting() returns a new dataclass field each time
"""How settings are declared: as fields of a frozen dataclass, created by `setting()`."""

from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, field, fields
from pathlib import Path
from typing import Any, Final, Generic, TypeVar

from holdfast.kernel.settings.kinds import Kind, Location

T = TypeVar("T")

NOT_SHOWN: Final = "(not shown)"


@dataclass(frozen=True, slots=True)
class Derived(Generic[T]):
    """A default computed from settings declared earlier; `text` describes it for the reference page."""

    text: str
    value: Callable[[Mapping[str, Any]], T]


@dataclass(frozen=True, slots=True)
class Setting:
    """The declaration of one setting."""

    attribute: str
    kind: Kind[Any]
    default: Any
    example: str
    group: str
    help_text: str
    unit: str
    flag: str | None
    flag_value: str
    secret: bool

    @property
    def name(self) -> str:
        """The name in the environment and in holdfast.toml."""
        return self.attribute.upper()

    @property
    def public_default(self) -> str | int | float | bool | None:
        return self.default.text if isinstance(self.default, Derived) else self.public(self.default)

    def public(self, value: object) -> str | int | float | bool | None:
        """The value in a form that is safe to print."""
        if value is not None and self.secret:
            return NOT_SHOWN
        if isinstance(value, tuple):
            return ",".join(map(str, value))
        return value if value is None or isinstance(value, str | int | float) else str(value)

    def words(self, value: object) -> str:
        """The value as people read it."""
        public = self.public(value)
        return "" if public is None else f"{public:g}" if isinstance(public, float) else str(public)

    @property
    def default_words(self) -> str:
        return self.default.text if isinstance(self.default, Derived) else self.words(self.default)

    def default_after(self, earlier: Mapping[str, Any]) -> Any:
        return self.default.value(earlier) if isinstance(self.default, Derived) else self.default


def setting(
    kind: Kind[T],
    *,
    default: T | Derived[T],
    example: str,
    group: str,
    help_text: str,
    unit: str = "",
    flag: str | None = None,
    flag_value: str = "",
    secret: bool = False,
) -> T:
    """A dataclass field for a setting. Typed as its value, so mypy checks that kind, default and annotation agree."""
    row = {
        "kind": kind,
        "default": default,
        "example": example,
        "group": group,
        "help_text": help_text,
        "unit": unit,
        "flag": flag,
        "flag_value": flag_value,
        "secret": secret,
    }
    plain_default: Any = MISSING if isinstance(default, Derived) else default
    declared: T = field(default=plain_default, metadata={"setting": row}, repr=not secret)
    return declared


@dataclass(frozen=True, kw_only=True)
class Declaration:
    """Base of every group of settings: the config file, and the source of each value."""

    sources: Mapping[str, str] = field(default_factory=dict, repr=False, compare=False)
    holdfast_config: Path = setting(
        Location("a path to a file"),
        default=Path("holdfast.toml"),
        example="/etc/holdfast/holdfast.toml",
        group="General",
        flag="--config",
        flag_value="FILE",
        help_text="A TOML file with settings under the same names. It must exist, unless it is the default.",
    )


def settings_of(declaration: type[Declaration]) -> tuple[Setting, ...]:
    """All settings of a declaration, in order."""
    return tuple(Setting(f.name, **f.metadata["setting"]) for f in fields(declaration) if "setting" in f.metadata)
