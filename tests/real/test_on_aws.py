"""`holdfast run` with HOLDFAST_WORLD=aws, as one process among real servers.

Kubernetes is a real API server, with the role that Holdfast ships; DynamoDB is DynamoDB Local; SSM and SQS are moto's;
EC2 is the simulated one, behind its query protocol. This test plays the kubelets: a machine that runs becomes a node.
"""

import json
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import boto3
import pytest

from holdfast.adapters.prometheus.queries import Queries
from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.seen import INSTANCE_LABEL, UNVERIFIED_TAINT
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Taint
from holdfast.ports.machines import LaunchOrder, Machine, Market, Subnet
from holdfast.simulator.world.ec2 import Ec2Habits, SimulatedEc2
from holdfast.simulator.world.timeline import Timeline
from tests.servers import ec2_http, scripted_http
from tests.servers.kube_apiserver import RunningKube
from tests.servers.processes import RunningServer
from tests.servers.scripted_http import Asked, Reply
from tests.support.kube_worlds import RealWorld
from tests.support.server_process import Running, environment, running

pytestmark = pytest.mark.real

PATIENCE_SECONDS = 120
REGION = "eu-west-1"
CREDENTIALS = {"AWS_ACCESS_KEY_ID": "a", "AWS_SECRET_ACCESS_KEY": "b", "AWS_DEFAULT_REGION": REGION}


class OurTime(Timeline):
    """Due events happen when the time is read."""

    def now(self) -> Instant:
        self.run_until(SystemClock().now())
        return super().now()


@dataclass
class Account:
    """An AWS account and a cluster, as one process of Holdfast finds them."""

    ec2: SimulatedEc2
    kube: RealWorld
    settings: dict[str, str]
    queue_url: str
    sqs: Any

    def alive(self) -> list[Machine]:
        return [machine for machine in self.ec2.all_machines() if not machine.is_gone]

    def interrupt(self, machine: Machine) -> None:
        event = {
            "source": "aws.ec2",
            "detail-type": "EC2 Spot Instance Interruption Warning",
            "time": SystemClock().now().iso_seconds(),
            "detail": {"instance-id": machine.id},
        }
        self.sqs.send_message(QueueUrl=self.queue_url, MessageBody=json.dumps(event))

    def in_service(self) -> set[str]:
        """The machines whose nodes may run pods."""
        return {
            node.labels[INSTANCE_LABEL]
            for node in self.kube.kube.nodes()
            if node.is_ready and not node.is_unschedulable and not node.taints
        }


@pytest.fixture
def account(
    tmp_path: Path,
    kube_server: RunningKube,
    account_token: str,
    dynamodb_server: RunningServer,
    moto_server: RunningServer,
) -> Iterator[Account]:
    kube = RealWorld(kube_server)
    kube.clear()
    timeline = OurTime(SystemClock().now())
    zones = ("eu-west-1a", "eu-west-1b")
    subnets = [Subnet(f"subnet-{zone}", zone, 50) for zone in zones]
    import random

    ec2 = SimulatedEc2(timeline, random.Random(1), subnets, Ec2Habits((0, 0), (0, 0.2), (0, 0.2)))

    def join(machine: Machine, _order: LaunchOrder) -> None:
        taint = Taint(UNVERIFIED_TAINT, "true", "NoSchedule")
        kube.make_node(machine.id, ip=machine.private_ip, labels={INSTANCE_LABEL: machine.id}, taints=(taint,))
        kube.make_secret("kube-system", f"{machine.id}.node-password.k3s")

    ec2.on_running = join
    ca = tmp_path / "ca.crt"
    ca.write_text(kube_server.ca_pem)
    options = {"region_name": REGION, "aws_access_key_id": "a", "aws_secret_access_key": "b"}
    ssm = boto3.client("ssm", endpoint_url=moto_server.url, **options)  # type: ignore[call-overload]
    ssm.put_parameter(Name="/test/kube-token", Value=account_token, Type="SecureString", Overwrite=True)
    sqs = boto3.client("sqs", endpoint_url=moto_server.url, **options)  # type: ignore[call-overload]
    queue_url = sqs.create_queue(QueueName=f"events-{os.getpid()}-{time.time_ns()}")["QueueUrl"]
    with ExitStack() as opened:
        prometheus = opened.enter_context(scripted_http.serving(_prometheus))
        settings = {
            **CREDENTIALS,
            "AWS_ENDPOINT_URL": moto_server.url,
            "AWS_ENDPOINT_URL_DYNAMODB": dynamodb_server.url,
            "AWS_ENDPOINT_URL_EC2": opened.enter_context(ec2_http.serving(ec2)),
            "HOLDFAST_WORLD": "aws",
            "HOLDFAST_STORE": "dynamodb:",
            "STATE_TABLE": f"state-{time.time_ns()}",
            "LOGS_TABLE": f"logs-{time.time_ns()}",
            "LAUNCH_TEMPLATE": "lt-0abc:3",
            "SUBNETS": ",".join(subnet.id for subnet in subnets),
            "PROMETHEUS_URL": prometheus.url,
            "KUBE_SERVER": kube_server.url,
            "KUBE_TOKEN_PARAMETER": "/test/kube-token",
            "KUBE_CA_FILE": str(ca),
            "K3S_URL": "https://10.0.0.10:6443",
            "K3S_TOKEN_PARAMETER": "/test/k3s-token",
            "EVENTS_QUEUE_URL": queue_url,
            "GITHUB_WEBHOOK_SECRET": "test-secret",
            "TICK_SEC": "5",
            "MAX_BATCH_UP": "3",
        }
        yield Account(ec2, kube, settings, queue_url, sqs)
        opened.callback(kube.close)


def _prometheus(asked: Asked) -> Reply:
    """Half busy, no pod pending; seen just now."""
    query, now = asked.form["query"], time.time()
    queries = Queries()
    values = {queries.cpu: 0.5, queries.cpu_coverage: 1, queries.pending: 0}
    value = values.get(query, now)
    result = [{"metric": {}, "value": [now, str(value)]}]
    answer = {"status": "success", "data": {"resultType": "vector", "result": result}}
    return Reply(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})


def until(condition: Callable[[], bool], run: Running) -> None:
    end = time.monotonic() + PATIENCE_SECONDS
    while not condition():
        assert run.process.poll() is None, run.process.stderr and run.process.stderr.read()
        assert time.monotonic() < end, run.get("/api/cluster")
        time.sleep(0.1)


def idle(run: Running) -> bool:
    status, text = run.get("/api/cluster")
    return status == 200 and json.loads(text)["action"] is None


def create_tables(account: Account, directory: Path) -> None:
    import subprocess
    import sys

    command = [sys.executable, "-m", "holdfast.cli.main", "tables", "create"]
    subprocess.run(command, cwd=directory, env=environment(**account.settings), check=True, capture_output=True)


@pytest.mark.slow
def test_workers_are_launched_join_and_are_replaced_after_an_interruption(account: Account, tmp_path: Path) -> None:
    """From nothing to the minimum, despite a kill; then an interruption, read from the queue."""
    create_tables(account, tmp_path)
    with running(tmp_path, **account.settings) as first:
        until(lambda: len(account.alive()) > 0, first)
        first.process.send_signal(signal.SIGKILL)
    with running(tmp_path, **account.settings) as run:
        until(lambda: len(account.in_service()) == 2 and idle(run), run)
        workers = account.alive()
        assert {machine.id for machine in workers} == account.in_service()
        assert {machine.market for machine in workers} == {Market.SPOT}
        assert {machine.zone for machine in workers} == {"eu-west-1a", "eu-west-1b"}

        taken = workers[0]
        account.interrupt(taken)
        until(lambda: taken.id not in account.in_service(), run)
        account.ec2.terminate(taken.id)  # as EC2 does when the two minutes are over
        account.kube.set_ready(taken.id, is_ready=False)  # as Kubernetes does when a node stops reporting
        until(lambda: len(account.in_service()) == 2, run)
        until(lambda: account.kube.kube.node(taken.id) is None, run)
        until(lambda: not account.kube.has_secret("kube-system", f"{taken.id}.node-password.k3s"), run)
        assert len(account.alive()) == 2

        def step_kinds() -> set[str]:
            ticks = json.loads(run.get("/api/decisions")[1])["items"]
            return {step["kind"] for tick in ticks for step in tick["steps"]}

        # A tick is logged when it ends, so what it did is there a moment before its log.
        until(lambda: {"complete_scale_up", "cordon_interrupted", "accept_replacement"} <= step_kinds(), run)
        code, errors = run.stopped_by(signal.SIGTERM)
    assert code == 0, errors
    assert account.settings["AWS_SECRET_ACCESS_KEY"] not in errors.split()
