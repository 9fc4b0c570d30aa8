"""The doctor itself: outcomes, time limits, independent checks; settings, the simulated world, the shipped files."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from holdfast.cli.doctor import finding_lines
from holdfast.cli.main import cli
from holdfast.cli.terminal.colours import painted
from holdfast.cli.terminal.layout import plain
from holdfast.entrypoints.doctor import aws, diagnose, summary
from holdfast.entrypoints.doctor.aws import ServerTime
from holdfast.entrypoints.doctor.findings import (
    Check,
    Finding,
    FindingOutcome,
    failed,
    failed_by_error,
    ok,
    run_checks,
    warning,
)
from holdfast.entrypoints.doctor.granted import ROLE_RULES, STATEMENTS, denied
from holdfast.kernel.errors import BadSetting, NeedsOperator, Retryable
from holdfast.kernel.settings import SETTINGS, mistyped
from tests.clocks import START, StillClock

DEPLOY: Final = Path(__file__).parents[3] / "deploy"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps credentials that another test may have set
    for name in [*os.environ]:
        if name.startswith(("HOLDFAST_", "AWS_")) or name in {row.name for row in SETTINGS}:
            monkeypatch.delenv(name)
    return tmp_path


def holdfast(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="holdfast")


def doctor_json(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    result = holdfast("doctor", "--json", *arguments, **environment)
    assert result.stderr == "", result.stderr
    return result.exit_code, json.loads(result.stdout)


# How checks run


def test_a_check_that_fails_or_crashes_hides_no_other() -> None:
    def breaks() -> list[Finding]:
        raise ZeroDivisionError("bug")

    def refuses() -> Iterator[Finding]:
        yield ok("second", "half of it")
        raise NeedsOperator("the thing is gone; put it back")

    found = list(
        run_checks([Check("first", breaks), Check("second", refuses), Check("third", lambda: [ok("third", "fine")])])
    )
    assert [(each.check, each.outcome) for each in found] == [
        ("first", FindingOutcome.FAILED),
        ("second", FindingOutcome.OK),
        ("second", FindingOutcome.FAILED),
        ("third", FindingOutcome.OK),
    ]
    assert (found[0].seen, found[0].fix) == ("ZeroDivisionError: bug", "this is a bug in Holdfast: please report it")
    assert (found[2].seen, found[2].fix) == ("the thing is gone", "put it back")


def test_a_hanging_check_times_out_and_keeps_its_earlier_findings() -> None:
    released = threading.Event()

    def hangs() -> Iterator[Finding]:
        yield ok("slow", "the first half")
        released.wait(60)

    found = list(run_checks([Check("slow", hangs), Check("next", lambda: [ok("next", "fine")])], 0.05))
    released.set()
    assert [(each.check, each.outcome) for each in found] == [
        ("slow", FindingOutcome.OK),
        ("slow", FindingOutcome.FAILED),
        ("next", FindingOutcome.OK),
    ]
    assert found[1].seen == "no answer within 0.05 s"


def test_a_check_that_depends_on_a_failed_one_is_skipped() -> None:
    checks = [
        Check("a", lambda: [failed("a", "gone", "put it back")]),
        Check("b", lambda: [ok("b", "fine")], needs=("a",)),
        Check("c", lambda: [ok("c", "fine")], needs=("b",)),
        Check("d", lambda: [warning("d", "odd", "look")]),
        Check("e", lambda: [ok("e", "fine")], needs=("d",)),
    ]
    found = list(run_checks(checks))
    assert [str(each.outcome) for each in found] == ["failed", "not asked", "not asked", "warning", "ok"]
    assert found[1].seen == "fix a first"


def test_foreign_text_stays_on_one_line() -> None:
    (found,) = run_checks([Check("x", lambda: [failed("x", "a\nholdfast: ok\x1b[2J" + "y" * 2000, "do\nthis")])])
    assert found.seen.isprintable()
    assert found.fix == "do\\nthis"
    assert len(found.seen) < 700


# Settings, and the command


def test_the_simulated_world_says_what_is_simulated() -> None:
    code, answer = doctor_json()
    assert code == 0
    outcomes = {item["check"]: item["outcome"] for item in answer["items"]}
    assert outcomes == {
        "settings": "ok",
        "store": "warning",
        "tables": "warning",
        "EC2, SSM and SQS": "not asked",
        "Kubernetes": "not asked",
        "Prometheus": "not asked",
        "GitHub": "not asked",
        "clock": "not asked",
    }
    assert all("simulated" in item["seen"] for item in answer["items"] if item["outcome"] == "not asked")
    assert (answer["cursor"], answer["world"]) == (None, "sim")
    assert answer["counts"] == {"ok": 1, "warning": 2, "failed": 0, "not asked": 5}


def test_an_existing_store_is_ok() -> None:
    assert holdfast("tables", "create").exit_code == 0
    code, answer = doctor_json()
    store = [item for item in answer["items"] if item["check"] in ("store", "tables")]
    assert (code, [item["outcome"] for item in store]) == (0, ["ok", "ok"])
    assert store[1]["seen"] == "all 6 are as declared: keys, indexes (JOBS_INDEX_PROJECTION=keys), TTL"


def test_a_file_that_is_not_a_store_is_a_failure(directory: Path) -> None:
    (directory / "notes.txt").write_text("dear diary")
    code, answer = doctor_json(HOLDFAST_STORE="sqlite:notes.txt")
    (store,) = (item for item in answer["items"] if item["check"] == "store")
    assert (code, store["outcome"]) == (1, "failed")
    assert "not a SQLite file" in store["seen"]
    assert "set HOLDFAST_STORE to another one" in store["seen"] + store["fix"]


def test_wrong_settings_are_findings_and_nothing_else_is_checked() -> None:
    code, answer = doctor_json(MAX_WORKERS="ten", CPU_UP="2")
    assert code == 1
    assert [(item["check"], item["outcome"]) for item in answer["items"]] == [
        ("settings", "failed"),
        ("settings", "failed"),
        ("everything else", "not asked"),
    ]
    assert "MAX_WORKERS=ten is not a whole number" in answer["items"][1]["seen"] + answer["items"][0]["seen"]
    assert answer["world"] is None


def test_all_missing_settings_for_aws_are_reported_at_once() -> None:
    """Also without credentials: one missing setting does not hide the next."""
    code, answer = doctor_json(HOLDFAST_WORLD="aws", AWS_EC2_METADATA_DISABLED="true", AWS_DEFAULT_REGION="eu-west-1")
    assert code == 1
    failures = [item["seen"] for item in answer["items"] if item["outcome"] == "failed"]
    for name in ("LAUNCH_TEMPLATE", "SUBNETS", "PROMETHEUS_URL", "K3S_URL", "KUBECONFIG", "GITHUB_WEBHOOK_SECRET"):
        assert any(seen.startswith(name) for seen in failures), name
    (credentials,) = (item for item in answer["items"] if item["check"] == aws.IDENTITY)
    assert credentials["fix"].startswith("set AWS_PROFILE or AWS_ACCESS_KEY_ID")


def test_a_damaged_simulated_world_is_found() -> None:
    """'holdfast run' would refuse to start."""
    assert holdfast("tick").exit_code == 0
    _, answer = doctor_json()
    assert ("simulated world", "ok") in [(item["check"], item["outcome"]) for item in answer["items"]]
    stored = Path(".holdfast/world")
    stored.write_bytes(stored.read_bytes()[:-100])
    code, answer = doctor_json()
    (found,) = (item for item in answer["items"] if item["check"] == "simulated world")
    assert (code, found["outcome"]) == (1, "failed")
    assert found["seen"].endswith("was stored by another version or is damaged")
    assert found["fix"].startswith("to start again, remove it")


@pytest.mark.parametrize(
    ("environment", "found"),
    [
        ({}, [("failed", "none is configured")]),
        ({"AWS_REGION": "eu-north-1"}, [("ok", "eu-north-1, from AWS_REGION")]),
        ({"AWS_DEFAULT_REGION": "", "AWS_REGION": "eu-north-1"}, [("ok", "eu-north-1, from AWS_REGION")]),
        ({"AWS_CONFIG_FILE": "aws.ini"}, [("ok", "eu-west-3, from profile default")]),
        (
            {"AWS_DEFAULT_REGION": "eu-west-1", "AWS_REGION": "eu-north-1"},
            [
                ("ok", "eu-west-1, from AWS_DEFAULT_REGION"),
                ("warning", "AWS_DEFAULT_REGION counts, and AWS_REGION=eu-north-1 is ignored"),
            ],
        ),
    ],
)
def test_the_region_and_its_source_are_named(environment: dict[str, str], found: list[tuple[str, str]]) -> None:
    Path("aws.ini").write_text("[default]\nregion = eu-west-3\n", encoding="utf-8")
    outside = {"AWS_EC2_METADATA_DISABLED": "true", "AWS_CONFIG_FILE": "none", "HOLDFAST_STORE": "dynamodb:"}
    _, answer = doctor_json(**{**outside, **environment})
    seen = [(item["outcome"], item["seen"]) for item in answer["items"] if item["check"] == aws.REGION]
    assert seen == found


def test_a_variable_that_looks_like_a_setting_is_a_warning() -> None:
    assert list(mistyped({"MAX_WORKER": "5", "MAX_WORKERS": "5", "PATH": "/", "AWS_REGION": "x"})) == [
        ("MAX_WORKER", "MAX_WORKERS")
    ]
    code, answer = doctor_json(COOLDOWN_UP_SECS="9")
    (found,) = (item for item in answer["items"] if item["outcome"] == "warning" and item["check"] == "settings")
    assert (code, found["fix"]) == (0, "did you mean COOLDOWN_UP_SEC?")


def test_each_finding_is_a_line_and_the_last_line_has_the_counts() -> None:
    result = holdfast("doctor")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ok         settings: ")
    assert lines[1].endswith("; fix: 'holdfast run' creates it")
    assert lines[-1] == "1 ok, 2 warning, 0 failed, 5 not asked"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_a_finding_fits_the_width_with_its_remedy_below(width: int) -> None:
    found = failed(
        "ec2:RunInstances", "is denied on " + "arn:aws:ec2:eu-west-1:123456789012:instance/* " * 3, "ask " * 40
    )
    lines = finding_lines(found, width, plain)
    assert all(len(line) <= width for line in lines)
    assert any(line.strip().startswith("→ ask") for line in lines)
    assert "\x1b[31mfailed\x1b[0m" in finding_lines(found, width, painted)[0]


def test_findings_are_counted_by_outcome() -> None:
    assert summary([ok("a", ""), ok("b", ""), failed("c", "", "")]) == {
        "ok": 2,
        "warning": 0,
        "failed": 1,
        "not asked": 0,
    }


# The clock


@pytest.mark.parametrize(
    ("skew_seconds", "outcome"), [(0, "ok"), (4, "ok"), (-4, "ok"), (30, "warning"), (-30, "warning"), (90, "failed")]
)
def test_the_clock_is_compared_with_the_servers(skew_seconds: int, outcome: str) -> None:
    from holdfast.entrypoints.doctor import _clock

    time = ServerTime()
    time.record("AWS", "Fri, 15 Jan 2100 10:00:00 GMT", START.plus(skew_seconds))
    (found,) = _clock(time)
    assert str(found.outcome) == outcome
    if outcome != "ok":
        assert f"{abs(skew_seconds)} s {'ahead of' if skew_seconds > 0 else 'behind'} AWS" in found.seen


@pytest.mark.parametrize("date", ["", "yesterday", "Fri, 99 Jan 2100 10:00:00 GMT"])
def test_an_invalid_date_is_ignored(date: str) -> None:
    time = ServerTime()
    time.record("AWS", date, START)
    assert time.theirs is None


# The shipped files


def several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_the_statements_match_the_shipped_policies() -> None:
    shipped = {}
    for name in ("holdfast-policy.json", "migration-policy.json"):
        for statement in json.loads((DEPLOY / "iam" / name).read_text())["Statement"]:
            if statement["Effect"] == "Allow":
                shipped[f"deploy/iam/{name}", statement["Sid"]] = statement
    assert set(shipped) == {(ours.policy, ours.sid) for ours in STATEMENTS}
    for ours in STATEMENTS:
        statement = shipped[ours.policy, ours.sid]
        assert set(ours.actions) == set(several(statement["Action"]))
        if ours.kinds != ("",):
            assert {arn.rpartition(":")[2].partition("/")[0] + "/" for arn in several(statement["Resource"])} == set(
                ours.kinds
            )


def test_the_rights_match_the_shipped_role() -> None:
    shipped = set()
    for manifest in yaml.safe_load_all((DEPLOY / "kubernetes" / "role.yaml").read_text()):
        for rule in manifest.get("rules", []):
            for group in rule["apiGroups"]:
                for resource in rule["resources"]:
                    namespace = manifest["metadata"].get("namespace", "")
                    shipped |= {(group, resource, verb, namespace) for verb in rule["verbs"]}
    ours = {(rule.group, rule.resource, verb, rule.namespace) for rule in ROLE_RULES for verb in rule.verbs}
    assert ours == shipped


WHO: Final = "User: arn:aws:sts::123456789012:assumed-role/holdfast/i-1 is not authorized to perform: "


@pytest.mark.parametrize(
    ("message", "seen", "sid"),
    [
        (
            f"You are not authorized to perform this operation. {WHO}ec2:RunInstances on resource: "
            "arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-1 because no identity-based policy allows it",
            "ec2:RunInstances is denied on arn:aws:ec2:eu-west-1:123456789012:subnet/subnet-1",
            "LaunchInTheseSubnets",
        ),
        (
            f"{WHO}iam:PassRole on resource: arn:aws:iam::123456789012:role/worker because no",
            "iam:PassRole is denied on arn:aws:iam::123456789012:role/worker",
            "GiveTheWorkersTheirRole",
        ),
        (
            f"{WHO}ec2:CreateTags on resource: arn:aws:ec2:eu-west-1:123456789012:volume/* with",
            "ec2:CreateTags is denied on arn:aws:ec2:eu-west-1:123456789012:volume/*",
            "TagWhatIsLaunched",
        ),
        (
            f"{WHO}ec2:CreateTags on resource: arn:aws:ec2:eu-west-1:123456789012:instance/i-1 because",
            "ec2:CreateTags is denied on arn:aws:ec2:eu-west-1:123456789012:instance/i-1",
            "TagWhatIsLaunched or MarkOursAsAccepted",
        ),
        ("You are not authorized to perform this operation.", "ec2:RunInstances is denied", "LaunchByThisTemplate or"),
    ],
)
def test_a_denial_names_the_action_and_the_missing_statement(message: str, seen: str, sid: str) -> None:
    found = denied("ec2:RunInstances", "UnauthorizedOperation", message)
    assert found is not None
    assert str(found) == seen
    assert found.fix.startswith(f"add statement {sid}")
    assert "deploy/iam/holdfast-policy.json" in found.fix


def test_any_other_refusal_is_not_a_denial() -> None:
    assert denied("ec2:RunInstances", "InvalidSubnetID.NotFound", "The subnet ID 'x' does not exist") is None


def test_wrong_settings_are_reported_without_clock_or_network() -> None:
    first, rest = diagnose(BadSetting("A is wrong; do B"), {}, StillClock())
    assert (first.outcome, first.seen, first.fix) == (FindingOutcome.FAILED, "A is wrong", "do B")
    assert rest.outcome is FindingOutcome.SKIPPED


@pytest.mark.parametrize("end", ["retried later", "gave up after 3 s of retries"])
def test_a_retryable_problem_still_has_a_remedy(end: str) -> None:
    found = failed_by_error("AWS", Retryable(f"AWS: could not connect to http://127.0.0.1:9; {end}"))
    assert (found.outcome, found.seen) == (
        FindingOutcome.FAILED,
        "AWS: could not connect to http://127.0.0.1:9",
    )
    assert "check the address and the network" in found.fix
