"""Which node belongs to a machine."""

import pytest
from msgspec.structs import replace

from holdfast.cluster.seen import INSTANCE_LABEL, KubeView
from holdfast.ports.readings import Known
from tests.unit.cluster.looks import NOW, machine, node, seen


@pytest.mark.parametrize(("age_seconds", "is_matched"), [(0, True), (30, True), (61, False), (86_400, False)])
def test_a_node_that_is_older_than_the_machine_belongs_to_an_earlier_one(age_seconds: int, *, is_matched: bool) -> None:
    """EC2 reuses addresses, and an older bootstrap's nodes have no label: the address alone must not match them."""
    launched = machine(0).launched
    unlabelled = replace(node(0), name="ip-10-0-0-0", labels={}, created=launched.plus(-age_seconds))
    look = replace(seen(1), kube=Known(KubeView((unlabelled,), ()), NOW))
    assert (look.workers[0].node == unlabelled) is is_matched


def test_a_node_with_the_label_of_the_machine_matches_at_any_age() -> None:
    labelled = replace(node(0), created=machine(0).launched.plus(-86_400))
    assert labelled.labels == {INSTANCE_LABEL: machine(0).id}
    look = replace(seen(1), kube=Known(KubeView((labelled,), ()), NOW))
    assert look.workers[0].node == labelled
