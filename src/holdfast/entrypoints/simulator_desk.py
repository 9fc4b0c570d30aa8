"""What can be done with the simulator from the console.

To the living world: how fast it goes, and what goes wrong in it. Beside it: runs in worlds of their own.
"""

from collections import deque
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any, Final

from holdfast.entrypoints.simulator_runs import SEED_MOST, SEEDS_MOST, SimulatorRuns
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.text import cut
from holdfast.simulator.daily import DailyLife
from holdfast.simulator.living import LivingWorld
from holdfast.simulator.scenarios import SCENARIOS
from holdfast.simulator.swarm import Faultiness
from holdfast.simulator.world import ZONES

SPEEDS: Final = (1.0, 10.0, 60.0, 240.0, 600.0)
_ORDERS_KEPT: Final = 20

_FAULTS: Final[dict[str, tuple[str, str, Callable[[DailyLife], str]]]] = {
    "spot": (
        "Interrupt a spot worker",
        "EC2 gives one its two minutes of notice. It is cordoned, drained and replaced.",
        DailyLife.interrupt_one,
    ),
    "runner": (
        "Interrupt a runner",
        "EC2 takes the spot machine of a running job. The job fails by it; mostly somebody runs it again.",
        DailyLife.interrupt_runner,
    ),
    **{
        f"sold-out-{zone}": (
            f"Sell out {zone}",
            "No machine of any market for an hour. Launches go to other zones; the capacity memory keeps it in mind.",
            partial(DailyLife.sell_out_zone, zone=zone),
        )
        for zone in ZONES
    },
    "burst": (
        "Burst of 30 pods",
        "Those that find no free place wait, so workers are added; half an hour later they are gone.",
        DailyLife.burst,
    ),
    "break": (
        "Break a worker",
        "A machine ends without notice. Its node turns NotReady, and is cleared away when the machine is gone.",
        DailyLife.break_one,
    ),
    "blind": (
        "Take Prometheus away",
        "For ten minutes CPU is unknown, and waiting pods are counted by Kubernetes. Nothing is scaled on a guess.",
        DailyLife.blind,
    ),
}


class SimulatorDesk:
    """Orders to one living world. `wake`: the ticks look at once, at the speed that is new."""

    def __init__(self, living: LivingWorld, seed: int, wake: Callable[[], None], runs: SimulatorRuns) -> None:
        self._living = living
        self._seed = seed
        self._wake = wake
        self._runs = runs
        self._orders: deque[dict[str, str]] = deque(maxlen=_ORDERS_KEPT)

    def state(self, given: Mapping[str, str]) -> dict[str, Any]:
        if given:
            raise BadRequest(f"{cut(min(given))!r} is not asked for here; there is nothing")
        return {
            "now": self._living.now().iso(),
            "speed": self._living.speed,
            "speeds": list(SPEEDS),
            "seed": self._seed,
            "post": self._living.parcels_waiting,
            "faults": [{"name": name, "title": title, "text": text} for name, (title, text, _) in _FAULTS.items()],
            "orders": list(self._orders),
            "choices": {
                "seed_most": SEED_MOST,
                "seeds_most": SEEDS_MOST,
                "faults": list(Faultiness),
                "scenarios": [
                    {"name": name, "about": (make.__doc__ or "").strip()} for name, make in SCENARIOS.items()
                ],
            },
            "run": self._runs.shown(),
        }

    def start(self, given: Mapping[str, str]) -> dict[str, Any]:
        return self._runs.start(given)

    def stop(self) -> dict[str, Any]:
        return self._runs.stop()

    def go_at(self, speed: str) -> dict[str, Any]:
        found = next((each for each in SPEEDS if f"{each:g}" == speed), None)
        if found is None:
            raise BadRequest(f"speed {cut(speed)!r}: expected one of {', '.join(f'{each:g}' for each in SPEEDS)}")
        self._living.go_at(found)
        self._note(f"from now on {found:g} times as fast")
        return {"speed": found}

    def inject(self, name: str) -> dict[str, Any]:
        if name not in _FAULTS:
            raise BadRequest(f"fault {cut(name)!r}: expected one of {', '.join(_FAULTS)}")
        done = self._living.order(_FAULTS[name][2])
        self._note(done)
        return {"done": done}

    def _note(self, text: str) -> None:
        self._orders.appendleft({"at": self._living.now().iso(), "text": text})
        self._wake()
