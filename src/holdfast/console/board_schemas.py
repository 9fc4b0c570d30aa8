"""The shapes of the answers that the console's own pages are made of: overview, cluster, decisions, events, simulator.

What they have in common with the API of the cluster and of the jobs is taken from there.
"""

from typing import Final

from holdfast.console.shapes import COUNT, TEXT, TIME, Schema, list_of, maybe, record

_NUMBER: Final[Schema] = {"type": "number"}
_FLAG: Final[Schema] = {"type": "boolean"}
_MANY: Final = record({"jobs": COUNT, "more": _FLAG})
_ALERT: Final = record({"what": TEXT, "text": TEXT, "act": TEXT, "link": TEXT, "is_urgent": _FLAG})
_EVENT: Final = record({"at": TIME, "kind": TEXT, "text": TEXT})
_NODE: Final = record(
    {
        "id": TEXT,
        "node": maybe(TEXT),
        "zone": TEXT,
        "type": TEXT,
        "market": {"enum": ["spot", "on-demand"]},
        "machine_state": TEXT,
        "launched_at": TIME,
        "age_seconds": COUNT,
        "status": TEXT,
        "pods": COUNT,
        "pod_names": list_of(TEXT),
        "notice": maybe(record({"kind": TEXT, "phase": TEXT})),
        "usd_per_hour": maybe(_NUMBER),
    }
)
_FAILING: Final = {"failures": COUNT, "until": TIME, "is_failing": _FLAG}
_TIME_LINE: Final = record(
    {
        "hours": COUNT,
        "points": list_of(
            record({"at": TIME, "workers": maybe(COUNT), "pending": maybe(COUNT), "cpu": maybe(_NUMBER)}),
        ),
        "actions": list_of(
            record(
                {
                    "kind": {"enum": ["up", "down"]},
                    "begin": maybe(TIME),
                    "end": maybe(TIME),
                    "result": maybe(TEXT),
                    "because": TEXT,
                }
            )
        ),
        "marks": list_of(record({"kind": TEXT, "at": TIME, "because": TEXT})),
        "cpu_up": _NUMBER,
        "cpu_down": _NUMBER,
        "max_workers": COUNT,
    }
)
_COST: Final = record(
    {
        "usd_per_hour": _NUMBER,
        "on_demand_usd_per_hour": _NUMBER,
        "saved_usd_per_hour": _NUMBER,
        "is_estimate": _FLAG,
        "unpriced": COUNT,
        "prices_as_of": TEXT,
    }
)
EVENTS: Final = record(
    {
        "now": TIME,
        "q": TEXT,
        "day": maybe(TEXT),
        "items": list_of(_EVENT),
        "found": COUNT,
        "skip": COUNT,
        "day_before": maybe(TEXT),
        "day_after": maybe(TEXT),
        "first_day": TEXT,
    }
)
SIMULATOR_RUN: Final = record(
    {
        "state": {"enum": ["running", "done", "stopped", "failed"]},
        "problem": maybe(TEXT),
        "order": record(
            {"seed": COUNT, "seeds": COUNT, "faults": {"enum": ["none", "mild", "wild"]}, "scenario": maybe(TEXT)}
        ),
        "command": TEXT,
        "seconds": _NUMBER,
        "seeds_done": COUNT,
        "virtual_days": _NUMBER,
        "port_calls": COUNT,
        "faults": COUNT,
        "checkers": list_of(record({"name": TEXT, "says": TEXT, "broken": COUNT})),
        "violations": list_of(
            record(
                {
                    "seed": COUNT,
                    "invariant": TEXT,
                    "says": TEXT,
                    "found": TEXT,
                    "story": list_of(TEXT),
                    "command": TEXT,
                }
            )
        ),
    }
)
SIMULATOR: Final = record(
    {
        "now": TIME,
        "speed": _NUMBER,
        "speeds": list_of(_NUMBER),
        "seed": COUNT,
        "post": COUNT,
        "faults": list_of(record({"name": TEXT, "title": TEXT, "text": TEXT})),
        "orders": list_of(record({"at": TIME, "text": TEXT})),
        "choices": record(
            {
                "seed_most": COUNT,
                "seeds_most": COUNT,
                "faults": list_of(TEXT),
                "scenarios": list_of(record({"name": TEXT, "about": TEXT})),
            }
        ),
        "run": maybe(SIMULATOR_RUN),
    }
)


def board_schemas(cluster: Schema, decision: Schema, job: Schema, group: Schema) -> dict[str, Schema]:
    """By the name of their page; made of the cluster's state, a tick, a job, and the figures of a group of jobs."""
    state = cluster["properties"]
    rule = decision["properties"]["rules"]["items"]
    groups = list_of(
        record(
            {
                "title": TEXT,
                "rules": list_of({**rule, "properties": {**rule["properties"], "words": TEXT}}),
                "against": list_of(TEXT),
            }
        )
    )
    now = {
        "name": TEXT,
        "workers": COUNT,
        "nodes_are_seen": _FLAG,
        "nodes": list_of(_NODE),
        "pods": maybe(COUNT),
        "pending": maybe(COUNT),
        "cpu": maybe(_NUMBER),
        "action": state["action"],
        "notices": state["notices"],
        "paused": state["paused"],
        "last_scale_at": state["lastScaleAt"],
        "pending_since": state["pendingSince"],
        "idle_since": state["idleSince"],
        "up_failures": state["upFailures"],
        "up_backoff_until": state["upBackoffUntil"],
        "lease": state["lease"],
        "failure": maybe(record({"at": TIME, "why": TEXT})),
        "newest_failure": state["lastFailure"],
        "last_tick_at": maybe(TIME),
        "last_tick_seconds": maybe(_NUMBER),
        "rules": list_of(rule),
        "capacity": list_of(record({"type": TEXT, "zone": TEXT, "market": TEXT, **_FAILING})),
        "undrainable": list_of(record({"id": TEXT, **_FAILING})),
        "min_workers": COUNT,
        "max_workers": COUNT,
        "pods_per_node": COUNT,
    }
    jobs = record(
        {
            "installations": list_of(COUNT),
            "problem": maybe(TEXT),
            "counts": record(dict.fromkeys(("in_progress", "scheduled", "queued", "waiting"), _MANY)),
            "runners_usd_per_hour": _NUMBER,
            "runners_saved_usd_per_hour": _NUMBER,
            "stuck": _MANY,
            "running": list_of(job),
            "recent": maybe(group),
        }
    )
    shared: Schema = {"now": TIME, "time_line": _TIME_LINE, "latest": list_of(_EVENT)}
    items = list_of({**decision, "properties": {**decision["properties"], "groups": groups, "why_nothing": TEXT}})
    return {
        "overview": record(
            {
                **shared,
                "headline": list_of(TEXT),
                "alerts": list_of(_ALERT),
                "cluster": record(now),
                "jobs": jobs,
                "cost": maybe(_COST),
            }
        ),
        "cluster-now": record({**shared, **now, "groups": groups, "policy": {"type": "object"}}),
        "cluster-decisions": record(
            {"now": TIME, "until": TIME, "acted": _FLAG, "items": items, "earlier": maybe(TIME)}
        ),
        "events": EVENTS,
        "simulator": SIMULATOR,
        "simulator-run": SIMULATOR_RUN,
    }
