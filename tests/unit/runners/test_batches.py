"""Batches: what is stored, who may change it, and what counts as supply."""

from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.adapters.memory import memory_store
from holdfast.adapters.sqlite import sqlite_store
from holdfast.control.lease import acquire
from holdfast.control.ledger import LeaseLost
from holdfast.control.stored_attributes import StateDamaged
from holdfast.fleet.options import Option
from holdfast.kernel.errors import WriteConflict
from holdfast.kernel.ids import InstallationId, InstanceId
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import Market
from holdfast.ports.store import Item, Store, attr
from holdfast.ports.store.tables import STATE
from holdfast.runners import batch_writes as writes
from holdfast.runners.batch import MOVES, Batch, BatchPhase, Purchase, batch_token, read_batch, supply_by_class
from holdfast.runners.fleet_state import (
    FLEET_KEY,
    FleetState,
    fleet_ledger,
    found_fleet,
    new_incarnation,
    read_fleet,
    refiled,
)
from holdfast.simulator.world.timeline import Timeline
from holdfast.simulator.world.world import DAWN

ACME = InstallationId(1)
MACHINES = tuple(InstanceId(f"i-{number:017x}") for number in range(1, 6))
PURCHASE = Purchase(
    ACME, "aa", 3, Option("m7i.large", "eu-west-1a", "subnet-1", Market.SPOT), "lt-0abc:3", "0.05", DAWN
)


@pytest.fixture(params=["memory", "sqlite"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Store]:
    clock = Timeline(DAWN)
    opened = (
        memory_store(clock)
        if request.param == "memory"
        else sqlite_store(tmp_path / "data.sqlite", clock, tables=(STATE,))
    )
    yield opened
    opened.close()


def leased(store: Store, owner: str = "ours") -> FleetState:
    """Take the lease, as if the earlier one had expired."""
    with suppress(WriteConflict):
        store.update(STATE, FLEET_KEY, attr("lockOwner").set_to(""), attr("lockOwner").exists())
    return acquire(fleet_ledger(store), owner, DAWN)[1]


def granted(store: Store, machines: int = 3) -> Batch:
    return writes.grant(store, writes.begin(store, leased(store), PURCHASE), MACHINES[:machines])


def stored(store: Store, number: int = 1) -> Item:
    return store.get(STATE, writes.batch_key(number)) or {}


def test_a_batch_is_stored_as_it_was_planned(store: Store) -> None:
    batch = writes.begin(store, leased(store), PURCHASE)
    assert (batch.number, batch.phase, batch.purchase) == (1, BatchPhase.PLANNED, PURCHASE)
    assert read_batch(stored(store), 1) == batch
    state = fleet_ledger(store).read()
    assert (state.batch_seq, state.open) == (1, frozenset({1}))


def test_a_process_that_lost_its_lease_begins_nothing(store: Store) -> None:
    ours = leased(store)
    theirs = leased(store, "theirs")
    with pytest.raises(LeaseLost):
        writes.begin(store, ours, PURCHASE)
    assert stored(store) == {}
    writes.begin(store, theirs, PURCHASE)
    with pytest.raises(LeaseLost):
        writes.begin(store, ours, PURCHASE)
    assert fleet_ledger(store).read().batch_seq == 1


def test_a_begin_whose_response_was_lost_counts_once(store: Store) -> None:
    state = leased(store)
    assert writes.begin(store, state, PURCHASE) == writes.begin(store, state, PURCHASE)
    assert fleet_ledger(store).read().batch_seq == 1


def test_a_planned_batch_counts_whole_and_a_partial_grant_counts_what_there_is(store: Store) -> None:
    planned = writes.begin(store, leased(store), PURCHASE)
    assert planned.supply == 3
    assert writes.grant(store, planned, MACHINES[:2]).supply == 2


def test_two_grants_of_one_token_leave_the_first(store: Store) -> None:
    batch = granted(store, 2)
    assert writes.grant(store, batch, MACHINES[2:4]) == batch


def test_a_refused_batch_is_never_granted(store: Store) -> None:
    """What a late process launches with its token is a stray: it is in no batch, so it gets no configuration."""
    state = leased(store)
    planned = writes.begin(store, state, PURCHASE)
    refused = writes.refuse(store, state.fence, planned, "InsufficientInstanceCapacity", DAWN)
    assert (refused.phase, refused.supply, refused.refused) == (BatchPhase.CLOSED, 0, "InsufficientInstanceCapacity")
    assert writes.grant(store, planned, MACHINES[:3]) == refused
    assert writes.refuse(store, state.fence, planned, "again", DAWN) == refused


def test_only_the_lease_holder_refuses(store: Store) -> None:
    state = leased(store)
    planned = writes.begin(store, state, PURCHASE)
    leased(store, "theirs")
    with pytest.raises(LeaseLost):
        writes.refuse(store, state.fence, planned, "no capacity", DAWN)
    assert read_batch(stored(store), 1) == planned


def test_a_granted_batch_is_not_refused(store: Store) -> None:
    batch = granted(store)
    assert writes.refuse(store, fleet_ledger(store).read().fence, batch, "late", DAWN) == batch


def test_a_machine_leaves_supply_when_its_job_starts_and_a_redelivery_changes_nothing(store: Store) -> None:
    granted(store)
    first = writes.started(store, 1, 1, MACHINES[1], ACME, "77")
    assert first is not None
    assert (first.supply, first.started) == (2, {1: "77"})
    assert writes.started(store, 1, 1, MACHINES[1], ACME, "77") == first


@pytest.mark.parametrize(
    ("number", "index", "machine", "installation", "job"),
    [
        (1, 1, MACHINES[1], InstallationId(2), "77"),  # another installation
        (1, 0, MACHINES[1], ACME, "77"),  # another machine at that index
        (1, 3, MACHINES[3], ACME, "77"),  # an index that the batch does not have
        (2, 1, MACHINES[1], ACME, "77"),  # an unknown batch
        (1, 2, MACHINES[2], ACME, "88"),  # it ran another job
    ],
)
def test_a_start_that_does_not_match_is_foreign_and_changes_nothing(
    store: Store, number: int, index: int, machine: InstanceId, installation: InstallationId, job: str
) -> None:
    granted(store)
    writes.started(store, 1, 2, MACHINES[2], ACME, "77")
    before = stored(store)
    assert writes.started(store, number, index, machine, installation, job) is None
    assert stored(store) == before
    assert stored(store, 2) == {}


def test_a_start_of_a_batch_that_is_not_granted_is_foreign(store: Store) -> None:
    writes.begin(store, leased(store), PURCHASE)
    assert writes.started(store, 1, 0, MACHINES[0], ACME, "77") is None


def test_an_interruption_is_seen_by_the_handler_that_records_the_start(store: Store) -> None:
    granted(store)
    assert writes.interrupted(store, 1, 0, MACHINES[0]) is not None
    started = writes.started(store, 1, 0, MACHINES[0], ACME, "77")
    assert started is not None
    assert started.interrupted == {0}
    assert writes.interrupted(store, 1, 0, MACHINES[4]) is None


def test_runners_are_recorded_several_at_once(store: Store) -> None:
    batch = writes.configured(store, granted(store), {0: 500, 2: 502})
    assert batch.runners == {0: 500, 2: 502}
    assert batch.unconfigured == (1,)


def test_a_batch_closes_with_its_last_machine_and_expires_four_days_later(store: Store) -> None:
    batch = granted(store)
    writes.started(store, 1, 0, MACHINES[0], ACME, "77")
    assert writes.out(store, batch, [0, 1], DAWN).phase is BatchPhase.GRANTED
    closed = writes.out(store, batch, [2], DAWN)
    assert (closed.phase, closed.supply) == (BatchPhase.CLOSED, 0)
    assert stored(store)["expiresAt"] == DAWN.plus(4 * 86_400).epoch_seconds


def test_a_late_webhook_finds_the_machine_of_a_closed_batch(store: Store) -> None:
    writes.out(store, granted(store), [0, 1, 2], DAWN)
    late = writes.started(store, 1, 1, MACHINES[1], ACME, "77")
    assert late is not None
    assert late.phase is BatchPhase.CLOSED


def test_a_batch_that_nobody_closed_is_closed_by_a_later_tick(store: Store) -> None:
    batch = granted(store)
    store.update(STATE, writes.batch_key(1), attr("x").add_elements([0, 1, 2]))
    after = writes.read_batches(store, [1])[1]
    assert after.is_all_out
    assert writes.close(store, after, DAWN).phase is BatchPhase.CLOSED
    assert writes.out(store, batch, [0], DAWN).phase is BatchPhase.CLOSED


def test_a_batch_with_a_machine_left_is_not_closed(store: Store) -> None:
    batch = writes.out(store, granted(store), [0, 1], DAWN)
    assert writes.close(store, batch, DAWN).phase is BatchPhase.GRANTED


def test_the_lists_follow_the_batches(store: Store) -> None:
    ledger = fleet_ledger(store)
    state = leased(store)
    for _ in range(3):
        writes.begin(store, ledger.read(), PURCHASE)
    writes.refuse(store, state.fence, writes.read_batches(store, [1])[1], "no", DAWN)
    second = writes.grant(store, writes.read_batches(store, [2])[2], MACHINES[:1])
    writes.started(store, 2, 0, MACHINES[0], ACME, "77")
    refile(store)
    assert (ledger.read().open, ledger.read().running) == (frozenset({3}), frozenset({2}))
    writes.out(store, second, [0], DAWN)
    refile(store)
    assert (ledger.read().open, ledger.read().running) == (frozenset({3}), frozenset[int]())
    assert refiled(ledger.read(), writes.read_batches(store, [1, 2, 3]).values()) is None


def refile(store: Store) -> None:
    state = fleet_ledger(store).read()
    update = refiled(state, writes.read_batches(store, state.open | state.running).values())
    assert update is not None
    store.update(STATE, FLEET_KEY, update)


def test_a_closed_batch_leaves_the_running_ones_later_if_others_join_them(store: Store) -> None:
    state = FleetState(batch_seq=2, open=frozenset({1}), running=frozenset({2}))
    closed = Batch(2, BatchPhase.CLOSED, PURCHASE)
    moved = Batch(1, BatchPhase.GRANTED, PURCHASE, instances=MACHINES[:1], out=frozenset({0}))
    update = refiled(state, [moved, closed])
    assert update is not None
    assert update.applied({"open": frozenset({1}), "running": frozenset({2})}) == {"running": frozenset({1, 2})}


def test_a_fleet_is_named_once(store: Store) -> None:
    ledger, state = fleet_ledger(store), leased(store)
    assert ledger.write(found_fleet("abc123"), state.fence).incarnation == "abc123"
    assert ledger.write(found_fleet("abc123"), state.fence).incarnation == "abc123"
    with pytest.raises(WriteConflict):
        ledger.write(found_fleet("zzz999"), state.fence)
    assert len({new_incarnation() for _ in range(50)}) == 50


def test_each_batch_of_each_incarnation_has_a_token_of_its_own() -> None:
    tokens = {batch_token(incarnation, number) for incarnation in ("abc123", "abc124") for number in range(100)}
    assert len(tokens) == 200
    assert all(len(token) == 48 for token in tokens)


def test_supply_is_counted_by_class_and_installation() -> None:
    other = Purchase(InstallationId(2), "aa", 2, PURCHASE.option, "lt-0abc:3", None, DAWN)
    batches = [
        Batch(1, BatchPhase.PLANNED, PURCHASE),
        Batch(2, BatchPhase.GRANTED, PURCHASE, instances=MACHINES[:3], started={0: "7"}, out=frozenset({0, 1})),
        Batch(3, BatchPhase.CLOSED, PURCHASE),
        Batch(4, BatchPhase.PLANNED, other),
    ]
    assert supply_by_class(batches) == {(ACME, "aa"): 4, (InstallationId(2), "aa"): 2}


DAMAGES: list[tuple[str, object]] = [
    ("phase", "LOST"),
    ("n", 0),
    ("n", 21),
    ("n", 2),
    ("ids", [MACHINES[0], MACHINES[0]]),
    ("ids", []),
    ("m", "free"),
    ("t", ""),
    ("lt", 7),
    ("x", frozenset({3})),
    ("int", frozenset({"0"})),
    ("r", {"3": 1}),
    ("r", {"00": 1}),
    ("r", {"0": "one"}),
    ("j", {"0": 77}),
    ("j", []),
    ("f", -1),
]


@pytest.mark.parametrize(("name", "value"), DAMAGES)
def test_a_damaged_batch_is_refused_by_name(name: str, value: object) -> None:
    item: Item = {"pk": "runners#batch#1", "phase": "GRANTED", "f": 1, "ids": list(MACHINES[:3]), **PURCHASE.stored()}
    read_batch(item, 1)
    with pytest.raises(StateDamaged, match="runner batch 1"):
        read_batch({**item, name: value}, 1)


def test_a_batch_without_a_phase_is_damaged() -> None:
    with pytest.raises(StateDamaged, match="phase"):
        read_batch({"pk": "runners#batch#1", **PURCHASE.stored()}, 1)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("incarnation", "ABC"),
        ("open", frozenset({0})),
        ("open", frozenset({4})),
        ("running", frozenset({1})),
        ("open", [1]),
    ],
)
def test_a_damaged_fleet_is_refused_by_name(name: str, value: object) -> None:
    item: Item = {"pk": "runners", "fence": 1, "batchSeq": 3, "incarnation": "abc123", "open": frozenset({1})}
    assert read_fleet(item).open == {1}
    with pytest.raises(StateDamaged, match="runner fleet"):
        read_fleet({**item, name: value})


RULES = st.lists(
    st.tuples(
        st.sampled_from(["grant", "refuse", "configured", "started", "interrupted", "out", "close"]), st.integers(0, 2)
    ),
    max_size=12,
)


@given(RULES)
def test_in_any_order_a_batch_moves_only_as_its_table_says_and_never_gains_supply(rules: list[tuple[str, int]]) -> None:
    store = memory_store(Timeline(DAWN))
    state = leased(store)
    planned = writes.begin(store, state, PURCHASE)
    allowed = {(str(move.source), str(move.target)) for move in MOVES}
    before = planned
    for name, index in rules:
        _do(store, state.fence, planned, name, index)
        after = writes.read_batches(store, [1])[1]
        assert after.phase is before.phase or (str(before.phase), str(after.phase)) in allowed
        assert after.supply <= before.supply
        assert after.purchase == PURCHASE
        before = after


def _do(store: Store, fence: int, batch: Batch, name: str, index: int) -> None:
    match name:
        case "grant":
            writes.grant(store, batch, MACHINES[:3])
        case "refuse":
            writes.refuse(store, fence, batch, "no", DAWN)
        case "configured":
            writes.configured(store, batch, {index: 500})
        case "started":
            writes.started(store, 1, index, MACHINES[index], ACME, "77")
        case "interrupted":
            writes.interrupted(store, 1, index, MACHINES[index])
        case "out":
            writes.out(store, batch, [index], DAWN)
        case "close":
            writes.close(store, writes.read_batches(store, [1])[1], DAWN)


def test_times_of_a_purchase_are_kept_to_the_millisecond() -> None:
    precise = Purchase(ACME, "aa", 1, PURCHASE.option, "lt-0abc:3", None, Instant(DAWN.epoch_ms + 7), "night")
    item: Item = {"pk": "runners#batch#1", "phase": "PLANNED", **precise.stored()}
    assert read_batch(item, 1).purchase == precise
