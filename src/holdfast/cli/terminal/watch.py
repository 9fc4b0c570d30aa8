"""Continuous output: a screen redrawn in place, or on a pipe a block of text for each change."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Final, Generic, Protocol, Self, TypeVar

import click

from holdfast.kernel.errors import Retryable
from holdfast.kernel.text import one_line

T = TypeVar("T")
T_contra = TypeVar("T_contra", contravariant=True)

# The alternate screen: the terminal's contents come back at the end, and a resize leaves no fragments.
_ENTER: Final = "\x1b[?1049h\x1b[?25l"
_LEAVE: Final = "\x1b[?25h\x1b[?1049l"
_HOME: Final = "\x1b[H"
_REST_OF_LINE: Final = "\x1b[K"
_REST_OF_SCREEN: Final = "\x1b[J"


class LiveView(Protocol[T_contra]):
    def show(self, seen: T_contra) -> None: ...

    def show_problem(self, problem: str) -> None:
        """A read failed; the next one may succeed."""
        ...


def watch(
    read: Callable[[], T], view: LiveView[T], interval_seconds: float, sleep: Callable[[float], None] = time.sleep
) -> None:
    """Run until interrupted. A temporary error is shown and retried; one that needs an operator ends the watch."""
    while True:
        try:
            view.show(read())
        except Retryable as error:
            view.show_problem(one_line(str(error)))
        sleep(interval_seconds)


@contextmanager
def ended_by_signal() -> Iterator[None]:
    """Ctrl-C and SIGTERM are the normal way to stop: no error."""

    def interrupt(*_: object) -> None:
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, interrupt)
    try:
        yield
    except KeyboardInterrupt:
        pass
    finally:
        signal.signal(signal.SIGTERM, before)


class Screen(Generic[T]):
    """A terminal. The last state stays on it at the end."""

    def __init__(self, lines: Callable[[T], Iterable[str]], interval_seconds: float) -> None:
        self._lines = lines
        self._every = f"every {interval_seconds:g} s; Ctrl-C to stop"
        self._seen: T | None = None

    def __enter__(self) -> Self:
        _send(_ENTER)
        return self

    def __exit__(self, *_: object) -> None:
        _send(_LEAVE)
        if self._seen is not None:
            for line in self._lines(self._seen):
                click.echo(line)

    def show(self, seen: T) -> None:
        self._seen = seen
        self._draw(self._every)

    def show_problem(self, problem: str) -> None:
        self._draw(problem)

    def _draw(self, footer: str) -> None:
        size = shutil.get_terminal_size()
        body = [] if self._seen is None else list(self._lines(self._seen))
        # One write, to avoid flicker. The footer always keeps its own line.
        shown = [*body[: max(size.lines - 2, 0)], "", footer[: size.columns]]
        text = "".join(f"{line}{_REST_OF_LINE}\r\n" for line in shown[:-1])
        _send(f"{_HOME}{text}{shown[-1]}{_REST_OF_LINE}{_REST_OF_SCREEN}")


def _send(codes: str) -> None:
    click.echo(codes, nl=False, color=True)  # click would strip the codes if it saw no terminal


class Blocks(Generic[T]):
    """A pipe or a file: a block of text for each change."""

    def __init__(
        self, lines: Callable[[T], Iterable[str]], significant_state: Callable[[T], object], *, blank_lines: bool = True
    ) -> None:
        self._lines = lines
        self._significant_state = significant_state
        self._blank_lines = blank_lines
        self._last: object = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        """Nothing to clean up."""

    def show(self, seen: T) -> None:
        state = self._significant_state(seen)
        if state == self._last:
            return
        if self._blank_lines and self._last is not None:
            click.echo()
        self._last = state
        for line in self._lines(seen):
            click.echo(line)

    def show_problem(self, problem: str) -> None:
        click.echo(f"holdfast: {problem}", err=True)
