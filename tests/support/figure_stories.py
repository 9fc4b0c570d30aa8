"""Lives of jobs for the tests of figures, and figures made of whole items, which counted ones are compared with."""

from collections import defaultdict
from collections.abc import Iterable
from dataclasses import dataclass

from holdfast.jobs.figures.contribution import contribution, group_of, team_of
from holdfast.jobs.figures.counting import Counting, PassResult
from holdfast.jobs.figures.reading import CountedFigures, counted_figures
from holdfast.jobs.figures.totals import Figures
from holdfast.jobs.intake.internal_events import InternalEvent, InternalType
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.ids import InstallationId, InstanceId, JobId
from holdfast.kernel.instants import Instant
from holdfast.ports.clock import Clock
from holdfast.ports.store import Item, Store
from holdfast.ports.store.tables import JOBS
from tests.payloads import CREATED, INSTALLATION_ID, delivery, job_payload
from tests.support.job_deliveries import Said, say

INSTALLATION = InstallationId(INSTALLATION_ID)


@dataclass(frozen=True, slots=True)
class Life:
    """A job's life. It is created `created` seconds after `base`, and ends a minute later."""

    number: int
    created: int = 0
    conclusion: str = "success"
    job_name: str = "test"
    is_gated: bool = False
    is_interrupted: bool = False
    is_stolen: bool = False
    has_ended: bool = True
    base: Instant = CREATED

    @property
    def key(self) -> JobKey:
        return JobKey(INSTALLATION, JobId(self.number))

    @property
    def begin(self) -> Instant:
        return self.base.plus(self.created)

    def events(self) -> list[Said]:
        gate = [self._job("waiting", 1)] if self.is_gated else []
        found = [self._job("queued", 0.4), *gate]
        found += [self._job("queued", 5)] if self.is_gated else []
        found += self._attempt(1, 6)
        if self.is_interrupted:
            found += [self._machine(InternalType.INTERRUPTED, 8, 1), *self._attempt(2, 9)]
        found.append(self._job("in_progress", 20))
        if self.has_ended:
            found += [
                self._job("completed", 60),
                self._machine(InternalType.TERMINATED, 70, 2 if self.is_interrupted else 1),
            ]
        return found

    def _attempt(self, attempt: int, seconds: float) -> list[Said]:
        return [
            self._machine(InternalType.SCHEDULED, seconds, attempt),
            self._machine(InternalType.ATTACHED, seconds + 1, attempt),
        ]

    def _machine(self, kind: InternalType, seconds: float, attempt: int) -> InternalEvent:
        instance = InstanceId(f"i-{self.number * 10 + attempt:017x}")
        plan = {
            "instance_type": "m7i.xlarge" if attempt == 1 else "c7i.large",
            "instance_lifecycle": "spot" if self.number % 2 else "on-demand",
            "pool_name": f"pool-{self.number % 3}",
            "region": "us-east-1",
        }
        if self.number % 4 == 1:
            plan["spot_price_usd_per_hour"] = "0.0417"
        attributes = plan if kind is InternalType.SCHEDULED else {}
        named = None if kind is InternalType.SCHEDULED else instance
        return InternalEvent(self.key, kind, self.begin.plus(seconds), attempt, named, attributes)

    def _job(self, action: str, seconds: float) -> Said:
        attempt = 9 if self.is_stolen else 2 if self.is_interrupted else 1
        fields: dict[str, object] = {"created_at": self.begin.iso_seconds(), "name": self.job_name}
        if action in ("in_progress", "completed"):
            fields["runner_name"] = f"runs-on--i-{self.number * 10 + attempt:017x}--x"
        at = self.begin.plus(seconds)
        started = self.begin.plus(20) if action in ("in_progress", "completed") else None
        conclusion = self.conclusion if action == "completed" else None
        payload = job_payload(
            action,
            at=at,
            job_id=self.number,
            started=started,
            conclusion=conclusion,
            **fields,  # type: ignore[arg-type]
        )
        return delivery("workflow_job", payload, at, self.number * 100 + int(seconds))


def tell(store: Store, clock: Clock, said: Iterable[Said]) -> None:
    tracker = Tracker(store, clock, "here")
    for each in said:
        say(tracker, each)


def true_figures(store: Store, lives: Iterable[Life]) -> dict[str, Figures]:
    """The figures of the jobs that have ended, made of their whole items."""
    items = store.batch_get(JOBS, [life.key.item for life in lives], consistent=True)
    return figures_by_day(item for item in items if item is not None and item.get("status") == "completed")


def figures_by_day(items: Iterable[Item], team_property: str = "team") -> dict[str, Figures]:
    found: dict[str, Figures] = defaultdict(Figures)
    for item in items:
        found[item["created_at"][:10]].add(group_of(item, team_of(item, team_property)), contribution(item))
    return dict(sorted(found.items()))


def count_until_done(counting: Counting, most: int = 200) -> PassResult:
    for _ in range(most):
        result = counting.run_pass()
        if not result.is_behind:
            return result
    raise AssertionError("the count never ends")


def read_figures(store: Store, clock: Clock, repository: str | None = None, days: int = 30) -> CountedFigures:
    now = clock.now()
    since = Instant.from_iso(f"{now.plus(-days * 86_400).date()}T00:00:00Z")
    return counted_figures(store, INSTALLATION, since, now, now, repository)
