"""Looking again and again: a screen that is redrawn in place, or a block for each change where nobody looks."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any, Final, Protocol, Self

import click

from holdfast.kernel.errors import Retryable
from holdfast.kernel.text import one_line

Lines = Callable[[Any], Iterable[str]]

# The second screen of a terminal: what was on it before comes back in the end, and a resize leaves no rests.
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class View(Protocol):
    def show(self, seen: Any) -> None: ...

    def tell(self, problem: str) -> None:
        """There was no look this time; the next one may succeed."""
        ...


def watch(
    look: Callable[[], Any], view: View, interval_seconds: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Until somebody interrupts it. What may pass is told, and looked at again; what needs a person ends it."""
    while True:
        try:
            view.show(look())
        except Retryable as error:
            view.tell(one_line(str(error)))
        sleep(interval_seconds)


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """Ctrl-C and SIGTERM are how one ends it: no error."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


class Screen:
    """A terminal. When it ends, the last look stays where the cursor was."""

    def __init__(self, lines: Lines, interval_seconds: float) -> None:
        self._lines = lines
        self._every = f"every {interval_seconds:g} s; Ctrl-C ends it"
        self._seen: Any = None

    def __enter__(self) -> Self:
        _send(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        _send(_LEAVE)
        if self._seen is not None:
            for line in self._lines(self._seen):
                click.echo(line)

    def show(self, seen: Any) -> None:
        self._seen = seen
        self._draw(self._every)

    def tell(self, problem: str) -> None:
        self._draw(problem)

    def _draw(self, foot: str) -> None:
        size = shutil.get_terminal_size()
        body = [] if self._seen is None else list(self._lines(self._seen))
        # In one write, so that nothing flickers. The foot has a line of its own, whatever the rest needs.
        shown = [*body[: max(size.lines - 2, 0)], "", foot[: size.columns]]
        text = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in shown[:-1])
        _send(f"{_HOME}{text}{shown[-1]}{_REST_OF_LINE}{_REST_OF_SCREEN}")


def _send(codes: str) -> None:
    click.echo(codes, nl=False, color=True)  # as they are: click would take them out where it sees no terminal


class Blocks:
    """A pipe or a file: a block for each change."""

    def __init__(self, lines: Lines, substance: Callable[[Any], object], *, apart: bool = True) -> None:
        self._lines = lines
        self._substance = substance
        self._apart = apart
        self._last: object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing is left to do."""

    def show(self, seen: Any) -> None:
        substance = self._substance(seen)
        if substance == self._last:
            return
        if self._apart and self._last is not None:
            click.echo()
        self._last = substance
        for line in self._lines(seen):
            click.echo(line)

    def tell(self, problem: str) -> None:
        click.echo(f"holdfast: {problem}", err=True)
