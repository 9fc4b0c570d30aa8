"""Whatever happens in a daemon, told to all who watch it."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.cluster.plan import Ticked
from holdfast.console.live import Live
from holdfast.console.metrics import Metrics
from holdfast.console.webhooks import Answer, Request, Take
from holdfast.entrypoints.last_look import LastLook
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.instants import Instant


@dataclass(frozen=True, slots=True)
class Watching:
    """Whoever wants to know what happens here: the figures, the pages, and those who have one open."""

    metrics: Metrics
    look: LastLook
    live: Live

    def ticked(self, ticked: Ticked) -> None:
        self.metrics.cluster.ticked(ticked)
        self.look.ticked(ticked)
        self.live.changed()

    def each(self, take: Take) -> Take:
        """The same, and open pages are told."""

        def taken(requests: Sequence[Request]) -> Sequence[Answer | Exception]:
            answers = take(requests)
            self.live.changed()
            return answers

        return taken

    def failed(self, error: HoldfastError, now: Instant) -> None:
        self.metrics.cluster.failed(error)
        self.look.failed(error, now)
        self.live.changed()
