"""The world that HOLDFAST_WORLD names, as ports; and the cluster in it.

Lambda imports this: the simulator, and what only a daemon needs, are imported where they are used.
"""

import os
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.drain import DO_NOT_EVICT
from holdfast.cluster.hands import Hands
from holdfast.cluster.observe import Senses
from holdfast.cluster.seen import ACTION_TAG, INSTANCE_LABEL, UNVERIFIED_TAINT
from holdfast.cluster.tick import Cluster
from holdfast.entrypoints.policies import choices_of, policy_of
from holdfast.entrypoints.wiring import WORLD_FILE
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.kube import Kube
from holdfast.ports.machines import Machines
from holdfast.ports.notify import Notifier
from holdfast.ports.signals import Signals
from holdfast.ports.store import Store

if TYPE_CHECKING:
    from holdfast.adapters.kube.config import Access
    from holdfast.adapters.prometheus import PrometheusSignals
    from holdfast.adapters.sqs import SqsEvents
    from holdfast.adapters.ssm import SsmParameters
    from holdfast.simulator.daily import DailyLife
    from holdfast.simulator.living import LivingWorld

# What a tick costs beside its waiting; a simulated world lets this much pass for each `holdfast tick`.
TICK_SECONDS: Final = 60


@dataclass
class OpenWorld:
    """The ports, what every launch has in common, and what is to be closed in the end."""

    clock: Clock
    machines: Machines
    kube: Kube
    signals: Signals
    subnets: Sequence[str]
    template: str
    user_data: str
    opened: ExitStack
    living: "LivingWorld | None" = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.opened.close()

    def real_seconds(self, seconds: float) -> float:
        """How long that is on this machine's clock."""
        return seconds / self.living.speed if self.living else seconds

    def cluster(self, settings: Settings, store: Store) -> Cluster:
        tags = machine_tags(settings)
        choices = choices_of(settings)
        name = ClusterId(settings.cluster_id)
        senses = Senses(store, self.machines, self.kube, self.signals, name, tags, self.subnets)
        hands = Hands(store, self.clock, self.machines, self.kube, tags, self.template, self.user_data, choices)
        return Cluster(senses, hands, policy_of(settings))


def open_world(settings: Settings, *, changed: Callable[[], None] | None = None, writable: bool = True) -> OpenWorld:
    """With `changed`, nodes and pods are watched: it is called when one is not as it was, from another thread."""
    if settings.holdfast_world == "sim":
        return _simulated(settings, writable=writable)
    return _aws(settings, changed)


def world_clock(settings: Settings) -> Clock:
    """The time in the world: a simulated one's may be behind ours by hours, or ahead by days."""
    if settings.holdfast_world == "sim" and world_path(settings).exists():
        return _living(settings, writable=False).clock
    return SystemClock()


def machine_tags(settings: Settings) -> dict[str, str]:
    parts = (tag.partition("=") for tag in settings.machine_tags)
    return {name: value for name, _, value in parts}


def world_path(settings: Settings) -> Path:
    return settings.holdfast_data / WORLD_FILE


# Simulated


def _simulated(settings: Settings, *, writable: bool) -> OpenWorld:
    living = _living(settings, writable=writable)
    opened = ExitStack()
    opened.callback(living.close)
    return OpenWorld(
        living.clock,
        living.machines,
        living.kube,
        living.signals,
        living.subnets,
        template="lt-0simulated:1",
        user_data="",
        opened=opened,
        living=living,
    )


def _living(settings: Settings, *, writable: bool) -> "LivingWorld":
    from holdfast.simulator.living import LivingWorld

    return LivingWorld(world_path(settings), lambda: _new_life(settings), speed=settings.sim_speed, writable=writable)


def _new_life(settings: Settings) -> "DailyLife":
    from holdfast.simulator.daily import DailyLife
    from holdfast.simulator.world import ZONES, Bootstrap, World

    bootstrap = Bootstrap(INSTANCE_LABEL, UNVERIFIED_TAINT, ACTION_TAG)
    # In the morning, whatever the hour is: nothing much would happen at night.
    morning = Instant.from_iso(f"{SystemClock().now().date()}T09:00:00Z")
    world = World(settings.sim_seed, bootstrap, pods_per_node=settings.pods_per_node, start=morning)
    for number in range(settings.min_workers):
        world.add_worker(ZONES[number % len(ZONES)], machine_tags(settings))
    world.timeline.sleep(60)  # until EC2 lists them all
    return DailyLife(world, settings.instance_types, settings.sim_seed)


# AWS


def _aws(settings: Settings, changed: Callable[[], None] | None) -> OpenWorld:
    from holdfast.adapters.ec2 import Ec2Machines
    from holdfast.fleet.user_data import user_data

    problems = list(_missing(settings))
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


def _missing(settings: Settings) -> Sequence[str]:
    needed = {
        "LAUNCH_TEMPLATE": (settings.launch_template, "lt-0123456789abcdef0:3"),
        "SUBNETS": (settings.subnets, "subnet-0aaa1111,subnet-0bbb2222"),
        "PROMETHEUS_URL": (settings.prometheus_url, "https://prometheus.example.com"),
    }
    return [
        f"{name} is not set, and HOLDFAST_WORLD=aws needs it; for example {name}={example}"
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


def kube_access(settings: Settings, clock: Clock) -> "Access":
    from holdfast.adapters.kube.config import from_kubeconfig, in_cluster, told

    if settings.kubeconfig is not None:
        return from_kubeconfig(settings.kubeconfig, settings.kube_context)
    if settings.kube_server is None:
        return in_cluster(os.environ)
    parameter = settings.kube_token_parameter
    if parameter is None:
        raise BadSetting(
            "KUBE_SERVER is set and KUBE_TOKEN_PARAMETER is not; for example KUBE_TOKEN_PARAMETER=/holdfast/kube-token"
        )
    ca_pem = None if settings.kube_ca_file is None else _text_of(settings.kube_ca_file, "KUBE_CA_FILE")
    parameters = ssm_parameters(clock)
    return told(settings.kube_server, lambda: parameters.secret(parameter), clock, ca_pem)


def prometheus_signals(settings: Settings, clock: Clock) -> "PrometheusSignals":
    from dataclasses import replace

    from holdfast.adapters.http_calls import HttpPlace
    from holdfast.adapters.prometheus import PrometheusSignals, token_from
    from holdfast.adapters.prometheus_queries import Queries

    place = HttpPlace(
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
    from holdfast.adapters.ssm import SsmParameters

    return SsmParameters(clock)


def events_queue(settings: Settings) -> "SqsEvents | None":
    if settings.events_queue_url is None:
        return None
    from holdfast.adapters.sqs import SqsEvents

    return SqsEvents(settings.events_queue_url)


def notifiers(settings: Settings, clock: Clock) -> list[Notifier]:
    """Whoever is told what an operator wants to know."""
    from holdfast.adapters.notify import SlackNotifier, WebhookNotifier

    found: list[Notifier] = []
    if settings.slack_webhook_url:
        found.append(SlackNotifier(settings.slack_webhook_url, clock, setting="SLACK_WEBHOOK_URL"))
    if settings.notify_webhook_url:
        found.append(WebhookNotifier(settings.notify_webhook_url, clock, setting="NOTIFY_WEBHOOK_URL"))
    if settings.sns_topic_arn:
        from holdfast.adapters.sns import SnsNotifier

        found.append(SnsNotifier(settings.sns_topic_arn))
    return found


def _text_of(path: Path, setting: str) -> str:
    try:
        return path.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        raise BadSetting(
            f"{setting}={path} cannot be read as a certificate: {error}; for example a PEM file"
        ) from error
