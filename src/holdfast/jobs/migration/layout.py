"""The keys of the older system's objects: one per job and status."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.ports.objects import ObjectEntry

# The statuses in GitHub's webhooks; `scheduled` is our own.
STATUSES: Final = (Status.QUEUED, Status.WAITING, Status.IN_PROGRESS, Status.COMPLETED)
# The prefix of notes about webhooks that S3 has and the tables do not, one per webhook.
UNSTORED: Final = "holdfast/unstored/"

_ID_MOST: Final = 2**63 - 1
# No leading zeros: two keys would name one job, and only one of them would be found by its number.
_PATTERNS: Final = {
    "installation_id": r"(?P<installation_id>0|[1-9][0-9]{0,18})",
    "job_id": r"(?P<job_id>0|[1-9][0-9]{0,18})",
    "status": f"(?P<status>{'|'.join(STATUSES)})",
}


@dataclass(frozen=True, slots=True)
class ObjectPlace:
    """The fields of a key. `installation_id` None: the layout does not contain it, only the webhook does."""

    installation_id: InstallationId | None
    job_id: JobId
    status: Status


@dataclass(frozen=True, slots=True)
class ObjectLayout:
    """`template` is the value of S3_WEBHOOK_LAYOUT."""

    template: str
    _pattern: re.Pattern[str] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        parts = re.split(r"\{([a-z_]+)\}", self.template)
        # Every other part is a placeholder.
        pattern = "".join(_PATTERNS[part] if number % 2 else re.escape(part) for number, part in enumerate(parts))
        object.__setattr__(self, "_pattern", re.compile(pattern, re.ASCII))

    @property
    def prefix(self) -> str:
        """The common prefix of all keys."""
        return self.template.partition("{")[0]

    @property
    def names_installation(self) -> bool:
        return "{installation_id}" in self.template

    def key(self, job: JobKey, status: str) -> str:
        return self.template.format(installation_id=job.installation_id, job_id=job.job_id, status=status)

    def place(self, key: str) -> ObjectPlace | None:
        """The fields of the key; None if it is not the key of a webhook."""
        found = self._pattern.fullmatch(key)
        if found is None:
            return None
        fields = found.groupdict()
        if any(int(fields[name]) > _ID_MOST for name in fields.keys() - {"status"}):
            return None
        installation = InstallationId(int(fields["installation_id"])) if "installation_id" in fields else None
        return ObjectPlace(installation, JobId(int(fields["job_id"])), Status(fields["status"]))

    def jobs(self, entries: Iterable[ObjectEntry]) -> Iterator[list[ObjectEntry]]:
        """The entries of each job, which are adjacent; an entry that is not a webhook is a group of its own."""
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
