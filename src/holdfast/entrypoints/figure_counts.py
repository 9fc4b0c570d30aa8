"""Runs the passes that count ended jobs: in the daemon's loop, in the Lambda function that sweeps, and on command."""

import logging
from contextlib import closing
from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.entrypoints.wiring.stores import open_store
from holdfast.entrypoints.wiring.world import world_clock
from holdfast.jobs.figures.counting import Counting
from holdfast.jobs.intake.tracker import installations
from holdfast.kernel.errors import HoldfastError
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.json_types import Count, Shape, Time
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.views.query_params import QueryParams

ON_DYNAMODB_SECONDS: Final = 720  # each pass reads the jobs of two hours: a unit per job at this pace
OTHERWISE_SECONDS: Final = 60
_BEHIND_SECONDS: Final = 1.0  # between passes that count many days for the first time
# Another process may have counted a moment before; this one then waits for its own next turn.
_EARLY_SHARE: Final = 0.9
_log = logging.getLogger(__name__)


class Recount(Shape, frozen=True, kw_only=True):
    """The installations whose jobs are counted again, from when on; None: all jobs that are stored."""

    installations: list[Count]
    since: Time | None
    dry_run: bool


@dataclass
class PassCounts:
    """What the passes for all installations did."""

    hours: int = 0
    days: int = 0
    is_behind: bool = False
    problems: list[str] = field(default_factory=list)

    def shown(self) -> dict[str, Any]:
        return {"hours": self.hours, "days": self.days, "isBehind": self.is_behind, "problems": self.problems}


@dataclass(frozen=True, slots=True)
class FigureCounter:
    """Counts the jobs of every installation, each when it is due."""

    store: Store
    clock: Clock
    team_property: str
    every_seconds: float

    def run(self) -> float:
        """One pass for each installation; returns the seconds until the next."""
        found = self.count(0)
        for problem in found.problems:
            _log.warning("figures: %s", problem)
        return _BEHIND_SECONDS if found.is_behind else self.every_seconds

    def count(self, seconds: float) -> PassCounts:
        """Run passes while there is more to count, and no new one after `seconds`."""
        end, total = self.clock.monotonic_seconds() + seconds, PassCounts()
        try:
            for installation in installations(self.store):
                self._count(installation, end, total)
        except HoldfastError as error:
            total.problems.append(str(error))
        return total

    def _count(self, installation: InstallationId, end: float, total: PassCounts) -> None:
        counting = Counting(self.store, self.clock, installation, self.team_property)
        try:
            while counting.is_due(self.every_seconds * _EARLY_SHARE):
                done = counting.run_pass()
                total.hours, total.days = total.hours + done.hours, total.days + done.days
                if self.clock.monotonic_seconds() >= end:
                    total.is_behind = total.is_behind or done.is_behind
                    return
        except HoldfastError as error:
            total.problems.append(f"installation {installation}: {error}")  # the others are counted


def figure_counter(settings: Settings, store: Store, clock: Clock) -> FigureCounter:
    default = OTHERWISE_SECONDS if settings.holdfast_store.path else ON_DYNAMODB_SECONDS
    return FigureCounter(store, clock, settings.team_property, settings.figures_sec or default)


def recount(settings: Settings, installation_id: str | None, since: str | None, *, write: bool) -> Recount:
    """Let the next passes count again; returns the installations for which they do, or would."""
    given = {"installation_id": installation_id, "since": since}
    asked = QueryParams({name: text for name, text in given.items() if text is not None}, *given)
    number, begin = asked.number("installation_id"), asked.time("since")
    clock = world_clock(settings)
    with closing(open_store(settings, clock, writable=write)) as store:
        chosen = installations(store) if number is None else [InstallationId(number)]
        for installation in chosen if write else ():
            Counting(store, clock, installation, settings.team_property).recount(begin)
        return Recount(installations=list(chosen), since=begin.iso() if begin else None, dry_run=not write)
