"""Jobs for people: rows that fit a terminal, and lines that say whether there is more."""

import json
from collections.abc import Mapping
from typing import Any

import click

from holdfast.cli.colours import Style, of_job
from holdfast.cli.layout import Cell
from holdfast.cli.output import print_table, print_words
from holdfast.cli.tick_words import to_seconds
from holdfast.kernel.instants import Instant


def echo_more(answer: Mapping[str, Any]) -> None:
    """On stderr, so that a pipe gets the table alone."""
    if answer["cursor"] is not None:
        click.echo(f"{answer['examined']} examined; there is more: --cursor {answer['cursor']}", err=True)


def job_row(job: Mapping[str, Any]) -> list[object]:
    return [job["job_id"], _status(job["conclusion"] or job["status"]), job["created_at"], where(job)]


def stuck_row(job: Mapping[str, Any]) -> list[object]:
    there = Cell(seconds(job["seconds_there"]), Style.BAD)
    return [job["job_id"], _status(job["status"]), there, seconds(job["limit_seconds"]), where(job)]


def _status(word: str) -> Cell:
    return Cell(word, of_job(word))


def where(job: Mapping[str, Any]) -> str:
    # In one cell, the last one: it is the cell that a table may wrap.
    return f"{job['repo_full_name'] or '?'}: {job['workflow_name'] or '?'} / {job['job_name'] or '?'}"


def attribute_rows(answer: Mapping[str, Any]) -> list[list[object]]:
    """What is known; the rest is not shown."""
    return [[name, _value(name, value)] for name, value in answer.items() if value not in (None, [], {})]


def _value(name: str, value: object) -> Cell:
    if name == "ttl" and isinstance(value, int):
        return Cell(f"{value}: kept until {Instant.from_epoch_seconds(value).iso_seconds()}")
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


def event_row(event: Mapping[str, Any]) -> list[object]:
    told = f"{event['deliveries']} times" if event["deliveries"] > 1 else "once"
    changes = [
        f"{name}: {words(change['from']) if change['from'] is not None else 'nothing'} → {words(change['to'])}"
        for name, change in event.get("changes", {}).items()
    ]
    return [event["timestamp"], event["event_type"], told, "; ".join(changes) or _unchanged(event)]


def _unchanged(event: Mapping[str, Any]) -> str:
    return "no longer known" if event.get("changes_lost") else "nothing"


def echo_stats(answer: Mapping[str, Any]) -> None:
    """The figures of all jobs first, then of each; percentiles are p50/p95/p99."""
    repo = f" of {answer['repo']}" if answer["repo"] else ""
    span = f"from {to_seconds(answer['since'])} to {to_seconds(answer['until'])}"
    print_words(f"{answer['jobs']} jobs{repo} {span}; times are p50/p95/p99", Style.TITLE)
    groups = [answer["total"], *answer["items"]]
    print_table(["JOBS", "SUCCESS", "RUNS FOR", "QUEUED FOR", "WORKFLOW / JOB"], [_group_row(one) for one in groups])
    if set(answer["pools"]) - {"none"}:
        rows = [
            [pool["jobs"], pool["running"], percent(pool["utilisation"]), name]
            for name, pool in answer["pools"].items()
        ]
        print_table(["JOBS", "RUNNING", "IN USE", "POOL"], rows)
    if answer["days"]:
        print_table(["DAY", "JOBS"], [[day, words(counts)] for day, counts in answer["days"].items()])
    echo_more(answer)


def _group_row(group: Mapping[str, Any]) -> list[object]:
    spreads = (_spread(group["run_seconds"]), _spread(group["queue_seconds"]))
    return [group["jobs"], percent(group["success_rate"]), *spreads, group["name"]]


def _spread(percentiles: Mapping[str, float | None]) -> str:
    return "/".join("-" if value is None else seconds(value) for value in percentiles.values())


def percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def seconds(count: float) -> str:
    """As people say it: 45s, 12m, 6.5h, 3d."""
    for unit, size in (("d", 86_400), ("h", 3600), ("m", 60)):
        if count >= size:
            return f"{count / size:.1f}".removesuffix(".0") + unit
    return f"{count:.1f}".removesuffix(".0") + "s"
