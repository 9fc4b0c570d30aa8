"""The keys of the tracker's items. Each includes the installation: two GitHub servers may use the same job ids."""

from functools import lru_cache
from typing import Final

from msgspec import Struct

from holdfast.kernel.ids import DeploymentId, InstallationId, JobId, RunId, joined_key
from holdfast.ports.store import Key

# Cached: a job's events use the same few keys. Typed: True is not 1.
_joined: Final = lru_cache(maxsize=4096, typed=True)(joined_key)
ONLY: Final = "v"  # the sort key of an item that has its partition to itself, or is the first of it
JOB_PREFIX: Final = "job#"


class JobKey(Struct, frozen=True, order=True):
    installation_id: InstallationId
    job_id: JobId

    @property
    def partition(self) -> str:
        return _joined(self.installation_id, self.job_id)

    @property
    def item(self) -> Key:
        return Key(self.partition, ONLY)

    def __str__(self) -> str:
        return self.partition


class RunKey(Struct, frozen=True, order=True):
    """One attempt of a run: attempts are never mixed."""

    installation_id: InstallationId
    run_id: RunId
    run_attempt: int

    @property
    def partition(self) -> str:
        return _joined(self.installation_id, self.run_id, self.run_attempt)

    @property
    def item(self) -> Key:
        return Key(self.partition, ONLY)

    def job_item(self, job: JobId) -> Key:
        """The key of the item that makes the job one of this run's."""
        return Key(self.partition, f"{JOB_PREFIX}{job}")

    def __str__(self) -> str:
        return self.partition


class DeploymentKey(Struct, frozen=True, order=True):
    installation_id: InstallationId
    deployment_id: DeploymentId

    @property
    def item(self) -> Key:
        return Key(_joined(self.installation_id, self.deployment_id), ONLY)

    def __str__(self) -> str:
        return self.item.partition


def by_status(installation: InstallationId, status: str) -> str:
    return _joined(installation, status)


def by_repository(installation: InstallationId, repo_full_name: str) -> str:
    return _joined(installation, repo_full_name)


def job_key_of(partition: str) -> JobKey:
    """The key of a job's partition."""
    installation, job = partition.split("#")
    return JobKey(InstallationId(int(installation)), JobId(int(job)))


def run_key_of(partition: str) -> RunKey:
    installation, run, attempt = partition.split("#")
    return RunKey(InstallationId(int(installation)), RunId(int(run)), int(attempt))
