"""A GitHub whose deliveries are late, lost or repeated at random."""

import random
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial

from holdfast.simulator.world.github import CALLS_PER_HOUR, SimulatedGitHub
from holdfast.simulator.world.github_objects import Webhook
from holdfast.simulator.world.timeline import Timeline

Deliver = Callable[[Mapping[str, str], bytes], int]


@dataclass(frozen=True, slots=True)
class GitHubHabits:
    """How often deliveries are late, lost or repeated, as shares of all deliveries."""

    delay_seconds: tuple[float, float] = (0.2, 2.0)
    late_share: float = 0.0
    late_seconds: float = 300.0
    lost_share: float = 0.0
    repeated_share: float = 0.0
    calls_per_hour: int = CALLS_PER_HOUR


class UnreliableGitHub(SimulatedGitHub):
    """`deliver` takes headers and body, and returns the status code of the response; `sign` creates the signature."""

    def __init__(
        self,
        timeline: Timeline,
        chance: random.Random,
        sign: Callable[[bytes], str],
        deliver: Deliver,
        habits: GitHubHabits | None = None,
    ) -> None:
        self._habits = habits or GitHubHabits()
        super().__init__(timeline, calls_per_hour=self._habits.calls_per_hour)
        self._chance = chance
        self._sign = sign
        self.deliver = deliver

    def send(self, webhook: Webhook) -> None:
        self._timeline.after(self._delay(), partial(self._attempt, webhook))
        if self._chance.random() < self._habits.repeated_share:
            self.send_again(webhook)

    def send_again(self, webhook: Webhook) -> None:
        self._timeline.after(self._delay(), partial(self._attempt, webhook, is_redelivery=True))

    def _attempt(self, webhook: Webhook, *, is_redelivery: bool = False) -> None:
        is_lost = self._chance.random() < self._habits.lost_share
        status = 0 if is_lost else self.deliver(webhook.headers(self._sign(webhook.body)), webhook.body)
        self.log_delivery(webhook, status, is_redelivery=is_redelivery)

    def _delay(self) -> float:
        late = self._habits.late_seconds if self._chance.random() < self._habits.late_share else 0.0
        return self._chance.uniform(*self._habits.delay_seconds) + late * self._chance.random()
