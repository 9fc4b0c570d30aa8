"""Pause and resume from the command line: through the daemon where one holds the store."""

from contextlib import closing

from holdfast.adapters.memory import memory_store
from holdfast.cluster.switches import Answer, Switches
from holdfast.entrypoints.presence import running_daemon
from holdfast.entrypoints.wiring import open_store
from holdfast.entrypoints.world import world_clock
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.settings import Settings
from holdfast.ports.store import Store


def pause_cluster(settings: Settings, by: str, reason: str) -> Answer:
    daemon = running_daemon(settings)
    if daemon is not None and settings.holdfast_store.path is not None:
        return daemon.order("/api/pause", {"by": by, "reason": reason})
    with closing(open_store(settings)) as store:
        return _switches(store, settings).pause(by, reason)


def resume_cluster(settings: Settings, by: str) -> Answer:
    daemon = running_daemon(settings)
    if daemon is not None and settings.holdfast_store.path is not None:
        return daemon.order("/api/resume", {"by": by})
    with closing(open_store(settings)) as store:
        return _switches(store, settings).resume(by)


def looked_at(settings: Settings, *, would_pause: bool) -> Answer:
    """What either would do; nothing is written."""
    with closing(_readable(settings)) as store:
        switches = _switches(store, settings)
        return switches.would_pause() if would_pause else switches.would_resume()


def _switches(store: Store, settings: Settings) -> Switches:
    return Switches(store, world_clock(settings), ClusterId(settings.cluster_id))


def _readable(settings: Settings) -> Store:
    """A file that is not there yet would be made, and is empty: there is no pause in it."""
    path = settings.holdfast_store.path
    if path is not None and not path.exists():
        return memory_store(world_clock(settings))
    return open_store(settings, writable=False)
