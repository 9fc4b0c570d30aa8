"""What the API accepts: schemas of parameters and bodies, as narrow as the server's own checks."""

from dataclasses import dataclass, field
from typing import Any, Final

from holdfast.jobs.intake.internal_events import ATTEMPT_MOST, InternalType
from holdfast.jobs.model.facts import Status
from holdfast.jobs.read.queries import LIMIT_MOST
from holdfast.jobs.read.statistics import COST_GROUPS
from holdfast.views.job_figures import LIMIT_ACCEPTED_MOST
from holdfast.views.job_listings import STUCK
from holdfast.views.query_params import CURSOR_MOST, TEXT_MOST

Schema = dict[str, Any]

TEXT: Final[Schema] = {"type": "string", "minLength": 1, "maxLength": TEXT_MOST}
ANY_TEXT: Final[Schema] = {"type": "string"}
ID: Final[Schema] = {"type": "integer", "minimum": 0, "maximum": 2**63 - 1}
TIME: Final[Schema] = {
    "type": "string",
    "format": "date-time",
    "pattern": r"^[1-9][0-9]{3}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(\.[0-9]{1,9})?(Z|[+-][0-9]{2}:[0-9]{2})$",
}
DAY: Final[Schema] = {"type": "string", "format": "date", "pattern": "^[0-9]{4}-[0-9]{2}-[0-9]{2}$"}
REPOSITORY_NAME: Final[Schema] = {
    "type": "string",
    "pattern": r"^[A-Za-z0-9_-]{1,64}/(?!\.{1,2}$)[A-Za-z0-9_.-]{1,100}$",
}


@dataclass(frozen=True, slots=True)
class Parameter:
    """A query parameter."""

    name: str
    text: str
    schema: Schema = field(default_factory=lambda: TEXT)


def _limit(most: int) -> Parameter:
    return Parameter("limit", "Return at most this many.", {"type": "integer", "minimum": 1, "maximum": most})


CURSOR: Final = Parameter("cursor", "Continue after the previous page.", {**TEXT, "maxLength": CURSOR_MOST})
LISTING: Final = (_limit(LIMIT_MOST), CURSOR)
FIGURES: Final = (_limit(LIMIT_ACCEPTED_MOST), CURSOR)
INSTALLATION: Final = Parameter("installation_id", "GitHub App installation; required if there is more than one.", ID)
SINCE: Final = Parameter("since", "A time, such as 2026-01-15T10:00:00Z.", TIME)
UNTIL: Final = Parameter("until", "A time.", TIME)
SPAN: Final = (SINCE, UNTIL)
REPOSITORY: Final = Parameter("repo", "owner/name.", REPOSITORY_NAME)
REPOSITORY_PART: Final = Parameter("repo", "owner/name of a repository; or any part of the name.")
STUCK_STATUS: Final = Parameter("status", "Only jobs stuck in this status.", {"enum": list(STUCK)})
STATUS: Final = Parameter("status", "Only jobs in this status.", {"enum": list(Status)})
COST_GROUP: Final = Parameter("by", "repo, workflow, team, pool or day.", {"enum": list(COST_GROUPS)})
EVENT_TYPE: Final = Parameter("event_type", "Such as webhook_queued.", {"type": "string", "pattern": "^[a-z_]{1,40}$"})


def _body(required: tuple[str, ...] = (), **properties: Schema) -> Schema:
    return {
        "type": "object",
        "properties": properties,
        "required": list(required),
        "additionalProperties": False,
    }


PAUSE_BODY: Final = _body(by=ANY_TEXT, reason=ANY_TEXT, since=ANY_TEXT)
JOB_EVENT_BODY: Final = _body(
    ("type", "at"),
    type={"enum": list(InternalType)},
    at=TIME,
    attempt={"type": "integer", "minimum": 1, "maximum": ATTEMPT_MOST},
    instance_id={"anyOf": [{"type": "string", "pattern": "^i-[0-9a-f]{8,32}$"}, {"type": "null"}]},
    attributes={"type": "object", "additionalProperties": ANY_TEXT},
)
RUN_BODY: Final = _body(
    seed={"type": "integer", "minimum": 0, "maximum": 10**9},
    seeds={"type": "integer", "minimum": 1, "maximum": 1000},
    faults={"enum": ["", "none", "mild", "wild"]},
    scenario=ANY_TEXT,
)
NO_BODY: Final = _body()
ANY_BODY: Final[Schema] = {"type": "object"}
