"""`holdfast migrate` from beginning to end: S3 by moto's server, the tables in a SQLite file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from holdfast.cli.main import cli
from holdfast.console.schemas import document
from holdfast.jobs.migration import compare, phases, readiness, status
from tests.unit.jobs_migration.worlds import life


def migrate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["migrate", *arguments], prog_name="holdfast")


def told(*arguments: str) -> dict[str, Any]:
    result = migrate(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return in_shape(arguments[0], result)


def in_shape(command: str, result: Result) -> dict[str, Any]:
    """What it printed, held to the schema that is published of it."""
    found: dict[str, Any] = json.loads(result.stdout)
    name = "moved" if command in ("advance", "back") else command
    Draft202012Validator(document(f"migrate-{name}")).validate(found)
    return found


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """Here is no instance that would have to follow a move, and no webhook in between."""
    for module in (phases, readiness, status):
        monkeypatch.setattr(module, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(compare, "LOOK_AGAIN_SECONDS", 0.0)


def test_the_whole_way_and_back(s3: Any) -> None:
    begun = CliRunner().invoke(cli, ["tables", "create"], prog_name="holdfast")
    assert begun.exit_code == 0, begun.stderr
    assert told("status")["phase"] == "off"
    refused = migrate("backfill")
    assert (refused.exit_code, "first run: holdfast migrate advance" in refused.stderr) == (1, True)
    assert told("advance", "--dry-run")["done"] is False
    assert "would go from off to dual_write" in migrate("advance", "--dry-run").stdout
    assert told("status")["phase"] == "off"
    assert told("advance")["to"] == "dual_write"
    assert "would be refused: from dual_write to dual_read\n  nothing was" in migrate("advance", "--dry-run").stdout
    assert told("backfill", "--dry-run")["written"] == 15
    assert told("backfill", "--rate", "1000")["written"] == 15
    assert told("backfill")["there"] == 15
    assert told("compare", "--sample", "0.9")["items"] == []
    refused = migrate("advance")
    assert (refused.exit_code, "only a share of 0.9 was compared" in refused.stderr) == (1, True)
    compared = told("compare")
    assert (compared["jobs"], compared["items"], compared["cursor"]) == (5, [], None)
    refused = migrate("advance", "--to", "dynamodb_only")
    assert (refused.exit_code, "dual_read comes first" in refused.stderr) == (1, True)
    assert told("advance")["to"] == "dual_read"
    assert told("advance")["to"] == "dynamodb_only"
    last = told("status")
    assert (last["phase"], last["next"], last["against"]) == ("dynamodb_only", None, [])
    assert [told("back")["to"] for _ in range(3)] == ["dual_read", "dual_write", "off"]
    assert migrate("back").exit_code == 1


def test_the_policy_is_printed_before_it_is_set(s3: Any) -> None:
    CliRunner().invoke(cli, ["tables", "create"], prog_name="holdfast")
    bucket = os.environ["S3_BUCKET"]
    theirs = {"ID": "logs", "Status": "Enabled", "Filter": {"Prefix": "logs/"}, "Expiration": {"Days": 7}}
    s3.put_bucket_lifecycle_configuration(Bucket=bucket, LifecycleConfiguration={"Rules": [theirs]})

    def rules() -> list[str]:
        return [rule["ID"] for rule in s3.get_bucket_lifecycle_configuration(Bucket=bucket)["Rules"]]

    shown = migrate("cleanup", "--dry-run")
    assert '"StorageClass": "GLACIER"' in shown.stdout
    assert "not set: --dry-run" in shown.stdout
    refused = migrate("cleanup")
    assert (refused.exit_code, "the phase is off" in refused.stderr) == (1, True)
    assert rules() == ["logs"]
    for _ in range(3):
        migrate("advance", "--anyway")
    done = migrate("cleanup")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.index('"Rules"') < done.stdout.rindex("set")
    assert rules() == ["logs", "holdfast-webhooks-to-glacier"]
    assert len(told("cleanup")["rules"]) == 2


def test_a_difference_is_listed_and_is_an_exit_code(s3: Any) -> None:
    CliRunner().invoke(cli, ["tables", "create"], prog_name="holdfast")
    migrate("advance")
    migrate("backfill")
    s3.put_object(Bucket=os.environ["S3_BUCKET"], Key="webhooks/1/9/queued.json", Body=life(9)[0].body)
    text = migrate("compare")
    assert (text.exit_code, "missing" in text.stdout, "1 differences" in text.stdout) == (1, True, True)
    shown = migrate("compare", "--json")
    (difference,) = in_shape("compare", shown)["items"]
    assert (difference["kind"], difference["job_id"], difference["s3"]) == ("missing", 9, ["webhooks/1/9/queued.json"])
    words = migrate("status").stdout
    assert "not ready for dual_read:" in words
    assert "1 differences were found" in words


def test_a_key_cannot_write_on_the_terminal(s3: Any) -> None:
    CliRunner().invoke(cli, ["tables", "create"], prog_name="holdfast")
    migrate("advance")
    s3.put_object(Bucket=os.environ["S3_BUCKET"], Key="webhooks/1/\x1b]0;mine\x07ready", Body=b"")
    for command in ("backfill", "compare"):
        shown = migrate(command)
        assert "webhooks/1/" in shown.stdout
        assert not {"\x1b", "\x07"} & set(shown.stdout)


@pytest.mark.parametrize("command", ["status", "backfill", "compare", "advance", "back", "cleanup"])
def test_without_a_bucket_there_is_nothing_to_migrate(
    command: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("S3_BUCKET", raising=False)
    result = migrate(command)
    assert (result.exit_code, "S3_BUCKET is not set" in result.stderr) == (2, True)
