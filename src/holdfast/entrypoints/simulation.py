"""The program that the simulator runs: Holdfast itself, over simulated ports; and searches over many seeds."""

import gc
import logging
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from multiprocessing import get_context
from typing import Any, Final

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.memory import MemoryRows
from holdfast.cluster.choices import Choices
from holdfast.cluster.events import spot_event, take_event
from holdfast.cluster.hands import Hands
from holdfast.cluster.loop import run_ticks
from holdfast.cluster.observe import Senses
from holdfast.cluster.policy import Policy, Rebalance, ScaleUpRule
from holdfast.cluster.switches import Switches
from holdfast.cluster.tick import Cluster, tick
from holdfast.entrypoints.github_loops import GitHubSweeps
from holdfast.entrypoints.webhooks import take_webhook
from holdfast.jobs.ingest import Acknowledged, Tracker
from holdfast.jobs.internal import InternalEvent, InternalType
from holdfast.jobs.keys import JobKey, RunKey
from holdfast.jobs.retry import RetryPolicy, wants_on_demand
from holdfast.jobs.webhook import WebhookSecrets
from holdfast.kernel.ids import ClusterId, InstallationId
from holdfast.ports.clock import Clock
from holdfast.ports.store import Condition, Item, Store, Table
from holdfast.ports.store.tables import LOGS
from holdfast.simulator.calls import Ports
from holdfast.simulator.faults import NO_FAULT, DrawnFaults
from holdfast.simulator.job_life import FleetTold
from holdfast.simulator.job_plans import GitHubPlan
from holdfast.simulator.numbers import Numbers
from holdfast.simulator.run import CLUSTER, TAGS, Outcome, Run
from holdfast.simulator.scenarios import SCENARIOS
from holdfast.simulator.shrink import shrunk
from holdfast.simulator.swarm import Faultiness, Setup, drawn_setup, rates_of
from holdfast.simulator.troubles import TYPES

# What a Lambda function is given; it looks again in it while something is under way.
LOOP_SECONDS: Final = 50
SWEEP_CALLS: Final = 200
APP_ID: Final = 42
_SECRETS: Final = WebhookSecrets.from_text("simulated")


class _WithoutLog(EmbeddedStore):
    """The store in memory. The decision log is not kept: nothing is decided by it, and a year of it takes gigabytes."""

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        if table is not LOGS or item["pk"].startswith("github#"):
            super().put(table, item, condition)


@dataclass
class _Memory:
    """What a process that takes in webhooks remembers from one to the next."""

    acknowledged: Acknowledged = field(default_factory=Acknowledged)
    installations: set[InstallationId] = field(default_factory=set)

    def tracker(self, ports: Ports, owner: str) -> Tracker:
        return Tracker(
            ports.store, ports.clock, owner, acknowledged=self.acknowledged, _installations=self.installations
        )


class HoldfastProgram:
    """Implements `holdfast.simulator.run.Program`."""

    def open_store(self, clock: Clock) -> Store:
        return _WithoutLog(MemoryRows(), clock)

    def tick(self, ports: Ports, setup: Setup, subnets: Sequence[str], owner: str) -> None:
        cluster = _cluster(ports, setup, subnets)
        if setup.loops:
            run_ticks(cluster, owner, LOOP_SECONDS)
        else:
            tick(cluster, owner)

    def take_event(
        self, ports: Ports, setup: Setup, subnets: Sequence[str], owner: str, event: Mapping[str, Any]
    ) -> None:
        cluster = _cluster(ports, setup, subnets)
        told = spot_event(event)
        if told is not None:
            take_event(cluster, told)
            tick(cluster, owner)

    def pause(self, ports: Ports, by: str) -> None:
        Switches(ports.store, ports.clock, ClusterId(CLUSTER)).pause(by, "an upgrade")

    def resume(self, ports: Ports, by: str) -> None:
        Switches(ports.store, ports.clock, ClusterId(CLUSTER)).resume(by)

    def sign(self, body: bytes) -> str:
        return _SECRETS.signature_of(body)

    def new_memory(self) -> _Memory:
        return _Memory()

    def receive(self, ports: Ports, memory: _Memory, owner: str, headers: Mapping[str, str], body: bytes) -> int:
        return take_webhook(headers, body, _SECRETS, memory.tracker(ports, owner)).status

    def tell(self, ports: Ports, memory: _Memory, owner: str, told: FleetTold) -> str:
        kind, run, job = InternalType(told.kind), told.run, told.job
        market, attributes = "", {}
        if kind is InternalType.SCHEDULED:
            key = RunKey(run.installation, run.id, job.run_attempt)
            market = "on-demand" if wants_on_demand(ports.store, key) else "spot"
            attributes = {"instance_lifecycle": market, "instance_type": "m7i.large"}
        event = InternalEvent(JobKey(run.installation, job.id), kind, told.at, 1, told.instance, attributes)
        memory.tracker(ports, owner).tell(event)
        return market

    def sweep(self, ports: Ports, plan: GitHubPlan, owner: str) -> None:
        app = APP_ID if plan.reads_log else None
        seconds = plan.sweep_seconds
        sweeps = GitHubSweeps(ports.store, ports.github, ports.clock, RetryPolicy(), app, owner, seconds)
        sweeps.sweep(SWEEP_CALLS, seconds)


def _cluster(ports: Ports, setup: Setup, subnets: Sequence[str]) -> Cluster:
    senses = Senses(ports.store, ports.machines, ports.kube, ports.signals, ClusterId(CLUSTER), TAGS, subnets)
    hands = Hands(ports.store, ports.clock, ports.machines, ports.kube, TAGS, "lt-0abc:3", "user data", Choices(TYPES))
    return Cluster(senses, hands, _policy(setup.numbers))


@lru_cache(maxsize=64)
def _policy(numbers: Numbers) -> Policy:
    values = asdict(numbers)
    values["scale_up_rule"] = ScaleUpRule(values["scale_up_rule"])
    values["rebalance"] = Rebalance(values["rebalance"])
    return Policy(**values)


@dataclass(frozen=True, slots=True)
class Question:
    """What is to be simulated: a seed, or a scenario with the faults of a seed."""

    seed: int = 1
    faults: Faultiness = Faultiness.WILD
    days: float | None = None
    scenario: str | None = None

    def setup(self) -> Setup:
        if self.scenario is None:
            return drawn_setup(self.seed, self.faults, days=self.days)
        return replace(SCENARIOS[self.scenario](), seed=self.seed, rates=rates_of(self.seed, self.faults))

    def command(self, only: Sequence[str] | None = None) -> str:
        """The command that repeats it."""
        words = ["holdfast simulate", f"--seed {self.seed}", f"--faults {self.faults}"]
        words += [f"--days {self.days:g}"] if self.days is not None else []
        words += [f"--scenario {self.scenario}"] if self.scenario is not None else []
        words += [f"--only {','.join(only) or NO_FAULT}"] if only is not None else []
        return " ".join(words)


def answer(
    question: Question, only: Sequence[str] | None = None, *, sampled: bool = False, stop_at_first: bool = True
) -> Outcome:
    """Run it; with `only`, with those of its faults alone."""
    setup = question.setup()
    faults = DrawnFaults(setup.seed, setup.rates, None if only is None else frozenset(only))
    return Run(HoldfastProgram(), setup, faults, sampled=sampled, stop_at_first=stop_at_first).outcome()


def needed_faults(question: Question, outcome: Outcome) -> list[str]:
    """The fewest faults that still break what broke first."""
    invariant = outcome.invariants[0]
    return shrunk(outcome.fault_names, lambda names: invariant in answer(question, names).invariants)


@dataclass
class Tally:
    """What many runs add up to. `found` has the invariant that each bad seed broke."""

    seeds: int = 0
    virtual_days: float = 0.0
    port_calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    found: dict[int, str] = field(default_factory=dict)
    github_jobs: int = 0
    webhooks: int = 0

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self.virtual_days += other.virtual_days
        self.port_calls += other.port_calls
        self.faults += other.faults
        self.found |= other.found
        self.github_jobs += other.github_jobs
        self.webhooks += other.webhooks

    def shown(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "virtual_days": round(self.virtual_days, 4),
            "port_calls": self.port_calls,
            "github_jobs": self.github_jobs,
            "webhooks": self.webhooks,
            "faults": self.faults.total(),
            "violations": len(self.found),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "found": [{"seed": seed, "invariant": name} for seed, name in sorted(self.found.items())],
        }


def tallied(outcome: Outcome) -> Tally:
    faults = Counter({str(kind): count for kind, count in outcome.faults.items()})
    found = {outcome.setup.seed: outcome.invariants[0]} if outcome.violations else {}
    tracked = outcome.tracked
    return Tally(1, outcome.virtual_days, outcome.port_calls, faults, found, tracked.jobs, tracked.webhooks)


def tally_of(question: Question, seeds: Sequence[int]) -> Tally:
    total = Tally()
    for seed in seeds:
        total.add(tallied(answer(replace(question, seed=seed))))
    return total


def search(
    question: Question, seeds: Iterator[int], jobs: int, told: Callable[[Tally], bool | None], chunk: int = 5
) -> Tally:
    """Run one seed after the other, in so many processes; `told` hears of each chunk, and may end it with False."""
    total = Tally()
    # Started afresh, not forked: whoever asks may have threads.
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=prepare) as pool:
        running: set[Future[Tally]] = set()
        goes_on = True
        while goes_on or running:
            while goes_on and len(running) < 2 * jobs:
                part = [seed for _, seed in zip(range(chunk), seeds, strict=False)]
                if not part:
                    goes_on = False
                    break
                running.add(pool.submit(tally_of, question, part))
            done, running = wait(running, return_when=FIRST_COMPLETED)
            for future in done:
                total.add(future.result())
            goes_on = told(total) is not False and goes_on
    return total


def prepare() -> None:
    """What a process does before it simulates many seeds.

    What the program logs about faults is what a simulation is made of. And what is there by now stays: the collector
    of garbage need not look through it again after every few seeds.
    """
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
