"""One run: a world, the program's invocations over it, the faults of its seed, and the checkers.

For four hours there are faults, and nothing unsafe may happen. Then the world heals, and within two hours everything
must have settled.
"""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache, partial
from string import ascii_letters
from typing import Any, Final, Protocol

from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.machines import Machine, Market
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE
from holdfast.simulator.checkers import EVERY, Checker, Violation
from holdfast.simulator.proof.calls import Calls
from holdfast.simulator.proof.effects import EffectRecorder, PlotEvents
from holdfast.simulator.proof.facts import Facts
from holdfast.simulator.proof.faults import DrawnFaults, FaultKind, Faults
from holdfast.simulator.proof.github.job_facts import JobFacts
from holdfast.simulator.proof.github.tracker_processes import TrackerProcesses, TrackerProgram
from holdfast.simulator.proof.github.webhook_delivery import FaultyGitHub
from holdfast.simulator.proof.outages import Outages
from holdfast.simulator.proof.pausing import PauseProgram, PauseRequests
from holdfast.simulator.proof.ports import Ports, ports_of
from holdfast.simulator.proof.processes import Process, Scheduler
from holdfast.simulator.proof.story import Story
from holdfast.simulator.proof.swarm import Setup
from holdfast.simulator.world import tag_names
from holdfast.simulator.world.ec2 import Ec2Habits
from holdfast.simulator.world.world import ZONES, Bootstrap, World

CLUSTER: Final = "cluster"
TAGS: Final = {"Cluster": "k3s", "Role": "worker"}
TICK_SECONDS: Final = 60
_INTERRUPTION: Final = "EC2 Spot Instance Interruption Warning"


class Program(TrackerProgram, PauseProgram, Protocol):
    """The program under test. Each call is one invocation, with ports of its own."""

    def open_store(self, clock: Clock) -> Store: ...

    def tick(self, ports: Ports, setup: Setup, subnets: Sequence[str], owner: str) -> None: ...

    def take_event(
        self, ports: Ports, setup: Setup, subnets: Sequence[str], owner: str, event: Mapping[str, Any]
    ) -> None: ...


@dataclass
class Sample:
    """The cluster and GitHub's jobs at one moment, for a plot, with the kinds of faults since the last sample."""

    at_seconds: float
    workers: int
    joining: int
    pending: int
    cpu: float
    spot: int
    jobs_open: int = 0
    jobs_running: int = 0
    faults: tuple[FaultKind, ...] = ()


@dataclass(frozen=True, slots=True)
class GitHubCounts:
    """How much happened at GitHub."""

    runs: int = 0
    jobs: int = 0
    webhooks: int = 0


@dataclass
class Outcome:
    """The result of a run."""

    setup: Setup
    violations: list[tuple[Violation, int]]
    port_calls: int
    faults: Counter[FaultKind]
    fault_names: list[str]
    story: Story
    began: Instant
    plot_events: PlotEvents
    samples: list[Sample] = field(default_factory=list)
    calls: list[tuple[str, int, str, str]] = field(default_factory=list)
    tracked: GitHubCounts = field(default_factory=GitHubCounts)

    @property
    def invariants(self) -> list[str]:
        """The invariants that were violated, in the order of their first violation."""
        return list(dict.fromkeys(violation.invariant for violation, _ in self.violations))

    @property
    def virtual_days(self) -> float:
        return self.setup.seconds / 86_400


class Stopped(Exception):
    """A violation was found, and the run stops at the first."""


class Run:
    """Built for one setup, run once."""

    def __init__(
        self,
        program: Program,
        setup: Setup,
        faults: Faults | None = None,
        *,
        checkers: Sequence[type[Checker]] = EVERY,
        stop_at_first: bool = True,
        sampled: bool = False,
        recorded: bool = False,
    ) -> None:
        self.setup = setup
        self._program = program
        self._faults: Faults = faults or DrawnFaults(setup.seed, setup.rates)
        self._stop_at_first = stop_at_first
        self._sampled = sampled
        self._begin_world()
        self.story = Story()
        self._begin_recording(checkers)
        self.scheduler = Scheduler(self.world.timeline)
        self.scheduler.on_sleep = self.recorder.slept
        self.scheduler.on_end = self.recorder.ended
        self.scheduler.on_step = self._stop_if_violated
        self.scheduler.is_calm = self._is_calm
        self.calls = Calls(self.world, self.store, self.scheduler, self._faults, self.recorder, CLUSTER)
        self.calls.record = [] if recorded else None
        self._processes = 0
        self._events = 0
        self.samples: list[Sample] = []
        self._names_sampled = 0
        self._schedule()
        self._track()

    def outcome(self) -> Outcome:
        """Run to the end, or to the first violation."""
        try:
            self.run_until(self.setup.safety_seconds)
            self._heal()
            self.run_until(self.setup.seconds)
            self.recorder.healed()
        except Stopped:
            pass
        return self.ended()

    def run_until(self, seconds: float) -> None:
        """Run everything that is due by then. Raises Stopped at the first violation."""
        self.world.timeline.run_until(self._start.plus(seconds))

    def ended(self) -> Outcome:
        """Kill the processes that still run, and return the result so far."""
        self._ended = True
        self.scheduler.end_all()
        faults: Any = self._faults
        return Outcome(
            self.setup,
            self.recorder.violations,
            self.calls.count,
            faults.happened,
            faults.names,
            self.story,
            self._start,
            self.recorder.plot_events,
            self.samples,
            self.calls.record or [],
            self._tracked(),
        )

    def _tracked(self) -> GitHubCounts:
        github = self.github
        return GitHubCounts(len(github.runs), len(github.jobs), github.delivered) if github else GitHubCounts()

    # Setup

    def _begin_world(self) -> None:
        setup = self.setup
        bootstrap = Bootstrap(tag_names.INSTANCE, tag_names.TAINT, tag_names.ACTION)
        habits = Ec2Habits(unlisted_seconds=(0.0, setup.unlisted_seconds))
        zones = ZONES[: setup.zones]
        pods_per_node = setup.numbers.pods_per_node
        self.world = World(
            setup.seed, bootstrap, zones=zones, pods_per_node=pods_per_node, habits=habits, start=setup.start
        )
        self.world.ec2.is_tagging_refused = setup.is_tagging_refused
        self.world.ec2.is_dated = setup.is_dated
        self.store = self._program.open_store(self.world.timeline)
        self._ended = False
        for number in range(setup.workers):
            market = Market.SPOT if (number + 0.5) / setup.workers < setup.spot_share else Market.ON_DEMAND
            self.world.add_worker(zones[number % len(zones)], TAGS, market, is_marked=setup.are_marked)
        self.world.timeline.sleep(120)
        if setup.begins_with:
            self.store.put(STATE, {"pk": CLUSTER, **setup.begins_with})
        self._start = self.world.timeline.now()
        plan = setup.github
        timeline = self.world.timeline
        sign = self._program.sign
        self.github = FaultyGitHub(timeline, setup.seed, self._faults, plan, sign) if plan is not None else None

    def _begin_recording(self, checkers: Sequence[type[Checker]]) -> None:
        world = self.world
        facts = Facts(
            self.setup.numbers,
            world.timeline.now,
            world.k3s.all_pods,
            cpu=world.k3s.cpu,
            has_budget=world.k3s.has_budget,
            zones=world.ec2.zones_with_addresses,
            secrets=lambda: world.k3s.secrets,
            unlisted_seconds=self.setup.unlisted_seconds,
        )
        facts.item = {"pk": CLUSTER, **self.setup.begins_with} if self.setup.begins_with else {}
        facts.targets.update(dict.fromkeys(facts.item.get("scaleDownTargetInstanceIds", ())))
        if tag_names.action_of(facts.item):
            facts.began = world.timeline.now()
        for order, instance in world.ec2.launches:
            machine = next(m for m in world.ec2.all_machines() if m.id == instance)
            facts.launched(order, machine)
        for node in world.k3s.nodes():
            facts.node_changed(None, node)
        if self.github is not None and self.setup.github is not None:
            facts.jobs = JobFacts(self.github, self.store, self.setup.github)
        judging = [checker for checker in checkers if checker.off_with.isdisjoint(self.setup.rates)]
        self.recorder = EffectRecorder(facts, self.story, judging)
        world.k3s.on_node = self.recorder.node_changed
        lose = world.ec2.on_gone

        def gone(machine: Machine) -> None:
            self.recorder.machine_gone(machine)
            lose(machine)

        world.ec2.on_gone = gone
        world.ec2.on_notice = self._interrupted

    def _interrupted(self, machine: Machine) -> None:
        self.recorder.facts.interrupted.add(machine.id)
        self._send(_INTERRUPTION, machine.id)

    def _schedule(self) -> None:
        timeline, setup = self.world.timeline, self.setup
        self._outages = Outages(self.world, setup, self._faults, self.recorder, self._send, self.calls.away)
        for change in setup.load:
            timeline.after(change.at_seconds, partial(self._load, change))
        for number in range(setup.seconds // TICK_SECONDS if setup.ticks else 0):
            timeline.after(number * TICK_SECONDS + 1, partial(self._tick_due, number))
        for daemon in range(setup.daemons):
            timeline.after(17 + daemon * 13, partial(self._daemon_tick, daemon, 0))
        PauseRequests(self._program, setup, self.recorder, self._faults, timeline, self._start_process)
        if self._sampled:
            for number in range(setup.seconds // TICK_SECONDS):
                timeline.after(number * TICK_SECONDS, self._sample)

    def _track(self) -> None:
        if self.github is None or self.recorder.facts.jobs is None:
            return
        self.calls.github = self.github
        TrackerProcesses(
            self._program,
            self.recorder.facts.jobs,
            self.github,
            self._faults,
            self.recorder,
            self.world.timeline,
            self._start_process,
            self.setup.seconds,
        )

    def _load(self, change: Any) -> None:
        self.recorder.happened(f"{change.workload.name} wants {change.workload.replicas} pods")
        self.world.k3s.run(change.workload)

    def _heal(self) -> None:
        faults: Any = self._faults
        faults.is_over = True
        self._outages.heal()
        if self.github is not None:
            self.github.heal()
        self.recorder.world_healed()
        for number in range(1, self.setup.heal_seconds // 60):
            self.world.timeline.after(number * 60, self._minute_passed)

    def _minute_passed(self) -> None:
        self.recorder.minute_passed()
        self._stop_if_violated()

    # Invocations

    def _tick_due(self, number: int) -> None:
        if self._faults.draw(FaultKind.TICK_MISSED, f"tick-{number}", number) is not None:
            self.recorder.happened(f"tick {number} is missed")
            return
        self._tick(f"tick-{number}")
        if self._faults.draw(FaultKind.TICK_TWICE, f"tick-{number}", number) is not None:
            self._tick(f"tick-{number}b")

    def _daemon_tick(self, daemon: int, number: int) -> None:
        self._tick(f"daemon{daemon}-{number}")
        self.world.timeline.after(60, partial(self._daemon_tick, daemon, number + 1))

    def _tick(self, name: str) -> None:
        self.scheduler.start(*self.tick_process(name))

    def tick_process(self, name: str) -> tuple[Process, Callable[[], None]]:
        return self._process(name, "", lambda ports: self._program.tick(ports, self.setup, self._subnets(), name))

    def _start_process(self, name: str, number: int, work: Callable[[Process, Ports], None]) -> None:
        process = Process(name, number, self.world.timeline.now())
        self._set_clock(process)
        ports = ports_of(self.calls, process)
        self.scheduler.start(process, lambda: work(process, ports))

    def _process(self, name: str, subject: str, work: Callable[[Ports], None]) -> tuple[Process, Callable[[], None]]:
        process = Process(name, self._number_of(name), self.world.timeline.now(), subject)
        self._set_clock(process)
        ports = ports_of(self.calls, process)
        return process, lambda: work(ports)

    def _stop_if_violated(self) -> None:
        if not self._is_calm():
            raise Stopped

    def _is_calm(self) -> bool:
        return self._ended or not (self.recorder.violations and self._stop_at_first)

    def _number_of(self, name: str) -> int:
        """From the name alone: leaving out a fault must not renumber other processes."""
        kind, _, rest = name.partition("-")
        digits = rest.rstrip(ascii_letters)
        return (hash_of(kind + rest[len(digits) :]) << 20) + int(digits or 0)

    def _set_clock(self, process: Process) -> None:
        skew = self._faults.draw(FaultKind.SKEW, process.name, process.number)
        if skew is not None:
            process.offset_seconds = (skew - 0.5) * 5
        jump = self._faults.draw(FaultKind.JUMP, process.name, process.number)
        if jump is not None:
            process.offset_seconds = (jump - 0.5) * 7200
            process.faults += 1
            self.recorder.happened(f"the clock of {process.name} is off by {process.offset_seconds:.0f} s")

    # Events

    def _send(self, kind: str, machine: InstanceId) -> None:
        """Deliver an event as EventBridge does: usually a second later, sometimes late, twice or never."""
        self._events += 1
        number, name = self._events, f"event-{self._events}"
        event = {
            "source": "aws.ec2",
            "detail-type": kind,
            "time": self.world.timeline.now().iso_seconds(),
            "detail": {"instance-id": machine},
        }
        if self._faults.draw(FaultKind.EVENT_DROPPED, name, number) is not None:
            self.recorder.happened(f"the event about {machine} is dropped")
            return
        late = self._faults.draw(FaultKind.EVENT_LATE, name, number)
        self.world.timeline.after(1 if late is None else late * 400, partial(self._deliver, name, event))
        again = self._faults.draw(FaultKind.EVENT_TWICE, name, number)
        if again is not None:
            self.world.timeline.after(1 + again * 90, partial(self._deliver, f"{name}b", event))

    def _deliver(self, name: str, event: Mapping[str, Any]) -> None:
        process, work = self._process(
            name,
            event["detail"]["instance-id"] if event["detail-type"] == _INTERRUPTION else "",
            lambda ports: self._program.take_event(ports, self.setup, self._subnets(), name, event),
        )
        self.scheduler.start(process, work)

    def _subnets(self) -> list[str]:
        return [subnet.id for subnet in self.world.subnets]

    def _sample(self) -> None:
        world, facts = self.world, self.recorder.facts
        alive = [machine for machine in facts.machines.values() if machine.gone is None]
        jobs = [job.status for job in self.github.jobs.values()] if self.github else []
        faults: Any = self._faults
        names = faults.names[self._names_sampled :]
        self._names_sampled += len(names)
        self.samples.append(
            Sample(
                world.timeline.now().seconds_since(self._start),
                sum(1 for machine in alive if machine.accepted is not None),
                sum(1 for machine in alive if machine.accepted is None),
                sum(1 for pod in world.k3s.all_pods() if pod.node is None),
                world.k3s.cpu() or 0.0,
                sum(1 for machine in alive if machine.market is Market.SPOT),
                sum(1 for status in jobs if status != "completed"),
                sum(1 for status in jobs if status == "in_progress"),
                tuple(FaultKind(name.rpartition(":")[2]) for name in names),
            )
        )


@cache
def hash_of(text: str) -> int:
    """A hash that is the same in every process, unlike Python's own."""
    value = 0
    for letter in text:
        value = (value * 131 + ord(letter)) & 0xFFFF
    return value
