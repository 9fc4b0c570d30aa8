"""A whole cluster of real servers in which Holdfast runs as processes: the stage of black-box tests and benchmarks.

Kubernetes is real (API server, controllers, scheduler) but for its kubelets, Prometheus is real and scrapes that
cluster, DynamoDB is DynamoDB Local, SSM and SQS are moto's, and EC2 is the simulated one behind its query protocol.
Nodes cannot be told apart by namespace, so one scenario at a time has the cluster, and leaves it empty.
"""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from http.client import HTTPConnection
from pathlib import Path
from typing import Any, Final

import boto3
from boto3.dynamodb.types import TypeSerializer

from holdfast.adapters.prometheus.queries import Queries
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.ids import InstanceId
from tests.servers import kube_apiserver, processes, prometheus, scripted_http
from tests.servers.kube_apiserver import RunningKube
from tests.servers.kubelets import SECRETS, Kubelets, node_name
from tests.servers.processes import RunningServer
from tests.support.cluster_metrics import ClusterMetrics
from tests.support.ec2_front import SUBNETS, Ec2Front
from tests.support.server_process import environment

PATIENCE_SECONDS: Final = 180.0
EVENTS_SECRET: Final = "a-secret-of-the-tests"
_REGION: Final = "eu-west-1"
_REPLICA_SETS: Final = "/apis/apps/v1/namespaces/default/replicasets"
_PODS: Final = "/api/v1/namespaces/default/pods"
_BUDGETS: Final = "/apis/policy/v1/namespaces/default/poddisruptionbudgets"
_LEASES: Final = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
_KUBE_TOKEN: Final = "/black-box/kube-token"

# Seconds instead of minutes; one of CPU and pods is enough, so that a test need not arrange both.
QUICK: Final = {
    "TICK_SEC": "5",
    "PENDING_UP_SEC": "2",
    "IDLE_DOWN_SEC": "1",
    "COOLDOWN_UP_SEC": "5",  # time for the scheduler, on a busy machine, to use a node that was just accepted
    "COOLDOWN_DOWN_SEC": "2",
    "NEWEST_KEPT_SEC": "0",
    "JOIN_TIMEOUT_SEC": "60",
    "MIN_WORKERS": "1",
    "MAX_WORKERS": "4",
    "ZONES_KEPT": "prefer",
    "SCALE_UP_RULE": "any",
    "PROMETHEUS_CPU_QUERY": Queries().cpu.replace("[5m]", "[4s]"),
    "PROMETHEUS_STALE_SEC": "10",
}


@dataclass(frozen=True)
class Servers:
    """What all scenarios of a process share."""

    kube: RunningKube
    kube_token: str
    dynamodb: RunningServer
    moto: RunningServer
    prometheus: RunningServer
    metrics: ClusterMetrics


@contextmanager
def served(directory: Path, dynamodb: RunningServer, moto: RunningServer) -> Iterator[Servers]:
    """Raises `Unavailable` of the server that is missing."""
    with ExitStack() as opened:
        kube = kube_apiserver.start(directory, is_whole=True)
        opened.callback(kube.stop)
        metrics = ClusterMetrics()
        page = opened.enter_context(scripted_http.serving(metrics.page))
        targets = {"cluster": page.url.removeprefix("http://")}
        watching = prometheus.start(directory, targets, honor_labels=True)
        opened.callback(watching.stop)
        token = kube.shipped_account()
        yield Servers(kube, token, dynamodb, moto, watching, metrics)


@dataclass
class Stage:
    """One scenario's cluster: empty at first, and empty afterwards."""

    servers: Servers
    directory: Path
    front: Ec2Front
    kubelets: Kubelets
    settings: dict[str, str]
    queue_url: str
    program: str = "holdfast.cli.main"  # the module that is run
    processes: list[RunningServer] = field(default_factory=list)

    # Holdfast

    def run(self, command: str = "run", *, is_awaited: bool = True, **changes: str) -> RunningServer:
        """`holdfast run` or `holdfast serve` as a process that answers, or one that has just been started."""
        program = [sys.executable, "-m", self.program, command, "--port"]
        ready = None if is_awaited else lambda _: True
        return self._started(f"holdfast-{command}", lambda port: [*program, str(port)], changes, ready)

    def lambda_function(self, handler: str, **changes: str) -> RunningServer:
        program = [sys.executable, "-m", "tests.support.lambda_process", handler]
        return self._started(f"lambda-{handler}", lambda _: program, changes, ready=lambda _: True)

    def _started(
        self,
        name: str,
        command: Callable[[int], list[str]],
        changes: Mapping[str, str],
        ready: Callable[[int], bool] | None = None,
    ) -> RunningServer:
        variables = environment(**self.settings, **changes)
        started = processes.start(name, command, self.directory, ready=ready, environment=variables)
        self.processes.append(started)
        return started

    def kill(self, process: RunningServer) -> None:
        """As the kernel does when memory runs out, and remove the lease's wait: it only saves work.

        Without that, every kill would cost the 95 s until its lease has expired. The fence is what protects.
        """
        process.process.kill()
        process.process.wait()
        self.expire_lease()

    def stop(self, process: RunningServer) -> int:
        """As a supervisor does; the exit code."""
        process.process.send_signal(signal.SIGTERM)
        return process.process.wait(timeout=PATIENCE_SECONDS)

    def expire_lease(self) -> None:
        self.dynamodb().update_item(
            TableName=self.settings["STATE_TABLE"],
            Key={"pk": {"S": self.settings["CLUSTER_ID"]}},
            UpdateExpression="SET lockUntilEpoch = :past",
            ExpressionAttributeValues={":past": {"N": "1"}},
        )

    def put_state(self, item: Mapping[str, Any]) -> None:
        """As an older autoscaler stored it."""
        serialized = {name: TypeSerializer().serialize(value) for name, value in item.items()}
        self.dynamodb().put_item(TableName=self.settings["STATE_TABLE"], Item=serialized)

    def state(self) -> dict[str, Any]:
        """The stored item of the cluster, as DynamoDB has it."""
        key = {"pk": {"S": self.settings["CLUSTER_ID"]}}
        found = self.dynamodb().get_item(TableName=self.settings["STATE_TABLE"], Key=key, ConsistentRead=True)
        return dict(found.get("Item", {}))

    def dynamodb(self) -> Any:
        return boto3.client("dynamodb", endpoint_url=self.servers.dynamodb.url, **_account())

    def send_event(self, process: RunningServer, event: Mapping[str, Any]) -> int:
        """POST /events/aws, as EventBridge does; the status."""
        connection = HTTPConnection(processes.HOST, process.port, timeout=30)
        headers = {"Authorization": f"Bearer {EVENTS_SECRET}", "Content-Type": "application/json"}
        try:
            connection.request("POST", "/events/aws", json.dumps(event), headers)
            return connection.getresponse().status
        finally:
            connection.close()

    def queue_event(self, event: Mapping[str, Any]) -> None:
        sqs = boto3.client("sqs", endpoint_url=self.servers.moto.url, **_account())
        sqs.send_message(QueueUrl=self.queue_url, MessageBody=json.dumps(event))

    # The world

    def interrupt(self, machine: str) -> dict[str, Any]:
        """EC2 will take the machine; the event that says so. `reclaim` is the end of its two minutes."""
        self.front.interrupted.add(machine)
        return {
            "source": "aws.ec2",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "time": SystemClock().now().iso_seconds(),
            "detail": {"instance-id": machine, "instance-action": "terminate"},
        }

    def reclaim(self, machine: str) -> None:
        with self.front.lock:
            self.front.ec2.break_down(InstanceId(machine))

    def deploy(self, name: str, replicas: int, cpu: str = "900m") -> None:
        """Pods with a controller, two of which fit on a machine."""
        labels = {"app": name}
        container = {"name": "main", "image": "none", "resources": {"requests": {"cpu": cpu}}}
        gone = {"key": "node.kubernetes.io/unreachable", "operator": "Exists", "effect": "NoExecute"}
        spec = {
            "containers": [container],
            "terminationGracePeriodSeconds": 1,
            "tolerations": [{**gone, "tolerationSeconds": 1}],
        }
        template = {"metadata": {"labels": labels}, "spec": spec}
        wanted = {"replicas": replicas, "selector": {"matchLabels": labels}, "template": template}
        self.servers.kube.call("POST", _REPLICA_SETS, {"metadata": {"name": name}, "spec": wanted})

    def scale(self, name: str, replicas: int) -> None:
        self.servers.kube.call("PATCH", f"{_REPLICA_SETS}/{name}", {"spec": {"replicas": replicas}})

    def protect(self, name: str, least_available: int) -> None:
        spec = {"minAvailable": least_available, "selector": {"matchLabels": {"app": name}}}
        self.servers.kube.call("POST", _BUDGETS, {"metadata": {"name": name}, "spec": spec})

    def unprotect(self, name: str) -> None:
        self.servers.kube.call("DELETE", f"{_BUDGETS}/{name}")

    def nodes(self) -> list[dict[str, Any]]:
        return list(self.servers.kube.call("GET", "/api/v1/nodes")["items"])

    def pods(self, phase: str = "") -> list[dict[str, Any]]:
        found = self.servers.kube.call("GET", _PODS)["items"]
        return [pod for pod in found if not phase or pod["status"]["phase"] == phase]

    def passwords(self) -> list[str]:
        """The secrets in which K3s keeps the passwords of nodes."""
        return [each["metadata"]["name"] for each in self.servers.kube.call("GET", SECRETS)["items"]]

    def in_service(self) -> set[str]:
        return {node["metadata"]["name"] for node in self.nodes() if _is_in_service(node)}

    def is_settled(self, workers: int) -> bool:
        """That many machines, each in service as a node; no other machine or node; and no action under way."""
        alive = {node_name(machine) for machine in self.front.machines()}
        names = {node["metadata"]["name"] for node in self.nodes()}
        idle = not self.state().get("scalingInProgress", {}).get("BOOL", False)
        return idle and len(alive) == workers and alive == names == self.in_service()

    def until(self, holds: Callable[[], bool], what: str, limit_seconds: float = PATIENCE_SECONDS) -> None:
        """Look after each pass of the kubelets, until it holds."""
        end = time.monotonic() + limit_seconds
        while not holds():
            assert not self.kubelets.mistakes, self.kubelets.mistakes
            assert time.monotonic() < end, f"{what} did not happen\n{self.described()}"
            with self.kubelets.passes:
                self.kubelets.passes.wait(timeout=1)

    def until_settled(self, workers: int) -> None:
        self.until(lambda: self.is_settled(workers), f"{workers} workers in service, and nothing else")

    def described(self) -> str:
        """For a failure: the world, and what each process logged last."""
        parts = [f"machines: {self.front.machines()}", f"violations: {self.front.violations}"]
        parts += [f"node {n['metadata']['name']}: {n['spec']} {n['metadata'].get('annotations')}" for n in self.nodes()]
        parts += [f"pod {p['metadata']['name']}: {p['spec'].get('nodeName')} {p['status']}" for p in self.pods()]
        parts += [f"state: {self.state()}"]
        for process in self.processes:
            tail = process.log.read_text(errors="replace")[-3000:]
            parts += [f"--- {process.log.name}, exit code {process.process.poll()}", tail]
        return "\n".join(parts)


StageMaker = Callable[..., Stage]


@contextmanager
def staged(servers: Servers, directory: Path, *, program: str = "holdfast.cli.main", **changes: str) -> Iterator[Stage]:
    """A cluster for one scenario. At its end nothing must be violated, and nothing is left."""
    name = f"box-{os.getpid()}-{time.time_ns()}"
    kube = servers.kube
    settings = {**_fixed_settings(servers, directory, name), **changes}
    front = Ec2Front(kube, int(settings.get("MAX_WORKERS", "10")))
    with ExitStack() as opened:
        settings["AWS_ENDPOINT_URL_EC2"] = opened.enter_context(scripted_http.serving(front.answer)).url
        kubelets = Kubelets(kube, front.running)
        stage = Stage(servers, directory, front, kubelets, settings, settings["EVENTS_QUEUE_URL"], program)
        servers.metrics.load = 0.5
        servers.metrics.listed = lambda: kubelets.listed
        opened.callback(_emptied, stage)
        opened.enter_context(kubelets)
        opened.callback(_ended, stage)
        subprocess.run(
            [sys.executable, "-m", "holdfast.cli.main", "tables", "create"],
            env=environment(**settings),
            check=True,
            capture_output=True,
        )
        yield stage
        assert not front.violations, f"{front.violations}\n{stage.described()}"
        assert not _secrets_logged(stage)


def _secrets_logged(stage: Stage) -> list[tuple[str, str]]:
    """Which secret is in which log."""
    names = ("AWS_SECRET_ACCESS_KEY", "EVENTS_SECRET", "GITHUB_WEBHOOK_SECRET")
    secrets = {**{name: stage.settings[name] for name in names}, "the token of Kubernetes": stage.servers.kube_token}
    logs = {process.log.name: process.log.read_text(errors="replace") for process in stage.processes}
    return [(name, log) for name, secret in secrets.items() for log, text in logs.items() if secret in text]


def _ended(stage: Stage) -> None:
    for process in stage.processes:
        process.process.kill()  # a graceful end may take 20 s
        process.stop()


def _emptied(stage: Stage) -> None:
    """Nothing of this scenario is left in Kubernetes. The kubelets have ended, so nothing registers again."""
    kube = stage.servers.kube
    for path in (_REPLICA_SETS, _BUDGETS, "/api/v1/nodes", _LEASES, SECRETS):
        kube.call("DELETE", path)

    def is_empty() -> bool:
        kube.call("DELETE", f"{_PODS}?gracePeriodSeconds=0")
        return not kube.call("GET", "/api/v1/nodes")["items"] and not kube.call("GET", "/api/v1/pods")["items"]

    end = time.monotonic() + PATIENCE_SECONDS
    while not is_empty():
        assert time.monotonic() < end, f"the cluster is not empty\n{stage.described()}"


def _fixed_settings(servers: Servers, directory: Path, name: str) -> dict[str, str]:
    ca = directory / "ca.crt"
    ca.write_text(servers.kube.ca_pem)
    ssm = boto3.client("ssm", endpoint_url=servers.moto.url, **_account())
    ssm.put_parameter(Name=_KUBE_TOKEN, Value=servers.kube_token, Type="SecureString", Overwrite=True)
    sqs = boto3.client("sqs", endpoint_url=servers.moto.url, **_account())
    return {
        "AWS_ACCESS_KEY_ID": "a",
        "AWS_SECRET_ACCESS_KEY": "a-key-of-the-tests",
        "AWS_DEFAULT_REGION": _REGION,
        "AWS_ENDPOINT_URL": servers.moto.url,
        "AWS_ENDPOINT_URL_DYNAMODB": servers.dynamodb.url,
        "HOLDFAST_WORLD": "aws",
        "HOLDFAST_STORE": "dynamodb:",
        "HOLDFAST_DATA": str(directory / "data"),
        "CLUSTER_ID": name,
        **{f"{table}_TABLE": f"{table.lower()}-{name}" for table in ("STATE", "LOGS", "JOBS", "JOB_EVENTS", "RUNS")},
        "DEPLOYMENTS_TABLE": f"deployments-{name}",
        "LAUNCH_TEMPLATE": "lt-0abc:3",
        "SUBNETS": ",".join(subnet.id for subnet in SUBNETS),
        "PROMETHEUS_URL": servers.prometheus.url,
        "KUBE_SERVER": servers.kube.url,
        "KUBE_TOKEN_PARAMETER": _KUBE_TOKEN,
        "KUBE_CA_FILE": str(ca),
        "K3S_URL": "https://10.0.0.10:6443",
        "K3S_TOKEN_PARAMETER": "/black-box/k3s-token",
        "EVENTS_QUEUE_URL": sqs.create_queue(QueueName=name)["QueueUrl"],
        "EVENTS_SECRET": EVENTS_SECRET,
        "GITHUB_WEBHOOK_SECRET": "another-secret-of-the-tests",
        "PYTHONUNBUFFERED": "1",
    }


def _account() -> dict[str, Any]:
    return {"region_name": _REGION, "aws_access_key_id": "a", "aws_secret_access_key": "b"}


def _is_in_service(node: dict[str, Any]) -> bool:
    """Whether the scheduler may put a pod on it."""
    conditions = node["status"].get("conditions", ())
    is_ready = any(each["type"] == "Ready" and each["status"] == "True" for each in conditions)
    return is_ready and not node["spec"].get("unschedulable") and not node["spec"].get("taints")


@contextmanager
def suspended(server: RunningServer) -> Iterator[None]:
    """The server accepts connections and does not answer, until the block ends."""
    os.kill(server.process.pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(server.process.pid, signal.SIGCONT)
