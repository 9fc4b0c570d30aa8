"""The shapes of the job tracker's answers, with the seeds' names. What is not known, or not yet, is null."""

from typing import Final

from holdfast.console.shapes import COUNT, TEXT, TIME, Schema, list_of, maybe, record

_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
_FLAG: Final[Schema] = {"type": "boolean"}
_STATUS: Final[Schema] = {"enum": ["queued", "waiting", "scheduled", "in_progress", "completed"]}
_PERCENTILES: Final = record({name: maybe(_NUMBER) for name in ("p50", "p95", "p99")})
_JOB_NAME: Final = {"installation_id": COUNT, "job_id": COUNT}
_RUN_NAME: Final = {"installation_id": COUNT, "run_id": COUNT, "run_attempt": COUNT}


def _each_maybe(schema: Schema, names: str) -> dict[str, Schema]:
    return {name: maybe(schema) for name in names.split()}


def _page(items: Schema, **more: Schema) -> Schema:
    return record({"items": list_of(items), "cursor": maybe(TEXT), "examined": COUNT, **more})


_JOB_FACTS: Final = {
    **_JOB_NAME,
    "status": maybe(_STATUS),
    "repo_is_private": _FLAG,
    "was_interrupted": _FLAG,
    "labels": maybe(list_of(TEXT)),
    "custom_properties": maybe({"type": "object"}),
    "stages_in_ms": {"type": "object", "additionalProperties": maybe(COUNT)},
    "usage_in_dollars": maybe(_NUMBER),
    "usage_in_dollars_is_estimate": maybe(_FLAG),
    **_each_maybe(
        TEXT,
        "org_name repo_full_name workflow_name job_name head_sha default_branch job_html_url conclusion instance_id "
        "instance_type instance_lifecycle fleet_id pool_name runner_name",
    ),
    **_each_maybe(TIME, "created_at received_at scheduled_at started_at completed_at last_updated_at"),
    **_each_maybe(
        COUNT,
        "run_id run_attempt workflow_id runner_id runner_group_id deployment_id usage_in_seconds ttl "
        "internal_queue_duration_in_ms overall_queue_duration_in_ms approval_duration_in_ms scheduling_attempt",
    ),
}
JOB: Final = record(_JOB_FACTS)
JOBS: Final = _page(JOB)
STUCK_JOBS: Final = _page(record({**_JOB_FACTS, "seconds_there": COUNT, "limit_seconds": COUNT}))
JOB_EVENTS: Final = _page(
    record(
        {
            **_JOB_NAME,
            "timestamp": TIME,
            "event_type": TEXT,
            "status": TEXT,
            "source": TEXT,
            "received_by": TEXT,
            "received_at": TIME,
            "deliveries": COUNT,
            "ttl": COUNT,
        },
        action=TEXT,
        delivery=TEXT,
        changes={"type": "object", "additionalProperties": record({"from": {}, "to": {}})},
        changes_lost=_FLAG,
    )
)
JOB_EXPLAINED: Final = record(
    {
        **_JOB_NAME,
        "status": TEXT,
        "since": maybe(TIME),
        "because": TEXT,
        "next": TEXT,
        "is_stuck": _FLAG,
        "lines": list_of(TEXT),
    }
)
EVENT_TOLD: Final = record(
    {
        **_JOB_NAME,
        "result": {"enum": ["stored", "duplicate"]},
        "status": maybe(_STATUS),
        "scheduling_attempt": maybe(COUNT),
    }
)
RUN: Final = record(
    {
        **_RUN_NAME,
        **_each_maybe(TEXT, "repo_full_name workflow_name head_sha head_branch run_html_url conclusion"),
        **_each_maybe(TIME, "created_at updated_at"),
        **_each_maybe(COUNT, "workflow_id ttl"),
        "status": TEXT,
        "total_jobs": COUNT,
        "completed_jobs": COUNT,
        "failed_jobs": COUNT,
        "open_job_ids": list_of(COUNT),
        "failed_job_ids": list_of(COUNT),
        "is_complete": _FLAG,
        "retry": maybe({"type": "object"}),
        "next_attempt": maybe(COUNT),
        "pending_deployments": list_of(
            record(
                {"environment": TEXT, "source": {"enum": ["store", "github"]}},
                wait_minutes=COUNT,
                wait_began_at=maybe(TIME),
                reviewers=list_of(TEXT),
            )
        ),
        "jobs": JOBS,
    }
)
DEPLOYMENT: Final = record(
    {
        "installation_id": COUNT,
        "deployment_id": COUNT,
        **_each_maybe(TEXT, "repo_full_name environment"),
        **_each_maybe(COUNT, "run_id run_attempt ttl"),
        **_each_maybe(TIME, "created_at approved_at rejected_at"),
        "status": {"enum": ["pending", "approved", "rejected"]},
        "requires_approval": _FLAG,
        "is_inferred": _FLAG,
        "is_pending_at_github": maybe(_FLAG),
        "job_ids": list_of(COUNT),
        "jobs": JOBS,
    }
)
QUEUE: Final = record(
    {
        "items": list_of({**JOB, "properties": {**JOB["properties"], "position": maybe(COUNT), "why": TEXT}}),
        "cursor": {"type": "null"},
        "examined": COUNT,
    }
)
DEPLOYMENTS: Final = record(
    {
        "now": TIME,
        "installations": list_of(COUNT),
        "chosen": maybe(COUNT),
        "items": list_of(record({"id": maybe(COUNT), "deployment": maybe(DEPLOYMENT), "jobs": list_of(JOB)})),
        "more": _FLAG,
    }
)
GROUP: Final = record(
    {
        "name": TEXT,
        "jobs": COUNT,
        "conclusions": {"type": "object", "additionalProperties": COUNT},
        "success_rate": maybe(_NUMBER),
        "run_seconds": _PERCENTILES,
        "queue_seconds": _PERCENTILES,
        "approval_seconds": _PERCENTILES,
        "interrupted": COUNT,
    }
)
_GATHERED: Final = {"installation_id": COUNT, "repo": maybe(TEXT), "since": TIME, "until": TIME, "jobs": COUNT}
JOB_STATS: Final = _page(
    GROUP,
    **_GATHERED,
    total=GROUP,
    pools={
        "type": "object",
        "additionalProperties": record(
            {
                "jobs": COUNT,
                "running": COUNT,
                "machine_seconds": _NUMBER,
                "busy_seconds": _NUMBER,
                "utilisation": maybe(_NUMBER),
            }
        ),
    },
    days={"type": "object", "additionalProperties": {"type": "object", "additionalProperties": COUNT}},
)
_COST: Final = record({"name": TEXT, "jobs": COUNT, "usd": _NUMBER, "is_estimate": _FLAG, "unpriced": COUNT})
COSTS: Final = _page(
    _COST,
    **_GATHERED,
    days=list_of(_COST),
    by={"enum": ["repo", "workflow", "team", "pool", "day"]},
    usd=_NUMBER,
    prices_as_of=TEXT,
    prices_source=TEXT,
)
_UNITS: Final[Schema] = {"type": "object", "additionalProperties": _NUMBER}
_DOLLARS: Final = {"usd_on_demand": _NUMBER, "usd_provisioned": _NUMBER}
DYNAMODB_COST: Final = record(
    {
        "items": list_of(
            record(
                {
                    "size_bytes": COUNT,
                    "jobs_per_run": COUNT,
                    "has_deployment": _FLAG,
                    "stored_bytes": COUNT,
                    "units": _NUMBER,
                    "write_units": _NUMBER,
                    "read_units": _NUMBER,
                    "by_step": _UNITS,
                    "by_table": _UNITS,
                    **_DOLLARS,
                }
            )
        ),
        "cursor": maybe(TEXT),
        "compared": list_of(
            record(
                {"name": TEXT, "has_deployment": _FLAG, "units": maybe(_NUMBER)}
                | {name: maybe(_NUMBER) for name in _DOLLARS}
            )
        ),
        "prices": record(
            dict.fromkeys(("write_usd", "read_usd", "provisioned_write_usd", "provisioned_read_usd"), _NUMBER)
        ),
    }
)
