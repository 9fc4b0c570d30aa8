"""What questions about jobs are asked with: the settings' patience, prices and addresses, and a store to read."""

from collections.abc import Iterator
from contextlib import closing, contextmanager

from holdfast.entrypoints.migrating import readable
from holdfast.entrypoints.pricing import price_table
from holdfast.entrypoints.tracking import Fresh, Tracking
from holdfast.entrypoints.wiring import open_store
from holdfast.entrypoints.world import world_clock
from holdfast.jobs.stuck import Patience
from holdfast.jobs.views import Viewing
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store


def patience_of(settings: Settings) -> Patience:
    return Patience(
        in_progress_seconds=settings.stuck_running_sec,
        queued_seconds=settings.stuck_queued_sec,
        scheduled_seconds=settings.stuck_scheduled_sec,
    )


def oldest_webhook_seconds(settings: Settings) -> float | None:
    """A simulated world has a time of its own: there, any webhook may be tried."""
    return None if settings.holdfast_world == "sim" else settings.webhook_oldest_sec


def viewing_of(settings: Settings) -> Viewing:
    """Where GitHub is, and what machines cost."""
    return Viewing(price_table(settings).prices, settings.github_url)


@contextmanager
def opened_tracking(settings: Settings) -> Iterator[Tracking]:
    """Questions to the store that HOLDFAST_STORE names, beside whoever writes it.

    Only what GitHub said meanwhile is written, for others to read, and only to DynamoDB: of a file there is one writer.
    """
    viewing = viewing_of(settings)
    with closing(open_store(settings, writable=False)) as store:
        clock = world_clock(settings)
        fresh = _asking_github(settings, store, clock) if settings.holdfast_store.path is None else None
        yield Tracking(readable(settings, store, clock), clock, viewing, patience_of(settings), fresh)


def _asking_github(settings: Settings, store: Store, clock: Clock) -> Fresh | None:
    """Imported here: whoever does not ask GitHub does not load what asks it."""
    from holdfast.entrypoints.github_loops import FreshRuns, github_sweeps, is_configured

    sweeps = github_sweeps(settings, store, clock, "asked") if is_configured(settings) else None
    return FreshRuns(sweeps) if sweeps else None
