"""The fields of GitHub's payloads that are read. All others are skipped, so new fields and values do no harm.

A field of a wrong type makes the payload unusable; a missing field is None. Ids are whole numbers that fit 64 bits.
Text is unchanged here; `facts.py` cuts what is stored.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from holdfast.jobs.intake.webhook import WebhookRefusal, WebhookRefused
from holdfast.kernel import typed_json

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Attempt = Annotated[int, Meta(ge=1, le=1_000_000)]


class Installation(Struct):
    id: Id


class Repository(Struct):
    full_name: str
    private: bool = False
    default_branch: str | None = None
    id: Id | None = None
    html_url: str | None = None
    # May hold anything: checked value by value.
    custom_properties: Any = None


class Deployment(Struct):
    id: Id
    environment: str | None = None
    created_at: str | None = None
    updated_at: str | None = None


class WorkflowJob(Struct):
    id: Id
    run_id: Id
    run_attempt: Attempt = 1
    status: str | None = None
    conclusion: str | None = None
    name: str | None = None
    workflow_name: str | None = None
    head_sha: str | None = None
    head_branch: str | None = None
    created_at: str | None = None
    started_at: str | None = None
    completed_at: str | None = None
    labels: list[str] | None = None
    runner_id: Id | None = None
    runner_name: str | None = None
    runner_group_id: Id | None = None


class WorkflowRun(Struct):
    id: Id
    run_attempt: Attempt = 1
    status: str | None = None
    conclusion: str | None = None
    name: str | None = None
    workflow_id: Id | None = None
    head_sha: str | None = None
    head_branch: str | None = None
    created_at: str | None = None
    updated_at: str | None = None
    run_started_at: str | None = None


class CheckRun(Struct):
    id: Id
    name: str | None = None


class DeploymentStatus(Struct):
    state: str | None = None
    environment: str | None = None
    created_at: str | None = None


class JobRun(Struct):
    """A job as a review names it. Its id is not a job id, and not used."""

    name: str | None = None
    environment: str | None = None


class JobPayload(Struct):
    repository: Repository
    workflow_job: WorkflowJob | None = None
    action: str = ""
    installation: Installation | None = None
    deployment: Deployment | None = None


class RunPayload(Struct):
    repository: Repository
    workflow_run: WorkflowRun | None = None
    action: str = ""
    installation: Installation | None = None


class DeploymentPayload(Struct):
    """`deployment`, `deployment_status` and `deployment_protection_rule`."""

    repository: Repository
    deployment: Deployment | None = None
    action: str = ""
    installation: Installation | None = None
    workflow_run: WorkflowRun | None = None
    deployment_status: DeploymentStatus | None = None
    check_run: CheckRun | None = None
    environment: str | None = None


class ReviewPayload(Struct):
    repository: Repository
    action: str = ""
    installation: Installation | None = None
    workflow_run: WorkflowRun | None = None
    workflow_job_run: JobRun | None = None
    workflow_job_runs: list[JobRun] | None = None
    environment: str | None = None
    since: str | None = None


class InstallationPayload(Struct):
    installation: Installation
    action: str = ""


class PingPayload(Struct):
    hook_id: Id | None = None


P = TypeVar("P", bound=Struct)


class UnusablePayload(Exception):
    """A signed payload that does not fit its event. It is recorded and acknowledged: a redelivery would not help."""


def decoded(body: bytes, kind: type[P]) -> P:
    """The payload; UnusablePayload if it does not fit its type, WebhookRefused if the body is not JSON."""
    try:
        return typed_json.decoded(body, kind)
    except msgspec.ValidationError as error:
        raise UnusablePayload(str(error)) from error
    except msgspec.DecodeError as error:
        raise WebhookRefused(WebhookRefusal.MALFORMED, f"the body is not JSON: {error}") from error
