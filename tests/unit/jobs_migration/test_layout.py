"""The keys of the older system's objects."""

import pytest

from holdfast.jobs.migration.layout import ObjectLayout, ObjectPlace
from holdfast.jobs.model.facts import Status
from holdfast.jobs.model.keys import JobKey
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.settings import load_settings
from holdfast.ports.objects import ObjectEntry
from tests.support.migration_world import LAYOUT, NOW

JOB = JobKey(InstallationId(12), JobId(345))


@pytest.mark.parametrize(
    "template",
    [
        "webhooks/{installation_id}/{job_id}/{status}.json",
        "w/{job_id}-{status}",
        "a.b/{installation_id}(x)+{job_id}/[{status}]",
    ],
)
def test_a_key_is_parsed_back_into_its_parts(template: str) -> None:
    """Also if the template has characters that are special in a regular expression."""
    layout = ObjectLayout(template)
    place = layout.place(layout.key(JOB, Status.WAITING))
    installation = JOB.installation_id if layout.names_installation else None
    assert place == ObjectPlace(installation, JOB.job_id, Status.WAITING)
    assert layout.key(JOB, "queued").startswith(layout.prefix)


@pytest.mark.parametrize(
    "key",
    ["webhooks/12/345/scheduled.json", "webhooks/12/x/queued.json", "webhooks/12/345/queued.json.bak", "runners/a"],
)
def test_other_keys_belong_to_no_job(key: str) -> None:
    assert LAYOUT.place(key) is None


@pytest.mark.parametrize(
    "template", ["w/{installation_id}/{job_id}/{status}", "w/{job_id}/{status}", "w/{job_id}_{status}"]
)
def test_the_objects_of_a_job_are_adjacent(template: str) -> None:
    """Whatever numbers its neighbours have."""
    layout = ObjectLayout(template)
    jobs = [JobKey(InstallationId(1), JobId(number)) for number in (1, 2, 11, 12, 111, 112, 121, 999, 1000)]
    keys = sorted(layout.key(job, status) for job in jobs for status in ("queued", "in_progress", "completed"))
    groups = list(layout.jobs(ObjectEntry(key, NOW) for key in keys))
    assert len(groups) == len(jobs)
    assert all(len(group) == 3 for group in groups)


def test_an_object_that_is_not_a_webhook_is_its_own_group() -> None:
    keys = ["webhooks/1/2/completed.json", "webhooks/1/2/notes.txt", "webhooks/1/2/queued.json", "webhooks/index.html"]
    assert [len(group) for group in LAYOUT.jobs(ObjectEntry(key, NOW) for key in keys)] == [1, 1, 1, 1]


@pytest.mark.parametrize(
    "layout",
    [
        "webhooks/{job_id}",
        "webhooks/{status}/{job_id}",
        "{job_id}/{status}",
        "/w/{job_id}/{status}",
        "w/{job_id}{status}",
        "w/{job_id}/{job_id}/{status}",
        "w/{job_id}/{status}/{repo}",
        "w/{job_id}/{status}}",
        "w/{job_id}/{installation_id}/{status}",
        "w {job_id}/{status}",
    ],
)
def test_a_layout_that_cannot_be_read_back_is_refused(layout: str) -> None:
    with pytest.raises(BadSetting, match="S3_WEBHOOK_LAYOUT"):
        load_settings({"S3_WEBHOOK_LAYOUT": layout})


def test_a_phase_without_a_bucket_is_refused() -> None:
    with pytest.raises(BadSetting, match=r"JOBS_MIGRATION=dual_write needs the bucket .* for example S3_BUCKET="):
        load_settings({"JOBS_MIGRATION": "dual_write"})
    assert load_settings({"JOBS_MIGRATION": "dual_write", "S3_BUCKET": "old"}).jobs_migration == "dual_write"
