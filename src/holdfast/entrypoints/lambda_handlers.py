"""The Lambda handlers: `scheduled_tick` every minute, `ec2_event` for EC2 events, `github_webhook` for webhooks,
`github_sweep` every few minutes.

Ticks end well before Lambda's time limit. Ports are reused by later invocations of the same process; no state is.
"""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

from holdfast.adapters.server_date import ServerTimes
from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.plan import TickResult
from holdfast.cluster.spot.events import WORTH_A_LOOK, take_event
from holdfast.cluster.tick import Cluster, run_ticks
from holdfast.control.clock_check import check_clocks
from holdfast.control.tick_loop import Ran, TickObservers
from holdfast.entrypoints.figure_counts import FigureCounter, figure_counter
from holdfast.entrypoints.github_loops import NO_GITHUB_ACCESS, github_sweeps
from holdfast.entrypoints.process_setup import start_logging, warn_of_mistyped
from holdfast.entrypoints.tick_reports import TickReports
from holdfast.entrypoints.webhook_receiver import WebhookReceiver, lambda_request, take_webhook, webhook_secrets
from holdfast.entrypoints.wiring.jobs import accepted_senders, oldest_webhook_seconds
from holdfast.entrypoints.wiring.migration import open_migration
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.entrypoints.wiring.world import notifiers, open_world
from holdfast.fleet.ec2_events import Ec2Event, parse_ec2_event
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.jobs.sweep.github_sweeps import GitHubSweeps
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import nonce
from holdfast.kernel.settings import load_settings
from holdfast.views.plain_json import json_object

# The schedule fires once a minute: the next invocation continues.
SECONDS_MOST: Final = 55.0
# Reserved at the end of Lambda's time for the answer and the log.
SPARE_SECONDS: Final = 2.0
# The longest a call to GitHub can take.
CALL_SECONDS: Final = 13.0
# Of a sweep's time: a third may be used to count jobs.
COUNTING_SHARE: Final = 3


class Context(Protocol):
    """The part of Lambda's context that we use."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int: ...


@dataclass(frozen=True)
class _Process:
    """What is kept between invocations of one process."""

    cluster: Cluster
    reports: TickReports

    def run(self, context: Context) -> dict[str, Any]:
        seconds = min(SECONDS_MOST, context.get_remaining_time_in_millis() / 1000 - SPARE_SECONDS)
        watchers = TickObservers(self.reports.ticked, self.reports.failed)
        with self.reports.reporting_errors():
            return _shown(run_ticks(self.cluster, context.aws_request_id, seconds, watchers))

    def take(self, event: Ec2Event) -> str:
        with self.reports.reporting_errors():
            return take_event(self.cluster, event)


def scheduled_tick(_event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """On EventBridge's schedule: one tick, and more while an action is in progress."""
    return _process().run(context)


def ec2_event(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """Record an EC2 event and act on it at once. After an error, Lambda delivers it again."""
    process = _process()
    try:
        parsed = parse_ec2_event(event)
    except BadRequest as error:
        # Redelivery would not help: report it in the answer and finish.
        return {"event": "unusable", "problem": str(error)}
    if parsed is None:
        return {"event": "ignored"}
    outcome = process.take(parsed)
    if outcome not in WORTH_A_LOOK:
        return {"event": outcome, "instance": parsed.instance}
    return {"event": outcome, "instance": parsed.instance, **process.run(context)}


def github_webhook(event: Mapping[str, Any], _context: Context) -> dict[str, Any]:
    """A GitHub webhook, from a function URL or API Gateway."""
    known, tracker = _webhook_process()
    outcome = take_webhook(*lambda_request(event), known, tracker)
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    if outcome.retry_after_seconds is not None:
        headers["retry-after"] = str(outcome.retry_after_seconds)
    return {"statusCode": outcome.status, "headers": headers, "body": json.dumps(json_object(outcome.body))}


def github_sweep(_event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """On a schedule: count the jobs that have ended, recover lost webhooks, and retry runs that spot interrupted."""
    found, calls, counter, times = _github_process()
    # First: counting takes seconds, and a sweep takes all the time that is left.
    figures = counter.count(context.get_remaining_time_in_millis() / 1000 / COUNTING_SHARE).shown()
    if found is None:
        return {"stopped": NO_GITHUB_ACCESS, "figures": figures}
    check_clocks(found.clock.now(), times.known())
    seconds = context.get_remaining_time_in_millis() / 1000 - CALL_SECONDS - SPARE_SECONDS
    return {**found.sweep(calls, seconds).shown(), "figures": figures}


@cache
def _github_process() -> tuple[GitHubSweeps | None, int, FigureCounter, ServerTimes]:
    settings = load_settings(os.environ)
    start_logging(settings)
    warn_of_mistyped(os.environ)
    clock, times = SystemClock(), ServerTimes()
    store = open_store(settings, clock, date=times.dynamodb)
    found = github_sweeps(settings, store, clock, f"lambda-{nonce()}", date=times.github)
    return found, settings.github_sweep_calls, figure_counter(settings, store, clock), times


@cache
def _webhook_process() -> tuple[WebhookSecrets, WebhookReceiver]:
    settings = load_settings(os.environ)
    start_logging(settings)
    warn_of_mistyped(os.environ)
    clock = SystemClock()
    known = webhook_secrets(settings)
    store = open_store(settings, clock)
    tracker = Tracker(store, clock, f"lambda-{nonce()}", oldest_webhook_seconds(settings), accepted_senders(settings))
    migrating = open_migration(settings, store, clock)
    return known, migrating.receiver(tracker) if migrating else tracker


@cache
def _process() -> _Process:
    settings = load_settings(os.environ)
    start_logging(settings)
    warn_of_mistyped(os.environ)
    opened = ExitStack()  # closed only by the end of the process
    world = opened.enter_context(open_world(settings))
    cluster = world.cluster(settings, open_store(settings, world.clock, date=world.times.dynamodb))
    return _Process(cluster, TickReports(cluster, notifiers(settings, world.clock)))


def _shown(ran: Ran[TickResult]) -> dict[str, Any]:
    done = [] if ran.last is None else [step.shown() for step in ran.last.done]
    return {"ticks": ran.ticks, "stopped": ran.stopped, "lastSteps": done}
