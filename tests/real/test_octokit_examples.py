"""The payloads of npm's @octokit/webhooks-examples, sent to the endpoint as GitHub would."""

import json
from collections import Counter, defaultdict
from typing import Any

import pytest

from holdfast.jobs.intake.tracker import EVENTS
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.ports.store.tables import JOBS
from tests.servers import octokit_examples
from tests.support.real_servers import skip_or_fail
from tests.support.webhook_app import Answer, Endpoint, signed

pytestmark = pytest.mark.real

Example = tuple[str, str, dict[str, Any]]


@pytest.fixture(scope="module")
def examples() -> list[Example]:
    try:
        return octokit_examples.examples()
    except octokit_examples.Unavailable as error:
        skip_or_fail(str(error))


def sent(endpoint: Endpoint, number: int, event: str, payload: dict[str, Any]) -> Answer:
    body = json.dumps(payload).encode()
    return endpoint.send(body, signed(body, event=event, delivery=f"00000000-0000-4000-8000-{number:012d}"))


def test_every_example_is_accepted(examples: list[Example]) -> None:
    """None is unusable; tracked events are stored or have a reason not to be."""
    endpoint = Endpoint()
    results: dict[str, Counter[str]] = defaultdict(Counter)
    for number, (source, event, payload) in enumerate(examples):
        answer = sent(endpoint, number, event, payload)
        assert answer.status == 200, (source, event, answer)
        results[event if event in EVENTS else "others"][answer.json["result"]] += 1
    assert set(results["others"]) == {"ignored"}
    assert set(results["ping"]) == {"ignored"}  # it has nothing to store
    # A deployment's progress: the deploying job reports the same.
    assert set(results["deployment_status"]) == {"ignored"}
    assert set(results["deployment_review"]) == {"ignored"}  # a requested review, which the job reports as well
    # Most examples of deployments were made by no workflow, so that no job waits for them.
    assert set(results["deployment"]) == {"ignored", "stored"}
    # GitHub's servers of several versions share examples: the same body again is a duplicate.
    for event in ("workflow_job", "workflow_run", "installation"):
        assert results[event]["stored"] > 0, event
        assert set(results[event]) <= {"stored", "duplicate"}, (event, results[event])
    assert sum(results["others"].values()) > 500


def test_repeated_examples_change_nothing(examples: list[Example]) -> None:
    """From the third time on: once an App is known for an owner, its webhooks without an installation belong to it."""
    endpoint = Endpoint()
    for again in (False, False, True):
        for number, (_, event, payload) in enumerate(examples):
            if event in ("workflow_job", "workflow_run") or (event == "deployment" and payload.get("workflow_run")):
                result = sent(endpoint, number, event, payload).json["result"]
                assert not again or result == "duplicate", (event, result)


def test_every_job_of_the_examples_is_stored_under_its_ids(examples: list[Example]) -> None:
    for number, (_, event, payload) in enumerate(examples):
        if event == "workflow_job":
            endpoint = Endpoint()
            sent(endpoint, number, event, payload)
            installation = InstallationId(payload.get("installation", {}).get("id", 0))
            key = JobKey(installation, JobId(payload["workflow_job"]["id"]))
            job = endpoint.store.get(JOBS, key.item)
            assert job is not None
            assert job["job_name"] == payload["workflow_job"]["name"]
