"""How long after the moment at which the rules allow a launch EC2 is asked for it.

`holdfast run` is a process with default settings among real servers: a Kubernetes API server with its controllers and
scheduler, Prometheus, DynamoDB Local, and the simulated EC2 behind its query protocol. Kubelets of the tests make nodes
of machines. The moment is known in advance: pods have been pending for PENDING_UP_SEC, and COOLDOWN_UP_SEC has passed
since the last action, whichever comes last. After an interruption notice over HTTP the moment is that of the request.
Each figure is the longest of its samples. The stored timer of pending pods has whole seconds, rounded up, so that a
launch may come up to a second later.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from datetime import datetime
from typing import Final

from bench.harness.figures import Figure, value_at_most
from bench.harness.run import Run
from holdfast.adapters.system_clock import SystemClock
from tests.servers import dynamodb_local, kube_apiserver, moto, prometheus
from tests.servers.processes import RunningServer
from tests.support.black_box import Stage, served, staged

GOAL: Final = value_at_most(2)
NOTICES: Final = 3
BUSY: Final = 0.9
CALM: Final = 0.5
# The defaults; a quick run only shows that it runs.
LIMITS: Final = {"PENDING_UP_SEC": "180", "COOLDOWN_UP_SEC": "300"}
QUICK_LIMITS: Final = {"PENDING_UP_SEC": "6", "COOLDOWN_UP_SEC": "15"}

COOLDOWN: Final = "the cooldown is over, pods have been pending long enough"
PENDING: Final = "pods have been pending long enough, the cooldown is over"
NOTICE: Final = "an interruption notice, to the launch of the replacement"


def measure(run: Run) -> list[Figure]:
    with ExitStack() as opened:
        try:
            dynamodb = dynamodb_local.start(run.directory)
            opened.callback(dynamodb.stop)
            others = moto.start(run.directory)
            opened.callback(others.stop)
            servers = opened.enter_context(served(run.directory, dynamodb, others))
        except (dynamodb_local.Unavailable, kube_apiserver.Unavailable, prometheus.Unavailable) as reason:
            run.note(f"Not measured: {reason}")
            return []
        limits = QUICK_LIMITS if run.quick else LIMITS
        stage = opened.enter_context(staged(servers, run.directory, **limits))
        return list(figures(_measured(run, stage, limits)))


def figures(seconds: dict[str, list[float]]) -> Iterator[Figure]:
    for what, samples in seconds.items():
        yield Figure(f"{what}: longest of {len(samples)}", max(samples), "s", goal=GOAL)


@dataclass
class _Launches:
    """The moments at which EC2 was asked for a machine."""

    stage: Stage
    seen: int = field(default=0)

    def all(self) -> list[float]:
        return [call.at.epoch_ms / 1000 for call in self.stage.front.calls if call.action == "RunInstances"]

    def next(self) -> float:
        """The first one since the last `skip`."""
        self.stage.until(lambda: len(self.all()) > self.seen, "a launch", limit_seconds=900)
        return self.all()[self.seen]

    def skip(self) -> None:
        self.seen = len(self.all())


def _measured(run: Run, stage: Stage, limits: dict[str, str]) -> dict[str, list[float]]:
    pending, cooldown = (int(limits[name]) for name in ("PENDING_UP_SEC", "COOLDOWN_UP_SEC"))
    launches = _Launches(stage)
    run.progress.step("the first workers")
    process = stage.run()
    stage.until_settled(2)
    stage.servers.metrics.load = BUSY
    stage.deploy("web", 5)

    def after_limits() -> float:
        launches.skip()
        called = launches.next()
        return called - max(_oldest_pending(stage) + pending, _last_scale(stage) + cooldown)

    run.progress.step("waiting for the end of a cooldown")
    found = {COOLDOWN: [after_limits()]}
    stage.until_settled(3)
    # The next pods come so late that they, and not the cooldown, are what is waited for.
    late = _last_scale(stage) + cooldown - pending + 2
    run.progress.step("waiting for a time at which pods are pending longer than the cooldown lasts")
    stage.until(lambda: _now() >= late, "the time for more pods", limit_seconds=900)
    stage.scale("web", 7)
    stage.until(lambda: len(stage.pods("Pending")) == 1, "a pod without room")
    run.progress.step("waiting for pods to be pending long enough")
    found[PENDING] = [after_limits()]
    stage.until_settled(4)
    stage.servers.metrics.load = CALM
    found[NOTICE] = [_after_notice(run, stage, process, launches) for _ in range(NOTICES)]
    return found


def _after_notice(run: Run, stage: Stage, process: RunningServer, launches: _Launches) -> float:
    run.progress.step("an interruption")
    machine = stage.front.machines()[0].id
    event = stage.interrupt(machine)
    launches.skip()
    began = _now()
    stage.send_event(process, event)
    seconds = launches.next() - began
    stage.until(lambda: not _has_pods(stage, machine), "the machine is drained")
    stage.reclaim(machine)
    stage.until_settled(4)
    return seconds


def _has_pods(stage: Stage, machine: str) -> bool:
    return any(pod["spec"].get("nodeName") == machine for pod in stage.pods())


def _oldest_pending(stage: Stage) -> float:
    created = (datetime.fromisoformat(pod["metadata"]["creationTimestamp"]) for pod in stage.pods("Pending"))
    return min(created).timestamp()


def _last_scale(stage: Stage) -> float:
    return float(stage.state()["lastScaleEpoch"]["N"])


def _now() -> float:
    return SystemClock().now().epoch_ms / 1000
