"""Pause and resume, as the command line, the API and the console do them, and what is told of it."""

import logging
from typing import Any, Final

from holdfast.cluster.log import PAUSED_KIND, RESUMED_KIND, log_switch
from holdfast.cluster.pause import Pause, end_pause, read_pause, set_pause
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import ClusterId, cluster_words
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

Answer = dict[str, Any]
_logger = logging.getLogger(__name__)
_UNCHANGED: Final = "nothing was changed"


class Switches:
    """Of one cluster, in a store that this process may write."""

    def __init__(self, store: Store, clock: Clock, cluster: ClusterId) -> None:
        self._store = store
        self._clock = clock
        self._cluster = cluster
        self._name = cluster_words(cluster)

    def pause(self, by: str, reason: str) -> Answer:
        now = Instant.from_epoch_seconds(self._clock.now().epoch_seconds)  # as it is stored
        pause = Pause(_name_of(by), now, cut(reason, 500))
        found = set_pause(self._store, self._cluster, pause)
        if not found.is_done and found.pause is not None:
            return self._already(found.pause)
        self._log(PAUSED_KIND, f"by {pause.by}" + (f": {pause.reason}" if pause.reason else ""), now)
        return self._answer("paused", f"paused {self._name}", pause, done=True)

    def resume(self, by: str, since: str = "") -> Answer:
        """`since`: of the pause that whoever orders this has seen. Another one is not ended."""
        pause = read_pause(self._store, self._cluster)
        if pause is None:
            return self._not_paused()
        if since and since != pause.since.iso():
            return self._again(pause)
        now = self._clock.now()
        found = end_pause(self._store, self._cluster, pause, _name_of(by), now)
        if found.is_done:
            self._log(RESUMED_KIND, f"by {_name_of(by)}; it was {pause.words()}", now)
            return self._answer("resumed", f"resumed {self._name}, which was {pause.words()}", None, done=True)
        return self._not_paused() if found.pause is None else self._again(found.pause)

    def _log(self, kind: str, words: str, now: Instant) -> None:
        """It is done already: that nobody can read of it later is no reason to say it was not."""
        try:
            log_switch(self._store, self._cluster, kind, words, now)
        except HoldfastError as error:
            _logger.warning("%s %s, which could not be written to the log: %s", kind, words, error)

    def would_pause(self) -> Answer:
        pause = read_pause(self._store, self._cluster)
        if pause is not None:
            return self._already(pause)
        return self._answer("would pause", f"would pause {self._name}", None)

    def would_resume(self) -> Answer:
        pause = read_pause(self._store, self._cluster)
        if pause is None:
            return self._not_paused()
        return self._answer("would resume", f"would resume {self._name}, which is {pause.words()}", pause)

    def _already(self, pause: Pause) -> Answer:
        return self._answer("already paused", f"{self._name} is already {pause.words()}; {_UNCHANGED}", pause)

    def _again(self, pause: Pause) -> Answer:
        return self._answer("paused again", f"{self._name} has meanwhile been {pause.words()}; {_UNCHANGED}", pause)

    def _not_paused(self) -> Answer:
        return self._answer("not paused", f"{self._name} is not paused; {_UNCHANGED}", None)

    def _answer(self, step: str, words: str, pause: Pause | None, *, done: bool = False) -> Answer:
        """`paused` is the pause that stands now."""
        stands = None if pause is None else pause.shown()
        return {"cluster": self._cluster, "step": step, "done": done, "told": words, "paused": stands}


def _name_of(by: str) -> str:
    return cut(by, 100) or "somebody"
