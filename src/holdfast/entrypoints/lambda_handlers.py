"""What Lambda calls: `scheduled_tick` every minute, `ec2_event` for events of EC2's, `github_webhook` for webhooks,
`github_sweep` every few minutes.

Ticks end well before Lambda would stop them. What is built stays for the next call of the same process; nothing in it
is remembered that matters.
"""

import json
import os
from collections.abc import Mapping
from contextlib import ExitStack
from dataclasses import dataclass
from functools import cache
from typing import Any, Final, Protocol

from holdfast.adapters.system_clock import SystemClock
from holdfast.cluster.events import WORTH_A_LOOK, SpotEvent, spot_event, take_event
from holdfast.cluster.loop import Ran, Watchers, run_ticks
from holdfast.cluster.tick import Cluster
from holdfast.entrypoints.github_loops import NOT_ASKED, GitHubSweeps, github_sweeps
from holdfast.entrypoints.job_wiring import oldest_webhook_seconds
from holdfast.entrypoints.logs import start_logging
from holdfast.entrypoints.migrating import open_migration
from holdfast.entrypoints.reports import Reports
from holdfast.entrypoints.webhooks import Receiver, lambda_request, take_webhook, webhook_secrets
from holdfast.entrypoints.wiring import open_store
from holdfast.entrypoints.world import notifiers, open_world
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.webhook import WebhookSecrets
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import nonce
from holdfast.kernel.settings import load_settings

# The schedule calls once a minute: the next call goes on from here.
SECONDS_MOST: Final = 55.0
# What is left of Lambda's time when the last tick ends, for the answer and the log.
SPARE_SECONDS: Final = 2.0
# A call to GitHub takes no longer, whatever happens.
CALL_SECONDS: Final = 13.0


class Context(Protocol):
    """What Lambda tells of a call, as far as it is used."""

    aws_request_id: str

    def get_remaining_time_in_millis(self) -> int: ...


@dataclass(frozen=True)
class _Process:
    """What lives as long as the process."""

    cluster: Cluster
    reports: Reports

    def run(self, context: Context) -> dict[str, Any]:
        seconds = min(SECONDS_MOST, context.get_remaining_time_in_millis() / 1000 - SPARE_SECONDS)
        watchers = Watchers(self.reports.ticked, self.reports.failed)
        with self.reports.of_errors():
            return _shown(run_ticks(self.cluster, context.aws_request_id, seconds, watchers))

    def take(self, told: SpotEvent) -> str:
        with self.reports.of_errors():
            return take_event(self.cluster, told)


def scheduled_tick(_event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """EventBridge's schedule: a tick, and a few more while something is under way."""
    return _process().run(context)


def ec2_event(event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """An event of EC2's: noted, and acted on at once. An error lets Lambda deliver it again."""
    process = _process()
    try:
        told = spot_event(event)
    except BadRequest as error:
        # Again and again it would be the same: it is told in the log and in the answer, and is over.
        return {"event": "unusable", "problem": str(error)}
    if told is None:
        return {"event": "ignored"}
    outcome = process.take(told)
    if outcome not in WORTH_A_LOOK:
        return {"event": outcome, "instance": told.instance}
    return {"event": outcome, "instance": told.instance, **process.run(context)}


def github_webhook(event: Mapping[str, Any], _context: Context) -> dict[str, Any]:
    """A webhook of GitHub's, by a function URL or an API Gateway."""
    known, tracker = _webhook_process()
    outcome = take_webhook(*lambda_request(event), known, tracker)
    headers = {"content-type": "application/json", "cache-control": "no-store"}
    if outcome.retry_after_seconds is not None:
        headers["retry-after"] = str(outcome.retry_after_seconds)
    return {"statusCode": outcome.status, "headers": headers, "body": json.dumps(outcome.body)}


def github_sweep(_event: Mapping[str, Any], context: Context) -> dict[str, Any]:
    """A schedule's, every few minutes: lost webhooks are found, and what spot took down is run again."""
    found, calls = _github_process()
    if found is None:
        return {"stopped": NOT_ASKED}
    return found.sweep(calls, context.get_remaining_time_in_millis() / 1000 - CALL_SECONDS - SPARE_SECONDS).shown()


@cache
def _github_process() -> tuple[GitHubSweeps | None, int]:
    settings = load_settings(os.environ)
    start_logging(settings)
    clock = SystemClock()
    found = github_sweeps(settings, open_store(settings, clock), clock, f"lambda-{nonce()}")
    return found, settings.github_sweep_calls


@cache
def _webhook_process() -> tuple[WebhookSecrets, Receiver]:
    settings = load_settings(os.environ)
    start_logging(settings)
    clock = SystemClock()
    known = webhook_secrets(settings)
    store = open_store(settings, clock)
    tracker = Tracker(store, clock, f"lambda-{nonce()}", oldest_webhook_seconds(settings))
    migrating = open_migration(settings, store, clock)
    return known, migrating.receiver(tracker) if migrating else tracker


@cache
def _process() -> _Process:
    settings = load_settings(os.environ)
    start_logging(settings)
    opened = ExitStack()  # closed by the end of the process alone
    world = opened.enter_context(open_world(settings))
    cluster = world.cluster(settings, open_store(settings, world.clock))
    return _Process(cluster, Reports(cluster, notifiers(settings, world.clock)))


def _shown(ran: Ran) -> dict[str, Any]:
    done = [] if ran.last is None else [step.shown() for step in ran.last.done]
    return {"ticks": ran.ticks, "stopped": ran.stopped, "lastSteps": done}
