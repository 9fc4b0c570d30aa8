"""`holdfast migrate` from start to finish: S3 on moto's server, the tables in a SQLite file."""

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from holdfast.cli.main import cli
from holdfast.console.schema.documents import document
from holdfast.jobs.migration import compare, phases, status
from tests.support.migration_world import life


def migrate(*arguments: str) -> Result:
    return CliRunner().invoke(cli, ["migrate", *arguments], prog_name="holdfast")


def migrate_json(*arguments: str) -> dict[str, Any]:
    result = migrate(*arguments, "--json")
    assert result.exit_code == 0, result.stderr
    return in_shape(arguments[0], result)


def in_shape(command: str, result: Result) -> dict[str, Any]:
    """What it printed, checked against its published schema."""
    found: dict[str, Any] = json.loads(result.stdout)
    name = "moved" if command in ("advance", "back") else command
    Draft202012Validator(document(f"migrate-{name}")).validate(found)
    return found


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    """No other instances have to follow a move, and there are no live webhooks."""
    for module in (phases, status):
        monkeypatch.setattr(module, "SETTLED_SECONDS", 0.0)
    monkeypatch.setattr(compare, "RECHECK_SECONDS", 0.0)


def test_a_whole_migration_and_back(s3: Any) -> None:
    begun = CliRunner().invoke(cli, ["tables", "create"], prog_name="holdfast")
    assert begun.exit_code == 0, begun.stderr
    assert migrate_json("status")["phase"] == "off"
    refused = migrate("backfill")
    assert (refused.exit_code, "first run: holdfast migrate advance" in refused.stderr) == (1, True)
    assert migrate_json("advance", "--dry-run")["done"] is False
    assert "would move from off to dual_write" in migrate("advance", "--dry-run").stdout
    assert migrate_json("status")["phase"] == "off"
    assert migrate_json("advance")["to"] == "dual_write"
    shown = migrate("advance", "--dry-run").stdout
    assert "would be refused: move from dual_write to dual_read\n  no backfill" in shown
    assert migrate_json("backfill", "--dry-run")["written"] == 15
    assert migrate_json("backfill", "--rate", "1000")["written"] == 15
    assert migrate_json("backfill")["there"] == 15
    assert migrate_json("compare", "--sample", "0.9")["items"] == []
    refused = migrate("advance")
    assert (refused.exit_code, "only a share of 0.9 of the jobs was compared" in refused.stderr) == (1, True)
    compared = migrate_json("compare")
    assert (compared["jobs"], compared["items"], compared["cursor"]) == (5, [], None)
    refused = migrate("advance", "--to", "dynamodb_only")
    assert (refused.exit_code, "first move to dual_read" in refused.stderr) == (1, True)
    assert migrate_json("advance")["to"] == "dual_read"
    assert migrate_json("advance")["to"] == "dynamodb_only"
    last = migrate_json("status")
    assert (last["phase"], last["next"], last["against"]) == ("dynamodb_only", None, [])
    assert [migrate_json("back")["to"] for _ in range(3)] == ["dual_read", "dual_write", "off"]
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
    assert "not set (--dry-run)" in shown.stdout
    refused = migrate("cleanup")
    assert (refused.exit_code, "the phase is off" in refused.stderr) == (1, True)
    assert rules() == ["logs"]
    for _ in range(3):
        migrate("advance", "--anyway")
    done = migrate("cleanup")
    assert done.exit_code == 0, done.stderr
    assert done.stdout.index('"Rules"') < done.stdout.rindex("set")
    assert rules() == ["logs", "holdfast-webhooks-to-glacier"]
    assert len(migrate_json("cleanup")["rules"]) == 2


def test_a_difference_is_listed_and_sets_the_exit_code(s3: Any) -> None:
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
    assert "found 1 differences" in words


def test_control_characters_in_a_key_do_not_reach_the_terminal(s3: Any) -> None:
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
