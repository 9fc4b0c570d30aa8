"""The command line's operations on a cluster: one tick, a dry run, pause and resume."""

import os
import socket
from contextlib import closing

from holdfast.cluster.tick import tick
from holdfast.cluster.tick_summary import summary_of
from holdfast.control.pause import PauseAnswer, PauseSwitch
from holdfast.entrypoints.daemon_file import running_daemon
from holdfast.entrypoints.tick_reports import TickReports
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.entrypoints.wiring.world import TICK_SECONDS, OpenWorld, notifiers, open_world, world_clock
from holdfast.kernel.ids import ClusterId, nonce
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.views.command_answers import CompletedTick, PlannedTick
from holdfast.views.decisions import observed, rule_result, step_taken


def dry_run_tick(settings: Settings) -> PlannedTick:
    """What a tick would observe and do; changes nothing."""
    with open_world(settings, writable=False) as world, closing(_read_only_store(settings, world.clock)) as store:
        seen, plan = world.cluster(settings, store).look()
        return PlannedTick(
            seen=observed(summary_of(seen)),
            rules=[rule_result(rule.shown()) for rule in plan.rules],
            steps=[step_taken(step.shown()) for step in plan.steps],
        )


def run_tick(settings: Settings) -> CompletedTick:
    with open_world(settings) as world, closing(_store_in(settings, world)) as store:
        if world.simulated:
            world.simulated.pass_time(TICK_SECONDS)
        cluster = world.cluster(settings, store)
        reports = TickReports(cluster, notifiers(settings, world.clock))
        with reports.reporting_errors():
            result = tick(cluster, f"{socket.gethostname()[:40]}-{os.getpid()}-{nonce()}")
        reports.ticked(result)
        return CompletedTick(
            seen=observed(summary_of(result.looked)),
            rules=[rule_result(rule.shown()) for rule in result.plan.rules],
            steps=[step_taken(step.shown()) for step in result.done],
            stopped=result.stopped,
        )


def _store_in(settings: Settings, world: OpenWorld) -> Store:
    return open_store(settings, world.clock, date=world.times.dynamodb)


def pause_cluster(settings: Settings, by: str, reason: str) -> PauseAnswer:
    """Pause, through the daemon if one holds the SQLite file."""
    daemon = running_daemon(settings)
    if daemon is not None and settings.holdfast_store.path is not None:
        return daemon.post("/api/pause", {"by": by, "reason": reason}, PauseAnswer)
    with closing(open_store(settings)) as store:
        return _pause_switch(store, settings).pause(by, reason)


def resume_cluster(settings: Settings, by: str) -> PauseAnswer:
    """Resume, through the daemon if one holds the SQLite file."""
    daemon = running_daemon(settings)
    if daemon is not None and settings.holdfast_store.path is not None:
        return daemon.post("/api/resume", {"by": by}, PauseAnswer)
    with closing(open_store(settings)) as store:
        return _pause_switch(store, settings).resume(by)


def dry_run_pause(settings: Settings, *, would_pause: bool) -> PauseAnswer:
    """What pause or resume would do; writes nothing."""
    clock = world_clock(settings)
    with closing(_read_only_store(settings, clock)) as store:
        switch = _pause_switch(store, settings)
        return switch.would_pause() if would_pause else switch.would_resume()


def _pause_switch(store: Store, settings: Settings) -> PauseSwitch:
    return PauseSwitch(store, world_clock(settings), ClusterId(settings.cluster_id))


def _read_only_store(settings: Settings, clock: Clock) -> Store:
    """The store, or an empty one if its file does not exist yet: a dry run creates no file."""
    path = settings.holdfast_store.path
    if path is None or path.exists():
        return open_store(settings, clock, writable=False)
    from holdfast.adapters.memory import memory_store

    return memory_store(clock)
