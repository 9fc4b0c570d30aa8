"""The simulated world that a program lives in: it passes time by itself and survives the program."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from holdfast.kernel.errors import NeedsOperator
from holdfast.ports.machines import LaunchOrder, MachineError, Market
from holdfast.simulator.daily import DailyLife
from holdfast.simulator.living import LivingWorld
from holdfast.simulator.world import Bootstrap, World

TAGS = {"Cluster": "k3s"}


def begin() -> DailyLife:
    world = World(7, Bootstrap("label", "taint", "action"))
    world.add_worker("eu-west-1a", TAGS, "spot")
    world.timeline.sleep(60)
    return DailyLife(world, ("t3.medium",))


def order(token: str) -> LaunchOrder:
    return LaunchOrder(token, "lt-0:1", "t3.medium", Market.SPOT, "subnet-eu-west-1a", "eu-west-1a", TAGS, "")


def test_what_a_port_changed_is_there_after_a_kill(tmp_path: Path) -> None:
    """The file is written before the call returns; nothing more is done here than forgetting the world."""
    first = LivingWorld(tmp_path / "world", begin, speed=1)
    machine = first.machines.launch(order("one"))
    os.close(first._hold or 0)  # the kernel does it when a process dies
    second = LivingWorld(tmp_path / "world", begin, speed=1)
    assert second.machines.launch(order("one")).id == machine.id
    assert second.now() >= first._begun


def test_time_passes_at_its_speed_and_brings_what_is_due(tmp_path: Path) -> None:
    with LivingWorld(tmp_path / "world", begin, speed=1) as world:
        machine = world.machines.launch(order("one"))
        before = world.now()
        world.pass_time(120)
        assert world.now().seconds_since(before) >= 120
        assert machine.id in [node.labels["label"] for node in world.kube.nodes()]


def test_a_day_has_load_interruptions_and_shortage(tmp_path: Path) -> None:
    """Everything that the tour shows comes up within two days, whatever the hour it begins."""
    seen: list[dict[str, Any]] = []
    pods, refused = set(), set()
    with LivingWorld(tmp_path / "world", begin, speed=1) as world:
        for hour in range(48):
            try:
                world.machines.launch(order(f"at {hour}"))
            except MachineError as error:
                refused.add(error.code)
            world.pass_time(3600)
            world.hand_over_events(seen.append)
            pods.add(len(world.kube.pods()))
    kinds = {event["detail-type"] for event in seen}
    assert kinds == {"EC2 Spot Instance Interruption Warning", "EC2 Instance Rebalance Recommendation"}
    assert max(pods) - min(pods) > 20
    assert refused == {"InsufficientInstanceCapacity"}


def test_an_event_is_handed_over_until_it_was_taken(tmp_path: Path) -> None:
    def fail(_event: object) -> None:
        raise NeedsOperator("not now")

    taken: list[dict[str, Any]] = []
    with LivingWorld(tmp_path / "world", begin, speed=1) as world:
        world.pass_time(86_400)
        with pytest.raises(NeedsOperator):
            world.hand_over_events(fail)
        world.hand_over_events(taken.append)
        assert taken
        world.hand_over_events(fail)  # there is none left


def test_a_second_process_is_told_who_lives_there(tmp_path: Path) -> None:
    with (
        LivingWorld(tmp_path / "world", begin, speed=1),
        pytest.raises(NeedsOperator, match="another process lives in the simulated world"),
    ):
        LivingWorld(tmp_path / "world", begin, speed=1)


def test_looking_changes_no_file(tmp_path: Path) -> None:
    with LivingWorld(tmp_path / "world", begin, speed=1) as world:
        world.keep()
        kept = (tmp_path / "world").read_bytes()
        looking = LivingWorld(tmp_path / "world", begin, speed=1, writable=False)
        looking.machines.launch(order("only looking"))
        looking.close()
        assert (tmp_path / "world").read_bytes() == kept
    assert (tmp_path / "world").stat().st_mode & 0o777 == 0o600


@pytest.mark.parametrize("content", [b"", b"no world", b"\x80\x04N.", b"\x80\x04K\x01N\x86."])
def test_a_file_that_is_no_world_is_left_as_it_is(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "world").write_bytes(content)
    with pytest.raises(NeedsOperator, match="was left by another version, or is damaged"):
        LivingWorld(tmp_path / "world", begin, speed=1)
    assert (tmp_path / "world").read_bytes() == content


def test_the_same_seed_makes_the_same_world_whatever_the_hash_seed() -> None:
    script = (
        "from tests.unit.test_living_world import begin\n"
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
