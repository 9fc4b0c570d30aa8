"""Finds runs that no webhook announced, by asking GitHub for the runs of each repository.

Polling starts from jobs that are known and have not ended. It cannot find a run of which nothing is known, or the next
`needs:` job of a run whose known jobs have all ended. A walk goes through the repositories of an installation; the
position is durable, so that every repository has its turn. A run is polled if what is stored differs from its status at
GitHub.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.model.keys import JobKey, RunKey
from holdfast.jobs.read.run_jobs import run_with_jobs
from holdfast.jobs.sweep.call_budget import CallBudget
from holdfast.jobs.sweep.live_run import record_run
from holdfast.jobs.sweep.polling import QUIET_SECONDS, PollResult, poll_run
from holdfast.kernel.ids import InstallationId, joined_key
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHub, GitHubRefused, GitHubUnavailable, RateLimited, RepositorySeen, RunSeen
from holdfast.ports.store import Item, Key, Store, set_all
from holdfast.ports.store.tables import RUNS, STATE

RECENT_SECONDS: Final = 3 * 86_400  # of runs that have ended; those that have not are found at any age
_ACTIVE: Final = ("in_progress", "queued", "waiting")
_PAGE: Final = 100
_PAGES_MOST: Final = 10  # GitHub returns at most 1,000 runs of a status


def walk_key(installation: InstallationId) -> Key:
    return Key(joined_key("github", "repositories", installation))


def walk_repositories(
    store: Store, github: GitHub, installation: InstallationId, now: Instant, budget: CallBudget, received_by: str
) -> PollResult:
    """Walk through one page of repositories, from where the last sweep stopped."""
    position = store.get(STATE, walk_key(installation)) or {}
    page = position.get("page", 1)
    if not budget.spend():
        return PollResult(0, [])
    repositories = github.repositories(installation, page)
    walk = _Walk(store, github, installation, now, budget, received_by)
    for number in range(_first(repositories, position.get("next", "")), len(repositories)):
        repository = repositories[number]
        if not repository.is_active:
            continue
        try:
            walk.visit(repository.name)
        except GitHubRefused as error:
            walk.refused = str(error)  # a repository without access does not stop the others
        except RateLimited:
            _save(store, installation, page, repository.name)
            raise
        except GitHubUnavailable:
            # Nor does one for which GitHub always fails: the next sweep begins after it.
            _save_after(store, installation, page, repositories, number)
            raise
        if budget.calls <= 0:
            _save(store, installation, page, repository.name)  # the budget may have ended within it
            break
    else:
        _save(store, installation, page + 1 if len(repositories) == _PAGE else 1, "")
    return PollResult(walk.polled, walk.found, walk.refused)


@dataclass
class _Walk:
    """What a walk needs, and what it has found so far."""

    store: Store
    github: GitHub
    installation: InstallationId
    now: Instant
    budget: CallBudget
    received_by: str
    found: list[JobKey] = field(default_factory=list)
    polled: int = 0
    refused: str = ""

    def visit(self, repository: str) -> None:
        """Poll the repository's runs of which webhooks were lost, until the budget ends."""
        seen = {RunKey(self.installation, run.run_id, run.run_attempt): run for run in self._runs(repository)}
        items = self.store.batch_get(RUNS, [key.item for key in seen], consistent=True) if seen else []
        for (key, run), item in zip(seen.items(), items, strict=True):
            if not is_unheard(run, self._counted(key, run, item), self.now):
                continue
            if not self.budget.spend():
                return
            self.polled += 1
            jobs = poll_run(self.store, self.github, key, repository, self.now, self.budget, self.received_by)
            self.found += jobs or ()
            if self.budget.calls > 0:  # else some of its jobs may be unlisted
                # After its jobs: a run that is stored as completed is not polled again.
                record_run(self.store, key, repository, run, self.now)

    def _counted(self, key: RunKey, run: RunSeen, item: Item | None) -> Item | None:
        """The run's item; with its open jobs, if those count."""
        counts = item is not None and "status" in item and run.status != "completed"
        return run_with_jobs(self.store, key) if counts else item

    def _runs(self, repository: str) -> Iterator[RunSeen]:
        """The newest runs; and all that have not ended, if there may be more."""
        newest = self.github.runs_of_repository(self.installation, repository) if self.budget.spend() else ()
        yield from newest
        if len(newest) < _PAGE:
            return
        for status in _ACTIVE:
            for page in range(1, _PAGES_MOST + 1):
                if not self.budget.spend():
                    return
                found = self.github.runs_of_repository(self.installation, repository, status, page)
                yield from found
                if len(found) < _PAGE:
                    break


def is_unheard(seen: RunSeen, item: Item | None, now: Instant) -> bool:
    """Whether webhooks of the run were lost. Those of the last minutes may still arrive."""
    is_over = seen.status == "completed"
    age = now.seconds_since(seen.updated_at)
    if item is None or "status" not in item:
        is_quiet = now.seconds_since(seen.created_at or seen.updated_at) > QUIET_SECONDS
        return is_quiet and not (is_over and age > RECENT_SECONDS)
    if age <= QUIET_SECONDS:
        return False
    # Polling lists the jobs of a run that has open ones. Without any, the next `needs:` job was not announced.
    return item["status"] != "completed" if is_over else not item.get("open")


def _first(repositories: Sequence[RepositorySeen], name: str) -> int:
    """By name: repositories are created and deleted, and a number would skip others."""
    return next((number for number, each in enumerate(repositories) if each.name == name), 0)


def _save_after(
    store: Store, installation: InstallationId, page: int, repositories: Sequence[RepositorySeen], number: int
) -> None:
    if number + 1 < len(repositories):
        _save(store, installation, page, repositories[number + 1].name)
    else:
        _save(store, installation, page + 1 if len(repositories) == _PAGE else 1, "")


def _save(store: Store, installation: InstallationId, page: int, following: str) -> None:
    store.update(STATE, walk_key(installation), set_all({"page": page, "next": following}))
