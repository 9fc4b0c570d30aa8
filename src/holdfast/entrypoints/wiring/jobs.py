"""Builds the job views from settings: limits for stuck jobs, prices, addresses, and a store to read."""

from collections.abc import Iterator
from contextlib import closing, contextmanager
from urllib.parse import urlsplit

from holdfast.entrypoints.wiring.migration import readable
from holdfast.entrypoints.wiring.prices import price_table
from holdfast.entrypoints.wiring.runners import runner_offer
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.entrypoints.wiring.world import world_clock
from holdfast.jobs.intake.senders import Senders
from holdfast.jobs.read.item_views import Viewing
from holdfast.jobs.read.stuck import StuckLimits
from holdfast.kernel.settings import Settings
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.views.job_views import JobViews
from holdfast.views.pending_deployments import Fresh


def stuck_limits(settings: Settings) -> StuckLimits:
    return StuckLimits(
        in_progress_seconds=settings.stuck_running_sec,
        queued_seconds=settings.stuck_queued_sec,
        scheduled_seconds=settings.stuck_scheduled_sec,
    )


def oldest_webhook_seconds(settings: Settings) -> float | None:
    """The simulated world has its own time, so webhooks of any age are accepted there."""
    return None if settings.holdfast_world == "sim" else settings.webhook_oldest_sec


def accepted_senders(settings: Settings) -> Senders:
    listed = settings.github_installations
    s = settings
    has_access = s.holdfast_world != "sim" and any((s.github_app_id, s.github_token_file, s.github_token_parameter))
    server = github_server(settings.github_api_url) if has_access else None
    return Senders(None if listed is None else frozenset(map(int, listed)), server)


def github_server(api_url: str) -> str | None:
    """The host of GitHub's web pages, which its webhooks name, as GitHub documents the URLs; None for any other."""
    parts = urlsplit(api_url.lower())
    if parts.netloc == "api.github.com":
        return "github.com"
    if parts.netloc.startswith("api.") and parts.netloc.endswith(".ghe.com"):
        return parts.netloc.removeprefix("api.")
    return parts.netloc if parts.path.rstrip("/") == "/api/v3" else None


def view_context(settings: Settings) -> Viewing:
    """GitHub's address, and prices."""
    return Viewing(price_table(settings).prices, settings.github_url, settings.team_property)


@contextmanager
def open_job_views(settings: Settings) -> Iterator[JobViews]:
    """Views of the store that HOLDFAST_STORE names, for reading beside a running process.

    On DynamoDB, refreshed runs are written back for other readers; a SQLite file has only one writer.
    """
    viewing, offer = view_context(settings), runner_offer(settings)
    with closing(open_store(settings, writable=False)) as store:
        clock = world_clock(settings)
        fresh = _run_refresher(settings, store, clock) if settings.holdfast_store.path is None else None
        reads = readable(settings, store, clock)
        yield JobViews(reads, clock, viewing, stuck_limits(settings), fresh, offer)


def _run_refresher(settings: Settings, store: Store, clock: Clock) -> Fresh | None:
    """Imports are local, so that processes without GitHub access do not load the adapters."""
    from holdfast.entrypoints.github_loops import RunRefresher, github_sweeps, is_configured

    sweeps = github_sweeps(settings, store, clock, "asked") if is_configured(settings) else None
    return RunRefresher(sweeps) if sweeps else None
