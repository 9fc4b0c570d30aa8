"""Simulated worlds that live in a store."""

from pathlib import Path

from holdfast.simulator.demo.ordinary_day import OrdinaryDay
from holdfast.simulator.demo.persistent_world import PersistentWorld
from holdfast.simulator.world.world import Bootstrap, World

TAGS = {"Cluster": "k3s"}


def begin() -> OrdinaryDay:
    world = World(7, Bootstrap("label", "taint", "action"))
    world.add_worker("eu-west-1a", TAGS, "spot")
    world.timeline.sleep(60)
    return OrdinaryDay(world, ("t3.medium",))


def persistent_world(path: Path, speed: float = 1) -> PersistentWorld:
    return PersistentWorld(path / "world", begin, speed=speed)
