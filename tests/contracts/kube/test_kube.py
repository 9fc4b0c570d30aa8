"""What the Kubernetes port guarantees, in every cluster."""

from concurrent.futures import ThreadPoolExecutor

import pytest
from msgspec.structs import replace

from holdfast.ports.kube import Eviction, Node, NodeChange, NodeChanged, PodPhase, Taint
from tests.support.kube_worlds import World, pod_named, until

FENCE = "holdfast.dev/fence"
UNVERIFIED = Taint("holdfast.dev/unverified", "action-1", "NoSchedule")
OTHER = Taint("example.com/gpu", "", "NoExecute")


def node(world: World, name: str) -> Node:
    found = world.kube.node(name)
    assert found is not None
    return found


def cordon(fence: int, expected: int | None) -> NodeChange:
    """Every cordon is one change: it raises the fence that was read, and makes the node unschedulable."""
    found = None if expected is None else str(expected)
    return NodeChange(unschedulable=True, annotations={FENCE: str(fence)}, expected={FENCE: found})


# Reading


def test_all_attributes_of_a_node_are_read(world: World) -> None:
    world.make_node(
        "one", ip="10.0.0.1", labels={"zone": "a"}, annotations={FENCE: "7"}, taints=(UNVERIFIED, OTHER), is_ready=True
    )
    (found,) = world.kube.nodes()
    assert found == node(world, "one")
    assert (found.name, found.internal_ip, found.is_ready, found.is_unschedulable) == ("one", "10.0.0.1", True, False)
    assert (found.labels["zone"], found.annotations[FENCE]) == ("a", "7")
    assert found.taints == (UNVERIFIED, OTHER)
    assert found.uid
    assert found.resource_version
    assert found.ready_changed is not None
    assert found.created <= found.ready_changed


def test_a_missing_address_and_an_unready_node_are_read_as_such(world: World) -> None:
    world.make_node("one", is_ready=False)
    found = node(world, "one")
    assert (found.internal_ip, found.is_ready, found.taints) == (None, False, ())
    world.set_ready("one", is_ready=True)
    assert node(world, "one").is_ready


def test_all_attributes_of_a_pod_are_read(world: World) -> None:
    world.make_node("one")
    world.make_pod(
        "web",
        node="one",
        controller="ReplicaSet",
        priority_class="system-cluster-critical",
        annotations={"holdfast.dev/do-not-evict": "true"},
        has_local_storage=True,
    )
    (found,) = world.kube.pods()
    assert (str(found), found.node, found.phase) == ("default/web", "one", PodPhase.RUNNING)
    assert (found.controller, found.priority_class) == ("ReplicaSet", "system-cluster-critical")
    assert (found.has_local_storage, found.is_mirror, found.is_deleting) == (True, False, False)
    assert found.annotations["holdfast.dev/do-not-evict"] == "true"
    assert found.unschedulable_since is None
    assert world.kube.pods_on("one") == [found]


def test_a_plain_pod_has_no_special_attributes(world: World) -> None:
    world.make_node("one")
    world.make_pod("bare", node="one")
    (found,) = world.kube.pods()
    assert (found.controller, found.priority_class, found.has_local_storage) == ("", "", False)


def test_a_mirror_pod_is_recognised(world: World) -> None:
    world.make_node("one")
    world.make_pod("static", node="one", namespace="kube-system", is_mirror=True)
    (found,) = world.kube.pods()
    assert (found.is_mirror, found.namespace) == (True, "kube-system")


def test_an_unschedulable_pod_has_the_time_since_when(world: World) -> None:
    world.make_node("one")
    world.make_pod("waits", phase=PodPhase.PENDING)
    world.make_pod("starts", phase=PodPhase.PENDING, node="one")
    pods = world.kube.pods()
    waits, starts = pod_named(pods, "waits"), pod_named(pods, "starts")
    assert waits.node is None
    assert waits.unschedulable_since is not None
    assert waits.unschedulable_since >= waits.created
    assert starts.unschedulable_since is None


@pytest.mark.parametrize("phase", [PodPhase.SUCCEEDED, PodPhase.FAILED])
def test_a_finished_pod_is_listed_only_on_its_node(world: World, phase: PodPhase) -> None:
    world.make_node("one")
    world.make_node("two")
    world.make_pod("done", node="one", phase=phase)
    world.make_pod("works", node="one")
    world.make_pod("elsewhere", node="two")
    assert {pod.name for pod in world.kube.pods()} == {"works", "elsewhere"}
    assert {pod.name: pod.is_finished for pod in world.kube.pods_on("one")} == {"done": True, "works": False}
    assert world.kube.pods_on("nowhere") == []


def test_lists_of_more_than_one_page_are_complete(world: World) -> None:
    names = {f"n{number:03}" for number in range(510)}
    for name in names:
        world.make_node(name)
    for number in range(25):
        world.make_pod(f"p{number}", node="n000")
    for size in (500, 7, 1000):
        kube = world.kube_with_pages_of(size)
        assert len(kube.nodes()) == 510
        assert {found.name for found in kube.nodes()} == names
        assert len(kube.pods()) == len(kube.pods_on("n000")) == 25


def test_an_empty_cluster_has_empty_lists(world: World) -> None:
    assert (world.kube.nodes(), world.kube.pods(), world.kube.node("one")) == ([], [], None)


# Changing nodes


def test_a_cordon_writes_the_fence_and_makes_the_node_unschedulable(world: World) -> None:
    world.make_node("one", annotations={FENCE: "5", "other": "kept"})
    after = world.kube.change_node(node(world, "one"), cordon(6, expected=5))
    assert after == node(world, "one")
    assert (after.is_unschedulable, after.annotations) == (True, {FENCE: "6", "other": "kept"})
    after = world.kube.change_node(after, NodeChange(unschedulable=False, expected={FENCE: "6"}))
    assert not after.is_unschedulable
    assert after == node(world, "one")


def test_a_stale_fence_changes_nothing_and_returns_the_node(world: World) -> None:
    world.make_node("one", annotations={FENCE: "5"})
    stale = node(world, "one")
    world.annotate("one", FENCE, "7")
    with pytest.raises(NodeChanged) as no:
        world.kube.change_node(stale, cordon(6, expected=5))
    assert no.value.node == node(world, "one")
    assert (node(world, "one").is_unschedulable, node(world, "one").annotations[FENCE]) == (False, "7")


def test_a_heartbeat_does_not_fail_a_change_that_expects_an_annotation(world: World) -> None:
    world.make_node("one", annotations={FENCE: "5"})
    seen = node(world, "one")
    world.set_ready("one", is_ready=False)
    assert world.kube.change_node(seen, cordon(6, expected=5)).is_unschedulable


@pytest.mark.parametrize("annotations", [{}, {"other": "kept"}], ids=["no annotations", "others"])
def test_the_first_fence_is_written_if_there_is_none(world: World, annotations: dict[str, str]) -> None:
    world.make_node("one", annotations=annotations)
    after = world.kube.change_node(node(world, "one"), cordon(1, expected=None))
    assert after.annotations == {**annotations, FENCE: "1"}
    assert after.is_unschedulable


@pytest.mark.parametrize("annotations", [{}, {"other": "kept"}], ids=["no annotations", "others"])
def test_the_first_fence_is_refused_if_another_process_was_faster(world: World, annotations: dict[str, str]) -> None:
    world.make_node("one", annotations=annotations)
    seen = node(world, "one")
    world.annotate("one", FENCE, "1")
    with pytest.raises(NodeChanged) as no:
        world.kube.change_node(seen, cordon(2, expected=None))
    assert no.value.node is not None
    assert no.value.node.annotations == {**annotations, FENCE: "1"}
    assert not node(world, "one").is_unschedulable


def test_a_change_that_expects_no_fence_on_a_node_with_one_is_refused(world: World) -> None:
    world.make_node("one", annotations={FENCE: "1"})
    with pytest.raises(NodeChanged):
        world.kube.change_node(node(world, "one"), cordon(2, expected=None))
    assert not node(world, "one").is_unschedulable


def test_a_change_that_expects_a_missing_annotation_is_refused(world: World) -> None:
    world.make_node("one", annotations={FENCE: "1"})
    seen = node(world, "one")
    world.annotate("one", FENCE, None)
    with pytest.raises(NodeChanged) as no:
        world.kube.change_node(seen, cordon(2, expected=1))
    assert no.value.node == node(world, "one")


def test_a_change_with_a_version_is_refused_if_anything_changed(world: World) -> None:
    world.make_node("one", annotations={FENCE: "5"})
    seen = node(world, "one")
    by_version = NodeChange(unschedulable=True, expected_version=seen.resource_version)
    world.annotate("one", "other", "new")
    with pytest.raises(NodeChanged) as no:
        world.kube.change_node(seen, by_version)
    assert no.value.node == node(world, "one")
    now = node(world, "one")
    after = world.kube.change_node(now, replace(by_version, expected_version=now.resource_version))
    assert after.is_unschedulable
    assert after.resource_version != now.resource_version


def test_a_node_that_is_gone_cannot_be_changed(world: World) -> None:
    world.make_node("one", annotations={FENCE: "5"})
    seen = node(world, "one")
    world.remove_node("one")
    with pytest.raises(NodeChanged) as no:
        world.kube.change_node(seen, cordon(6, expected=5))
    assert no.value.node is None


def test_another_node_of_the_same_name_is_not_changed(world: World) -> None:
    """EC2 reuses private addresses, and node names are derived from them."""
    world.make_node("one", annotations={FENCE: "5"})
    seen = node(world, "one")
    world.remove_node("one")
    world.make_node("one", annotations={FENCE: "5"})
    with pytest.raises(NodeChanged) as no:
        world.kube.change_node(seen, cordon(6, expected=5))
    assert no.value.node == node(world, "one")
    assert not node(world, "one").is_unschedulable


def test_annotations_are_set_and_removed_whether_they_exist_or_not(world: World) -> None:
    world.make_node("one", annotations={"stays": "1", "goes": "1", "changes": "1"})
    change = NodeChange(annotations={"goes": None, "never-was": None, "changes": "2", "comes": "", "a.b/c_d.e-f": "~/"})
    after = world.kube.change_node(node(world, "one"), change)
    assert after.annotations == {"stays": "1", "changes": "2", "comes": "", "a.b/c_d.e-f": "~/"}
    assert after == node(world, "one")
    for key in after.annotations:
        after = world.kube.change_node(after, NodeChange(annotations={key: None}))
    assert node(world, "one").annotations == {}
    assert world.kube.change_node(after, NodeChange(annotations={"goes": None})).annotations == {}


def test_accepting_a_node_removes_its_taint_and_no_other(world: World) -> None:
    world.make_node("one", annotations={FENCE: "5"}, taints=(OTHER, UNVERIFIED))
    accept = NodeChange(annotations={FENCE: "6"}, remove_taint=UNVERIFIED.key, expected={FENCE: "5"})
    after = world.kube.change_node(node(world, "one"), accept)
    assert (after.taints, after.annotations[FENCE], after.is_unschedulable) == ((OTHER,), "6", False)
    assert after == node(world, "one")


def test_a_taint_is_removed_with_all_its_effects(world: World) -> None:
    world.make_node("one", taints=(UNVERIFIED, OTHER, replace(UNVERIFIED, effect="NoExecute")))
    after = world.kube.change_node(node(world, "one"), NodeChange(remove_taint=UNVERIFIED.key))
    assert after.taints == (OTHER,)
    again = world.kube.change_node(after, NodeChange(remove_taint=UNVERIFIED.key))
    assert again.taints == (OTHER,)


def test_taints_that_changed_meanwhile_are_read_again(world: World) -> None:
    world.make_node("one", taints=(OTHER, UNVERIFIED))
    seen = node(world, "one")
    world.set_taints("one", UNVERIFIED)
    with pytest.raises(NodeChanged) as no:
        world.kube.change_node(seen, NodeChange(remove_taint=UNVERIFIED.key))
    assert no.value.node == node(world, "one")
    assert node(world, "one").taints == (UNVERIFIED,)
    assert world.kube.change_node(node(world, "one"), NodeChange(remove_taint=UNVERIFIED.key)).taints == ()


def test_many_concurrent_writers_raise_the_fence_one_at_a_time(world: World) -> None:
    """Each step of the fence is made by one of them, and each loser sees a later fence."""
    world.make_node("one", annotations={FENCE: "0"})

    def raise_it(_: int) -> list[int]:
        won, seen = [], node(world, "one")
        while (fence := int(seen.annotations[FENCE])) < 10:
            try:
                seen = world.kube.change_node(seen, cordon(fence + 1, expected=fence))
                won.append(fence + 1)
            except NodeChanged as changed:
                seen = changed.node or seen
                shown.append((fence, int(seen.annotations[FENCE])))
        return won

    shown: list[tuple[int, int]] = []
    with ThreadPoolExecutor(4) as pool:
        won = [fence for fences in pool.map(raise_it, range(4)) for fence in fences]
    assert sorted(won) == list(range(1, 11))
    assert all(later > fence for fence, later in shown)


# Evicting


def test_an_evicted_pod_leaves(world: World) -> None:
    world.make_node("one")
    world.make_pod("web", node="one", controller="ReplicaSet")
    (pod,) = world.kube.pods()
    assert world.kube.evict(pod).outcome is Eviction.ACCEPTED
    assert all(left.is_deleting for left in world.kube.pods_on("one"))


def test_a_pod_that_is_gone_needs_no_eviction(world: World) -> None:
    world.make_node("one")
    world.make_pod("web", node="one")
    (pod,) = world.kube.pods()
    world.remove_pod("web")
    assert world.kube.evict(pod).outcome is Eviction.GONE


def test_another_pod_of_the_same_name_is_left_alone(world: World) -> None:
    world.make_node("one")
    world.make_pod("db-0", node="one", controller="StatefulSet")
    (pod,) = world.kube.pods()
    world.remove_pod("db-0")
    world.make_pod("db-0", node="one", controller="StatefulSet")
    assert world.kube.evict(pod).outcome is Eviction.GONE
    (other,) = world.kube.pods()
    assert not other.is_deleting
    assert world.kube.evict(other).outcome is Eviction.ACCEPTED


def test_a_disruption_budget_blocks_until_it_allows_a_disruption(world: World) -> None:
    world.make_node("one")
    world.make_pod("web-1", node="one", app="web")
    world.make_budget("web", app="web", least_available=1)
    pod = pod_named(world.kube.pods(), "web-1")
    answer = world.kube.evict(pod)
    assert answer.outcome is Eviction.BLOCKED
    assert "budget web needs 1 healthy pods and has 1" in answer.reason
    assert not pod_named(world.kube.pods(), "web-1").is_deleting
    world.make_pod("web-2", node="one", app="web")
    until(lambda: world.kube.evict(pod).outcome is Eviction.ACCEPTED)
    assert world.kube.evict(pod_named(world.kube.pods(), "web-2")).outcome is Eviction.BLOCKED


def test_two_budgets_for_one_pod_block_it(world: World) -> None:
    """The server cannot handle two; the drain gives up in the end, and says why."""
    world.make_node("one")
    world.make_pod("web", node="one", app="web")
    world.make_budget("first", app="web", least_available=0)
    world.make_budget("second", app="web", least_available=0)
    assert world.kube.evict(world.kube.pods()[0]).outcome is Eviction.BLOCKED


# Removing


def test_a_node_is_deleted_and_a_missing_one_is_no_error(world: World) -> None:
    world.make_node("one")
    world.make_node("two")
    gone = node(world, "one")
    world.kube.delete_node(gone)
    assert [left.name for left in world.kube.nodes()] == ["two"]
    world.kube.delete_node(gone)


def test_another_node_of_the_same_name_is_kept(world: World) -> None:
    world.make_node("one")
    gone = node(world, "one")
    world.remove_node("one")
    world.make_node("one")
    world.kube.delete_node(gone)
    assert node(world, "one").uid != gone.uid


def test_a_node_password_is_deleted_and_a_missing_one_is_no_error(world: World) -> None:
    world.make_secret("kube-system", "one.node-password.k3s")
    world.make_secret("kube-system", "two.node-password.k3s")
    for _ in range(2):
        world.kube.delete_secret("kube-system", "one.node-password.k3s")
    assert not world.has_secret("kube-system", "one.node-password.k3s")
    assert world.has_secret("kube-system", "two.node-password.k3s")
