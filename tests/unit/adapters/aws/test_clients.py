"""What every client of AWS shares."""

from pathlib import Path

import pytest

from holdfast.adapters.aws.clients import aws_client, aws_config
from holdfast.adapters.aws.pricing import own_region


@pytest.fixture(autouse=True)
def no_region(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION", "AWS_PROFILE"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))


def test_aws_region_alone_names_the_region(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    client = aws_client("sqs", aws_config(read_seconds=1))
    assert (client.meta.region_name, own_region()) == ("eu-north-1", "eu-north-1")


def test_an_update_does_not_move_to_another_region(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 reads AWS_DEFAULT_REGION only: where both are set, it still counts."""
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    client = aws_client("sqs", aws_config(read_seconds=1))
    assert (client.meta.region_name, own_region()) == ("eu-west-1", "eu-west-1")
