"""Which workers may leave, and in which order."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st

from holdfast.cluster.placement import leaving_order, targets
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


def ids(workers: list[Worker]) -> list[str]:
    return [one.id for one in workers]


def test_the_fullest_zone_gives_first() -> None:
    workers = [
        worker("a1", "a", 10),
        worker("a2", "a", 20),
        worker("a3", "a", 30),
        worker("b1", "b", 99),
        worker("b2", "b", 98),
    ]
    assert ids(leaving_order(workers))[0] == "a3"


def test_within_a_zone_the_oldest_goes_first() -> None:
    workers = [worker("new", "a", 1), worker("old", "a", 100), worker("older", "a", 200)]
    assert ids(leaving_order(workers)) == ["older", "old"]


def test_no_zone_is_emptied_while_there_are_several() -> None:
    workers = [worker("a", "a", 1), worker("b", "b", 2), worker("c", "c", 3)]
    assert leaving_order(workers) == []


def test_a_single_zone_may_shrink_to_its_newest() -> None:
    workers = [worker(str(n), "a", n) for n in range(4)]
    assert ids(leaving_order(workers)) == ["3", "2", "1"]


def test_the_newest_worker_is_protected() -> None:
    workers = [worker("new", "a", 1), worker("a", "a", 5), worker("b", "b", 9)]
    assert ids(leaving_order(workers)) == ["a"]


def test_one_that_may_not_leave_is_passed_over() -> None:
    workers = [worker(str(n), "a", n) for n in range(5)]
    assert targets(workers, 2, lambda one: one.id != "4") == ("3", "2")


def test_a_preferred_one_goes_first_if_it_may_go_at_all() -> None:
    workers = [worker("a1", "a", 1), worker("a2", "a", 2), worker("a3", "a", 3), worker("b1", "b", 9)]
    assert targets(workers, 1, lambda _: True, frozenset({InstanceId("a2")})) == ("a2",)
    assert targets(workers, 1, lambda _: True, frozenset({InstanceId("b1")})) == ("a3",)


fleets = st.lists(st.tuples(st.sampled_from("abc"), st.integers(0, 1000)), max_size=12).map(
    lambda rows: [worker(f"i-{n}", zone, age) for n, (zone, age) in enumerate(rows)]
)


@given(fleets, st.integers(0, 12))
def test_however_many_leave_no_zone_is_emptied_and_the_newest_stays(fleet: list[Worker], count: int) -> None:
    chosen = targets(fleet, count, lambda _: True)
    assert len(set(chosen)) == len(chosen) <= count
    left = [one for one in fleet if one.id not in chosen]
    zones_before = Counter(one.machine.zone for one in fleet)
    if len(zones_before) > 1:
        assert Counter(one.machine.zone for one in left).keys() == zones_before.keys()
    if len(fleet) > 1:
        newest = max(fleet, key=lambda one: (one.machine.launched, one.id))
        assert newest in left
