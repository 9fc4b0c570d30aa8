"""GitHub in a run of the simulator: each delivery attempt is a process, and meets the faults of the seed."""

import json
import uuid
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from holdfast.kernel.ids import InstallationId
from holdfast.kernel.instants import Instant
from holdfast.ports.github import DeliveryRecord
from holdfast.simulator.proof.faults import FaultKind, Faults
from holdfast.simulator.proof.github.plans import GitHubPlan
from holdfast.simulator.world.chance import drawn
from holdfast.simulator.world.github import CALLS_PER_HOUR, WEBHOOKS_MOST, SimulatedGitHub, ordinals_of
from holdfast.simulator.world.github_objects import JobPlan, RunDetails, SimRun, Webhook
from holdfast.simulator.world.timeline import Timeline

# The numbers of these processes begin here, far from those of the cluster's.
HOOKS: Final = 1 << 40
TIMEOUT_SECONDS: Final = 10  # after which GitHub gives up on an answer
_ATTEMPTS_MOST: Final = 1024
_LATE_SECONDS: Final = 400
_TWICE_SECONDS: Final = 90
_HOURS_LATE_SECONDS: Final = 4500  # before the end of the run: what never arrives is another fault
_LOG_LATE_SECONDS: Final = 600
_OWNER_KNOWN_SECONDS: Final = 60
_ORGANISATION: Final = 77  # the second target of hooks


@dataclass
class DeliveryAttempt:
    """One attempt to deliver a webhook. Only its first answer counts."""

    name: str
    number: int
    webhook: Webhook
    headers: Mapping[str, str]
    is_redelivery: bool
    is_answered: bool = False


class FaultyGitHub(SimulatedGitHub):
    """Starts each attempt with `on_attempt`, which must call `answered` when it ends. `record` adds to the story."""

    def __init__(
        self, timeline: Timeline, seed: int, faults: Faults, plan: GitHubPlan, sign: Callable[[bytes], str]
    ) -> None:
        super().__init__(timeline, calls_per_hour=plan.calls_per_hour)
        self._seed = seed
        self._faults = faults
        self._plan = plan
        self._sign = sign
        self.on_attempt: Callable[[DeliveryAttempt], None] = lambda _: None
        self.record: Callable[[str], None] = lambda _: None
        self.delivered = 0
        self._ordinals: dict[int, int] = {}  # how many a run takes, by its first
        self._known_owners: dict[InstallationId, Instant] = {}  # whose first webhook was acknowledged, and when

    def start_run(
        self,
        installation: InstallationId,
        repository: str,
        jobs: Sequence[JobPlan],
        later: Sequence[Sequence[JobPlan]] = (),
        details: RunDetails | None = None,
    ) -> SimRun:
        self._ordinals[self.runs_started] = ordinals_of(len(jobs))
        return super().start_run(installation, repository, jobs, later, details)

    def heal(self) -> None:
        self.calls_per_hour = CALLS_PER_HOUR

    def send(self, webhook: Webhook) -> None:
        name, number = f"hook-{webhook.number}", HOOKS + webhook.number * _ATTEMPTS_MOST
        if name in self._plan.unsent:
            self.record(f"{name} is never sent: {webhook.event} {webhook.action}")
            return
        self._send_one(webhook)
        # The organisation's hook came later than the App: which installation the owner has is known by then.
        known = self._known_owners.get(webhook.run.installation)
        if known is None or self._timeline.now().seconds_since(known) < _OWNER_KNOWN_SECONDS:
            return
        another = self._faults.draw(FaultKind.HOOK_TARGETS, name, number)
        if another is not None:
            offset = self._ordinals[webhook.run.ordinal] * WEBHOOKS_MOST // 2
            self._send_one(_of_another_hook(webhook, offset, names_installation=another < 0.5))

    def _send_one(self, webhook: Webhook) -> None:
        name, number = f"hook-{webhook.number}", HOOKS + webhook.number * _ATTEMPTS_MOST
        late = self._faults.draw(FaultKind.HOOK_LATE, name, number)
        delay = self._delay_of(webhook) + (late * _LATE_SECONDS if late is not None else 0.0)
        hours_late = self._faults.draw(FaultKind.HOOK_HOURS_LATE, name, number)
        if hours_late is not None:
            delay += 600 + hours_late * _HOURS_LATE_SECONDS
        self._timeline.after(delay, partial(self._attempt, webhook))
        again = self._faults.draw(FaultKind.HOOK_TWICE, name, number)
        if again is not None:
            self._timeline.after(1 + again * _TWICE_SECONDS, partial(self._attempt, webhook, is_redelivery=True))

    def send_again(self, webhook: Webhook) -> None:
        self._timeline.after(self._delay_of(webhook), partial(self._attempt, webhook, is_redelivery=True))

    def answered(self, attempt: DeliveryAttempt, status: int) -> None:
        if not attempt.is_answered:
            attempt.is_answered = True
            if 200 <= status < 300:
                self._known_owners.setdefault(attempt.webhook.run.installation, self._timeline.now())
            self.log_delivery(attempt.webhook, status, is_redelivery=attempt.is_redelivery)

    def add_to_log(self, record: DeliveryRecord, webhook: Webhook) -> None:
        """Late, perhaps: then records with higher ids are in the log before it. A success makes no difference."""
        name, number = f"hook-{webhook.number}", HOOKS + webhook.number * _ATTEMPTS_MOST + webhook.attempts
        late = None if record.is_success else self._faults.draw(FaultKind.LOG_LATE, name, number)
        if late is None:
            super().add_to_log(record, webhook)
            return
        self.record(f"{name} is in the delivery log {late * _LOG_LATE_SECONDS:.0f} s late")
        self._timeline.after(late * _LOG_LATE_SECONDS, partial(super().add_to_log, record, webhook))

    def _delay_of(self, webhook: Webhook) -> float:
        """Up to two seconds, so that some webhooks overtake others."""
        return 0.2 + 1.8 * drawn(self._seed, 6, webhook.number, webhook.attempts)

    def _attempt(self, webhook: Webhook, *, is_redelivery: bool = False) -> None:
        webhook.attempts += 1
        name = f"hook-{webhook.number}" + (f".{webhook.attempts}" if webhook.attempts > 1 else "")
        number = HOOKS + webhook.number * _ATTEMPTS_MOST + webhook.attempts
        about = f"{webhook.event} {webhook.action} of {webhook.job.id if webhook.job else webhook.run.id}"
        if name in self._plan.lost or self._faults.draw(FaultKind.HOOK_LOST, name, number) is not None:
            self.record(f"{name} is lost: {about}")
            self.log_delivery(webhook, 0, is_redelivery=is_redelivery)
            return
        self.record(f"{name} is sent: {about}")
        headers = webhook.headers(self._sign(webhook.body))
        attempt = DeliveryAttempt(name, number, webhook, headers, is_redelivery)
        self.delivered += 1
        self._timeline.after(TIMEOUT_SECONDS, partial(self.answered, attempt, 0))
        self.on_attempt(attempt)


def _of_another_hook(webhook: Webhook, offset: int, *, names_installation: bool) -> Webhook:
    """The same event from another hook: in the same millisecond, under an id of its own.

    A hook of the organisation does not know the App's installation.
    """
    time_low, time_mid, time_high, clock_high, clock_low, node = uuid.UUID(webhook.guid).fields
    guid = str(uuid.UUID(fields=(time_low, time_mid, time_high, clock_high, clock_low, node ^ 1 << 40)))
    payload = json.loads(webhook.body)
    if not names_installation:
        del payload["installation"]
    return replace(
        webhook, number=webhook.number + offset, guid=guid, body=json.dumps(payload).encode(), target=_ORGANISATION
    )
