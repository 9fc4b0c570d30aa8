"""What the API and `--json` print, as JSON Schemas by name. The pages under docs/schema are written from these.

Objects may grow: readers ignore attributes they do not know. What is required stays.
"""

from typing import Any, Final

from holdfast.console.schema.generator import Schema, schema_of
from holdfast.control.pause import PauseAnswer
from holdfast.jobs.read.item_views import JobEventView, JobView
from holdfast.views import command_answers as commands
from holdfast.views import job_types as jobs
from holdfast.views import migration_answers as migration
from holdfast.views import runner_classes as runners
from holdfast.views.cluster_status import ClusterStatus
from holdfast.views.dashboards import ClusterDetails, Overview
from holdfast.views.decisions import DecisionPage
from holdfast.views.past_decisions import DecisionList, EventList
from holdfast.views.simulator_status import SimulatorRun, SimulatorState
from holdfast.views.tracker_cost import TrackerCost

_ANSWERS: Final[dict[str, Any]] = {
    "tick-dry-run": commands.PlannedTick,
    "tick": commands.CompletedTick,
    "cluster": ClusterStatus,
    "decisions": DecisionPage,
    "switched": PauseAnswer,
    "event-taken": commands.Ec2EventAnswer,
    "webhook-taken": commands.WebhookResult,
    "jobs": jobs.ListPage[JobView],
    "stuck-jobs": jobs.ListPage[jobs.StuckJob],
    "job-queue": jobs.JobQueue,
    "job": JobView,
    "job-events": jobs.ListPage[JobEventView],
    "job-explained": jobs.ExplainedJob,
    "job-stats": jobs.JobStats,
    "event-told": commands.RecordedEvent,
    "run": jobs.RunWithJobs,
    "deployment": jobs.DeploymentWithJobs,
    "deployments": jobs.WaitingDeployments,
    "costs": jobs.JobCosts,
    "runner-classes": runners.ClassList,
    "runner-labels": runners.TriedLabels,
    "runner-types": runners.RefreshedTypes,
    "dynamodb-cost": TrackerCost,
    "overview": Overview,
    "cluster-now": ClusterDetails,
    "cluster-decisions": DecisionList,
    "events": EventList,
    "simulator": SimulatorState,
    "simulator-run": SimulatorRun,
    "migrate-status": migration.MigrationStatusAnswer,
    "migrate-backfill": migration.BackfillAnswer,
    "migrate-compare": migration.ComparisonAnswer,
    "migrate-moved": migration.PhaseChange,
    "migrate-cleanup": migration.CleanupAnswer,
    "error": commands.ErrorAnswer,
}
SCHEMAS: Final[dict[str, Schema]] = {name: schema_of(answer) for name, answer in _ANSWERS.items()}


def document(name: str) -> Schema:
    """The schema by itself, as a page."""
    return {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": name, **SCHEMAS[name]}
