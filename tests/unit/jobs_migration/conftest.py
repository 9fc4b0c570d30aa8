"""A bucket on moto's server, and settings for it."""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest

from holdfast.kernel.settings import SETTINGS
from tests.servers.processes import RunningServer
from tests.support.migration_world import life, statuses


@pytest.fixture
def s3(moto_server: RunningServer, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Iterator[Any]:
    """The client; the bucket's name is in S3_BUCKET, and five jobs are in it."""
    for name in [*os.environ]:
        if name.startswith("HOLDFAST_") or name in {row.name for row in SETTINGS}:
            monkeypatch.delenv(name)
    monkeypatch.chdir(tmp_path)
    bucket = f"older-{tmp_path.name}".replace("_", "-").lower()[:60].rstrip("-")
    environment = {
        "AWS_ENDPOINT_URL_S3": moto_server.url,
        "AWS_ACCESS_KEY_ID": "test",
        "AWS_SECRET_ACCESS_KEY": "test",
        "AWS_DEFAULT_REGION": "eu-west-1",
        "S3_BUCKET": bucket,
    }
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    client = boto3.client("s3")  # type: ignore[call-overload,unused-ignore]  # its types are not installed
    client.create_bucket(Bucket=bucket, CreateBucketConfiguration={"LocationConstraint": "eu-west-1"})
    client.put_object(Bucket=bucket, Key="runners/AROA:i-1/runner-config.json", Body=b"{}")
    for job in range(1, 6):
        for status, sent in statuses(life(job)):
            client.put_object(Bucket=bucket, Key=f"webhooks/1/{job}/{status}.json", Body=sent.body)
    yield client
    client.close()
