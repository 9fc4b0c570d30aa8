"""The daemon's loops: they survive any error, and wake when something changes."""

import fcntl
import json
import os
import subprocess
import sys
import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from msgspec.structs import force_setattr

from holdfast.cluster.plan import TickResult
from holdfast.entrypoints.daemon import (
    STOP_SECONDS,
    Debouncer,
    Ec2EventHandler,
    Loop,
    LoopGroup,
    Ticker,
    queue_loop,
    stop_all,
    world_loop,
)
from holdfast.entrypoints.daemon_file import Daemon, announce_daemon, kill_daemon, running_daemon
from holdfast.entrypoints.tick_reports import TickCallbacks, TickReports
from holdfast.entrypoints.web_server import STOP_SECONDS_MOST
from holdfast.entrypoints.wiring.world import OpenWorld, open_world
from holdfast.kernel.errors import BadRequest, HoldfastError, NeedsOperator, NotFound, Retryable
from holdfast.kernel.settings import Settings, load_settings
from holdfast.ports.notify import Notification
from holdfast.simulator.world.k3s import Workload
from tests.clocks import StillClock
from tests.simulation.harness import Stage

PATIENCE_SECONDS = 60


@dataclass
class Counting:
    """Counts its calls, and sets an event at the last one."""

    until: int
    actions: list[Callable[[], float]] = field(default_factory=list)
    calls: int = 0
    over: threading.Event = field(default_factory=threading.Event)

    def once(self) -> float:
        self.calls += 1
        if self.calls == self.until:
            self.over.set()
        return self.actions.pop(0)() if self.actions else 0.0


def fail() -> float:
    raise ZeroDivisionError


def settings_in(directory: Path, **given: str) -> Settings:
    return load_settings({"HOLDFAST_DATA": str(directory), **given})


def test_a_loop_repeats_until_it_is_stopped() -> None:
    counting = Counting(until=5)
    with Loop("test", counting.once) as loop:
        assert counting.over.wait(PATIENCE_SECONDS)
        assert loop._thread.is_alive()
    assert not loop._thread.is_alive()
    assert counting.calls >= 5


def test_a_waiting_loop_can_be_woken() -> None:
    counting = Counting(until=2, actions=[lambda: 3600.0])
    with Loop("test", counting.once) as loop:
        while not counting.calls:
            pass
        loop.wake()
        assert counting.over.wait(PATIENCE_SECONDS)


def test_a_wake_up_during_a_call_is_not_lost() -> None:
    """It may have come too late for that call."""
    looking, woken = threading.Event(), threading.Event()

    def slow() -> float:
        looking.set()
        woken.wait(PATIENCE_SECONDS)
        return 3600.0

    counting = Counting(until=2, actions=[slow])
    with Loop("test", counting.once) as loop:
        assert looking.wait(PATIENCE_SECONDS)
        loop.wake()
        woken.set()
        assert counting.over.wait(PATIENCE_SECONDS)


def test_a_loop_survives_an_unexpected_error(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.entrypoints.daemon.AFTER_ERROR_SECONDS", 0.0)
    counting = Counting(until=2, actions=[fail])
    with Loop("test", counting.once):
        assert counting.over.wait(PATIENCE_SECONDS)


def test_a_known_error_of_a_loop_is_one_line_without_a_traceback(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """A full disk would otherwise fill what is left of it with tracebacks."""
    monkeypatch.setattr("holdfast.entrypoints.daemon.AFTER_ERROR_SECONDS", 0.0)

    def disk_is_full() -> float:
        raise NeedsOperator("the simulated world cannot be written: No space left on device")

    caplog.set_level("INFO")
    counting = Counting(until=6, actions=[disk_is_full] * 4)
    with Loop("world", counting.once):
        assert counting.over.wait(PATIENCE_SECONDS)
    assert caplog.messages == [
        "world failed: the simulated world cannot be written: No space left on device; retrying soon",
        "world works again, after 4 failures",
    ]
    assert not any(record.exc_info for record in caplog.records)


def test_a_loop_that_waits_for_an_hour_stops_at_once() -> None:
    counting = Counting(until=1, actions=[lambda: 3600.0])
    with Loop("test", counting.once) as loop:
        assert counting.over.wait(PATIENCE_SECONDS)
    assert not loop._thread.is_alive()


@pytest.mark.parametrize("is_first", [True, False])
def test_all_loops_are_asked_to_stop_before_any_is_waited_for(is_first: bool) -> None:
    """One stops only after the other has: if the other were asked later, both would time out."""
    started, over = threading.Event(), threading.Event()

    def waits_for_the_other() -> float:
        started.set()
        over.wait(PATIENCE_SECONDS)
        return 0.0

    class Other(Loop):
        def _repeat(self) -> None:
            super()._repeat()
            over.set()

    loops = [Loop("waits", waits_for_the_other), Other("other", lambda: 3600.0)]
    with LoopGroup() as running:
        for loop in loops if is_first else reversed(loops):
            running.start(loop)
        assert started.wait(PATIENCE_SECONDS)
    assert over.is_set()
    assert not any(loop._thread.is_alive() for loop in loops)


@dataclass
class Stubborn:
    """Never stops; waiting for it takes all the time that is left."""

    log: list[str]
    clock: StillClock

    def ask_to_stop(self) -> None:
        self.log.append("asked")

    def has_stopped_within(self, seconds: float) -> bool:
        self.log.append("waited for")
        self.clock.advance(seconds)
        return False


def test_all_loops_share_one_time_limit_for_stopping(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, log = StillClock(), list[str]()
    began = clock.monotonic_seconds()
    monkeypatch.setattr("holdfast.entrypoints.daemon.time", SimpleNamespace(monotonic=clock.monotonic_seconds))
    stop_all([Stubborn(log, clock) for _ in range(4)])  # type: ignore[misc]
    assert log == ["asked"] * 4 + ["waited for"] * 4
    assert clock.monotonic_seconds() - began == STOP_SECONDS < 30 - STOP_SECONDS_MOST


def test_exit_callbacks_run_after_the_loops_have_stopped() -> None:
    ended: list[bool] = []
    loop = Loop("one", lambda: 3600.0)
    with LoopGroup() as running:
        running.on_exit(lambda: ended.append(not loop._thread.is_alive()))
        running.start(loop)
    assert ended == [True]


def test_a_thousand_changes_are_debounced() -> None:
    looks: list[None] = []
    looked = threading.Event()
    debouncer = Debouncer(seconds=0.05)

    def look() -> None:
        looks.append(None)
        looked.set()

    debouncer.wake = look
    for _ in range(1000):
        debouncer.changed()
    assert looked.wait(PATIENCE_SECONDS)
    assert len(looks) <= 20  # not one for each; a busy machine may be slower than the debouncer


@dataclass
class Watched:
    ticked: list[TickResult] = field(default_factory=list)
    failed: list[HoldfastError] = field(default_factory=list)


def ticking(stage: Stage, watched: Watched, every: float = 60) -> Ticker:
    cluster = stage.cluster()
    reports = TickReports(cluster, [], TickCallbacks(watched.ticked.append, watched.failed.append))
    world = OpenWorld(stage.clock, stage.machines, cluster.writes.kube, cluster.reads.signals, [], "", "", None)  # type: ignore[arg-type]
    return Ticker(cluster, world, reports, every)


def test_the_next_tick_comes_within_seconds_while_an_action_is_under_way() -> None:
    stage, watched = Stage(), Watched()
    stage.clock.sleep(60)
    loop = ticking(stage, watched)
    assert loop.run() == 60
    stage.world.k3s.run(Workload("web", 25))
    waits = []
    for _ in range(6):
        stage.clock.sleep(60)
        waits.append(loop.run())
    assert set(waits) == {60, 5}
    assert watched.failed == []


def test_a_tick_that_cannot_observe_is_reported_and_retried() -> None:
    stage, watched = Stage(), Watched()
    broken = ticking(stage, watched)

    def away(*_: object, **__: object) -> Any:
        raise Retryable("EC2 does not answer")

    force_setattr(broken._cluster.reads, "store", type("Away", (), {"batch_get": away})())
    assert broken.run() == 60
    assert [str(error) for error in watched.failed] == ["EC2 does not answer"]


def test_events_are_stored_and_wake_the_ticker() -> None:
    stage = Stage(workers=0)
    woken: list[None] = []
    machine = stage.world.add_worker("eu-west-1a", {"Cluster": "k3s", "Role": "worker"}, "spot")
    stage.clock.sleep(60)
    events = Ec2EventHandler(stage.cluster(), lambda: woken.append(None))
    raw = {
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": stage.clock.now().iso_seconds(),
        "detail": {"instance-id": machine.id},
    }
    assert [events.take(raw), events.take(raw)] == ["noted", "known"]
    assert events.take({**raw, "detail-type": "EC2 Instance State-change Notification"}) == "ignored"
    assert len(woken) == 2
    assert events.take({**raw, "detail": {"instance-id": "i-0123456789abcdef0"}}) == "not ours"
    assert len(woken) == 2, "an account may have thousands of other machines"
    with pytest.raises(BadRequest):
        events.take({"source": "mine"})


# EC2's events from a queue


@dataclass
class Mailbox:
    got: list[Notification] = field(default_factory=list)

    def notify(self, notice: Notification) -> None:
        self.got.append(notice)


@dataclass
class Queue:
    """A queue that cannot be read, or is empty."""

    error: HoldfastError | None = None
    has_dead_letters: bool = True
    reads: int = 0
    checks: int = 0
    read_thrice: threading.Event = field(default_factory=threading.Event)

    def __str__(self) -> str:
        return "queue q"

    def handle_next(self, _handle: object) -> int:
        self.reads += 1
        if self.reads == 3:
            self.read_thrice.set()
        if self.error is not None:
            raise self.error
        return 0

    def has_dead_letter_queue(self) -> bool:
        self.checks += 1
        return self.has_dead_letters


def notifications_while_reading(queue: Queue, monkeypatch: pytest.MonkeyPatch) -> list[Notification]:
    monkeypatch.setattr("holdfast.entrypoints.daemon.AFTER_ERROR_SECONDS", 0.0)
    cluster, box = Stage().cluster(), Mailbox()
    with queue_loop(queue, Ec2EventHandler(cluster, lambda: None), TickReports(cluster, [box])):
        assert queue.read_thrice.wait(PATIENCE_SECONDS)
    return box.got


def test_an_unreadable_queue_is_retried_and_reported_once(monkeypatch: pytest.MonkeyPatch) -> None:
    (notice,) = notifications_while_reading(Queue(NeedsOperator("SQS queue q: does not exist")), monkeypatch)
    assert (notice.kind, notice.is_urgent) == ("events_unread", True)
    assert (
        notice.text == "SQS queue q: does not exist; until it is fixed, EC2 may reclaim a spot machine without a drain"
    )


def test_a_short_outage_of_the_queue_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notifications_while_reading(Queue(Retryable("SQS does not answer")), monkeypatch) == []


def test_a_queue_without_a_dead_letter_queue_is_reported_with_the_remedy(monkeypatch: pytest.MonkeyPatch) -> None:
    queue = Queue(has_dead_letters=False)
    (notice,) = notifications_while_reading(queue, monkeypatch)
    assert "queue q has no dead-letter queue" in notice.text
    assert "give it a RedrivePolicy" in notice.text
    assert queue.checks == 1


def test_a_healthy_queue_is_not_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notifications_while_reading(Queue(), monkeypatch) == []


def test_a_simulated_world_advances_by_itself(tmp_path: Path) -> None:
    settings = settings_in(tmp_path, SIM_SPEED="3600")
    with open_world(settings) as world:
        before = world.clock.now()
        loop = world_loop(world, Ec2EventHandler(Stage().cluster(), lambda: None))
        assert loop is not None
        with loop:
            while world.clock.now().seconds_since(before) < 60:
                pass
    assert (tmp_path / "world").exists()


# Finding a running daemon


def test_a_daemon_is_found_while_it_runs(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    daemon = Daemon("http://127.0.0.1:1", "token")
    with announce_daemon(settings, daemon):
        assert running_daemon(settings) == daemon
        assert (tmp_path / "daemon.json").stat().st_mode & 0o777 == 0o600
    assert running_daemon(settings) is None


def test_a_later_daemon_in_the_same_directory_is_found_and_stays_found(tmp_path: Path) -> None:
    settings = settings_in(tmp_path)
    first, second = announce_daemon(settings, Daemon("http://127.0.0.1:1", "a")), Daemon("http://127.0.0.1:2", "b")
    first.__enter__()
    with announce_daemon(settings, second):
        first.__exit__(None, None, None)
        assert running_daemon(settings) == second


def test_the_leftover_of_a_killed_daemon_is_not_a_daemon_though_its_process_id_is_reused(tmp_path: Path) -> None:
    """Process ids are reused, soon in a container; the one of this test is certainly alive."""
    settings = settings_in(tmp_path)
    daemon = Daemon("http://127.0.0.1:1", "token")
    with announce_daemon(settings, daemon):
        left = (tmp_path / "daemon.json").read_text()
        assert json.loads(left)["pid"] == os.getpid()
    (tmp_path / "daemon.json").write_text(left)
    assert running_daemon(settings) is None


def test_a_daemon_is_gone_the_moment_its_process_is_killed(tmp_path: Path) -> None:
    script = (
        "import sys, time\n"
        "from holdfast.entrypoints.daemon_file import Daemon, announce_daemon\n"
        "from holdfast.kernel.settings import load_settings\n"
        "with announce_daemon(load_settings({'HOLDFAST_DATA': sys.argv[1]}), Daemon('http://127.0.0.1:1', 'token')):\n"
        "    print('here', flush=True)\n"
        "    time.sleep(600)\n"
    )
    settings = settings_in(tmp_path)
    with subprocess.Popen([sys.executable, "-c", script, str(tmp_path)], stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            assert process.stdout.readline() == "here\n"
            assert running_daemon(settings) == Daemon("http://127.0.0.1:1", "token")
        finally:
            process.kill()
    assert (tmp_path / "daemon.json").exists()
    assert running_daemon(settings) is None


@pytest.mark.parametrize(
    "content",
    ["", "{}", "[]", '{"pid": 1e9}', '{"url": "file:///etc", "token": "x", "pid": 1}', '{"url": "x", "pid": "y"}'],
)
def test_a_malformed_announcement_is_not_a_daemon_even_if_it_is_locked(tmp_path: Path, content: str) -> None:
    with (tmp_path / "daemon.json").open("w") as file:
        file.write(content)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        assert running_daemon(settings_in(tmp_path)) is None


@pytest.mark.parametrize(("mode", "of_directory"), [(0o644, 0o700), (0o660, 0o700), (0o600, 0o777)])
def test_an_announcement_that_others_can_open_or_replace_kills_nobody(
    tmp_path: Path, mode: int, of_directory: int
) -> None:
    """Whoever can open the file can lock it, so its process id may be that of any process."""
    path = tmp_path / "daemon.json"
    with path.open("w") as file:
        json.dump({"url": "http://127.0.0.1:1", "token": "x", "pid": os.getpid()}, file)
        file.flush()
        fcntl.flock(file, fcntl.LOCK_EX)
        path.chmod(mode)
        tmp_path.chmod(of_directory)
        with pytest.raises(NotFound):
            kill_daemon(settings_in(tmp_path), dry_run=True)
        assert running_daemon(settings_in(tmp_path)) is None


def test_a_pipe_in_place_of_the_announcement_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "daemon.json", 0o600)
    assert running_daemon(settings_in(tmp_path)) is None
