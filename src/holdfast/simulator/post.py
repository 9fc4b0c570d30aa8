"""GitHub's post in a run of the simulator: each webhook is a process, and fares as the faults of the seed say."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from random import Random
from typing import Final

from holdfast.simulator.chance import drawn
from holdfast.simulator.faults import Faults, Kind
from holdfast.simulator.github import SimulatedGitHub
from holdfast.simulator.github_objects import GitHubHabits, Sent
from holdfast.simulator.job_plans import GitHubPlan
from holdfast.simulator.timeline import Timeline

# The numbers of these processes begin here, far from those of the cluster's.
HOOKS: Final = 1 << 40
TIMEOUT_SECONDS: Final = 10  # so long GitHub waits for an answer
_ATTEMPTS_MOST: Final = 1024
_LATE_SECONDS: Final = 400
_TWICE_SECONDS: Final = 90


@dataclass
class Attempt:
    """One attempt to deliver a webhook. It is answered once: after that GitHub listens no more."""

    name: str
    number: int
    sent: Sent
    headers: Mapping[str, str]
    is_redelivery: bool
    is_answered: bool = False


class PostedGitHub(SimulatedGitHub):
    """Deliveries are handed to `take`, which sees to it that `answered` hears of their end."""

    def __init__(
        self, timeline: Timeline, seed: int, faults: Faults, plan: GitHubPlan, sign: Callable[[bytes], str]
    ) -> None:
        habits = GitHubHabits(calls_per_hour=plan.calls_per_hour)
        # Its own chance is never asked: what happens to a webhook is drawn by its name.
        super().__init__(timeline, Random(seed), sign, lambda _headers, _body: 0, habits)  # noqa: S311
        self._seed = seed
        self._faults = faults
        self._plan = plan
        self.take: Callable[[Attempt], None] = lambda _: None
        self.say: Callable[[str], None] = lambda _: None
        self.delivered = 0

    def heal(self) -> None:
        self.habits = GitHubHabits()

    def _post(self, sent: Sent) -> None:
        name, number = f"hook-{sent.number}", HOOKS + sent.number * _ATTEMPTS_MOST
        late = self._faults.befalls(Kind.HOOK_LATE, name, number)
        delay = self._delay_of(sent) + (late * _LATE_SECONDS if late is not None else 0.0)
        self._timeline.after(delay, partial(self._attempt, sent))
        again = self._faults.befalls(Kind.HOOK_TWICE, name, number)
        if again is not None:
            self._timeline.after(1 + again * _TWICE_SECONDS, partial(self._attempt, sent, is_redelivery=True))

    def _send_again(self, sent: Sent) -> None:
        self._timeline.after(self._delay_of(sent), partial(self._attempt, sent, is_redelivery=True))

    def _delay_of(self, sent: Sent) -> float:
        """Up to two seconds, so that some overtake others."""
        return 0.2 + 1.8 * drawn(self._seed, 6, sent.number, sent.attempts)

    def _attempt(self, sent: Sent, *, is_redelivery: bool = False) -> None:
        sent.attempts += 1
        name = f"hook-{sent.number}" + (f".{sent.attempts}" if sent.attempts > 1 else "")
        number = HOOKS + sent.number * _ATTEMPTS_MOST + sent.attempts
        about = f"{sent.event} {sent.action} of {sent.job.id if sent.job else sent.run.id}"
        if name in self._plan.lost or self._faults.befalls(Kind.HOOK_LOST, name, number) is not None:
            self.say(f"{name} is lost: {about}")
            self._note(sent, 0, is_redelivery=is_redelivery)
            return
        self.say(f"{name} is sent: {about}")
        attempt = Attempt(name, number, sent, self._headers(sent), is_redelivery)
        self.delivered += 1
        self._timeline.after(TIMEOUT_SECONDS, partial(self.answered, attempt, 0))
        self.take(attempt)

    def answered(self, attempt: Attempt, status: int) -> None:
        if not attempt.is_answered:
            attempt.is_answered = True
            self._note(attempt.sent, status, is_redelivery=attempt.is_redelivery)
