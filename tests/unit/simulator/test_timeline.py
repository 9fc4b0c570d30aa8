"""Virtual time: it may jump ahead for a waiting process if nothing else is due."""

from functools import partial

from greenlet import getcurrent, greenlet

from holdfast.kernel.instants import Instant
from holdfast.simulator.proof.processes import Process, Scheduler
from holdfast.simulator.world.timeline import Timeline

START = Instant(1_000_000)


def passed_within_an_event(timeline: Timeline, seconds: float, end_seconds: float) -> bool:
    answers: list[bool] = []
    timeline.after(0, lambda: answers.append(timeline.passes(seconds)))
    timeline.run_until(START.plus(end_seconds))
    return answers[0]


def test_time_jumps_ahead_if_nothing_is_due() -> None:
    timeline = Timeline(START)
    timeline.after(2.001, lambda: None)
    assert passed_within_an_event(timeline, 2, 10)


def test_time_does_not_skip_an_event_due_in_the_same_millisecond() -> None:
    timeline = Timeline(START)
    timeline.after(2, lambda: None)
    assert not passed_within_an_event(timeline, 2, 10)


def test_time_does_not_pass_beyond_the_end_of_the_run() -> None:
    timeline = Timeline(START)
    assert not passed_within_an_event(timeline, 11, 10)
    assert timeline.now() == START.plus(10)
    assert not timeline.passes(1)


def test_processes_that_one_event_starts_take_turns() -> None:
    """The event continues when the first of them waits: time must not pass before it has started the second."""
    timeline = Timeline(START)
    scheduler = Scheduler(timeline)
    ran: list[tuple[str, float]] = []

    def work(process: Process, seconds: float) -> None:
        for _ in range(3):
            scheduler.wait(process, seconds)
            ran.append((process.name, timeline.now().seconds_since(START)))

    def both() -> None:
        for number, (name, seconds) in enumerate((("slow", 2.0), ("fast", 1.5))):
            process = Process(name, number, timeline.now())
            scheduler.start(process, partial(work, process, seconds))

    timeline.after(0, both)
    timeline.run_until(START.plus(60))
    assert ran == [("fast", 1.5), ("slow", 2.0), ("fast", 3.0), ("slow", 4.0), ("fast", 4.5), ("slow", 6.0)]


def test_a_process_that_found_a_violation_stops() -> None:
    timeline = Timeline(START)
    scheduler = Scheduler(timeline)
    steps: list[int] = []
    scheduler.is_calm = lambda: len(steps) < 2
    seen_by_the_hub: list[int] = []
    scheduler.on_step = lambda: seen_by_the_hub.append(len(steps))

    def work() -> None:
        for number in range(4):
            scheduler.wait(process, 1)
            steps.append(number)

    process = Process("one", 1, START)
    timeline.after(0, lambda: scheduler.start(process, work))
    timeline.run_until(START.plus(60))
    assert seen_by_the_hub == [0, 2, 3, 4]


def test_a_greenlet_is_reused_for_the_next_process_and_ends_with_the_world() -> None:
    timeline = Timeline(START)
    scheduler = Scheduler(timeline)
    carried: list[tuple[str, greenlet]] = []

    def work(process: Process) -> None:
        carried.append((process.name, getcurrent()))
        scheduler.wait(process, 5)

    def start(name: str, number: int) -> None:
        process = Process(name, number, timeline.now())
        scheduler.start(process, partial(work, process))

    for number, (name, at_seconds) in enumerate((("first", 0), ("meanwhile", 1), ("afterwards", 20), ("last", 58))):
        timeline.after(at_seconds, partial(start, name, number))
    timeline.run_until(START.plus(60))
    of = dict(carried)
    assert of["first"] is not of["meanwhile"]
    assert of["afterwards"] in (of["first"], of["meanwhile"])
    assert not any(fiber.dead for fiber in of.values())
    scheduler.end_all()
    assert all(fiber.dead for fiber in of.values())
