"""The ports of one process: every method of every port goes through `Calls`."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar, cast

from msgspec import Struct

from holdfast.kernel.ids import InstallationId, InstanceId, RunId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.github import DeliveryPage, GitHub, JobSeen, RepositorySeen, RunSeen
from holdfast.ports.kube import Evicted, Kube, Node, NodeChange, Pod
from holdfast.ports.machines import LaunchOrder, Machine, Machines, Subnet
from holdfast.ports.readings import Reading
from holdfast.ports.signals import PendingPods, Signals
from holdfast.ports.store import (
    Condition,
    Item,
    Key,
    Page,
    Query,
    Store,
    StoreTransaction,
    Table,
    Update,
    Write,
    Written,
)
from holdfast.ports.store.capacity import Meter
from holdfast.simulator.proof.calls import Calls, PortMethod
from holdfast.simulator.proof.faults import LISTS
from holdfast.simulator.proof.processes import Process, ProcessClock

T = TypeVar("T")


def _method(port: str, name: str, effect: Callable[..., Any] | None = None) -> PortMethod:
    return PortMethod(port, name, effect, (port, name) in LISTS)


_NO_OPTIONS: Final[Mapping[str, Any]] = {}
_GET: Final = _method("store", "get")
_BATCH_GET: Final = _method("store", "batch_get", Calls.batch_get)
_QUERY: Final = _method("store", "query")
_GET_EVENTUAL: Final = _method("store", "get_eventual")
_BATCH_GET_EVENTUAL: Final = _method("store", "batch_get_eventual", Calls.batch_get)
_QUERY_EVENTUAL: Final = _method("store", "query_eventual")
_PUT: Final = _method("store", "put", Calls.put)
_UPDATE: Final = _method("store", "update", Calls.update)
_DELETE: Final = _method("store", "delete")
_TRANSACT: Final = _method("store", "transact", Calls.transact)
_REMOVE_EXPIRED: Final = _method("store", "remove_expired")
_METERED: Final = _method("store", "metered")
_CLOSE: Final = _method("store", "close")
_RUN_IN_TRANSACTION: Final = _method("store", "run_in_transaction")
_LAUNCH: Final = _method("machines", "launch", Calls.launch)
_TERMINATE: Final = _method("machines", "terminate", Calls.terminate)
_MARK_ACCEPTED: Final = _method("machines", "mark_accepted", Calls.mark_accepted)
_TAGGED: Final = _method("machines", "tagged")
_FOUND: Final = _method("machines", "found")
_SUBNETS: Final = _method("machines", "subnets")
_NODES: Final = _method("kube", "nodes")
_NODE: Final = _method("kube", "node")
_PODS: Final = _method("kube", "pods")
_PODS_ON: Final = _method("kube", "pods_on")
_CHANGE_NODE: Final = _method("kube", "change_node")
_EVICT: Final = _method("kube", "evict", Calls.evict)
_DELETE_NODE: Final = _method("kube", "delete_node")
_DELETE_SECRET: Final = _method("kube", "delete_secret")
_CPU: Final = _method("signals", "cpu")
_PENDING_PODS: Final = _method("signals", "pending_pods")
_READY_ADDRESSES: Final = _method("signals", "ready_addresses")
_DELIVERIES: Final = _method("github", "deliveries")
_REDELIVER: Final = _method("github", "redeliver")
_RUN: Final = _method("github", "run")
_REPOSITORIES: Final = _method("github", "repositories")
_RUNS_OF_REPOSITORY: Final = _method("github", "runs_of_repository")
_JOBS_OF_RUN: Final = _method("github", "jobs_of_run")
_RERUN_FAILED_JOBS: Final = _method("github", "rerun_failed_jobs", Calls.rerun_failed_jobs)


class Ports(Struct, frozen=True):
    """The ports of one process."""

    store: Store
    clock: Clock
    machines: Machines
    kube: Kube
    signals: Signals
    github: GitHub


class _Port:
    __slots__ = ("_calls", "_process")

    def __init__(self, calls: Calls, process: Process) -> None:
        self._calls = calls
        self._process = process


class _StorePort(_Port):
    __slots__ = ()

    def get(self, table: Table, key: Key, *, consistent: bool = True) -> Item | None:
        method = _GET if consistent else _GET_EVENTUAL
        return self._calls.made(self._process, method, self._calls.store.get, (table, key), {"consistent": consistent})

    def batch_get(self, table: Table, keys: Sequence[Key], *, consistent: bool = False) -> list[Item | None]:
        method = _BATCH_GET if consistent else _BATCH_GET_EVENTUAL
        return self._calls.made(
            self._process, method, self._calls.store.batch_get, (table, keys), {"consistent": consistent}
        )

    def query(self, query: Query) -> Page:
        method = _QUERY if query.consistent else _QUERY_EVENTUAL
        return self._calls.made(self._process, method, self._calls.store.query, (query,), _NO_OPTIONS)

    def put(self, table: Table, item: Item, condition: Condition | None = None) -> None:
        return self._calls.made(self._process, _PUT, self._calls.store.put, (table, item, condition), _NO_OPTIONS)

    def update(self, table: Table, key: Key, update: Update, condition: Condition | None = None) -> Written:
        return self._calls.made(
            self._process, _UPDATE, self._calls.store.update, (table, key, update, condition), _NO_OPTIONS
        )

    def delete(self, table: Table, key: Key, condition: Condition | None = None) -> None:
        return self._calls.made(self._process, _DELETE, self._calls.store.delete, (table, key, condition), _NO_OPTIONS)

    def transact(self, writes: Sequence[Write]) -> None:
        return self._calls.made(self._process, _TRANSACT, self._calls.store.transact, (writes,), _NO_OPTIONS)

    def remove_expired(self, table: Table, *, most: int = 1000) -> int:
        return self._calls.made(
            self._process, _REMOVE_EXPIRED, self._calls.store.remove_expired, (table,), {"most": most}
        )

    def metered(self, meter: Meter) -> Store:
        return self._calls.made(self._process, _METERED, self._calls.store.metered, (meter,), _NO_OPTIONS)

    def close(self) -> None:
        return self._calls.made(self._process, _CLOSE, self._calls.store.close, (), _NO_OPTIONS)


class _TransactingStorePort(_StorePort):
    """A store that also offers `holdfast.ports.store.TransactionalStore`."""

    __slots__ = ()

    def run_in_transaction(self, work: Callable[[StoreTransaction], T]) -> T:
        store: Any = self._calls.store
        return cast(
            T, self._calls.made(self._process, _RUN_IN_TRANSACTION, store.run_in_transaction, (work,), _NO_OPTIONS)
        )


class _MachinesPort(_Port):
    __slots__ = ()

    def launch(self, order: LaunchOrder) -> Machine:
        return self._calls.made(self._process, _LAUNCH, self._calls.world.ec2.launch, (order,), _NO_OPTIONS)

    def terminate(self, machine: InstanceId) -> None:
        return self._calls.made(self._process, _TERMINATE, self._calls.world.ec2.terminate, (machine,), _NO_OPTIONS)

    def mark_accepted(self, machine: InstanceId, action: str) -> None:
        return self._calls.made(
            self._process, _MARK_ACCEPTED, self._calls.world.ec2.mark_accepted, (machine, action), _NO_OPTIONS
        )

    def tagged(self, tags: Mapping[str, str]) -> list[Machine]:
        return self._calls.made(self._process, _TAGGED, self._calls.world.ec2.tagged, (tags,), _NO_OPTIONS)

    def found(self, machines: Sequence[InstanceId]) -> list[Machine]:
        return self._calls.made(self._process, _FOUND, self._calls.world.ec2.found, (machines,), _NO_OPTIONS)

    def subnets(self, subnets: Sequence[str]) -> list[Subnet]:
        return self._calls.made(self._process, _SUBNETS, self._calls.world.ec2.subnets, (subnets,), _NO_OPTIONS)

    def server_time(self) -> Instant | None:
        return self._calls.world.ec2.server_time()  # no call: it was part of the latest response


class _KubePort(_Port):
    __slots__ = ()

    def nodes(self) -> list[Node]:
        return self._calls.made(self._process, _NODES, self._calls.world.k3s.nodes, (), _NO_OPTIONS)

    def node(self, name: str) -> Node | None:
        return self._calls.made(self._process, _NODE, self._calls.world.k3s.node, (name,), _NO_OPTIONS)

    def pods(self) -> list[Pod]:
        return self._calls.made(self._process, _PODS, self._calls.world.k3s.pods, (), _NO_OPTIONS)

    def pods_on(self, node: str) -> list[Pod]:
        return self._calls.made(self._process, _PODS_ON, self._calls.world.k3s.pods_on, (node,), _NO_OPTIONS)

    def change_node(self, node: Node, change: NodeChange) -> Node:
        return self._calls.made(
            self._process, _CHANGE_NODE, self._calls.world.k3s.change_node, (node, change), _NO_OPTIONS
        )

    def evict(self, pod: Pod) -> Evicted:
        return self._calls.made(self._process, _EVICT, self._calls.world.k3s.evict, (pod,), _NO_OPTIONS)

    def delete_node(self, node: Node) -> None:
        return self._calls.made(self._process, _DELETE_NODE, self._calls.world.k3s.delete_node, (node,), _NO_OPTIONS)

    def delete_secret(self, namespace: str, name: str) -> None:
        return self._calls.made(
            self._process, _DELETE_SECRET, self._calls.world.k3s.delete_secret, (namespace, name), _NO_OPTIONS
        )


class _SignalsPort(_Port):
    __slots__ = ()

    def cpu(self) -> Reading[float]:
        return self._calls.made(self._process, _CPU, self._calls.world.prometheus.cpu, (), _NO_OPTIONS)

    def pending_pods(self) -> Reading[PendingPods]:
        return self._calls.made(
            self._process, _PENDING_PODS, self._calls.world.prometheus.pending_pods, (), _NO_OPTIONS
        )

    def ready_addresses(self) -> Reading[frozenset[str]]:
        return self._calls.made(
            self._process, _READY_ADDRESSES, self._calls.world.prometheus.ready_addresses, (), _NO_OPTIONS
        )


class _GitHubPort(_Port):
    __slots__ = ()

    def deliveries(self, cursor: str | None = None) -> DeliveryPage:
        return self._calls.made(self._process, _DELIVERIES, self._github().deliveries, (cursor,), _NO_OPTIONS)

    def redeliver(self, delivery_id: int) -> None:
        return self._calls.made(self._process, _REDELIVER, self._github().redeliver, (delivery_id,), _NO_OPTIONS)

    def run(self, installation: InstallationId, repository: str, run_id: RunId) -> RunSeen | None:
        return self._calls.made(
            self._process, _RUN, self._github().run, (installation, repository, run_id), _NO_OPTIONS
        )

    def repositories(self, installation: InstallationId, page: int = 1) -> Sequence[RepositorySeen]:
        given = (installation, page)
        return self._calls.made(self._process, _REPOSITORIES, self._github().repositories, given, _NO_OPTIONS)

    def runs_of_repository(
        self, installation: InstallationId, repository: str, status: str | None = None, page: int = 1
    ) -> Sequence[RunSeen]:
        given = (installation, repository, status, page)
        return self._calls.made(
            self._process, _RUNS_OF_REPOSITORY, self._github().runs_of_repository, given, _NO_OPTIONS
        )

    def jobs_of_run(
        self, installation: InstallationId, repository: str, run_id: RunId, run_attempt: int, page: int = 1
    ) -> Sequence[JobSeen]:
        return self._calls.made(
            self._process,
            _JOBS_OF_RUN,
            self._github().jobs_of_run,
            (installation, repository, run_id, run_attempt, page),
            _NO_OPTIONS,
        )

    def rerun_failed_jobs(self, installation: InstallationId, repository: str, run_id: RunId) -> None:
        return self._calls.made(
            self._process,
            _RERUN_FAILED_JOBS,
            self._github().rerun_failed_jobs,
            (installation, repository, run_id),
            _NO_OPTIONS,
        )

    def _github(self) -> GitHub:
        if self._calls.github is None:
            raise LookupError("this run has no GitHub")
        return self._calls.github


def ports_of(calls: Calls, process: Process) -> Ports:
    store_port = _TransactingStorePort if calls.is_transacting else _StorePort
    return Ports(
        store_port(calls, process),
        ProcessClock(calls.scheduler, process),
        _MachinesPort(calls, process),
        _KubePort(calls, process),
        _SignalsPort(calls, process),
        _GitHubPort(calls, process),
    )
