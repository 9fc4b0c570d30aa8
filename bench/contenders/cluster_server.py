"""A large cluster to look at, in a process of its own: `python -m bench.contenders.cluster_server DIRECTORY NODES`.

It serves the API server's lists over TLS, the simulated EC2 behind EC2's query protocol, and Prometheus's answers.
It writes their addresses to `places.json` in the directory, last of all.
"""

import json
import random
import sys
import threading
import time
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final, Self
from urllib.parse import parse_qs, urlsplit

from bench.contenders.cluster_answers import Answers, Host
from holdfast.adapters.prometheus.queries import Queries
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import LaunchOrder, Market, Subnet
from holdfast.simulator.world.ec2 import SimulatedEc2
from holdfast.simulator.world.timeline import Timeline
from tests.servers.certificates import new_authority
from tests.servers.ec2_http import serving as serving_ec2
from tests.servers.processes import HOST
from tests.servers.scripted_http import Asked, Reply, serving

TAGS: Final = {"Cluster": "k3s", "Role": "worker"}
ACCEPTED: Final = {"holdfast.dev/accepted": "1700000000-1-bench"}  # so that a tick has nothing to tag
ZONES: Final = ("eu-west-1a", "eu-west-1b", "eu-west-1c")
CPU: Final = 0.5  # neither high nor low by default

_FILE: Final = "places.json"
_DAY_SECONDS: Final = 86_400


@dataclass(frozen=True, slots=True)
class Places:
    """Where the cluster is reached, and how many nodes it has."""

    kube: str
    ca_pem: str
    ec2: str
    prometheus: str
    subnets: list[str]
    nodes: int

    @classmethod
    def read(cls, directory: Path) -> Self:
        return cls(**json.loads((directory / _FILE).read_text(encoding="utf-8")))

    def write(self, directory: Path) -> None:
        """Atomically: a reader never sees half of it."""
        draft = directory / f"{_FILE}.new"
        draft.write_text(json.dumps(asdict(self)), encoding="utf-8")
        draft.rename(directory / _FILE)


def is_ready(directory: Path) -> bool:
    return (directory / _FILE).exists()


def main(directory: Path, nodes: int) -> None:
    """Serve until killed."""
    subnets = [Subnet(f"subnet-{zone}", zone, 4000) for zone in ZONES]
    ec2 = machines(subnets, nodes)
    hosts = [Host(machine.id, machine.private_ip or "", machine.zone) for machine in ec2.all_machines()]
    answers = Answers(hosts)
    authority = new_authority(directory / "authority")
    with ExitStack() as opened:
        kube = opened.enter_context(serving(lambda asked: listed(answers, asked), authority.server_context(HOST)))
        prometheus = opened.enter_context(serving(measured))
        ec2_url = opened.enter_context(serving_ec2(ec2))
        ca_pem = authority.file.read_text(encoding="ascii")
        names = [subnet.id for subnet in subnets]
        Places(kube.url, ca_pem, ec2_url, prometheus.url, names, nodes).write(directory)
        threading.Event().wait()


def machines(subnets: list[Subnet], count: int) -> SimulatedEc2:
    """An EC2 in which the cluster's machines have been running for a day."""
    timeline = Timeline(Instant.from_epoch_seconds(int(time.time()) - _DAY_SECONDS))
    ec2 = SimulatedEc2(timeline, random.Random(7), subnets)
    for number in range(count):
        subnet = subnets[number % len(subnets)]
        token = f"early-{number}"
        ec2.launch(LaunchOrder(token, "lt-0:1", "t3.medium", Market.SPOT, subnet.id, subnet.zone, TAGS | ACCEPTED, ""))
    timeline.sleep(_DAY_SECONDS)
    ec2.is_dated = False  # its time stands still; responses have the machine's own date
    return ec2


def listed(answers: Answers, asked: Asked) -> Reply:
    """A page of nodes or pods."""
    address = urlsplit(asked.path)
    query = {name: values[0] for name, values in parse_qs(address.query).items()}
    resource = address.path.removeprefix("/api/v1/")
    if resource not in ("nodes", "pods"):
        return Reply(b"{}", 404)
    body = answers.page(resource, int(query.get("continue", "0")), int(query["limit"]))
    return Reply(body, headers={"Content-Type": "application/json"})


def measured(asked: Asked) -> Reply:
    """An instant query's answer: the CPU is between the limits, and no pod waits."""
    queries = Queries()
    now = time.time()
    numbers = {queries.cpu: CPU, queries.cpu_coverage: 1.0, queries.pending: 0}
    sample = {"metric": {}, "value": [now, str(numbers.get(asked.form["query"], now))]}
    answer = {"status": "success", "data": {"resultType": "vector", "result": [sample]}}
    return Reply(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})


if __name__ == "__main__":
    main(Path(sys.argv[1]), int(sys.argv[2]))
