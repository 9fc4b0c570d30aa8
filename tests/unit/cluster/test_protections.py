"""Every protection that keeps a worker from leaving is named, and none holds without an end that is named."""

from msgspec.structs import replace

from holdfast.cluster.decide import decide
from holdfast.cluster.policy import Policy, ZonesKept
from holdfast.cluster.rules import A_WORKER_MAY_LEAVE
from holdfast.cluster.scaling import scale_down
from holdfast.cluster.seen import UNVERIFIED_TAINT, KubeView, Seen
from holdfast.cluster.state import DownPhase, ScaleDown
from holdfast.control.rules import Rule
from holdfast.fleet.options import PoolFailure
from holdfast.kernel.ids import ActionId, InstanceId
from holdfast.ports.kube import Pod, PodPhase, Taint
from holdfast.ports.machines import MachineState
from holdfast.ports.readings import Known, Unknown
from tests.unit.cluster.looks import CHOICES, NOW, machine, node, seen


def idle(workers: int, *, zones: int = 1, newest_age: float = 86_400, pods: tuple[Pod, ...] = ()) -> Seen:
    """An idle cluster whose last worker is the newest: it joined `newest_age` seconds ago."""
    look = seen(workers, cpu=0.1, pending=0)
    ages = [*([90_000.0] * (workers - 1)), newest_age]
    machines = tuple(
        replace(machine(n), zone="abc"[n % zones], launched=NOW.plus(-age - 60 + n)) for n, age in enumerate(ages)
    )
    nodes = tuple(replace(node(n), created=NOW.plus(-age)) for n, age in enumerate(ages))
    return replace(look, machines=machines, kube=Known(KubeView(nodes, pods), NOW))


def pod(number: int, name: str, **values: object) -> Pod:
    at = {"node": node(number).name, "phase": PodPhase.RUNNING, "created": NOW, "namespace": "kube-system"}
    return Pod(**{"name": name, "uid": name, **at, **values})  # type: ignore[arg-type]


def target_of(look: Seen, policy: Policy) -> list[str]:
    return [instance for step in decide(look, policy, CHOICES).steps for instance in getattr(step, "targets", ())]


def why_none(look: Seen, policy: Policy) -> Rule:
    return next(rule for rule in decide(look, policy, CHOICES).rules if rule.name == A_WORKER_MAY_LEAVE.name)


def test_the_newest_worker_leaves_if_the_other_cannot_and_it_is_no_longer_new() -> None:
    """CoreDNS sits on the old worker. Before, the newest stayed for ever."""
    dns = (pod(0, "coredns"),)
    policy = Policy(min_workers=1)
    assert target_of(idle(2, newest_age=600, pods=dns), policy) == ["i-00000001"]
    assert target_of(idle(2, newest_age=599, pods=dns), policy) == []
    assert target_of(idle(2, newest_age=599, pods=dns), Policy(min_workers=1, newest_kept_seconds=0)) == ["i-00000001"]


def test_the_newest_of_several_stays_even_after_those_before_it_were_chosen() -> None:
    policy = Policy(min_workers=0, max_batch_down=9)
    assert target_of(idle(4, newest_age=10), policy) == ["i-00000000", "i-00000001", "i-00000002"]
    assert len(target_of(idle(4), policy)) == 4


def test_a_worker_that_joined_late_is_new_since_it_joined() -> None:
    """Launched long ago: a machine that boots slowly would otherwise leave as soon as it is there."""
    look = idle(2, newest_age=10, pods=(pod(0, "coredns"),))
    look = replace(look, machines=(look.machines[0], replace(look.machines[1], launched=NOW.plus(-3000))))
    assert target_of(look, Policy(min_workers=1)) == []


def test_a_time_far_in_the_future_protects_nothing() -> None:
    """A clock had jumped: the worker would otherwise stay until then."""
    look = idle(2, newest_age=-7200, pods=(pod(0, "coredns"),))
    assert target_of(look, Policy(min_workers=1)) == ["i-00000001"]


def test_every_protection_of_every_worker_is_named() -> None:
    look = idle(3, zones=3, newest_age=100, pods=(pod(0, "coredns"), pod(0, "metrics"), pod(1, "web")))
    look = replace(look, undrainable={InstanceId("i-00000001"): PoolFailure(2, NOW.plus(90))})
    rule = why_none(look, Policy(min_workers=1))
    assert (rule.value, rule.limit) == ("0 of 3 workers", ">= 1 worker")
    dns, drained, newest = rule.details
    why = "it is in kube-system and not part of a DaemonSet"
    assert dns == (
        f"i-00000000: pod kube-system/coredns: {why} (and 1 more such pod); "
        "it is the last worker in a (ZONES_KEPT=always)"
    )
    assert drained == (
        "i-00000001: a recent drain failed, the next attempt is after 2026-01-15T10:01:30Z; "
        f"pod kube-system/web: {why}; it is the last worker in b (ZONES_KEPT=always)"
    )
    assert newest == (
        "i-00000002: it is the newest worker, kept until 2026-01-15T10:08:20Z (NEWEST_KEPT_SEC); "
        "it is the last worker in c (ZONES_KEPT=always)"
    )


def test_a_worker_that_is_not_in_service_says_so_and_the_minimum_is_named() -> None:
    look = idle(4)
    assert not isinstance(look.kube, Unknown)
    nodes = list(look.kube.value.nodes)
    nodes[0] = replace(nodes[0], is_ready=False)
    nodes[1] = replace(nodes[1], taints=(Taint(UNVERIFIED_TAINT, "up", "NoSchedule"),))
    look = replace(look, kube=Known(KubeView(tuple(nodes[:3]), ()), NOW))
    details = why_none(look, Policy(min_workers=1)).details
    assert details == (
        "i-00000000: its node is NotReady",
        "i-00000001: it is not in service yet",
        "i-00000002: MIN_WORKERS keeps 1 in service",
        "i-00000003: it is not in service yet",
    )


def test_of_many_workers_the_first_are_named_and_the_others_counted() -> None:
    pods = tuple(pod(n, f"db-{n}", namespace="x", controller="") for n in range(47))
    details = why_none(idle(47, pods=pods), Policy(min_workers=1)).details
    assert len(details) == 11
    assert details[-1] == "and 37 more"


def test_with_zones_kept_always_the_minimum_is_not_reached_and_with_prefer_it_is() -> None:
    look = idle(3, zones=3)
    assert target_of(look, Policy(min_workers=1)) == []
    assert all("ZONES_KEPT=always" in line for line in why_none(look, Policy(min_workers=1)).details)
    assert target_of(look, Policy(min_workers=1, zones_kept=ZonesKept.PREFER)) == ["i-00000000"]


def test_with_prefer_a_zone_waits_while_another_has_several_workers() -> None:
    dns = tuple(pod(n, f"coredns-{n}") for n in (0, 2))
    policy = Policy(min_workers=1, zones_kept=ZonesKept.PREFER)
    rule = why_none(idle(3, zones=2, pods=dns), policy)
    assert rule.details[1] == (
        "i-00000001: it is the last worker in b, and another zone has several (ZONES_KEPT=prefer)"
    )


def test_a_stopped_machine_has_no_protection_to_name() -> None:
    look = idle(3, zones=3)
    stopped = replace(look.machines[0], state=MachineState.STOPPED)
    rule = why_none(replace(look, machines=(stopped, *look.machines[1:])), Policy(min_workers=1))
    assert [line.split(":")[0] for line in rule.details] == ["i-00000001", "i-00000002"]


def kept_target(look: Seen, instance: str, policy: Policy) -> str | None:
    down = ScaleDown(ActionId("down"), NOW, DownPhase.DRAINING, (InstanceId(instance),), (), frozenset(), None)
    return scale_down.reason_to_keep_target(down, look, policy)


def test_a_target_that_has_become_the_last_of_its_zone_is_kept_unless_no_other_zone_has_several() -> None:
    """A worker that joins while the target is drained changes the answer, before it is in service, too."""
    always, prefer = Policy(min_workers=1), Policy(min_workers=1, zones_kept=ZonesKept.PREFER)
    each_zone_has_one = idle(2, zones=2)
    assert kept_target(each_zone_has_one, "i-00000001", always) == ("i-00000001 is needed: it is the last worker in b")
    assert kept_target(each_zone_has_one, "i-00000001", prefer) is None
    another_has_two = idle(3, zones=2)
    assert kept_target(another_has_two, "i-00000001", prefer) == "i-00000001 is needed: it is the last worker in b"
    assert not isinstance(another_has_two.kube, Unknown)
    without_node = KubeView(another_has_two.kube.value.nodes[:2], ())
    joining = replace(another_has_two, kube=Known(without_node, NOW))
    assert kept_target(joining, "i-00000001", prefer) == "i-00000001 is needed: it is the last worker in b"
