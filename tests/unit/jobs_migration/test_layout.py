"""The keys of the older system's objects."""

import pytest

from holdfast.jobs.facts import Status
from holdfast.jobs.keys import JobKey
from holdfast.jobs.migration.layout import Layout, Place
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.ids import InstallationId, JobId
from holdfast.kernel.settings import load_settings
from holdfast.ports.objects import ObjectEntry
from tests.unit.jobs_migration.worlds import LAYOUT, NOW

JOB = JobKey(InstallationId(12), JobId(345))


@pytest.mark.parametrize(
    "template",
    [
        "webhooks/{installation_id}/{job_id}/{status}.json",
        "w/{job_id}-{status}",
        "a.b/{installation_id}(x)+{job_id}/[{status}]",
    ],
)
def test_a_key_says_what_it_was_made_of(template: str) -> None:
    """Also where the template has characters that mean something to a pattern."""
    layout = Layout(template)
    place = layout.place(layout.key(JOB, Status.WAITING))
    installation = JOB.installation_id if layout.names_installation else None
    assert place == Place(installation, JOB.job_id, Status.WAITING)
    assert layout.key(JOB, "queued").startswith(layout.prefix)


@pytest.mark.parametrize(
    "key",
    ["webhooks/12/345/scheduled.json", "webhooks/12/x/queued.json", "webhooks/12/345/queued.json.bak", "runners/a"],
)
def test_other_keys_are_nobodys(key: str) -> None:
    assert LAYOUT.place(key) is None


@pytest.mark.parametrize(
    "template", ["w/{installation_id}/{job_id}/{status}", "w/{job_id}/{status}", "w/{job_id}_{status}"]
)
def test_the_objects_of_a_job_stand_beside_each_other(template: str) -> None:
    """Whatever numbers its neighbours have."""
    layout = Layout(template)
    jobs = [JobKey(InstallationId(1), JobId(number)) for number in (1, 2, 11, 12, 111, 112, 121, 999, 1000)]
    keys = sorted(layout.key(job, status) for job in jobs for status in ("queued", "in_progress", "completed"))
    groups = list(layout.jobs(ObjectEntry(key, NOW) for key in keys))
    assert len(groups) == len(jobs)
    assert all(len(group) == 3 for group in groups)


def test_what_is_no_webhook_stands_alone() -> None:
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
