"""Notifications: which results of a tick are sent, and that each is sent once."""

from dataclasses import dataclass, field
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.cluster.notifications import announcements_of
from holdfast.control.failures import failure_of
from holdfast.control.notifications import (
    AGAIN_SECONDS,
    PATIENCE_SECONDS,
    Announcement,
    NotificationSender,
    announcement_of_error,
)
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable, StoreRefused, StoreUnavailable
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.ports.notify import Notification
from holdfast.ports.store import Store
from holdfast.simulator.world.k3s import Workload
from tests.simulation.harness import Stage


@dataclass
class Mailbox:
    why: HoldfastError | None = None  # why it cannot be reached
    got: list[str] = field(default_factory=list)

    def notify(self, notice: Notification) -> None:
        if self.why is not None:
            raise self.why
        self.got.append(f"{notice.kind} {notice.key}")


def sender(stage: Stage, *mailboxes: Mailbox, store: Store | None = None) -> NotificationSender:
    return NotificationSender(store or stage.store, ClusterId("cluster"), mailboxes)


EVENT = Announcement(Notification("fail_scale_up", "a", "A scale-up failed", "no capacity", is_urgent=True))
LASTING = Announcement(Notification("unknown", "CPU use", "CPU use cannot be seen", "away"), PATIENCE_SECONDS)


def test_the_end_of_a_scale_up_is_announced() -> None:
    stage = Stage()
    kinds = []
    stage.world.k3s.run(Workload("web", 25))
    for ticked in stage.tick_until(lambda: len(stage.alive) > 2 and not stage.state.is_acting, most=40):
        kinds += [each.notification.kind for each in announcements_of(ticked)]
    assert kinds == ["complete_scale_up"]


def test_an_unknown_reading_is_announced_if_it_lasts() -> None:
    stage = Stage()
    stage.world.prometheus.is_away = True
    stage.world.k3s.is_away = True
    ticked = stage.tick()
    assert ticked is not None
    assert [(each.notification.key, each.patience_seconds) for each in announcements_of(ticked)] == [
        ("CPU use", PATIENCE_SECONDS),
        ("pending pods", PATIENCE_SECONDS),
        ("Kubernetes", PATIENCE_SECONDS),
    ]


def test_an_alarm_is_announced_at_once() -> None:
    ticked = Stage().tick()
    assert ticked is not None
    alarm = Notification("action_lasts", "1-1-a", "A scale-up is stuck", "since yesterday", is_urgent=True)
    assert announcements_of(replace(ticked, notifications=(alarm,))) == [Announcement(alarm)]


@pytest.mark.parametrize(("error", "patience"), [(NeedsOperator("x"), 0), (Retryable("x"), PATIENCE_SECONDS)])
def test_an_error_that_needs_an_operator_is_announced_at_once_and_a_retryable_one_if_it_lasts(
    error: NeedsOperator | Retryable, patience: int
) -> None:
    assert announcement_of_error(error).patience_seconds == patience


@pytest.mark.parametrize("error", [NeedsOperator("no permission"), Retryable("x"), StoreUnavailable("x")])
def test_what_people_read_about_an_error_has_no_names_of_classes(error: HoldfastError) -> None:
    """SNS sends the key, too."""
    failure = failure_of(error, Instant(0))
    assert failure is not None
    for shown in (str(announcement_of_error(error).notification), str(failure.shown())):
        assert type(error).__name__ not in shown


def test_two_errors_are_two_notifications() -> None:
    errors = [NeedsOperator("x"), Retryable("x"), NeedsOperator("y")]
    assert len({announcement_of_error(error).notification.key for error in errors}) == 3


def test_several_senders_send_a_notification_once() -> None:
    stage, box = Stage(), Mailbox()
    for _ in range(3):
        sender(stage, box).send([EVENT], stage.clock.now())
    assert box.got == ["fail_scale_up a"]


def test_a_lasting_problem_is_announced_again_after_hours() -> None:
    stage, box = Stage(), Mailbox()
    sender(stage, box).send([EVENT], stage.clock.now())
    sender(stage, box).send([EVENT], stage.clock.now().plus(AGAIN_SECONDS - 1))
    sender(stage, box).send([EVENT], stage.clock.now().plus(AGAIN_SECONDS))
    assert len(box.got) == 2


def test_a_short_problem_is_never_announced() -> None:
    """Seen now and then, but never for long: each gap restarts the count."""
    stage, box = Stage(), Mailbox()
    for hour in range(10):
        sender(stage, box).send([LASTING], stage.clock.now().plus(3600 * hour))
        sender(stage, box).send([LASTING], stage.clock.now().plus(3600 * hour + 60))
    assert box.got == []


def test_a_lasting_problem_is_announced_when_its_patience_ends() -> None:
    stage, box = Stage(), Mailbox()
    for minute in range(30):
        sender(stage, box).send([LASTING], stage.clock.now().plus(60 * minute))
        assert len(box.got) == int(60 * minute >= PATIENCE_SECONDS)


def test_an_unreachable_notifier_does_not_stop_the_others() -> None:
    stage, away, box = Stage(), Mailbox(why=Retryable("the webhook does not answer")), Mailbox()
    sender(stage, away, box).send([EVENT], stage.clock.now())
    assert box.got == ["fail_scale_up a"]


def test_a_notifier_that_refuses_does_not_stop_the_others() -> None:
    """A revoked address needs an operator, who is notified through the other one."""
    stage, refusing, box = Stage(), Mailbox(why=NeedsOperator("404 no_service")), Mailbox()
    sender(stage, refusing, box).send([EVENT], stage.clock.now())
    assert box.got == ["fail_scale_up a"]


# While the store is unavailable


@dataclass
class FlakyStore:
    """A store that is unavailable now and then."""

    store: Store
    away: HoldfastError | None = None

    def __getattr__(self, name: str) -> Any:
        if self.away is not None:
            raise self.away
        return getattr(self.store, name)


AWAY = [StoreUnavailable("no answer"), StoreRefused("AccessDeniedException")]


@pytest.mark.parametrize("why", AWAY)
def test_an_unavailable_store_does_not_silence_a_notification(why: HoldfastError) -> None:
    """For a day: sent at once, and again after each interval, although nothing can be written to the store."""
    stage, box = Stage(), Mailbox()
    alone = sender(stage, box, store=FlakyStore(stage.store, why))
    for minute in range(24 * 60):
        alone.send([announcement_of_error(why)], stage.clock.now().plus(60 * minute))
    assert len(box.got) == 24 * 3600 // AGAIN_SECONDS


def test_patience_applies_while_the_store_is_unavailable() -> None:
    stage, box = Stage(), Mailbox()
    alone = sender(stage, box, store=FlakyStore(stage.store, AWAY[0]))
    for minute in range(30):
        alone.send([LASTING], stage.clock.now().plus(60 * minute))
        assert len(box.got) == int(60 * minute >= PATIENCE_SECONDS)


def test_a_flaky_store_does_not_send_a_notification_twice() -> None:
    stage, box = Stage(), Mailbox()
    flaky = FlakyStore(stage.store)
    one = sender(stage, box, store=flaky)
    for minute in range(60):
        flaky.away = AWAY[0] if minute % 2 else None
        one.send([EVENT, LASTING], stage.clock.now().plus(60 * minute))
    assert box.got == ["fail_scale_up a", "unknown CPU use"]


def test_notifications_sent_during_an_outage_are_stored_afterwards() -> None:
    stage, box = Stage(), Mailbox()
    flaky = FlakyStore(stage.store, AWAY[0])
    one = sender(stage, box, store=flaky)
    one.send([EVENT], stage.clock.now())
    flaky.away = None
    one.send([EVENT], stage.clock.now().plus(60))
    sender(stage, box).send([EVENT], stage.clock.now().plus(120))
    assert len(box.got) == 1


def test_a_process_forgets_old_notifications() -> None:
    stage, box = Stage(), Mailbox()
    one = sender(stage, box)
    for number in range(3000):
        about = Announcement(Notification("collect_machine", f"i-{number}", "A machine went", ""))
        one.send([about], stage.clock.now().plus(60 * number))
    assert len(one._own) <= 1001


# Clocks jump


@pytest.mark.parametrize("notice", [EVENT, LASTING])
def test_a_clock_that_jumped_ahead_and_back_silences_nothing(notice: Announcement) -> None:
    stage, box = Stage(), Mailbox()
    now = stage.clock.now()
    for minute in range(30):
        sender(stage, box).send([notice], now.plus(365 * 86_400 + 60 * minute))
    box.got.clear()
    for minute in range(30):
        sender(stage, box).send([notice], now.plus(60 * minute))
    assert len(box.got) == 1


def test_senders_whose_clocks_differ_by_seconds_send_once() -> None:
    stage, box = Stage(), Mailbox()
    sender(stage, box).send([EVENT], stage.clock.now().plus(5))
    sender(stage, box).send([EVENT], stage.clock.now())
    assert len(box.got) == 1


def test_without_notifiers_nothing_is_stored() -> None:
    stage = Stage()
    store = memory_store(stage.clock)
    units: list[float] = []
    metered = store.metered(lambda consumed: units.append(consumed.write_units))
    sender(stage, store=metered).send([EVENT], stage.clock.now())
    assert units == []
