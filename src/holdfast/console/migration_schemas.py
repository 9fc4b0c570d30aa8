"""The shapes of what `holdfast migrate … --json` prints."""

from typing import Final

from holdfast.console.shapes import COUNT, TEXT, TIME, Schema, list_of, maybe, record

_FLAG: Final[Schema] = {"type": "boolean"}
_SHARE: Final[Schema] = {"type": "number", "minimum": 0, "maximum": 1}
_NUMBER: Final[Schema] = {"type": "number", "minimum": 0}
_PHASE: Final[Schema] = {"enum": ["off", "dual_write", "dual_read", "dynamodb_only"]}
_KINDS: Final = ["missing", "webhook", "field", "history", "run", "deployment", "unusable", "only_in_table"]
_ANYTHING: Final[Schema] = {}

_BACKFILL: Final[Schema] = {
    "run": TEXT,
    "started": maybe(TIME),
    "updated": maybe(TIME),
    "finished": maybe(TIME),
    "unusable_keys": list_of(TEXT),
    **dict.fromkeys(("total", "objects", "jobs", "written", "there", "expired", "unusable", "mended"), COUNT),
}
_COMPARED: Final[Schema] = {
    "started": TIME,
    "finished": maybe(TIME),
    "share": _SHARE,
    "jobs": COUNT,
    "objects": COUNT,
    "expired": COUNT,
    "differences": COUNT,
    "kinds": {"type": "object", "propertyNames": {"enum": _KINDS}, "additionalProperties": COUNT},
}
_DIFFERENCE: Final = record(
    {
        "kind": {"enum": _KINDS},
        "installation_id": maybe(COUNT),
        "job_id": maybe(COUNT),
        "what": TEXT,
        "s3": _ANYTHING,
        "tables": _ANYTHING,
    }
)
_STATUS: Final = record(
    {
        "phase": _PHASE,
        "since": maybe(TIME),
        "setting": _PHASE,
        "next": maybe(_PHASE),
        "is_ready": _FLAG,
        "against": list_of(TEXT),
        "hit_rate": maybe(_SHARE),
        "error_rate": maybe(_SHARE),
        "mean_ms": {"type": "object", "additionalProperties": maybe(_NUMBER)},
        "counts": {"type": "object", "additionalProperties": _NUMBER},
        "unstored": COUNT,
        "backfill": maybe(record(_BACKFILL)),
        "compare": maybe(record(_COMPARED)),
        "moves": list_of({"type": "object"}),
    }
)
_MOVED: Final = record({"from": _PHASE, "to": _PHASE, "done": _FLAG, "against": list_of(TEXT), "notes": list_of(TEXT)})
_CLEANUP: Final = record(
    {"rules": list_of({"type": "object"}), "is_change": _FLAG, "notes": list_of(TEXT), "done": _FLAG}
)

MIGRATION_SCHEMAS: Final[dict[str, Schema]] = {
    "migrate-status": _STATUS,
    "migrate-backfill": record({**_BACKFILL, "dry_run": _FLAG}),
    "migrate-compare": record({**_COMPARED, "items": list_of(_DIFFERENCE), "cursor": {"type": "null"}}),
    "migrate-moved": _MOVED,
    "migrate-cleanup": _CLEANUP,
}
