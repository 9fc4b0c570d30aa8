"""The console put together: its pages, who may see them, and what they are made of."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from holdfast.cluster.switches import Switches
from holdfast.console.access import Access
from holdfast.console.live import Live
from holdfast.console.pages.cluster import ClusterPages
from holdfast.console.pages.console import Console, Pages
from holdfast.console.pages.jobs import JobPages
from holdfast.console.pages.session import SessionPages
from holdfast.console.pages.shell import Place, Shell
from holdfast.console.pages.simulator import Desk, SimulatorPages
from holdfast.entrypoints.boards import Boards
from holdfast.entrypoints.history import ClusterHistory
from holdfast.entrypoints.last_look import LastLook
from holdfast.entrypoints.tracking import Tracking
from holdfast.entrypoints.world import OpenWorld
from holdfast.jobs.cost import Prices
from holdfast.jobs.ingest import installations
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store

if TYPE_CHECKING:
    from holdfast.simulator.living import LivingWorld

PLACES: Final = (
    Place("/", "Overview"),
    Place("/cluster", "Cluster"),
    Place("/jobs", "Jobs"),
    Place("/deployments", "Deployments"),
    Place("/costs", "Costs"),
    Place("/events", "Events"),
)


@dataclass(frozen=True)
class Parts:
    """What the pages are made of, and what they may do."""

    settings: Settings
    version: str
    world: OpenWorld
    store: Store
    look: LastLook
    live: Live
    tracking: Tracking
    prices: Prices
    wake: Callable[[], None]


def access_of(settings: Settings, clock: Clock, own_token: str) -> Access:
    return Access(
        clock=clock,
        listens_on=settings.holdfast_host,
        own_token=own_token,
        operator_token=settings.console_token,
        reader_token=settings.console_read_token,
        user_header=settings.console_user_header,
        operators=frozenset(settings.console_operators or ()),
        proxies=frozenset(settings.console_proxies),
    )


def console_of(parts: Parts, access: Access) -> Console:
    settings, world = parts.settings, parts.world
    boards = Boards(
        settings=settings,
        store=parts.store,
        clock=world.clock,
        look=parts.look,
        tracking=parts.tracking,
        prices=parts.prices,
        history=ClusterHistory(parts.store, ClusterId(settings.cluster_id)),
    )
    places = (*PLACES, Place("/simulator", "Simulator")) if world.living else PLACES
    shell = Shell(parts.version, (*places, Place("/system", "System")), _world_words(world))
    switches = Switches(parts.store, world.clock, ClusterId(settings.cluster_id))
    pages: list[Pages] = [
        ClusterPages(shell, boards, switches.pause, switches.resume),
        JobPages(shell, parts.tracking, lambda: installations(parts.store), world.clock.now),
        SessionPages(shell, access),
    ]
    if world.living:
        pages.append(SimulatorPages(shell, _desk(world.living, parts)))
    return Console(shell, pages, parts.live)


def _desk(living: "LivingWorld", parts: Parts) -> Desk:
    from holdfast.entrypoints.simulator_desk import SimulatorDesk
    from holdfast.entrypoints.simulator_runs import SimulatorRuns

    return SimulatorDesk(living, parts.settings.sim_seed, parts.wake, SimulatorRuns(parts.live.changed))


def _world_words(world: OpenWorld) -> Callable[[], str]:
    living = world.living
    return (lambda: f"simulated, {living.speed:g}\u00d7") if living else (lambda: "")
