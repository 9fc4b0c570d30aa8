"""Which workers leave, and in which order."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.policy import ZonesKept
from holdfast.cluster.scaling.placement import targets
from holdfast.cluster.seen import Worker
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Machine, MachineState, Market


def worker(name: str, zone: str, age: int) -> Worker:
    launched = Instant.from_epoch_seconds(1_730_000_000 - age)
    machine = Machine(
        InstanceId(name), MachineState.RUNNING, zone, f"subnet-{zone}", "t3.medium", Market.SPOT, "10.0.0.1", launched
    )
    return Worker(machine, None)


def leaving(workers: list[Worker], count: int = 99, zones_kept: ZonesKept = ZonesKept.ALWAYS) -> tuple[str, ...]:
    return targets(workers, count, lambda _: True, zones_kept)


def test_a_worker_of_the_fullest_zone_leaves_first() -> None:
    workers = [
        worker("a1", "a", 10),
        worker("a2", "a", 20),
        worker("a3", "a", 30),
        worker("b1", "b", 99),
        worker("b2", "b", 98),
    ]
    assert leaving(workers, 1) == ("a3",)


def test_within_a_zone_the_oldest_leaves_first() -> None:
    workers = [worker("new", "a", 1), worker("old", "a", 100), worker("older", "a", 200)]
    assert leaving(workers, 2) == ("older", "old")


def test_no_zone_is_emptied_while_there_is_more_than_one() -> None:
    workers = [worker("a", "a", 1), worker("b", "b", 2), worker("c", "c", 3)]
    assert leaving(workers) == ()


def test_if_zones_are_only_preferred_the_oldest_of_the_last_ones_leaves() -> None:
    workers = [worker("a", "a", 1), worker("b", "b", 2), worker("c", "c", 3)]
    assert leaving(workers, 2, ZonesKept.PREFER) == ("c", "b")


def test_if_zones_are_only_preferred_a_zone_is_still_kept_while_another_has_several_workers() -> None:
    workers = [worker("a1", "a", 1), worker("a2", "a", 2), worker("b", "b", 99)]
    assert targets(workers, 1, lambda one: one.machine.zone == "b", ZonesKept.PREFER) == ()
    assert leaving(workers, 2, ZonesKept.PREFER) == ("a2", "b")


def test_a_worker_that_is_still_joining_counts_for_its_zone_if_zones_are_preferred() -> None:
    workers, joining = [worker("a", "a", 1), worker("b", "b", 99)], [worker("a2", "a", 0)]
    assert targets(workers, 1, lambda one: one.id == "b", ZonesKept.PREFER, others=joining) == ()
    assert targets(workers, 1, lambda one: one.id == "b", ZonesKept.PREFER) == ("b",)


def test_a_single_zone_may_shrink_to_nothing() -> None:
    workers = [worker(str(n), "a", n) for n in range(4)]
    assert leaving(workers) == ("3", "2", "1", "0")


def test_a_worker_that_may_not_leave_is_skipped() -> None:
    workers = [worker(str(n), "a", n) for n in range(5)]
    assert targets(workers, 2, lambda one: one.id != "4") == ("3", "2")


def test_a_preferred_worker_leaves_first_if_it_may_leave_at_all() -> None:
    workers = [worker("a1", "a", 1), worker("a2", "a", 2), worker("a3", "a", 3), worker("b1", "b", 9)]
    assert targets(workers, 1, lambda _: True, preferred=frozenset({InstanceId("a2")})) == ("a2",)
    assert targets(workers, 1, lambda _: True, preferred=frozenset({InstanceId("b1")})) == ("a3",)


fleets = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000)), max_size=12).map(
    lambda rows: [worker(f"i-{n}", zone, age) for n, (zone, age) in enumerate(rows)]
)


@given(fleets, st.integers(0, 12))
def test_however_many_leave_no_zone_is_emptied(fleet: list[Worker], count: int) -> None:
    chosen = leaving(fleet, count)
    assert len(set(chosen)) == len(chosen) <= count
    left = [one for one in fleet if one.id not in chosen]
    zones_before = Counter(one.machine.zone for one in fleet)
    if len(zones_before) > 1:
        assert Counter(one.machine.zone for one in left).keys() == zones_before.keys()


@given(fleets, st.integers(0, 12), st.sets(st.integers(0, 11)))
def test_if_zones_are_preferred_one_is_emptied_only_when_no_other_has_several(
    fleet: list[Worker], count: int, held: set[int]
) -> None:
    chosen = targets(fleet, count, lambda one: int(one.id[2:]) not in held, ZonesKept.PREFER)
    left = Counter(one.machine.zone for one in fleet)
    for instance in chosen:
        zone = next(one.machine.zone for one in fleet if one.id == instance)
        left[zone] -= 1
        assert left[zone] > 0 or max(left.values()) <= 1
    if not held:
        assert len(chosen) == min(count, len(fleet))
