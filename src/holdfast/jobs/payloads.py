"""What is read of GitHub's payloads. Everything else in them is skipped, so that new fields and values do no harm.

A field of a wrong type makes the payload unusable; a field that is missing is None. Ids are whole numbers that fit
64 bits. Text is kept as it came: what is stored of it is cut in `facts.py`.
"""

from typing import Annotated, Any, TypeVar

import msgspec
from msgspec import Meta, Struct

from holdfast.jobs.webhook import Refusal, Refused
from holdfast.kernel import typed_json

Id = Annotated[int, Meta(ge=0, le=2**63 - 1)]
Attempt = Annotated[int, Meta(ge=1, le=1_000_000)]


class Installation(Struct):
    id: Id


class Repository(Struct):
    full_name: str
    private: bool = False
    default_branch: str | None = None
    # Anybody who may set them may put anything into them: looked at value by value.
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
    """A job as a review names it. Its id is of another kind than job ids: it is not used."""

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


class Unusable(Exception):
    """JSON that GitHub signed, but not what the event should be: it is recorded, and GitHub still gets its 200."""


def decoded(body: bytes, kind: type[P]) -> P:
    """The payload; Unusable if it is not as it should be, Refused if the body is no JSON at all."""
    try:
        return typed_json.decoded(body, kind)
    except msgspec.ValidationError as error:
        raise Unusable(str(error)) from error
    except msgspec.DecodeError as error:
        raise Refused(Refusal.MALFORMED, f"the body is not JSON: {error}") from error
