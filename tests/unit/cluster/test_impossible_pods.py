"""Which pods no machine could hold, and how the others are counted."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.decide import decide, next_timers
from holdfast.cluster.impossible_pods import impossible_pods, pending_pods
from holdfast.cluster.policy import Policy, ScaleUpRule
from holdfast.cluster.state import ClusterState
from holdfast.ports.kube import Node, Pod, PodPhase, Resources
from holdfast.ports.readings import Known, Reading, Unknown
from holdfast.ports.signals import PendingPods
from tests.unit.cluster.looks import AWAY, BUSY, CHOICES, NOW, node

GIB = 1024**3
TYPES = ("t3.medium", "m7i.xlarge")
SMALL = Resources(1_900, 3 * GIB)


def pod(name: str, asked: Resources | None, *, waited: float = 100, on: str | None = None) -> Pod:
    since = None if on else NOW.plus(-waited)
    return Pod("default", name, f"uid-{name}", on, PodPhase.PENDING, NOW, since, requests=asked)


def nodes(*allocatable: Resources | None) -> list[Node]:
    return [replace(node(number), allocatable=each) for number, each in enumerate(allocatable)]


def why(asked: Resources | None, *allocatable: Resources | None, types: tuple[str, ...] = TYPES) -> str | None:
    found = impossible_pods([pod("big", asked)], nodes(*allocatable), types)
    return str(found[0]) if found else None


@pytest.mark.parametrize(
    ("asked", "reason"),
    [
        (Resources(64_000, 0), "default/big: asks 64 CPU; the largest type, m7i.xlarge, has 4"),
        (Resources(4_001, 0), "default/big: asks 4.001 CPU; the largest type, m7i.xlarge, has 4"),
        (Resources(100, 128 * GIB), "default/big: asks 128 GiB; the largest type, m7i.xlarge, has 16 GiB"),
        (Resources(4_000, 16 * GIB), None),
        (Resources(4_000, 16 * GIB + 1), "default/big: asks 16 GiB; the largest type, m7i.xlarge, has 16 GiB"),
        (Resources(None, None), None),
        (Resources(None, 128 * GIB), "default/big: asks 128 GiB; the largest type, m7i.xlarge, has 16 GiB"),
        (None, None),
    ],
)
def test_a_pod_is_impossible_if_it_asks_more_than_the_whole_machine_has(
    asked: Resources | None, reason: str | None
) -> None:
    assert why(asked, SMALL) == reason


def test_each_of_two_types_may_be_too_small_in_another_way() -> None:
    asked = Resources(8_000, 32 * GIB)
    assert why(asked, SMALL, types=("c7i.2xlarge", "r7i.xlarge")) == (
        "default/big: asks 8 CPU and 32 GiB; no type has both"
    )


@pytest.mark.parametrize("allocatable", [Resources(64_000, 256 * GIB), Resources(None, None), None])
def test_a_node_that_could_hold_it_or_whose_size_is_unknown_makes_it_possible(allocatable: Resources | None) -> None:
    """Any node, also a server or one that a person added."""
    assert why(Resources(64_000, 0), SMALL, allocatable) is None


@pytest.mark.parametrize("types", [(), ("t3.medium", "m99i.huge")])
def test_with_an_unknown_type_no_pod_is_impossible(types: tuple[str, ...]) -> None:
    assert why(Resources(64_000, 0), SMALL, types=types) is None


def test_only_pods_that_the_scheduler_could_not_place_are_judged() -> None:
    asked = Resources(64_000, 0)
    pulling = replace(pod("a", asked), unschedulable_since=None)
    assert impossible_pods([pulling, pod("b", asked, on="node-1")], [], TYPES) == ()


PODS = (
    pod("huge-1", Resources(64_000, 0), waited=9000),
    pod("huge-2", Resources(64_000, 0), waited=8000),
    pod("web-1", Resources(100, 0), waited=200),
    pod("web-2", None, waited=300),
)


def counted(reading: Reading[PendingPods], pods: tuple[Pod, ...] = PODS) -> Reading[PendingPods]:
    return pending_pods(reading, Known(pods, NOW), impossible_pods(pods, [], TYPES), NOW)


@pytest.mark.parametrize(
    ("prometheus", "expected"),
    [
        (PendingPods(4, 9000), PendingPods(2, 300)),
        (PendingPods(3, 9000), PendingPods(2, 300)),
        (PendingPods(1, 9000), PendingPods(1, 300)),  # it has not seen the others yet
        (PendingPods(0, 0), PendingPods(0, 0)),  # an operator's query may leave pods out
        (PendingPods(50, 9000), PendingPods(2, 300)),  # it still counts pods that have a node by now
    ],
)
def test_prometheus_count_is_limited_to_the_possible_pods(prometheus: PendingPods, expected: PendingPods) -> None:
    assert counted(Known(prometheus, NOW)) == Known(expected, NOW)


def test_without_an_impossible_pod_prometheus_count_stands() -> None:
    reading = Known(PendingPods(50, 9000), NOW)
    assert counted(reading, PODS[2:]) == reading


def test_without_prometheus_kubernetes_counts_the_possible_pods() -> None:
    assert counted(Unknown("away")) == Known(PendingPods(2, 300), NOW)
    assert counted(Unknown("away"), PODS[:2]) == Known(PendingPods(0, 0), NOW)


def test_without_kubernetes_prometheus_counts_as_before() -> None:
    reading = Known(PendingPods(4, 9000), NOW)
    assert pending_pods(reading, Unknown("away"), (), NOW) == reading


def test_a_short_outage_of_kubernetes_does_not_launch_for_a_pod_that_was_left_out() -> None:
    """Prometheus counts it again, as hours old: its waiting time begins with the outage."""
    look = replace(BUSY, kube=AWAY, state=ClusterState(), pending=Known(PendingPods(1, 9000), NOW))
    policy = Policy(scale_up_rule=ScaleUpRule.ANY, cpu_up=0.99)
    assert next_timers(look, policy).pending_since == NOW
    assert decide(look, policy, CHOICES).steps == ()
    known = replace(look, kube=BUSY.kube)
    assert [step.kind for step in decide(known, policy, CHOICES).steps] == ["begin_scale_up"]


def test_of_many_impossible_pods_the_first_are_named_and_the_others_counted() -> None:
    pods = [pod(f"huge-{number:02}", Resources(64_000, 0)) for number in range(47)]
    look = replace(BUSY, impossible=impossible_pods(pods, [], TYPES), pending=Known(PendingPods(0, 0), NOW))
    (verdict,) = [rule for rule in decide(look, Policy(), CHOICES).rules if rule.name == "every_pod_fits"]
    assert (verdict.value, len(verdict.details), verdict.details[-1]) == ("47 pods", 11, "and 37 more")
    assert verdict.details[0].startswith("default/huge-00: ")


def test_a_name_with_control_characters_is_escaped_and_cut() -> None:
    (found,) = impossible_pods([pod("\x1b[31m" + "x" * 500, Resources(64_000, 0))], [], TYPES)
    assert "\x1b" not in str(found)
    assert len(str(found)) < 300
