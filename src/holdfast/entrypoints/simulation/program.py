"""The program that the simulator runs: Holdfast itself, over simulated ports; and searches over many seeds."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from functools import lru_cache
from typing import Any, Final

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.memory import MemoryRows
from holdfast.cluster.policy import Choices, Policy, Rebalance, ScaleUpRule, ZonesKept
from holdfast.cluster.ports import ReadPorts, WritePorts
from holdfast.cluster.spot.events import take_event
from holdfast.cluster.tick import Cluster, run_ticks, tick
from holdfast.control.pause import PauseSwitch
from holdfast.entrypoints.webhook_receiver import take_webhook
from holdfast.fleet.ec2_events import parse_ec2_event
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.senders import Senders
from holdfast.jobs.intake.tracker import RecentDeliveries, Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps
from holdfast.jobs.sweep.retry import RetryPolicy, wants_on_demand
from holdfast.kernel.ids import ClusterId, InstallationId
from holdfast.ports.clock import Clock
from holdfast.ports.store import Condition, Item, Store, Table
from holdfast.ports.store.tables import LOGS
from holdfast.simulator.proof.ec2_outages import TYPES
from holdfast.simulator.proof.faults import NO_FAULT, DrawnFaults
from holdfast.simulator.proof.github.plans import GitHubPlan
from holdfast.simulator.proof.numbers import Numbers
from holdfast.simulator.proof.ports import Ports
from holdfast.simulator.proof.run import CLUSTER, TAGS, Outcome, Run
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.shrink import shrunk
from holdfast.simulator.proof.swarm import Faultiness, Setup, drawn_setup, rates_of
from holdfast.simulator.world.github_objects import RunnerReport

# The time of a Lambda invocation; it ticks several times while an action is under way.
LOOP_SECONDS: Final = 50
SWEEP_CALLS: Final = 200
APP_ID: Final = 42
_SECRETS: Final = WebhookSecrets.from_text("simulated")


class _WithoutLog(EmbeddedStore):
    """The store in memory, without the decision log: nothing is decided by it, and a year of it takes gigabytes."""

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        if table is not LOGS or item["pk"].startswith("github#"):
            super().put(table, item, condition)


@dataclass
class _WebhookMemory:
    """What a process that receives webhooks remembers between them."""

    acknowledged: RecentDeliveries = field(default_factory=RecentDeliveries)
    installations: set[InstallationId] = field(default_factory=set)
    senders: Senders = field(default_factory=Senders)

    def tracker(self, ports: Ports, owner: str) -> Tracker:
        return Tracker(
            ports.store,
            ports.clock,
            owner,
            senders=self.senders,
            acknowledged=self.acknowledged,
            _installations=self.installations,
        )


class HoldfastProgram:
    """Implements `holdfast.simulator.proof.run.Program`."""

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
        notice = parse_ec2_event(event)
        if notice is not None:
            take_event(cluster, notice)
            tick(cluster, owner)

    def pause(self, ports: Ports, by: str) -> None:
        PauseSwitch(ports.store, ports.clock, ClusterId(CLUSTER)).pause(by, "an upgrade")

    def resume(self, ports: Ports, by: str) -> None:
        PauseSwitch(ports.store, ports.clock, ClusterId(CLUSTER)).resume(by)

    def sign(self, body: bytes) -> str:
        return _SECRETS.signature_of(body)

    def new_memory(self) -> _WebhookMemory:
        return _WebhookMemory()

    def receive(self, ports: Ports, memory: _WebhookMemory, owner: str, headers: Mapping[str, str], body: bytes) -> int:
        return take_webhook(headers, body, _SECRETS, memory.tracker(ports, owner)).status

    def report_runner(self, ports: Ports, memory: _WebhookMemory, owner: str, report: RunnerReport) -> str:
        kind, run, job = InternalType(report.kind), report.run, report.job
        market, attributes = "", {}
        if kind in (InternalType.SCHEDULED, InternalType.RESCHEDULED):
            key = RunKey(run.installation, run.id, job.run_attempt)
            market = "on-demand" if wants_on_demand(ports.store, key) else "spot"
            attributes = {"instance_lifecycle": market, "instance_type": "m7i.large"}
        event = InternalEvent(
            JobKey(run.installation, job.id), kind, report.at, report.attempt, report.instance, attributes
        )
        memory.tracker(ports, owner).record_event(event)
        return market

    def sweep(self, ports: Ports, plan: GitHubPlan, owner: str) -> None:
        app = APP_ID if plan.reads_log else None
        seconds = plan.sweep_seconds
        sweeps = GitHubSweeps(ports.store, ports.github, ports.clock, RetryPolicy(), app, owner, seconds)
        sweeps.sweep(SWEEP_CALLS, seconds)


def _cluster(ports: Ports, setup: Setup, subnets: Sequence[str]) -> Cluster:
    reads = ReadPorts(ports.store, ports.machines, ports.kube, ports.signals, ClusterId(CLUSTER), TAGS, subnets)
    writes = WritePorts(
        ports.store, ports.clock, ports.machines, ports.kube, TAGS, "lt-0abc:3", "user data", Choices(TYPES)
    )
    return Cluster(reads, writes, _policy(setup.numbers))


@lru_cache(maxsize=64)
def _policy(numbers: Numbers) -> Policy:
    values = asdict(numbers)
    values["scale_up_rule"] = ScaleUpRule(values["scale_up_rule"])
    values["rebalance"] = Rebalance(values["rebalance"])
    values["zones_kept"] = ZonesKept(values["zones_kept"])
    return Policy(**values)


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What to simulate: a seed, or a scenario with the faults of a seed."""

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


def outcome_of(
    request: RunRequest, only: Sequence[str] | None = None, *, sampled: bool = False, stop_at_first: bool = True
) -> Outcome:
    """Run it; with `only`, with those of its faults alone."""
    setup = request.setup()
    faults = DrawnFaults(setup.seed, setup.rates, None if only is None else frozenset(only))
    return Run(HoldfastProgram(), setup, faults, sampled=sampled, stop_at_first=stop_at_first).outcome()


def needed_faults(request: RunRequest, outcome: Outcome) -> list[str]:
    """The fewest faults that still break what broke first."""
    invariant = outcome.invariants[0]
    return shrunk(outcome.fault_names, lambda names: invariant in outcome_of(request, names).invariants)
