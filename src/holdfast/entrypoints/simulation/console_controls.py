"""The simulator's controls in the console: the demo world's speed and faults, and separate runs."""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final

from holdfast.entrypoints.simulation.runs import SEED_MOST, SEEDS_MOST, SimulatorRuns
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import cut
from holdfast.simulator.demo.ordinary_day import OrdinaryDay
from holdfast.simulator.demo.persistent_world import PersistentWorld
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.swarm import Faultiness
from holdfast.simulator.world.world import ZONES
from holdfast.views.query_params import QueryParams
from holdfast.views.simulator_status import (
    CarriedOutOrder,
    FaultInjected,
    InjectableFault,
    RunChoices,
    ScenarioChoice,
    SimulatorRun,
    SimulatorState,
    SlowMotionSwitched,
    SpeedChanged,
)

SPEEDS: Final = (1.0, 10.0, 60.0, 240.0, 600.0)
_ORDERS_KEPT: Final = 20

_FAULTS: Final[dict[str, tuple[str, str, Callable[[OrdinaryDay], str]]]] = {
    "spot": (
        "Interrupt a spot worker",
        "EC2 gives two minutes of notice. The worker is cordoned, drained and replaced.",
        OrdinaryDay.interrupt_one,
    ),
    "runner": (
        "Interrupt a runner",
        "EC2 reclaims the spot machine of a running job. The job fails, and is usually re-run.",
        OrdinaryDay.interrupt_runner,
    ),
    **{
        f"sold-out-{zone}": (
            f"Sell out {zone}",
            "No capacity of any market for an hour. Launches go to other zones until the back-off ends.",
            partial(OrdinaryDay.sell_out_zone, zone=zone),
        )
        for zone in ZONES
    },
    "burst": (
        "Burst of 30 pods",
        "Pods without room stay pending, so workers are added. Half an hour later the pods are gone.",
        OrdinaryDay.burst,
    ),
    "break": (
        "Break a worker",
        "A machine ends without notice. Its node turns NotReady, and is removed once the machine is gone.",
        OrdinaryDay.break_one,
    ),
    "blind": (
        "Stop Prometheus",
        "For ten minutes CPU is unknown, and pending pods are counted by Kubernetes. Unknown values scale nothing.",
        OrdinaryDay.blind,
    ),
}


class SimulatorConsole:
    """Controls of one demo world. `wake` makes the next tick run at once, at the new speed."""

    def __init__(self, world: PersistentWorld, seed: int, wake: Callable[[], None], runs: SimulatorRuns) -> None:
        self._world = world
        self._seed = seed
        self._wake = wake
        self._runs = runs
        self._orders: deque[CarriedOutOrder] = deque(maxlen=_ORDERS_KEPT)

    def state(self, params: Mapping[str, str]) -> SimulatorState:
        QueryParams(params)
        return SimulatorState(
            now=self._world.now().iso(),
            speed=self._world.speed,
            speeds=list(SPEEDS),
            slow_motion=self._world.slow_motion.is_on,
            seed=self._seed,
            post=self._world.outbox_size,
            faults=[InjectableFault(name=name, title=title, text=text) for name, (title, text, _) in _FAULTS.items()],
            orders=list(self._orders),
            choices=RunChoices(
                seed_most=SEED_MOST,
                seeds_most=SEEDS_MOST,
                faults=list(Faultiness),
                scenarios=[
                    ScenarioChoice(name=name, about=(make.__doc__ or "").strip()) for name, make in SCENARIOS.items()
                ],
            ),
            run=self._runs.shown(),
        )

    def start(self, params: Mapping[str, str]) -> SimulatorRun:
        return self._runs.start(params)

    def stop(self) -> SimulatorRun:
        return self._runs.stop()

    def go_at(self, speed: str) -> SpeedChanged:
        found = next((each for each in SPEEDS if f"{each:g}" == speed), None)
        if found is None:
            raise BadRequest(f"speed {cut(speed)!r}: expected one of {', '.join(f'{each:g}' for each in SPEEDS)}")
        self._world.slow_motion.chosen(found)
        self._record(f"speed set to {found:g} times real time")
        return SpeedChanged(speed=found)

    def switch_slow_motion(self, on: str) -> SlowMotionSwitched:
        if on not in ("yes", "no"):
            raise BadRequest(f"on {cut(on)!r}: expected yes or no")
        self._world.slow_motion.switch(is_on=on == "yes")
        self._record(f"slow motion during actions switched {'on' if on == 'yes' else 'off'}")
        return SlowMotionSwitched(slow_motion=on == "yes")

    def inject(self, name: str) -> FaultInjected:
        if name not in _FAULTS:
            raise BadRequest(f"fault {cut(name)!r}: expected one of {', '.join(_FAULTS)}")
        done = self._world.order(_FAULTS[name][2])
        self._record(done)
        return FaultInjected(done=done)

    def _record(self, text: str) -> None:
        self._orders.appendleft(CarriedOutOrder(at=self._world.now().iso(), text=text))
        self._wake()
