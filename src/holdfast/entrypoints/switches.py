"""Pause and resume, as the command line and the API do them: through the daemon where one holds the store."""

from contextlib import closing
from typing import Any

from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.pause import Pause, end_pause, set_pause
from holdfast.entrypoints.presence import running_daemon
from holdfast.entrypoints.wiring import open_store
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store


class Switches:
    """Of one cluster, in a store that this process may write."""

    def __init__(self, store: Store, clock: Clock, settings: Settings) -> None:
        self._store = store
        self._clock = clock
        self._cluster = ClusterId(settings.cluster_id)

    def pause(self, by: str, reason: str) -> dict[str, Any]:
        pause = Pause(cut(by, 100) or "somebody", self._clock.now(), cut(reason, 500))
        set_pause(self._store, self._cluster, pause)
        return {"cluster": self._cluster, "step": "paused", "done": True}

    def resume(self, _by: str) -> dict[str, Any]:
        end_pause(self._store, self._cluster)
        return {"cluster": self._cluster, "step": "resumed", "done": True}


def pause_cluster(settings: Settings, by: str, reason: str) -> dict[str, Any]:
    daemon = running_daemon(settings)
    if daemon is not None and settings.holdfast_store.path is not None:
        return daemon.order("/api/pause", {"by": by, "reason": reason})
    with closing(open_store(settings)) as store:
        return Switches(store, SystemClock(), settings).pause(by, reason)


def resume_cluster(settings: Settings, by: str) -> dict[str, Any]:
    daemon = running_daemon(settings)
    if daemon is not None and settings.holdfast_store.path is not None:
        return daemon.order("/api/resume", {"by": by})
    with closing(open_store(settings)) as store:
        return Switches(store, SystemClock(), settings).resume(by)
