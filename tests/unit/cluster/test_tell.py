"""Notices: what of a tick is worth telling, and that it is told once."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.cluster.tell import AGAIN_SECONDS, PATIENCE_SECONDS, Teller, Told, told_of, told_of_error
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable, StoreRefused, StoreUnavailable
from holdfast.kernel.ids import ClusterId
from holdfast.ports.notify import Notice
from holdfast.ports.store import Store
from holdfast.simulator.k3s import Workload
from tests.simulation.harness import Stage


@dataclass
class Mailbox:
    why: HoldfastError | None = None  # it cannot be reached
    got: list[str] = field(default_factory=list)

    def tell(self, notice: Notice) -> None:
        if self.why is not None:
            raise self.why
        self.got.append(f"{notice.kind} {notice.key}")


def teller(stage: Stage, *mailboxes: Mailbox, store: Store | None = None) -> Teller:
    return Teller(store or stage.store, ClusterId("cluster"), mailboxes)


EVENT = Told(Notice("fail_scale_up", "a", "A scale-up failed", "no capacity", is_urgent=True))
LASTING = Told(Notice("unknown", "CPU use", "CPU use cannot be seen", "away"), PATIENCE_SECONDS)


def test_a_scale_up_and_its_end_are_told() -> None:
    stage = Stage()
    told = []
    stage.world.k3s.run(Workload("web", 25))
    for ticked in stage.tick_until(lambda: len(stage.alive) > 2 and not stage.state.is_acting, most=40):
        told += [each.notice.kind for each in told_of(ticked)]
    assert told == ["complete_scale_up"]


def test_what_cannot_be_seen_is_told_when_it_lasts() -> None:
    stage = Stage()
    stage.world.prometheus.is_away = True
    stage.world.k3s.is_away = True
    ticked = stage.tick()
    assert ticked is not None
    assert [(each.notice.key, each.patience_seconds) for each in told_of(ticked)] == [
        ("CPU use", PATIENCE_SECONDS),
        ("waiting pods", PATIENCE_SECONDS),
        ("Kubernetes", PATIENCE_SECONDS),
    ]


def test_an_alarm_is_told_at_once() -> None:
    ticked = Stage().tick()
    assert ticked is not None
    alarm = Notice("action_lasts", "1-1-a", "A scale-up does not end", "since yesterday", is_urgent=True)
    assert told_of(replace(ticked, alarms=(alarm,))) == [Told(alarm)]


@pytest.mark.parametrize(("error", "patience"), [(NeedsOperator("x"), 0), (Retryable("x"), PATIENCE_SECONDS)])
def test_an_error_that_needs_a_person_is_told_at_once(error: NeedsOperator | Retryable, patience: int) -> None:
    assert told_of_error(error).patience_seconds == patience


def test_a_notice_is_told_once_by_whoever_comes_first() -> None:
    stage, box = Stage(), Mailbox()
    for _ in range(3):
        teller(stage, box).tell([EVENT], stage.clock.now())
    assert box.got == ["fail_scale_up a"]


def test_what_goes_on_is_told_again_after_hours() -> None:
    stage, box = Stage(), Mailbox()
    teller(stage, box).tell([EVENT], stage.clock.now())
    teller(stage, box).tell([EVENT], stage.clock.now().plus(AGAIN_SECONDS - 1))
    teller(stage, box).tell([EVENT], stage.clock.now().plus(AGAIN_SECONDS))
    assert len(box.got) == 2


def test_what_passes_by_itself_is_never_told() -> None:
    """Seen now and then, but never for long: each gap begins the count anew."""
    stage, box = Stage(), Mailbox()
    for hour in range(10):
        teller(stage, box).tell([LASTING], stage.clock.now().plus(3600 * hour))
        teller(stage, box).tell([LASTING], stage.clock.now().plus(3600 * hour + 60))
    assert box.got == []


def test_what_lasts_is_told_when_patience_ends() -> None:
    stage, box = Stage(), Mailbox()
    for minute in range(30):
        teller(stage, box).tell([LASTING], stage.clock.now().plus(60 * minute))
        assert len(box.got) == int(60 * minute >= PATIENCE_SECONDS)


def test_one_that_is_away_does_not_keep_it_from_the_others() -> None:
    stage, away, box = Stage(), Mailbox(why=Retryable("the webhook does not answer")), Mailbox()
    teller(stage, away, box).tell([EVENT], stage.clock.now())
    assert box.got == ["fail_scale_up a"]


def test_one_that_refuses_does_not_keep_it_from_the_others() -> None:
    """An address that was revoked needs an operator, who is told over the other one."""
    stage, refusing, box = Stage(), Mailbox(why=NeedsOperator("404 no_service")), Mailbox()
    teller(stage, refusing, box).tell([EVENT], stage.clock.now())
    assert box.got == ["fail_scale_up a"]


# While the store is away


@dataclass
class FlakyStore:
    """A store that is away now and then."""

    store: Store
    away: HoldfastError | None = None

    def __getattr__(self, name: str) -> Any:
        if self.away is not None:
            raise self.away
        return getattr(self.store, name)


AWAY = [StoreUnavailable("no answer"), StoreRefused("AccessDeniedException")]


@pytest.mark.parametrize("why", AWAY)
def test_a_store_that_is_away_does_not_silence_a_notice(why: HoldfastError) -> None:
    """For a day: told at once, and again after each bound, though nothing can be remembered in the store."""
    stage, box = Stage(), Mailbox()
    alone = teller(stage, box, store=FlakyStore(stage.store, why))
    for minute in range(24 * 60):
        alone.tell([told_of_error(why)], stage.clock.now().plus(60 * minute))
    assert len(box.got) == 24 * 3600 // AGAIN_SECONDS


def test_patience_is_kept_while_the_store_is_away() -> None:
    stage, box = Stage(), Mailbox()
    alone = teller(stage, box, store=FlakyStore(stage.store, AWAY[0]))
    for minute in range(30):
        alone.tell([LASTING], stage.clock.now().plus(60 * minute))
        assert len(box.got) == int(60 * minute >= PATIENCE_SECONDS)


def test_a_store_that_comes_and_goes_lets_nothing_be_told_twice() -> None:
    stage, box = Stage(), Mailbox()
    flaky = FlakyStore(stage.store)
    one = teller(stage, box, store=flaky)
    for minute in range(60):
        flaky.away = AWAY[0] if minute % 2 else None
        one.tell([EVENT, LASTING], stage.clock.now().plus(60 * minute))
    assert box.got == ["fail_scale_up a", "unknown CPU use"]


def test_what_was_told_while_the_store_was_away_is_known_to_it_afterwards() -> None:
    stage, box = Stage(), Mailbox()
    flaky = FlakyStore(stage.store, AWAY[0])
    one = teller(stage, box, store=flaky)
    one.tell([EVENT], stage.clock.now())
    flaky.away = None
    one.tell([EVENT], stage.clock.now().plus(60))
    teller(stage, box).tell([EVENT], stage.clock.now().plus(120))
    assert len(box.got) == 1


def test_a_process_forgets_what_is_long_over() -> None:
    stage, box = Stage(), Mailbox()
    one = teller(stage, box)
    for number in range(3000):
        about = Told(Notice("collect_machine", f"i-{number}", "A machine went", ""))
        one.tell([about], stage.clock.now().plus(60 * number))
    assert len(one._own) <= 1001


# Clocks jump


@pytest.mark.parametrize("notice", [EVENT, LASTING])
def test_a_clock_that_jumped_ahead_and_back_silences_nothing(notice: Told) -> None:
    stage, box = Stage(), Mailbox()
    now = stage.clock.now()
    for minute in range(30):
        teller(stage, box).tell([notice], now.plus(365 * 86_400 + 60 * minute))
    box.got.clear()
    for minute in range(30):
        teller(stage, box).tell([notice], now.plus(60 * minute))
    assert len(box.got) == 1


def test_clocks_that_differ_by_seconds_tell_once() -> None:
    stage, box = Stage(), Mailbox()
    teller(stage, box).tell([EVENT], stage.clock.now().plus(5))
    teller(stage, box).tell([EVENT], stage.clock.now())
    assert len(box.got) == 1


def test_with_nobody_to_tell_nothing_is_stored() -> None:
    stage = Stage()
    store = memory_store(stage.clock)
    units: list[float] = []
    metered = store.metered(lambda consumed: units.append(consumed.write_units))
    teller(stage, store=metered).tell([EVENT], stage.clock.now())
    assert units == []
