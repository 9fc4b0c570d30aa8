"""Rows and lines for `holdfast jobs`, `runs`, `deployments` and `cost`."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import click

from holdfast.cli.terminal.colours import Style, job_style
from holdfast.cli.terminal.layout import Cell
from holdfast.cli.terminal.output import print_table, print_words
from holdfast.cli.tick_rows import to_seconds
from holdfast.kernel.instants import Instant
from holdfast.views.conclusion_words import conclusion_counts

if TYPE_CHECKING:
    from msgspec import Struct

    from holdfast.jobs.read.item_views import JobEventView, JobView
    from holdfast.views.job_types import Gathered, JobGroup, JobStats, ListPage, Percentiles, StuckJob


def echo_more(answer: ListPage[Any] | Gathered) -> None:
    """On stderr, so that a pipe gets the table alone."""
    if answer.cursor is not None:
        click.echo(f"{answer.examined} examined; for the next page: --cursor {answer.cursor}", err=True)


def job_row(job: JobView) -> list[object]:
    return [job.job_id, _status(job.conclusion or job.status or ""), job.created_at, where(job)]


def stuck_row(job: StuckJob) -> list[object]:
    there = Cell(seconds(job.seconds_there), Style.BAD)
    return [job.job_id, _status(job.status or ""), there, seconds(job.limit_seconds), where(job)]


def _status(word: str) -> Cell:
    return Cell(word, job_style(word))


def where(job: JobView) -> str:
    # One cell, and the last one: a table wraps only its last column.
    return f"{job.repo_full_name or '?'}: {job.workflow_name or '?'} / {job.job_name or '?'}"


def attribute_rows(answer: Struct, *, without: str = "") -> list[list[object]]:
    """The attributes that have a value, by their names in JSON."""
    from holdfast.views.plain_json import json_object

    found = json_object(answer)
    return [
        [name, _value(name, value)] for name, value in found.items() if name != without and value not in (None, [], {})
    ]


def _value(name: str, value: object) -> Cell:
    if name == "ttl" and isinstance(value, int):
        return Cell(f"{value}: expires at {Instant.from_epoch_seconds(value).iso_seconds()}")
    text = words(value)
    return _status(text) if name in ("status", "conclusion") else Cell(text)


def words(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list):
        return ", ".join(words(element) for element in value)
    if isinstance(value, dict):
        return ", ".join(f"{name} {words(element)}" for name, element in value.items() if element is not None)
    return value if isinstance(value, str) else json.dumps(value)


def event_row(event: JobEventView) -> list[object]:
    """Entries of an older deployment may lack their type and the number of deliveries."""
    changes = [
        f"{name}: {words(change.before) if change.before is not None else 'none'} → {words(change.after)}"
        for name, change in (event.changes or {}).items()
    ]
    what = "; ".join(changes) or ("unknown (expired)" if event.changes_lost else "nothing")
    return [event.timestamp, event.event_type or "", event.deliveries or "", what]


def echo_stats(answer: JobStats) -> None:
    """Statistics of all jobs first, then of each group; percentiles are p50/p95/p99."""
    repo = f" of {answer.repo}" if answer.repo else ""
    span = f"from {to_seconds(answer.since)} to {to_seconds(answer.until)}"
    print_words(f"{answer.jobs} jobs{repo} {span}; times are p50/p95/p99", Style.TITLE)
    groups = [answer.total, *answer.items]
    print_table(
        ["JOBS", "SUCCESS", "RUN TIME", "QUEUE TIME", "WORKFLOW / JOB"], [_group_row(group) for group in groups]
    )
    if set(answer.pools) - {"none"}:
        rows = [[pool.jobs, pool.running, percent(pool.utilisation), name] for name, pool in answer.pools.items()]
        print_table(["JOBS", "RUNNING", "IN USE", "POOL"], rows)
    if answer.days:
        print_table(["DAY", "JOBS"], [[day, conclusion_counts(counts)] for day, counts in answer.days.items()])
    echo_counted(answer)


def echo_counted(answer: Gathered) -> None:
    """As of when jobs that have ended are counted, and what is not known."""
    if answer.counted_at is not None:
        print_words(f"jobs that have ended: as of {to_seconds(answer.counted_at)}; percentiles are within 1.6 %")
    if answer.unknown_days:
        first, last = answer.unknown_days[0], answer.unknown_days[-1]
        days = f"{len(answer.unknown_days)} days, {first} to {last}" if first != last else first
        print_words(f"not counted yet, and unknown: {days}", Style.WARNING)
    for note in answer.notes:
        print_words(note)


def _group_row(group: JobGroup) -> list[object]:
    spreads = (_spread(group.run_seconds), _spread(group.queue_seconds))
    return [group.jobs, percent(group.success_rate), *spreads, group.name]


def _spread(found: Percentiles) -> str:
    return "/".join("-" if value is None else seconds(value) for value in (found.p50, found.p95, found.p99))


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def seconds(count: float) -> str:
    """A duration for people: 45s, 12m, 6.5h, 3d."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return f"{count:.1f}".removesuffix(".0") + "s"
