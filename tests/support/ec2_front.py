"""The simulated EC2 in real time behind its query protocol, with outages, lost answers, and a judge of every call."""

import random
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

import urllib3

from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.seen import ACTION_TAG, SLOT_TAG
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Machine, MachineState, Subnet
from holdfast.simulator.world.ec2 import Ec2Habits, SimulatedEc2
from holdfast.simulator.world.timeline import Timeline
from tests.servers import ec2_http
from tests.servers.kube_apiserver import RunningKube
from tests.servers.kubelets import node_name
from tests.servers.scripted_http import Asked, Reply, Reset

ZONES: Final = ("eu-west-1a", "eu-west-1b")
SUBNETS: Final = tuple(Subnet(f"subnet-{zone}", zone, 50) for zone in ZONES)
_HABITS: Final = Ec2Habits((0.0, 0.5), (0.2, 0.8), (0.2, 0.8))


class RealTime(Timeline):
    """Due events happen when the time is read."""

    def now(self) -> Instant:
        self.run_until(SystemClock().now())
        return super().now()


@dataclass(frozen=True)
class Call:
    """A call that EC2 carried out."""

    action: str
    at: Instant
    status: int


@dataclass
class Ec2Front:
    """EC2 as processes reach it. What must never happen is written into `violations`."""

    kube: RunningKube
    most_workers: int
    is_away: bool = False
    loses_answer: Callable[[str], bool] = lambda _: False  # by action; the call is carried out
    before: Callable[[str], None] = lambda _: None
    after: Callable[[str], None] = lambda _: None
    calls: list[Call] = field(default_factory=list)
    violations: list[str] = field(default_factory=list)
    interrupted: set[str] = field(default_factory=set)  # EC2 takes them, with or without work
    lock: threading.Lock = field(default_factory=threading.Lock)  # the simulated world is not thread-safe

    def __post_init__(self) -> None:
        self.timeline = RealTime(SystemClock().now())
        self.ec2 = SimulatedEc2(self.timeline, random.Random(1), SUBNETS, _HABITS)

    def machines(self) -> list[Machine]:
        """All that are not gone."""
        with self.lock:
            self.timeline.now()
            return [machine for machine in self.ec2.all_machines() if not machine.is_gone]

    def running(self) -> list[Machine]:
        return [machine for machine in self.machines() if machine.state is MachineState.RUNNING]

    def launches(self) -> int:
        return len(self.ec2.launches)

    def answer(self, asked: Asked) -> Reply:
        form = asked.form
        action = form.get("Action", "")
        if self.is_away:
            raise Reset
        self.before(action)
        if action == "TerminateInstances":
            self._judge_end(form.get("InstanceId.1", ""))
        with self.lock:
            now = self.timeline.now()
            status, body = ec2_http.answered(self.ec2, form)
            self.calls.append(Call(action, now, status))
            if action == "RunInstances":
                self._judge_launch()
        self.after(action)
        if self.loses_answer(action):
            raise Reset
        return Reply(body, status, {"Content-Type": "text/xml;charset=UTF-8"})

    def _judge_launch(self) -> None:
        alive = [machine for machine in self.ec2.all_machines() if not machine.is_gone]
        slots = [(m.tags.get(ACTION_TAG), m.tags.get(SLOT_TAG)) for m in alive if ACTION_TAG in m.tags]
        if len(set(slots)) < len(slots):
            self.violations.append(f"two machines of one slot: {sorted(map(str, slots))}")
        staying = [machine.id for machine in alive if machine.id not in self.interrupted]
        if len(staying) > self.most_workers:
            self.violations.append(f"more than the maximum of {self.most_workers}: {staying}")

    def _judge_end(self, machine: str) -> None:
        """A machine with pods must not be terminated; whether their deletion has begun does not matter."""
        if machine in self.interrupted:
            return
        found = next((each for each in self.machines() if each.id == machine), None)
        if found is None:
            return  # it is gone
        try:
            status, answer = self.kube.ask("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={node_name(found)}")
        except urllib3.exceptions.HTTPError:
            return  # Kubernetes is away, and its pods are unknown
        pods = [pod["metadata"]["name"] for pod in answer.get("items", ()) if status == 200]
        if pods:
            self.violations.append(f"{machine} was terminated with {', '.join(pods)}")
