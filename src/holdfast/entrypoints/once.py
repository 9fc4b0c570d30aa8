"""One tick, from the command line: for a schedule without a daemon, and to see what would be done."""

import os
import socket
from contextlib import closing
from typing import Any

from holdfast.cluster.glance import glance_of
from holdfast.cluster.tick import tick
from holdfast.entrypoints.reports import Reports
from holdfast.entrypoints.wiring import open_store
from holdfast.entrypoints.world import TICK_SECONDS, OpenWorld, notifiers, open_world
from holdfast.kernel.ids import nonce
from holdfast.kernel.settings import Settings
from holdfast.ports.store import Store


def look_once(settings: Settings) -> dict[str, Any]:
    """What a tick would see and do; touches nothing."""
    with open_world(settings, writable=False) as world, closing(_looked_at(settings, world)) as store:
        seen, plan = world.cluster(settings, store).look()
        return {"seen": glance_of(seen), **plan.shown()}


def tick_once(settings: Settings) -> dict[str, Any]:
    with open_world(settings) as world, closing(open_store(settings, world.clock)) as store:
        if world.living:
            world.living.pass_time(TICK_SECONDS)
        cluster = world.cluster(settings, store)
        reports = Reports(cluster, notifiers(settings, world.clock))
        with reports.of_errors():
            ticked = tick(cluster, f"{socket.gethostname()[:40]}-{os.getpid()}-{nonce()}")
        reports.ticked(ticked)
        steps = [step.shown() for step in ticked.done]
        rules = [rule.shown() for rule in ticked.plan.rules]
        return {"seen": glance_of(ticked.looked), "rules": rules, "steps": steps, "stopped": ticked.stopped}


def _looked_at(settings: Settings, world: OpenWorld) -> Store:
    """The store, for reading. Before there is one, an empty one: a first look needs no file."""
    path = settings.holdfast_store.path
    if path is None or path.exists():
        return open_store(settings, world.clock, writable=False)
    from holdfast.adapters.memory import memory_store

    return memory_store(world.clock)
