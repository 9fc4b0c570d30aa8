"""The sides that look at a large cluster, each in a process of its own, so that its peak of memory is its own.

`python -m bench.contenders.cluster_sides SIDE DIRECTORY` does one round for each line that it reads, and answers with
a line of JSON.
"""

import gc
import json
import resource
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, Final

import msgspec
import urllib3

from bench.contenders.cluster_answers import PODS_PER_NODE
from bench.contenders.cluster_server import TAGS, Places
from holdfast.adapters.aws.ec2 import Ec2Machines, ec2_client
from holdfast.adapters.http_calls import HttpEndpoint
from holdfast.adapters.kube.client import PAGE_SIZE, kube_api
from holdfast.adapters.kube.config import ApiServerAddress, KubeAccess
from holdfast.adapters.kube.tokens import FixedToken
from holdfast.adapters.prometheus.signals import PrometheusSignals
from holdfast.adapters.sqlite import sqlite_store
from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.drain import DO_NOT_EVICT
from holdfast.cluster.policy import Choices, Policy
from holdfast.cluster.ports import ReadPorts, WritePorts
from holdfast.cluster.seen import Seen
from holdfast.cluster.steps import BeginScaleDown
from holdfast.cluster.tick import Cluster, tick
from holdfast.kernel.ids import ClusterId
from holdfast.ports.readings import Unknown
from holdfast.ports.store.tables import TABLES

Round = Callable[[], None]

QUIET: Final = Policy(max_workers=100_000)
# The CPU there is counts as low, and low for long enough.
IDLE: Final = Policy(max_workers=100_000, cpu_down=0.6, idle_down_seconds=0)

_STATUS: Final = Path("/proc/self/status")


def quiet_tick(places: Places, directory: Path) -> Round:
    """A whole tick of a cluster in which nothing is to be done."""
    cluster = _cluster(places, directory / "quiet.db", QUIET)

    def once() -> None:
        ticked = tick(cluster, "bench")
        _check_seen(ticked.seen, places)
        if ticked.done or ticked.stopped:
            raise RuntimeError(f"the tick was not quiet: {ticked.done} {ticked.stopped}")

    return once


def look_for_leavers(places: Places, directory: Path) -> Round:
    """The same of an idle one, up to the plan: it chooses which worker leaves."""
    cluster = _cluster(places, directory / "idle.db", IDLE)

    def once() -> None:
        seen, plan = cluster.look()
        _check_seen(seen, places)
        if [type(step) for step in plan.steps] != [BeginScaleDown]:
            raise RuntimeError(f"no worker was chosen to leave: {plan.steps}")

    return once


def bare_reading(places: Places, _directory: Path) -> Round:
    """The same answers, read and decoded with nothing around it; a page is dropped as soon as it is decoded."""
    gc.disable()  # it would take most of the time, and what is dropped at once needs no collector
    access = _access(places)
    server = access.server
    pool = urllib3.HTTPSConnectionPool(server.host, server.port, ssl_context=access.ssl_context(), retries=False)
    client = _ec2(places)

    def once() -> None:
        pages = client.get_paginator("describe_instances").paginate(
            Filters=[{"Name": f"tag:{name}", "Values": [value]} for name, value in TAGS.items()],
            PaginationConfig={"PageSize": 1000},
        )
        machines = sum(len(page["Reservations"]) for page in pages)
        nodes, pods = _counted(pool, "nodes"), _counted(pool, "pods")
        if (machines, nodes, pods) != (places.nodes, places.nodes, places.nodes * PODS_PER_NODE):
            raise RuntimeError(f"read {machines} machines, {nodes} nodes and {pods} pods of {places.nodes} nodes")

    return once


SIDES: Final = {side.__name__: side for side in (quiet_tick, look_for_leavers, bare_reading)}


def _counted(pool: urllib3.HTTPSConnectionPool, resource: str) -> int:
    count, more = 0, ""
    while True:
        token = f"&continue={more}" if more else ""
        page = msgspec.json.decode(pool.urlopen("GET", f"/api/v1/{resource}?limit={PAGE_SIZE}{token}").data)
        count += len(page["items"])
        more = page["metadata"]["continue"]
        if not more:
            return count


def _cluster(places: Places, file: Path, policy: Policy) -> Cluster:
    clock = SystemClock()
    store = sqlite_store(file, clock, tables=TABLES)
    machines = Ec2Machines(_ec2(places))
    kube = kube_api(_access(places), clock, kept_annotations=DO_NOT_EVICT)
    signals = PrometheusSignals(HttpEndpoint(places.prometheus, clock, setting="PROMETHEUS_URL"), clock)
    reads = ReadPorts(store, machines, kube, signals, ClusterId("cluster"), TAGS, places.subnets)
    writes = WritePorts(store, clock, machines, kube, TAGS, "lt-0abc:3", "user data", Choices(("t3.medium",)))
    return Cluster(reads, writes, policy)


def _access(places: Places) -> KubeAccess:
    return KubeAccess(ApiServerAddress.parsed(places.kube, "the benchmark"), places.ca_pem, FixedToken("bench"))


def _ec2(places: Places) -> Any:
    return ec2_client(
        endpoint_url=places.ec2,
        region_name="eu-west-1",
        aws_access_key_id="bench",
        aws_secret_access_key="bench",  # noqa: S106 -- it takes any
    )


def _check_seen(seen: Seen, places: Places) -> None:
    """A tick that sees nothing would be a fast one."""
    if isinstance(seen.kube, Unknown) or isinstance(seen.cpu, Unknown) or isinstance(seen.pending, Unknown):
        raise RuntimeError(f"not everything is known: {seen.kube}, {seen.cpu}, {seen.pending}"[:1000])  # noqa: TRY004
    pods, accepted = len(seen.kube.value.pods), sum(worker.is_accepted for worker in seen.workers)
    if (pods, accepted) != (places.nodes * PODS_PER_NODE, places.nodes):
        raise RuntimeError(f"saw {pods} pods and {accepted} workers of {places.nodes} nodes")


def peak_mb() -> float:
    """Of this process. Where it can be had, not ru_maxrss: that begins with the peak of the process before the exec."""
    if _STATUS.exists():
        line = next(line for line in _STATUS.read_text().splitlines() if line.startswith("VmHWM:"))
        return int(line.split()[1]) / 1000
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1000


def main(side: str, directory: Path) -> None:
    once = SIDES[side](Places.read(directory), directory)
    for _ in sys.stdin:
        started, cpu_started = time.perf_counter(), time.process_time()
        once()
        sample = {"cpu_seconds": time.process_time() - cpu_started, "seconds": time.perf_counter() - started}
        print(json.dumps({**sample, "peak_mb": peak_mb()}), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
