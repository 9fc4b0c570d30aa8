"""Whatever happens in a daemon, told to all who watch it."""

from collections.abc import Sequence
from dataclasses import dataclass

from holdfast.cluster.lease import LeaseHeld
from holdfast.cluster.plan import Ticked
from holdfast.console.live import Live
from holdfast.console.metrics import Metrics
from holdfast.console.webhooks import Answer, Request, Take
from holdfast.entrypoints.last_look import LastLook
from holdfast.entrypoints.pulse import Pulse
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.instants import Instant


@dataclass(frozen=True, slots=True)
class Watching:
    """Whoever wants to know what happens here: the figures, the pages, those who have one open, and `/readyz`."""

    metrics: Metrics
    look: LastLook
    live: Live
    pulse: Pulse

    def ticked(self, ticked: Ticked) -> None:
        self.metrics.cluster.ticked(ticked)
        self.look.ticked(ticked)
        if ticked.has_failed:
            self.pulse.missed("Stopped", ticked.stopped or "")
        else:
            self.pulse.beat()
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
        if isinstance(error, LeaseHeld):
            self.pulse.beat()  # it could look; another process acts
        else:
            self.pulse.missed(type(error).__name__, str(error))
        self.live.changed()
