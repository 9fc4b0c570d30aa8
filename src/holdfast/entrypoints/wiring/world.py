"""Opens the world that HOLDFAST_WORLD names, as ports, and the cluster in it.

Lambda imports this, so the simulator and what only a daemon needs are imported locally.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from holdfast.adapters.server_date import ServerTimes
from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.drain import DO_NOT_EVICT
from holdfast.cluster.policy import choices_of, policy_of
from holdfast.cluster.ports import ReadPorts, WritePorts
from holdfast.cluster.seen import ACTION_TAG, INSTANCE_LABEL, UNVERIFIED_TAINT
from holdfast.cluster.tick import Cluster
from holdfast.control.clock_check import check_clocks
from holdfast.entrypoints.wiring.stores import WORLD_FILE
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.kube import Kube
from holdfast.ports.machines import MachineError, Machines
from holdfast.ports.notify import Notifier
from holdfast.ports.signals import Signals
from holdfast.ports.store import Store

if TYPE_CHECKING:
    from holdfast.adapters.aws.sqs import SqsEvents
    from holdfast.adapters.aws.ssm import SsmParameters
    from holdfast.adapters.kube.config import KubeAccess
    from holdfast.adapters.prometheus.signals import PrometheusSignals
    from holdfast.simulator.demo.ordinary_day import OrdinaryDay
    from holdfast.simulator.demo.persistent_world import PersistentWorld

# How far `holdfast tick` advances a simulated world.
TICK_SECONDS: Final = 60


@dataclass
class OpenWorld:
    """The ports, what all launches have in common, and what to close at the end."""

    clock: Clock
    machines: Machines
    kube: Kube
    signals: Signals
    subnets: Sequence[str]
    template: str
    user_data: str
    opened: ExitStack
    simulated: "PersistentWorld | None" = None
    times: ServerTimes = field(default_factory=ServerTimes)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def real_seconds(self, seconds: float) -> float:
        """Converts the world's seconds to real seconds."""
        return seconds / self.simulated.speed if self.simulated else seconds

    def ec2_time(self) -> Instant | None:
        """EC2's time; None if EC2 does not answer. A process that runs no ticks sends it no other request."""
        if self.machines.server_time() is None:
            with suppress(MachineError):
                self.machines.subnets(self.subnets)
        return self.machines.server_time()

    def check_clock(self) -> None:
        """Raise WrongClock if a server's latest response says so; without a request."""
        check_clocks(self.clock.now(), {"EC2": self.machines.server_time(), **self.other_times()})

    def other_times(self) -> Mapping[str, Instant | None]:
        """The time of other servers than EC2. A simulated world has none: its clock is not theirs."""
        return {} if self.simulated else self.times.known()

    def cluster(self, settings: Settings, store: Store) -> Cluster:
        tags = machine_tags(settings)
        choices = choices_of(settings)
        name = ClusterId(settings.cluster_id)
        reads = ReadPorts(store, self.machines, self.kube, self.signals, name, tags, self.subnets, self.other_times)
        writes = WritePorts(store, self.clock, self.machines, self.kube, tags, self.template, self.user_data, choices)
        return Cluster(reads, writes, policy_of(settings))


def open_world(settings: Settings, *, changed: Callable[[], None] | None = None, writable: bool = True) -> OpenWorld:
    """With `changed`, nodes and pods are watched; it is called on each change, from another thread."""
    if settings.holdfast_world == "sim":
        return _simulated(settings, writable=writable)
    return _aws(settings, changed)


def world_clock(settings: Settings) -> Clock:
    """The world's clock; a simulated one may be hours behind or days ahead of real time."""
    if settings.holdfast_world == "sim" and world_path(settings).exists():
        return _persistent_world(settings, writable=False).clock
    return SystemClock()


def machine_tags(settings: Settings) -> dict[str, str]:
    parts = (tag.partition("=") for tag in settings.machine_tags)
    return {name: value for name, _, value in parts}


def world_path(settings: Settings) -> Path:
    return settings.holdfast_data / WORLD_FILE


# Simulated


def _simulated(settings: Settings, *, writable: bool) -> OpenWorld:
    simulated = _persistent_world(settings, writable=writable)
    opened = ExitStack()
    opened.callback(simulated.close)
    return OpenWorld(
        simulated.clock,
        simulated.machines,
        simulated.kube,
        simulated.signals,
        simulated.subnets,
        template="lt-0simulated:1",
        user_data="",
        opened=opened,
        simulated=simulated,
    )


def _persistent_world(settings: Settings, *, writable: bool) -> "PersistentWorld":
    from holdfast.simulator.demo.persistent_world import PersistentWorld

    return PersistentWorld(
        world_path(settings), lambda: _new_day(settings), speed=settings.sim_speed, writable=writable
    )


def _new_day(settings: Settings) -> "OrdinaryDay":
    from holdfast.simulator.demo.ordinary_day import OrdinaryDay
    from holdfast.simulator.world.world import ZONES, Bootstrap, World

    bootstrap = Bootstrap(INSTANCE_LABEL, UNVERIFIED_TAINT, ACTION_TAG)
    # Starts in the morning, whatever the real time: little happens at night.
    morning = Instant.from_iso(f"{SystemClock().now().date()}T09:00:00Z")
    world = World(settings.sim_seed, bootstrap, pods_per_node=settings.pods_per_node, start=morning)
    for number in range(settings.min_workers):
        world.add_worker(ZONES[number % len(ZONES)], machine_tags(settings))
    world.timeline.sleep(60)  # until EC2 lists them all
    return OrdinaryDay(world, settings.instance_types, settings.sim_seed)


# AWS


def _aws(settings: Settings, changed: Callable[[], None] | None) -> OpenWorld:
    from holdfast.adapters.aws.ec2 import Ec2Machines
    from holdfast.fleet.user_data import user_data

    problems = list(missing_settings(settings))
    bootstrap = ""
    try:
        bootstrap = user_data(settings)
    except BadSetting as error:
        problems.append(str(error))
    template, subnets = settings.launch_template, settings.subnets
    if problems or template is None or subnets is None:
        raise BadSetting("\n".join(problems))
    clock = SystemClock()
    with ExitStack() as opening:
        machines = Ec2Machines()
        opening.callback(machines.close)
        kube = _kube(settings, clock, changed, opening)
        signals = prometheus_signals(settings, clock)
        return OpenWorld(clock, machines, kube, signals, subnets, template, bootstrap, opening.pop_all())


def missing_settings(settings: Settings) -> Sequence[str]:
    """An error message for each setting that HOLDFAST_WORLD=aws requires and that is not set."""
    needed = {
        "LAUNCH_TEMPLATE": (settings.launch_template, "lt-0123456789abcdef0:3"),
        "SUBNETS": (settings.subnets, "subnet-0aaa1111,subnet-0bbb2222"),
        "PROMETHEUS_URL": (settings.prometheus_url, "https://prometheus.example.com"),
    }
    return [
        f"{name} is not set but HOLDFAST_WORLD=aws requires it; for example {name}={example}"
        for name, (value, example) in needed.items()
        if not value
    ]


def _kube(settings: Settings, clock: Clock, changed: Callable[[], None] | None, opening: ExitStack) -> Kube:
    from holdfast.adapters.kube.client import kube_api

    api = kube_api(kube_access(settings, clock), clock, kept_annotations=frozenset(DO_NOT_EVICT))
    opening.callback(api.close)
    if changed is None:
        return api
    from holdfast.adapters.kube.reflector import Reflector

    return opening.enter_context(Reflector(api, clock, changed))


def kube_access(settings: Settings, clock: Clock) -> "KubeAccess":
    from holdfast.adapters.kube.config import access_from_settings, from_kubeconfig, in_cluster

    if settings.kubeconfig is not None:
        return from_kubeconfig(settings.kubeconfig, settings.kube_context)
    if settings.kube_server is None:
        return in_cluster(os.environ)
    parameter = settings.kube_token_parameter
    if parameter is None:
        raise BadSetting(
            "KUBE_SERVER is set but KUBE_TOKEN_PARAMETER is not; for example KUBE_TOKEN_PARAMETER=/holdfast/kube-token"
        )
    ca_pem = None if settings.kube_ca_file is None else _text_of(settings.kube_ca_file, "KUBE_CA_FILE")
    parameters = ssm_parameters(clock)
    return access_from_settings(settings.kube_server, lambda: parameters.secret(parameter), clock, ca_pem)


def prometheus_signals(settings: Settings, clock: Clock) -> "PrometheusSignals":
    from dataclasses import replace

    from holdfast.adapters.http_calls import HttpEndpoint
    from holdfast.adapters.prometheus.queries import Queries
    from holdfast.adapters.prometheus.signals import PrometheusSignals, token_from

    place = HttpEndpoint(
        settings.prometheus_url or "", clock, setting="PROMETHEUS_URL", ca_file=settings.prometheus_ca_file
    )
    chosen = {
        "cpu": settings.prometheus_cpu_query,
        "cpu_seen": settings.prometheus_cpu_seen_query,
        "cpu_coverage": settings.prometheus_cpu_coverage_query,
        "pending": settings.prometheus_pending_query,
        "pending_oldest_seconds": settings.prometheus_pending_oldest_query,
        "pending_seen": settings.prometheus_pending_seen_query,
        "ready": settings.prometheus_ready_query,
        "ready_seen": settings.prometheus_ready_seen_query,
    }
    queries = replace(Queries(), **{name: query for name, query in chosen.items() if query is not None})
    token = None
    if settings.prometheus_token_file is not None:
        token = token_from(settings.prometheus_token_file)
    elif (parameter := settings.prometheus_token_parameter) is not None:
        parameters = ssm_parameters(clock)
        token = lambda: parameters.secret(parameter)  # noqa: E731 -- the parameter's name is known here only
    return PrometheusSignals(place, clock, queries, token=token, stale_seconds=settings.prometheus_stale_sec)


def ssm_parameters(clock: Clock) -> "SsmParameters":
    from holdfast.adapters.aws.ssm import SsmParameters

    return SsmParameters(clock)


def events_queue(settings: Settings) -> "SqsEvents | None":
    if settings.events_queue_url is None:
        return None
    from holdfast.adapters.aws.sqs import SqsEvents

    return SqsEvents(settings.events_queue_url)


def notifiers(settings: Settings, clock: Clock) -> list[Notifier]:
    """The configured channels for notifications to operators."""
    from holdfast.adapters.webhook_notifiers import SlackNotifier, WebhookNotifier

    found: list[Notifier] = []
    if settings.slack_webhook_url:
        found.append(SlackNotifier(settings.slack_webhook_url, clock, setting="SLACK_WEBHOOK_URL"))
    if settings.notify_webhook_url:
        found.append(WebhookNotifier(settings.notify_webhook_url, clock, setting="NOTIFY_WEBHOOK_URL"))
    if settings.sns_topic_arn:
        from holdfast.adapters.aws.sns import SnsNotifier

        found.append(SnsNotifier(settings.sns_topic_arn))
    return found


def _text_of(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(f"{setting}={path} cannot be read as a certificate: {error}; expected a PEM file") from error
