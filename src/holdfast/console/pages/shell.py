"""The frame around every page, how values are formatted, and the page for errors."""

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final, Protocol, TypeVar

import msgspec
from jinja2 import Environment, PackageLoader, StrictUndefined
from markupsafe import Markup, escape
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast.console.http.access import Role, Visitor
from holdfast.console.http.answers import NOT_STORED, Unchanged
from holdfast.kernel.errors import BadRequest, HoldfastError, NotFound, Retryable
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import age, dollars, one_line
from holdfast.views.conclusion_words import conclusion_counts
from holdfast.views.system_status import SystemStatus

_SECONDS: Final = re.compile(r"\b([0-9]{1,9}) s\b")
_RATIO: Final = re.compile(r"\b[0-9]\.[0-9]{2}\b")
# Control characters except tab and line break, invisible ones, and those that change the direction of the text.
# Not the joiners (\u200c, \u200d): scripts and emoji need them.
_UNSEEN: Final = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028-\u202e\u2060-\u206f\ufeff\ufff9-\ufffb"
    "\ud800-\udfff\U000e0000-\U000e007f]"
)
# eu-west-1b, i-0123456789abcdef0: a browser would end a line after any hyphen.
_HYPHENATED: Final = re.compile(r"[A-Za-z0-9.]+(?:-[A-Za-z0-9.]+)+")
_WHOLE_CHARACTERS_MOST: Final = 30
_MONTHS: Final = ("Jan", "Feb", "Mar", "Apr", "May", "Jun", "Jul", "Aug", "Sep", "Oct", "Nov", "Dec")


class ErrorPage(msgspec.Struct, frozen=True):
    """`passes`: it may succeed in a moment, so the page reloads itself. `back`: the page of a refused order."""

    problem: str
    kind: str
    passes: bool = False
    back: str | None = None


class SystemPage(msgspec.Struct, frozen=True):
    status: SystemStatus


class WithText(Protocol):
    @property
    def text(self) -> str: ...


TextT = TypeVar("TextT", bound=WithText)


@dataclass(frozen=True, slots=True)
class MenuEntry:
    """An entry of the navigation."""

    path: str
    name: str


class Shell:
    """Renders a page from one typed context. `world`: a few words about which world this is."""

    def __init__(
        self, version: str, places: tuple[MenuEntry, ...] = (), world: Callable[[], str] | None = None
    ) -> None:
        self._version = version
        self._places = places
        self._world = world
        self._templates = environment()

    def page(
        self,
        request: Request,
        template: str,
        make_context: Callable[[], msgspec.Struct],
        *,
        title: str,
        json_path: str | None = None,
    ) -> Response:
        """The page; an error of ours becomes a page that says what to do."""
        try:
            context = make_context()
        except HoldfastError as error:
            return self.problem(request, error, json_path=json_path)
        return self.render(request, template, context, title=title, json_path=json_path)

    def problem(
        self, request: Request, error: HoldfastError, *, json_path: str | None = None, back: str | None = None
    ) -> Response:
        """A page that says what is wrong, and what to do."""
        kind, status = _kind(error), _status_of(error)
        context = ErrorPage(str(error), kind, passes=status == 503 and not back, back=back)
        return self.render(request, "error.html", context, title=kind, json_path=json_path, status=status)

    def render(
        self,
        request: Request,
        template: str,
        context: msgspec.Struct,
        *,
        title: str,
        json_path: str | None = None,
        status: int = 200,
    ) -> Response:
        visitor = request.scope.get("visitor")
        text = self._templates.get_template(template).render(
            **msgspec.structs.asdict(context),
            title=title,
            json_path=json_path,
            version=self._version,
            places=self._places if visitor is not None else (),  # strangers see no navigation
            path=request.scope["path"],
            query=dict(request.query_params),
            world=self._world() if self._world else "",
            visitor=visitor,
            is_operator=isinstance(visitor, Visitor) and visitor.role is Role.OPERATOR,
        )
        return HTMLResponse(text, status, headers=NOT_STORED)


def environment() -> Environment:
    templates = Environment(
        loader=PackageLoader("holdfast.console"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        finalize=_seen,
    )
    templates.filters |= {
        "age": _age,
        "when": when,
        "clock": clock,
        "usd": usd,
        "share": share,
        "ago": ago,
        "words": words,
        "measure": measure,
        "roughly": roughly,
        "grouped_by_text": grouped_by_text,
        "unbroken": unbroken,
        "conclusion_counts": conclusion_counts,
    }
    return templates


def _seen(value: object) -> object:
    """Escapes invisible characters in foreign names, such as those that reverse the text after them."""
    return _UNSEEN.sub(lambda found: one_line(found[0]), value) if type(value) is str else value


def when(iso: str | None) -> Markup | str:
    """A time in UTC; a script shows it in the reader's time zone."""
    if not iso:
        return "—"
    try:
        instant = Instant.from_iso(iso)
    except ValueError:
        return iso
    text = instant.iso_seconds()
    shown = f"{int(text[8:10])} {_MONTHS[int(text[5:7]) - 1]} {text[11:19]} UTC"
    return Markup('<time datetime="{}">{}</time>').format(text, shown)


def clock(iso: str) -> Markup:
    """Hours and minutes."""
    text = Instant.from_iso(iso).iso_seconds()
    return Markup('<time datetime="{}" data-form="clock">{}</time>').format(text, text[11:16])


def ago(iso: str | None, now: str) -> str:
    """How long before `now` that was."""
    if not iso:
        return "—"
    try:
        return age(max(0, int(Instant.from_iso(now).seconds_since(Instant.from_iso(iso)))))
    except ValueError:
        return iso


def usd(amount: float | None) -> str:
    return "—" if amount is None else f"${dollars(amount)}"


def share(value: float | None) -> str:
    return "—" if value is None else f"{value:.0%}"


def words(name: object) -> str:
    """``begin_scale_up`` → ``begin scale up``; a truth value as yes or no."""
    if isinstance(name, bool):
        return "yes" if name else "no"
    return str(name).replace("_", " ")


def unbroken(text: str) -> Markup:
    """The text with hyphenated names kept on one line, unless they are very long."""

    def whole(found: re.Match[str]) -> str:
        name = found[0]
        return name if len(name) > _WHOLE_CHARACTERS_MOST else f'<span class="whole">{name}</span>'

    return Markup(_HYPHENATED.sub(whole, escape(_seen(text))))  # noqa: S704 -- escaped; a name has no other characters


def measure(text: object, name: str = "") -> str:
    """A rule's value or limit for people: seconds as minutes and hours, CPU in percent."""
    if name == "no_action_under_way":
        return str(text).partition(" ")[0]  # without its id
    shown = str(text).replace(">=", "≥").replace("<=", "≤")
    shown = _SECONDS.sub(lambda found: age(int(found[1])), shown)
    return _RATIO.sub(lambda found: f"{float(found[0]):.0%}", shown) if name.startswith("cpu") else shown


def roughly(seconds: int) -> str:
    """An age by its largest unit: ``41 min``."""
    return " ".join(age(seconds).split()[:2])


def grouped_by_text(items: Sequence[TextT]) -> list[list[TextT]]:
    """Neighbours with the same text, together."""
    return [list(group) for _, group in groupby(items, lambda item: item.text)]


def _age(seconds: float | None) -> str:
    return "—" if seconds is None else age(max(0, int(seconds)))


def _status_of(error: HoldfastError) -> int:
    if isinstance(error, Unchanged):
        return 409
    return 404 if isinstance(error, NotFound) else 400 if isinstance(error, BadRequest) else 503


def _kind(error: HoldfastError) -> str:
    if isinstance(error, NotFound):
        return "Not found"
    if isinstance(error, Unchanged):
        return "Nothing was changed"
    if isinstance(error, BadRequest):
        return "Bad request"
    return "Temporarily unavailable" if isinstance(error, Retryable) else "An operator is needed"
