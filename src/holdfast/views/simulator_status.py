"""The simulator's page: the simulated world, the faults that can be injected, and the newest run of the simulator."""

from typing import Literal

from holdfast.kernel.json_types import Count, Shape, Time


class RunSettings(Shape, frozen=True, kw_only=True):
    seed: Count
    seeds: Count
    faults: Literal["none", "mild", "wild"]
    scenario: str | None


class CheckerResult(Shape, frozen=True, kw_only=True):
    """An invariant, and in how many seeds it was violated."""

    name: str
    says: str
    broken: Count


class ViolationFound(Shape, frozen=True, kw_only=True):
    """`story`: what led to it. `command` replays it."""

    seed: Count
    invariant: str
    says: str
    found: str
    story: list[str]
    command: str


class SimulatorRun(Shape, frozen=True, kw_only=True):
    state: Literal["running", "done", "stopped", "failed"]
    problem: str | None
    order: RunSettings
    command: str
    seconds: float
    seeds_done: Count
    virtual_days: float
    port_calls: Count
    faults: Count
    checkers: list[CheckerResult]
    violations: list[ViolationFound]


class InjectableFault(Shape, frozen=True, kw_only=True):
    name: str
    title: str
    text: str


class CarriedOutOrder(Shape, frozen=True, kw_only=True):
    at: Time
    text: str


class ScenarioChoice(Shape, frozen=True, kw_only=True):
    name: str
    about: str


class RunChoices(Shape, frozen=True, kw_only=True):
    seed_most: Count
    seeds_most: Count
    faults: list[str]
    scenarios: list[ScenarioChoice]


class SimulatorState(Shape, frozen=True, kw_only=True):
    """`post`: webhooks that the simulated GitHub has not delivered yet. `slow_motion`: it is slower during actions."""

    now: Time
    speed: float
    speeds: list[float]
    slow_motion: bool
    seed: Count
    post: Count
    faults: list[InjectableFault]
    orders: list[CarriedOutOrder]
    choices: RunChoices
    run: SimulatorRun | None


class SpeedChanged(Shape, frozen=True, kw_only=True):
    speed: float


class SlowMotionSwitched(Shape, frozen=True, kw_only=True):
    slow_motion: bool


class FaultInjected(Shape, frozen=True, kw_only=True):
    done: str
