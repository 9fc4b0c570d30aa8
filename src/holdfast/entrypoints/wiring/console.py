"""Builds the console: its pages and their access control."""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Final

from holdfast.console.http.access import SESSION_SECONDS, Access
from holdfast.console.http.live import Live
from holdfast.console.http.signed_out import SignedOut
from holdfast.console.pages.all_pages import Console, Pages
from holdfast.console.pages.checks import CheckPages
from holdfast.console.pages.cluster import ClusterPages
from holdfast.console.pages.job_list import JobListPages
from holdfast.console.pages.jobs import JobPages
from holdfast.console.pages.session import SessionPages
from holdfast.console.pages.shell import MenuEntry, Shell
from holdfast.console.pages.simulator import SimulatorControls, SimulatorPages
from holdfast.control.pause import PauseSwitch
from holdfast.entrypoints.wiring.world import OpenWorld
from holdfast.jobs.cost.prices import Prices
from holdfast.jobs.intake.tracker import installations
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.views.check_findings import CheckFinding
from holdfast.views.cluster_history import ClusterHistory
from holdfast.views.dashboards import Dashboards
from holdfast.views.job_views import JobViews
from holdfast.views.latest_tick import LatestTick

if TYPE_CHECKING:
    from holdfast.simulator.demo.persistent_world import PersistentWorld

_CHECK_SECONDS_MOST: Final = 5.0  # for each check: a reader waits for the page
MENU: Final = (
    MenuEntry("/", "Overview"),
    MenuEntry("/cluster", "Cluster"),
    MenuEntry("/jobs", "Jobs"),
    MenuEntry("/deployments", "Deployments"),
    MenuEntry("/costs", "Costs"),
    MenuEntry("/events", "Events"),
)


@dataclass(frozen=True)
class ConsoleParts:
    """What the pages need."""

    settings: Settings
    version: str
    world: OpenWorld
    store: Store
    look: LatestTick
    live: Live
    tracking: JobViews
    prices: Prices
    wake: Callable[[], None]


def build_access(parts: ConsoleParts, clock: Clock, own_token: str) -> Access:
    """`clock` is real, also in a simulated world: people sign in."""
    settings = parts.settings
    return Access(
        clock=clock,
        listens_on=settings.holdfast_host,
        own_token=own_token,
        operator_token=settings.console_token,
        reader_token=settings.console_read_token,
        user_header=settings.console_user_header,
        operators=frozenset(settings.console_operators or ()),
        proxies=frozenset(settings.console_proxies),
        proxy_secret=settings.console_proxy_secret,
        hosts=frozenset(host.lower() for host in settings.console_hosts or ()),
        signed_out=SignedOut(parts.store, parts.world.clock, SESSION_SECONDS),
    )


def build_console(parts: ConsoleParts, access: Access) -> Console:
    settings, world = parts.settings, parts.world
    boards = Dashboards(
        settings=settings,
        store=parts.store,
        clock=world.clock,
        latest_tick=parts.look,
        job_views=parts.tracking,
        prices=parts.prices,
        history=ClusterHistory(parts.store, ClusterId(settings.cluster_id)),
    )
    places = (*MENU, MenuEntry("/simulator", "Simulator")) if world.simulated else MENU
    shell = Shell(parts.version, (*places, MenuEntry("/system", "System")), _world_words(world))
    switches = PauseSwitch(parts.store, world.clock, ClusterId(settings.cluster_id))
    known = partial(installations, parts.store)
    pages: list[Pages] = [
        ClusterPages(shell, boards, switches.pause, switches.resume),
        JobListPages(shell, parts.tracking, known, world.clock.now),
        JobPages(shell, parts.tracking, known, world.clock.now),
        CheckPages(shell, partial(_check_findings, settings)),
        SessionPages(shell, access),
    ]
    if world.simulated:
        pages.append(SimulatorPages(shell, _simulator_controls(world.simulated, parts)))
    return Console(shell, pages, parts.live)


def _check_findings(settings: Settings) -> list[CheckFinding]:
    # Imported on demand: it is not needed to serve, and takes a tenth of a second.
    from holdfast.adapters.system_clock import SystemClock
    from holdfast.entrypoints.doctor import diagnose

    found = diagnose(settings, os.environ, SystemClock(), _CHECK_SECONDS_MOST)
    return [CheckFinding(one.check, str(one.outcome), one.seen, one.fix) for one in found]


def _simulator_controls(simulated: "PersistentWorld", parts: ConsoleParts) -> SimulatorControls:
    from holdfast.entrypoints.simulation.console_controls import SimulatorConsole
    from holdfast.entrypoints.simulation.runs import SimulatorRuns

    return SimulatorConsole(simulated, parts.settings.sim_seed, parts.wake, SimulatorRuns(parts.live.changed))


def _world_words(world: OpenWorld) -> Callable[[], str]:
    simulated = world.simulated
    return (lambda: f"simulated, {simulated.speed:g}\u00d7") if simulated else (lambda: "")
