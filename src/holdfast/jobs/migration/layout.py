"""The keys of the older system's objects: one for each job and status."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.facts import Status
from holdfast.jobs.keys import JobKey
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.ports.objects import ObjectEntry

# What GitHub sends webhooks about; `scheduled` is our own word.
STATUSES: Final = (Status.QUEUED, Status.WAITING, Status.IN_PROGRESS, Status.COMPLETED)
# Webhooks that S3 has and the tables do not: each has a mark here, under its own key.
UNSTORED: Final = "holdfast/unstored/"

_ID_MOST: Final = 2**63 - 1
# No zeros in front: two keys would name one job, and only one of them would be found by the job's number.
_PATTERNS: Final = {
    "installation_id": r"(?P<installation_id>0|[1-9][0-9]{0,18})",
    "job_id": r"(?P<job_id>0|[1-9][0-9]{0,18})",
    "status": f"(?P<status>{'|'.join(STATUSES)})",
}


@dataclass(frozen=True, slots=True)
class Place:
    """What a key says. `installation_id` None: the layout does not name it, and the webhook does."""

    installation_id: InstallationId | None
    job_id: JobId
    status: Status


@dataclass(frozen=True, slots=True)
class Layout:
    """`template` as S3_WEBHOOK_LAYOUT has it."""

    template: str
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = re.split(r"\{([a-z_]+)\}", self.template)
        # Every other part is a place.
        pattern = "".join(_PATTERNS[part] if number % 2 else re.escape(part) for number, part in enumerate(parts))
        object.__setattr__(self, "_pattern", re.compile(pattern, re.ASCII))

    @property
    def prefix(self) -> str:
        """What all keys begin with."""
        return self.template.partition("{")[0]

    @property
    def names_installation(self) -> bool:
        return "{installation_id}" in self.template

    def key(self, job: JobKey, status: str) -> str:
        return self.template.format(installation_id=job.installation_id, job_id=job.job_id, status=status)

    def place(self, key: str) -> Place | None:
        """What the key says; None: it is not the key of a webhook."""
        found = self._pattern.fullmatch(key)
        if found is None:
            return None
        said = found.groupdict()
        if any(int(said[name]) > _ID_MOST for name in said.keys() - {"status"}):
            return None
        installation = InstallationId(int(said["installation_id"])) if "installation_id" in said else None
        return Place(installation, JobId(int(said["job_id"])), Status(said["status"]))

    def jobs(self, entries: Iterable[ObjectEntry]) -> Iterator[list[ObjectEntry]]:
        """The entries of each job, which stand beside each other; an entry that is no webhook's stands alone."""
        group: list[ObjectEntry] = []
        of: tuple[InstallationId | None, JobId] | None = None
        for entry in entries:
            place = self.place(entry.key)
            whose = None if place is None else (place.installation_id, place.job_id)
            if group and (whose is None or whose != of):
                yield group
                group = []
            group.append(entry)
            of = whose
        if group:
            yield group
