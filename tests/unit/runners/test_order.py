"""Who gets the next machine."""

from collections import Counter

from hypothesis import given
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.kernel.ids import InstallationId, JobId
from holdfast.runners.order import ClassKey, Limits, Usage, Wish, lots, ordered, uncovered

CLASS: ClassKey = (InstallationId(1), "aa")
OTHER: ClassKey = (InstallationId(1), "bb")


def wish(job: int, repository: str = "acme/web", key: ClassKey = CLASS, profile: str = "small") -> Wish:
    return Wish(key, key[1], profile, repository, JobId(job), queued_ms=job)


WISHES = st.lists(
    st.builds(
        wish,
        st.integers(1, 10_000),
        st.sampled_from(["acme/web", "acme/api", "other/lib"]),
        st.sampled_from([CLASS, OTHER]),
        st.sampled_from(["small", "large"]),
    ),
    unique_by=lambda each: each.job_id,
    max_size=40,
)
MOST = st.none() | st.integers(0, 12)
LIMITS = st.builds(
    Limits,
    MOST,
    st.dictionaries(st.sampled_from(["acme", "other"]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from(["acme/web", "acme/api"]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from(["small", "large"]), st.integers(0, 9)),
    st.dictionaries(st.sampled_from(["acme/web", "acme/api"]), st.sampled_from([0.5, 2.0, 4.0])),
)


def jobs(wishes: tuple[Wish, ...] | list[Wish]) -> list[int]:
    return [each.job_id for each in wishes]


def test_the_oldest_jobs_of_a_class_are_covered_by_its_machines() -> None:
    found = uncovered([wish(3), wish(1), wish(2), wish(9, key=OTHER)], {CLASS: 2})
    assert sorted(jobs(found)) == [3, 9]


def test_more_machines_than_jobs_leave_nothing_to_buy() -> None:
    assert uncovered([wish(1)], {CLASS: 5}) == []


def test_a_repository_with_a_thousand_jobs_does_not_delay_another_ones_first() -> None:
    order = ordered([*(wish(job) for job in range(1, 1001)), wish(5000, "acme/api")], Usage(), Limits())
    assert jobs(order.buys[:3]) == [1, 5000, 2]


def test_a_repository_that_has_machines_already_waits_for_its_turn() -> None:
    usage = Usage(fleet=2, repositories={"acme/web": 2})
    order = ordered([wish(1), *(wish(job, "acme/api") for job in (7, 8, 9))], usage, Limits())
    assert jobs(order.buys) == [7, 8, 1, 9]


def test_a_repository_of_twice_the_weight_gets_two_machines_for_each_of_the_others() -> None:
    wishes = [wish(job, name) for job in range(1, 31) for name in ("acme/web", "acme/api")]
    order = ordered(wishes, Usage(), Limits(weights={"acme/web": 2.0}))
    assert Counter(each.repository for each in order.buys[:30]) == {"acme/web": 20, "acme/api": 10}


def test_a_held_job_is_told_the_limit_and_delays_no_other() -> None:
    limits = Limits(repositories={"acme/web": 1})
    order = ordered([wish(1), wish(2), wish(3, "acme/api")], Usage(), limits)
    assert jobs(order.buys) == [1, 3]
    assert [(each.wish.job_id, each.because) for each in order.held] == [(2, "acme/web has 1 of at most 1 machines")]


@given(WISHES, LIMITS, st.integers(0, 5))
def test_no_limit_is_exceeded_and_none_holds_back_more_than_it_must(
    wishes: list[Wish], limits: Limits, already: int
) -> None:
    usage = Usage(already, {"acme": already}, {"acme/web": already}, {"small": already})
    order = ordered(wishes, usage, limits)
    assert sorted(jobs(order.buys) + [each.wish.job_id for each in order.held]) == sorted(jobs(wishes))
    after = Usage(
        usage.fleet + len(order.buys),
        Counter(usage.owners) + Counter(each.owner for each in order.buys),
        Counter(usage.repositories) + Counter(each.repository for each in order.buys),
        Counter(usage.profiles) + Counter(each.profile for each in order.buys),
    )
    bought = order.buys
    assert not bought or limits.fleet is None or after.fleet <= limits.fleet
    for each in bought:
        assert after.owners[each.owner] <= limits.owners.get(each.owner, 10**6)
        assert after.repositories[each.repository] <= limits.repositories.get(each.repository, 10**6)
        assert after.profiles[each.profile] <= limits.profiles.get(each.profile, 10**6)
    for held in order.held:
        assert ordered([held.wish], after, limits).buys == ()


@given(WISHES)
def test_the_order_does_not_depend_on_the_order_of_arrival(wishes: list[Wish]) -> None:
    assert ordered(wishes, Usage(), Limits(fleet=7)) == ordered(wishes[::-1], Usage(), Limits(fleet=7))


@given(WISHES, st.integers(1, 5))
def test_lots_have_one_class_each_and_lose_or_double_no_job(wishes: list[Wish], most: int) -> None:
    found = list(lots(wishes, most))
    assert sorted(job for lot in found for job in jobs(lot.wishes)) == sorted(jobs(wishes))
    assert all(1 <= len(lot.wishes) <= most for lot in found)
    assert all(each.class_key == lot.class_key for lot in found for each in lot.wishes)
    short = Counter(lot.class_key for lot in found if len(lot.wishes) < most)
    assert all(number == 1 for number in short.values())


def test_a_full_lot_makes_room_for_the_next_in_order() -> None:
    buys = [wish(1), wish(2, key=OTHER), wish(3), replace(wish(4), profile="large")]
    assert [jobs(lot.wishes) for lot in lots(buys, most=2)] == [[1, 3], [2], [4]]
