"""The simulated world: its speed, faults to inject, and runs of the simulator beside it.

These routes exist only where the world is simulated. The guard has checked who may use them.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Protocol

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from holdfast.console.http.access import command_route
from holdfast.console.http.answers import answer_to, answer_to_body
from holdfast.console.pages.cluster import ordered
from holdfast.console.pages.shell import Shell
from holdfast.views.simulator_status import (
    FaultInjected,
    SimulatorRun,
    SimulatorState,
    SlowMotionSwitched,
    SpeedChanged,
)

ORDER_BYTES_MOST: Final = 4 * 1024
_RUN: Final = "/simulator#run"


class RunForm(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that starts a run; defaults are those of the page."""

    seed: int = 1
    seeds: int = 1
    faults: str = ""
    scenario: str = ""


class StopOrder(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The body that stops a run: an empty object, or none."""


class SimulatorControls(Protocol):
    """Each may raise a `HoldfastError`: `BadRequest` if a parameter is invalid."""

    def state(self, params: Mapping[str, str]) -> SimulatorState: ...
    def go_at(self, speed: str) -> SpeedChanged: ...
    def switch_slow_motion(self, on: str) -> SlowMotionSwitched: ...
    def inject(self, name: str) -> FaultInjected: ...
    def start(self, params: Mapping[str, str]) -> SimulatorRun: ...
    def stop(self) -> SimulatorRun: ...


@dataclass(frozen=True, slots=True)
class SimulatorPages:
    shell: Shell
    controls: SimulatorControls

    def routes(self) -> list[Route]:
        return [
            Route("/simulator", self._page, methods=["GET"]),
            Route("/api/simulator", self._json, methods=["GET"]),
            command_route("/simulator/speed", self._speed),
            command_route("/simulator/slow-motion", self._slow_motion),
            command_route("/simulator/faults", self._fault),
            command_route("/simulator/run", self._start),
            command_route("/simulator/stop", self._stop),
            command_route("/api/simulator/run", self._start_json),
            command_route("/api/simulator/stop", self._stop_json),
        ]

    def _page(self, request: Request) -> Response:
        return self.shell.page(
            request,
            "simulator.html",
            lambda: self.controls.state(dict(request.query_params)),
            title="Simulator",
            json_path="/api/simulator",
        )

    def _json(self, request: Request) -> Response:
        return answer_to(lambda: self.controls.state(dict(request.query_params)))

    async def _speed(self, request: Request) -> Response:
        return await ordered(self.shell, request, "/simulator", lambda form: self.controls.go_at(form.get("speed", "")))

    async def _slow_motion(self, request: Request) -> Response:
        return await ordered(
            self.shell, request, "/simulator", lambda form: self.controls.switch_slow_motion(form.get("on", ""))
        )

    async def _fault(self, request: Request) -> Response:
        return await ordered(
            self.shell, request, "/simulator", lambda form: self.controls.inject(form.get("fault", ""))
        )

    async def _start(self, request: Request) -> Response:
        return await ordered(self.shell, request, _RUN, self.controls.start)

    async def _stop(self, request: Request) -> Response:
        return await ordered(self.shell, request, _RUN, lambda _form: self.controls.stop())

    async def _start_json(self, request: Request) -> Response:
        return await answer_to_body(
            request,
            RunForm,
            ORDER_BYTES_MOST,
            lambda order: self.controls.start(
                {name: str(value) for name, value in msgspec.structs.asdict(order).items()}
            ),
        )

    async def _stop_json(self, request: Request) -> Response:
        return await answer_to_body(request, StopOrder, ORDER_BYTES_MOST, lambda _order: self.controls.stop())
