"""The console: all pages, in one frame."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

from starlette.routing import BaseRoute, Route

from holdfast.console.http.live import Live
from holdfast.console.pages.shell import Shell


class Pages(Protocol):
    def routes(self) -> list[Route]: ...


@dataclass(frozen=True, slots=True)
class Console:
    shell: Shell
    pages: Sequence[Pages]
    live: Live

    def routes(self) -> list[BaseRoute]:
        return [*(route for pages in self.pages for route in pages.routes()), *self.live.routes()]
