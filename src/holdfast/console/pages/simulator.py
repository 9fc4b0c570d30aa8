"""The simulated world: how fast it goes, faults to put into it, and runs of the simulator beside it.

Only there where the world is simulated. Orders come as forms of the page, or as JSON; the guard has judged who may.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.answers import answer_to, answer_to_body
from holdfast.console.pages.cluster import ordered
from holdfast.console.pages.shell import Shell

ORDER_BYTES_MOST: Final = 4 * 1024
_RUN: Final = "/simulator#run"


class RunOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of a run's start; what is left out is as on the page."""

    seed: int = 1
    seeds: int = 1
    faults: str = ""
    scenario: str = ""


class StopOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body of its end: an object with nothing in it, or no body."""


class Desk(Protocol):
    """Each may raise a `HoldfastError`: `BadRequest` for what is not understood."""

    def state(self, given: Mapping[str, str]) -> Mapping[str, Any]: ...
    def go_at(self, speed: str) -> Mapping[str, Any]: ...
    def inject(self, name: str) -> Mapping[str, Any]: ...
    def start(self, given: Mapping[str, str]) -> Mapping[str, Any]: ...
    def stop(self) -> Mapping[str, Any]: ...


@dataclass(frozen=True, slots=True)
class SimulatorPages:
    shell: Shell
    desk: Desk

    def routes(self) -> list[Route]:
        return [
            Route("/simulator", self._page, methods=["GET"]),
            Route("/api/simulator", self._json, methods=["GET"]),
            Route("/simulator/speed", self._speed, methods=["POST"]),
            Route("/simulator/faults", self._fault, methods=["POST"]),
            Route("/simulator/run", self._start, methods=["POST"]),
            Route("/simulator/stop", self._stop, methods=["POST"]),
            Route("/api/simulator/run", self._start_json, methods=["POST"]),
            Route("/api/simulator/stop", self._stop_json, methods=["POST"]),
        ]

    def _page(self, request: Request) -> Response:
        return self.shell.page(
            request,
            "simulator.html",
            lambda: self.desk.state(dict(request.query_params)),
            title="Simulator",
            json_path="/api/simulator",
        )

    def _json(self, request: Request) -> Response:
        return answer_to(lambda: self.desk.state(dict(request.query_params)))

    async def _speed(self, request: Request) -> Response:
        return await ordered(self.shell, request, "/simulator", lambda form: self.desk.go_at(form.get("speed", "")))

    async def _fault(self, request: Request) -> Response:
        return await ordered(self.shell, request, "/simulator", lambda form: self.desk.inject(form.get("fault", "")))

    async def _start(self, request: Request) -> Response:
        return await ordered(self.shell, request, _RUN, self.desk.start)

    async def _stop(self, request: Request) -> Response:
        return await ordered(self.shell, request, _RUN, lambda _form: self.desk.stop())

    async def _start_json(self, request: Request) -> Response:
        return await answer_to_body(
            request,
            RunOrder,
            ORDER_BYTES_MOST,
            lambda order: self.desk.start({name: str(value) for name, value in msgspec.structs.asdict(order).items()}),
        )

    async def _stop_json(self, request: Request) -> Response:
        return await answer_to_body(request, StopOrder, ORDER_BYTES_MOST, lambda _order: self.desk.stop())
