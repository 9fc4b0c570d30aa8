"""The calendar of an installation, as it is stored."""

from holdfast.jobs.figures.calendar import Calendar, OpenHour, hour_named, hour_text
from holdfast.jobs.figures.slices import is_version, partition_of
from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.store import Item, Key, Store
from holdfast.ports.store.tables import LOGS

CALENDAR: str = "calendar"


def read_calendar(store: Store, installation: InstallationId, *, consistent: bool = True) -> Calendar | None:
    found = store.get(LOGS, Key(partition_of(installation), CALENDAR), consistent=consistent)
    return None if found is None else _calendar(found)


def put_calendar(store: Store, installation: InstallationId, calendar: Calendar, known_version: int) -> None:
    """WriteConflict if another process has put one since it was read. It never expires."""
    item = {
        "pk": partition_of(installation),
        "sk": CALENDAR,
        "v": calendar.version,
        "passed": calendar.passed.iso(),
        "frontier": hour_text(calendar.frontier),
        "reached": hour_text(calendar.reached),
        "open": {hour_text(hour): [each.digest, each.has_changed] for hour, each in calendar.open.items()},
    }
    store.put(LOGS, item, is_version(known_version, calendar.passed))


def _calendar(item: Item) -> Calendar:
    return Calendar(
        passed=Instant.from_iso(item["passed"]),
        frontier=hour_named(item["frontier"]),
        reached=hour_named(item["reached"]),
        open={hour_named(hour): OpenHour(digest, changed) for hour, (digest, changed) in item["open"].items()},
        version=int(item["v"]),
    )
