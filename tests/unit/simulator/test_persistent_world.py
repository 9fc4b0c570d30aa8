"""The persistent simulated world: its time passes by itself, and it survives the program."""

import os
import resource
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.kernel.errors import NeedsOperator
from holdfast.ports.machines import LaunchOrder, MachineError, Market
from holdfast.simulator.demo.ordinary_day import OrdinaryDay
from holdfast.simulator.demo.persistent_world import PersistentWorld, _read
from holdfast.simulator.demo.stored_objects import UnreadableObjects
from holdfast.simulator.demo.world_classes import WORLD_OBJECTS
from tests.support.persistent_worlds import TAGS, begin


def order(token: str) -> LaunchOrder:
    return LaunchOrder(token, "lt-0:1", "t3.medium", Market.SPOT, "subnet-eu-west-1a", "eu-west-1a", TAGS, "")


def test_changes_through_a_port_survive_a_kill(tmp_path: Path) -> None:
    """The file is written before the call returns; here the world is simply dropped."""
    first = PersistentWorld(tmp_path / "world", begin, speed=1)
    machine = first.machines.launch(order("one"))
    os.close(first._hold or 0)  # the kernel does it when a process dies
    second = PersistentWorld(tmp_path / "world", begin, speed=1)
    assert second.machines.launch(order("one")).id == machine.id
    assert second.now() >= first._begun


def test_a_full_disk_is_one_error_with_a_remedy_and_keeps_the_old_file(tmp_path: Path) -> None:
    """The limit of a file's size stands in for the disk: the write fails in the same way, in the middle."""
    path = tmp_path / "world"
    world = PersistentWorld(path, begin, speed=1)
    world.keep()
    before, (soft, hard) = path.read_bytes(), resource.getrlimit(resource.RLIMIT_FSIZE)
    handler = signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (len(before) // 2, hard))
    try:
        for write in (world.keep, lambda: world.machines.launch(order("one")), world.close):
            with pytest.raises(NeedsOperator, match=r"cannot be written: File too large; .* make room"):
                write()
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
        signal.signal(signal.SIGXFSZ, handler)
    assert path.read_bytes() == before
    assert not (tmp_path / "world.new").exists()
    PersistentWorld(path, begin, speed=1).close()  # the lock was released


def test_time_passes_at_its_speed_and_due_events_happen(tmp_path: Path) -> None:
    with PersistentWorld(tmp_path / "world", begin, speed=1) as world:
        machine = world.machines.launch(order("one"))
        before = world.now()
        world.pass_time(120)
        assert world.now().seconds_since(before) >= 120
        assert machine.id in [node.labels["label"] for node in world.kube.nodes()]


def test_a_day_has_load_interruptions_and_shortage(tmp_path: Path) -> None:
    """Everything that the tour shows happens within two days, whatever the hour at the start."""
    seen: list[dict[str, Any]] = []
    pods, refused = set(), set()
    with PersistentWorld(tmp_path / "world", begin, speed=1) as world:
        for hour in range(48):
            try:
                world.machines.launch(order(f"at {hour}"))
            except MachineError as error:
                refused.add(error.code)
            world.pass_time(3600)
            world.deliver_events(seen.append)
            pods.add(len(world.kube.pods()))
    kinds = {event["detail-type"] for event in seen}
    assert kinds == {"EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"}
    assert max(pods) - min(pods) > 20
    assert refused == {"InsufficientInstanceCapacity"}


def test_an_event_is_delivered_until_it_is_handled(tmp_path: Path) -> None:
    def fail(_event: object) -> None:
        raise NeedsOperator("not now")

    taken: list[dict[str, Any]] = []
    with PersistentWorld(tmp_path / "world", begin, speed=1) as world:
        world.pass_time(86_400)
        with pytest.raises(NeedsOperator):
            world.deliver_events(fail)
        world.deliver_events(taken.append)
        assert taken
        world.deliver_events(fail)  # none is left


def test_a_second_process_gets_the_process_id_of_the_first(tmp_path: Path) -> None:
    with (
        PersistentWorld(tmp_path / "world", begin, speed=1),
        pytest.raises(NeedsOperator, match="another process uses the simulated world"),
    ):
        PersistentWorld(tmp_path / "world", begin, speed=1)


def test_reading_changes_no_file(tmp_path: Path) -> None:
    with PersistentWorld(tmp_path / "world", begin, speed=1) as world:
        world.keep()
        kept = (tmp_path / "world").read_bytes()
        looking = PersistentWorld(tmp_path / "world", begin, speed=1, writable=False)
        looking.machines.launch(order("only looking"))
        looking.close()
        assert (tmp_path / "world").read_bytes() == kept
    assert (tmp_path / "world").stat().st_mode & 0o777 == 0o600


# Runs `open("ran", "w")` when it is unpickled.
HOSTILE_PICKLE = b"\x80\x04cbuiltins\nopen\n(\x8c\x03ran\x8c\x01wtR."


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"no world",
        b"null",
        HOSTILE_PICKLE,
        b'{"holdfast_world": 6, "objects": []}',
        b'{"holdfast_world": 7, "objects": []}',
        b'{"holdfast_world": 7, "objects": [["list"]]}',
        b'{"holdfast_world": 7, "objects": [["OrdinaryDay", ["world", [7]]]]}',
        b'{"holdfast_world": 7, "objects": [["tuple", [0]]]}',
        b'{"holdfast_world": 7, "objects": [["tuple", [1]], ["Popen", ["args", "id"]]]}',
        b'{"holdfast_world": 7, "objects": [["tuple", [1]], ["function", "os.system"]]}',
        b'{"holdfast_world": 7, "objects": [["tuple", [1]], ["method", [2], "__init__"], ["list"]]}',
        b'{"holdfast_world": 7, "objects": [["tuple", [1]], ["partial", [2], [3]], ["Market", "spot"], ["dict"]]}',
        b'{"holdfast_world": 7, "objects": [["tuple", [1]], ["method", [2], "__class__"], ["Timeline"]]}',
    ],
)
def test_a_file_that_is_not_a_world_is_left_unchanged_and_runs_nothing(
    tmp_path: Path, content: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "world").write_bytes(content)
    with pytest.raises(NeedsOperator, match="was stored by another version or is damaged") as refused:
        PersistentWorld(Path("world"), begin, speed=1)  # as with --data jobs.db
    assert "remove . " not in str(refused.value)
    assert (tmp_path / "world").read_bytes() == content
    assert not (tmp_path / "ran").exists()


def test_a_world_that_was_read_goes_on_like_the_one_that_was_written(tmp_path: Path) -> None:
    """With all that can be ordered in it under way."""
    with PersistentWorld(tmp_path / "world", begin, speed=1) as world:
        world.machines.launch(order("one"))
        world.pass_time(3 * 3600)
        for change in (OrdinaryDay.burst, OrdinaryDay.blind, OrdinaryDay.interrupt_one, OrdinaryDay.break_one):
            world.order(change)
        world.order(lambda day: day.sell_out_zone("eu-west-1b"))
        world.order(lambda day: day.interrupt_runner())
        written = world._day
        read = _read(tmp_path / "world")
    assert read is not None
    for day in (written, read):
        day.world.timeline.sleep(86_400)
    assert read.events == written.events
    assert read.organisation.outbox == written.organisation.outbox
    assert read.world.k3s.all_pods() == written.world.k3s.all_pods()
    assert read.world.ec2.all_machines() == written.world.ec2.all_machines()
    assert read.world.chance.getstate() == written.world.chance.getstate()


def test_a_link_in_the_directory_is_not_followed(tmp_path: Path) -> None:
    """A directory from an archive can have one with the name of the temporary file, or of the lock."""
    victim, data = tmp_path / "victim", tmp_path / "data"
    victim.write_text("precious")
    data.mkdir(mode=0o700)
    (data / "world.new").symlink_to(victim)
    with PersistentWorld(data / "world", begin, speed=1) as world:
        world.keep()
    assert victim.read_text() == "precious"
    (data / "world.lock").unlink()
    (data / "world.lock").symlink_to(victim)
    with pytest.raises(NeedsOperator, match="cannot be stored"):
        PersistentWorld(data / "world", begin, speed=1)


@pytest.mark.parametrize("shared", ["data", "data/world"])
def test_a_world_that_others_may_write_is_not_read(tmp_path: Path, shared: str) -> None:
    (tmp_path / "data").mkdir(mode=0o700)
    with PersistentWorld(tmp_path / "data" / "world", begin, speed=1) as world:
        world.keep()
    (tmp_path / shared).chmod(0o770)
    for writable in (True, False):
        with pytest.raises(NeedsOperator, match=rf"was not read: .*{shared} is writable by other users \(mode 0770\)"):
            PersistentWorld(tmp_path / "data" / "world", begin, speed=1, writable=writable)


def test_a_pipe_in_place_of_the_world_is_not_waited_for(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "world", 0o600)
    with pytest.raises(NeedsOperator, match="neither a file nor a directory"):
        _read(tmp_path / "world")


def test_tuples_that_contain_each_other_many_times_are_refused_before_they_are_hashed() -> None:
    """Each has the one before it twice, so a hash of the last would take 2^60 steps."""
    tuples: list[list[Any]] = [["tuple", 1], *(["tuple", [number], [number]] for number in range(1, 60))]
    with pytest.raises(UnreadableObjects):
        WORLD_OBJECTS.read([["set", [60]], *tuples])


def test_the_same_seed_makes_the_same_world_whatever_the_hash_seed() -> None:
    script = (
        "from tests.unit.simulator.test_persistent_world import begin\n"
        "life = begin()\n"
        "life.world.timeline.sleep(86400)\n"
        "print(life.events, sorted(str(pod) for pod in life.world.k3s.pods()))"
    )
    outputs = {
        subprocess.run(
            [sys.executable, "-c", script],
            capture_output=True,
            text=True,
            check=True,
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("1", "2")
    }
    assert len(outputs) == 1
