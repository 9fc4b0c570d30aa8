"""What single values cannot show: settings that are good each by itself, and wrong together."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings

_TABLES = ("state_table", "logs_table", "jobs_table", "job_events_table", "runs_table", "deployments_table")


def contradictions(settings: "Settings") -> Iterator[str]:
    """A line for each."""
    s = settings
    if s.min_workers > s.max_workers:
        yield (
            f"MIN_WORKERS={s.min_workers} is more than MAX_WORKERS={s.max_workers}; "
            f"for example MIN_WORKERS={s.max_workers}"
        )
    if s.cpu_down >= s.cpu_up:
        yield (
            f"CPU_DOWN={s.cpu_down:g} is not below CPU_UP={s.cpu_up:g}: the cluster would go up and down for ever; "
            f"for example CPU_DOWN={s.cpu_up / 2:g}"
        )
    first: dict[str, str] = {}
    for attribute in _TABLES:
        name = getattr(s, attribute)
        if name in first:
            yield (
                f"{attribute.upper()}={name} is also the name in {first[name]}: each table needs a name of its own; "
                f"for example {attribute.upper()}={name}-2"
            )
        first.setdefault(name, attribute.upper())
