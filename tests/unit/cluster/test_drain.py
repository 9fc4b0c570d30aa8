"""A drain: which pods are evicted, which are ignored, and which prevent it. Every line of the seed's list."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.drain import DrainRules, drain_view, staying_words
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import Pod, PodPhase

POD = Pod("default", "web-1", "uid-1", "node-1", PodPhase.RUNNING, Instant(0), controller="ReplicaSet")
RULES = DrainRules()


def test_an_ordinary_pod_is_evicted() -> None:
    view = drain_view([POD], RULES)
    assert view.to_evict == (POD,)
    assert not view.is_drained


@pytest.mark.parametrize(
    "pod",
    [
        replace(POD, controller="DaemonSet"),
        replace(POD, controller="DaemonSet", namespace="kube-system", priority_class="system-node-critical"),
        replace(POD, is_mirror=True, controller="Node", namespace="kube-system"),
        replace(POD, phase=PodPhase.SUCCEEDED),
        replace(POD, phase=PodPhase.FAILED, controller=""),
    ],
    ids=["a DaemonSet's", "a critical DaemonSet's", "a mirror pod", "succeeded", "failed"],
)
def test_an_ignored_pod_is_not_evicted_and_does_not_block_the_drain(pod: Pod) -> None:
    assert drain_view([pod], RULES).is_drained


@pytest.mark.parametrize(
    ("pod", "because"),
    [
        (replace(POD, priority_class="system-node-critical"), "system-node-critical"),
        (replace(POD, priority_class="system-cluster-critical"), "system-cluster-critical"),
        (replace(POD, namespace="kube-system"), "kube-system"),
        (replace(POD, annotations={"holdfast.dev/do-not-evict": "true"}), "do-not-evict"),
        (replace(POD, annotations={"cluster-autoscaler.kubernetes.io/safe-to-evict": "false"}), "safe-to-evict"),
        (replace(POD, annotations={"karpenter.sh/do-not-disrupt": "true"}), "do-not-disrupt"),
        (replace(POD, controller=""), "it has no controller"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_pod_that_must_not_be_moved_prevents_the_drain(pod: Pod, because: str) -> None:
    view = drain_view([POD, pod], RULES)
    assert view.blocked_by is not None
    assert because in view.blocked_by
    assert str(pod) in view.blocked_by
    assert not drain_view([pod], RULES).is_drained


def test_policy_decides_about_local_storage_and_pods_without_a_controller() -> None:
    local, unmanaged = replace(POD, has_local_storage=True), replace(POD, controller="")
    assert drain_view([local], RULES).to_evict == (local,)
    assert drain_view([local], DrainRules(evict_local_storage=False)).blocked_by is not None
    assert drain_view([unmanaged], DrainRules(evict_unmanaged=True)).to_evict == (unmanaged,)


def test_a_drain_waits_for_a_terminating_pod() -> None:
    leaving = replace(POD, is_deleting=True)
    view = drain_view([leaving], RULES)
    assert view.to_evict == ()
    assert view.leaving == (leaving,)
    assert not view.is_drained


def test_pods_that_stay_for_the_same_reason_are_one_sentence() -> None:
    budget = {f"default/web-{number}": "the disruption budget web allows 0" for number in range(5)}
    assert list(staying_words("i-1", {**budget, "default/db": "the server is busy"})) == [
        "pods default/web-0, default/web-1, default/web-2 and 2 more stay on i-1 for now: "
        "the disruption budget web allows 0",
        "pod default/db stays on i-1 for now: the server is busy",
    ]
    assert list(staying_words("i-1", {})) == []
