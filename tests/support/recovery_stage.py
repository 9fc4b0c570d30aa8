"""GitHub's delivery log and the jobs recovered from it."""

import random
from collections.abc import Mapping

from holdfast.adapters.memory import memory_store
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets, verified_delivery
from holdfast.jobs.model.keys import JobKey
from holdfast.jobs.read import queries
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.lost_webhooks import sweep_deliveries
from holdfast.kernel.ids import InstallationId
from holdfast.simulator.world.timeline import Timeline
from tests.payloads import CREATED
from tests.support.simulated_github import GitHubHabits, UnreliableGitHub

INSTALLATION = InstallationId(7)
SECRETS = WebhookSecrets.from_text("secret")
APP = 42


class Stage:
    """A tracker, and a GitHub that sends to it."""

    def __init__(self, seed: int = 1, habits: GitHubHabits | None = None) -> None:
        self.clock = Timeline(CREATED)
        self.store = memory_store(self.clock)
        self.tracker = Tracker(self.store, self.clock, "here")
        self.answers: list[int] = []
        self.is_up = True
        self.github = UnreliableGitHub(self.clock, random.Random(seed), SECRETS.signature_of, self.deliver, habits)

    def deliver(self, headers: Mapping[str, str], body: bytes) -> int:
        if not self.is_up:
            return 503
        self.tracker.receive(verified_delivery(headers, body, SECRETS))
        return 200

    def sweep(self, calls: int = 1000) -> list[int]:
        swept = sweep_deliveries(self.store, self.github, APP, self.clock.now(), CallBudget(calls))
        self.clock.sleep(60)
        return swept.redelivered

    def status(self, job: int) -> str | None:
        found = queries.job(self.store, JobKey(INSTALLATION, job))  # type: ignore[arg-type]
        return found.get("status") if found else None
