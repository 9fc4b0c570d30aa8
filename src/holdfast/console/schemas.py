"""The shapes of what the API and `--json` print, as JSON Schema. Pages under docs/schema are written from these.

Objects may grow: a reader takes what it knows and ignores the rest. What is listed as required stays.
"""

from typing import Final

from holdfast.console.board_schemas import board_schemas
from holdfast.console.job_schemas import (
    COSTS,
    DEPLOYMENT,
    DEPLOYMENTS,
    DYNAMODB_COST,
    EVENT_TOLD,
    GROUP,
    JOB,
    JOB_EVENTS,
    JOB_EXPLAINED,
    JOB_STATS,
    JOBS,
    QUEUE,
    RUN,
    STUCK_JOBS,
)
from holdfast.console.migration_schemas import MIGRATION_SCHEMAS
from holdfast.console.shapes import COUNT, TEXT, TIME, Schema, list_of, maybe, record

_RULE: Final = record(
    {"name": TEXT, "verdict": {"enum": ["yes", "no", "unknown"]}, "value": TEXT, "limit": TEXT},
)
_STEP: Final = record({"kind": {"type": "string", "pattern": "^[a-z_]+$"}, "because": TEXT})
_SEEN: Final = record(
    {
        "workers": COUNT,
        "expected": COUNT,
        "cpu": maybe({"type": "number", "minimum": 0}),
        "pending": maybe(record({"pods": COUNT, "oldest_seconds": COUNT})),
        "nodes": maybe(COUNT),
        "ready_elsewhere": maybe(record({"nodes": COUNT, "workers": COUNT})),
        "unknown": {
            "type": "object",
            "propertyNames": {"enum": ["cpu", "pending", "nodes"]},
            "additionalProperties": TEXT,
        },
        "action": maybe(TEXT),
        "phase": maybe(TEXT),
        "notices": COUNT,
        "paused": {"type": "boolean"},
        "fence": COUNT,
    }
)

LOOK: Final = record({"seen": _SEEN, "rules": list_of(_RULE), "steps": list_of(_STEP)})
TICK: Final = record({"seen": _SEEN, "rules": list_of(_RULE), "steps": list_of(_STEP), "stopped": maybe(TEXT)})
DECISION: Final = record(
    {
        "at": TIME,
        "kind": TEXT,
        "seen": maybe(_SEEN),
        "rules": list_of(_RULE),
        "steps": list_of(_STEP),
        "stopped": maybe(TEXT),
    },
    told=list_of(TEXT),
    ticks=COUNT,
)
DECISIONS: Final = record({"items": list_of(DECISION), "cursor": maybe(TEXT)})
_ACTION: Final = record(
    {"kind": {"enum": ["scale-up", "scale-down"]}, "id": TEXT, "phase": TEXT, "seconds": {"type": "integer"}},
    requested=COUNT,
    machines=list_of(TEXT),
    slots=list_of({"type": "object"}),
    targets=list_of(TEXT),
    committed=list_of(TEXT),
    completed=list_of(TEXT),
)
_NOTICE: Final = record(
    {
        "instance": TEXT,
        "kind": {"enum": ["interruption", "rebalance", "not-ready"]},
        "phase": {"enum": ["NOTICED", "CORDONED", "DRAINED", "EXPIRED", "OPENING"]},
        "since": TIME,
        "deadline": maybe(TIME),
        "replacement": record(
            {
                "state": {"enum": ["OPEN", "PLANNED", "LAUNCHED", "GIVING_UP", "ACCEPTED", "GIVEN_UP"]},
                "slot": maybe(
                    record(
                        {
                            "instance": maybe(TEXT),
                            "type": TEXT,
                            "market": {"enum": ["spot", "on-demand"]},
                            "zone": TEXT,
                            "subnet": TEXT,
                            "attempt": COUNT,
                        }
                    )
                ),
                "deadline": maybe(TIME),
            }
        ),
    }
)
_PAUSE: Final = record({"by": TEXT, "since": TIME, "reason": TEXT})
CLUSTER: Final = record(
    {
        "cluster": TEXT,
        "workers": COUNT,
        "action": maybe(_ACTION),
        "notices": list_of(_NOTICE),
        "lastScaleAt": maybe(TIME),
        "pendingSince": maybe(TIME),
        "idleSince": maybe(TIME),
        "upFailures": COUNT,
        "upBackoffUntil": maybe(TIME),
        "lease": record({"owner": TEXT, "until": maybe(TIME), "fence": COUNT}),
        "paused": maybe(_PAUSE),
        "lastTick": maybe(DECISION),
        "lastFailure": maybe(record({"what": TEXT, "at": TIME, "why": TEXT})),
    }
)
_SWITCHES: Final = ("paused", "resumed", "already paused", "paused again", "not paused", "would pause", "would resume")
SWITCHED: Final = record(
    {
        "cluster": TEXT,
        "step": {"enum": list(_SWITCHES)},
        "done": {"type": "boolean"},
        "told": TEXT,
        "paused": maybe(_PAUSE),
    }
)
EVENT_TAKEN: Final = record({"result": {"enum": ["noted", "known", "ignored", "not ours"]}})
WEBHOOK_TAKEN: Final = record(
    {"result": {"enum": ["stored", "duplicate", "ignored", "unusable"]}, "delivery": TEXT}, reason=TEXT
)
ERROR: Final = record({"error": record({"code": TEXT, "message": TEXT})})

# By the name of their page.
SCHEMAS: Final[dict[str, Schema]] = {
    "tick-dry-run": LOOK,
    "tick": TICK,
    "cluster": CLUSTER,
    "decisions": DECISIONS,
    "switched": SWITCHED,
    "event-taken": EVENT_TAKEN,
    "webhook-taken": WEBHOOK_TAKEN,
    "jobs": JOBS,
    "stuck-jobs": STUCK_JOBS,
    "job-queue": QUEUE,
    "job": JOB,
    "job-events": JOB_EVENTS,
    "job-explained": JOB_EXPLAINED,
    "job-stats": JOB_STATS,
    "event-told": EVENT_TOLD,
    "run": RUN,
    "deployment": DEPLOYMENT,
    "deployments": DEPLOYMENTS,
    "costs": COSTS,
    "dynamodb-cost": DYNAMODB_COST,
    **board_schemas(CLUSTER, DECISION, JOB, GROUP),
    **MIGRATION_SCHEMAS,
    "error": ERROR,
}


def document(name: str) -> Schema:
    """The schema by itself, as a page."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **SCHEMAS[name]}
