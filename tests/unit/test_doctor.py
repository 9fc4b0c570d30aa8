"""The doctor itself: outcomes, time limits, what hides what; settings, the simulated world, and the shipped files."""

import json
import os
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

import pytest
import yaml
from click.testing import CliRunner, Result

from holdfast.cli.colours import painted
from holdfast.cli.doctor import finding_lines
from holdfast.cli.layout import plain
from holdfast.cli.main import cli
from holdfast.entrypoints.doctor import aws, diagnosed, mistyped, summary
from holdfast.entrypoints.doctor.aws import ServerTime
from holdfast.entrypoints.doctor.findings import (
    Check,
    Finding,
    Outcome,
    examined,
    failed,
    of_error,
    ok,
    warning,
)
from holdfast.entrypoints.doctor.granted import ROLE_RULES, STATEMENTS, denied
from holdfast.kernel.errors import BadSetting, NeedsOperator, Retryable
from holdfast.kernel.settings import SETTINGS
from tests.clocks import START, StillClock

DEPLOY: Final = Path(__file__).parents[2] / "deploy"


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)  # it keeps the credentials that another test may have set
    for name in [*os.environ]:
        if name.startswith(("HOLDFAST_", "AWS_")) or name in {row.name for row in SETTINGS}:
            monkeypatch.delenv(name)
    return tmp_path


def holdfast(*arguments: str, **environment: str) -> Result:
    return CliRunner().invoke(cli, arguments, env=environment, prog_name="holdfast")


def told(*arguments: str, **environment: str) -> tuple[int, dict[str, Any]]:
    result = holdfast("doctor", "--json", *arguments, **environment)
    assert result.stderr == "", result.stderr
    return result.exit_code, json.loads(result.stdout)


# How checks are run


def test_a_check_that_fails_or_breaks_hides_no_other() -> None:
    def breaks() -> list[Finding]:
        raise ZeroDivisionError("bug")

    def refuses() -> Iterator[Finding]:
        yield ok("second", "half of it")
        raise NeedsOperator("the thing is gone; put it back")

    found = list(
        examined([Check("first", breaks), Check("second", refuses), Check("third", lambda: [ok("third", "fine")])])
    )
    assert [(each.check, each.outcome) for each in found] == [
        ("first", Outcome.FAILED),
        ("second", Outcome.OK),
        ("second", Outcome.FAILED),
        ("third", Outcome.OK),
    ]
    assert (found[0].seen, found[0].fix) == ("ZeroDivisionError: bug", "a mistake in the program: report it")
    assert (found[2].seen, found[2].fix) == ("the thing is gone", "put it back")


def test_a_check_that_hangs_ends_by_its_limit_and_what_it_found_before_counts() -> None:
    released = threading.Event()

    def hangs() -> Iterator[Finding]:
        yield ok("slow", "the first half")
        released.wait(60)

    found = list(examined([Check("slow", hangs), Check("next", lambda: [ok("next", "fine")])], 0.05))
    released.set()
    assert [(each.check, each.outcome) for each in found] == [
        ("slow", Outcome.OK),
        ("slow", Outcome.FAILED),
        ("next", Outcome.OK),
    ]
    assert found[1].seen == "no answer within 0.05 s"


def test_what_cannot_be_asked_without_another_is_not_asked() -> None:
    checks = [
        Check("a", lambda: [failed("a", "gone", "put it back")]),
        Check("b", lambda: [ok("b", "fine")], needs=("a",)),
        Check("c", lambda: [ok("c", "fine")], needs=("b",)),
        Check("d", lambda: [warning("d", "odd", "look")]),
        Check("e", lambda: [ok("e", "fine")], needs=("d",)),
    ]
    found = list(examined(checks))
    assert [str(each.outcome) for each in found] == ["failed", "not asked", "not asked", "warning", "ok"]
    assert found[1].seen == "mend a first"


def test_what_strangers_say_stays_one_line() -> None:
    (found,) = examined([Check("x", lambda: [failed("x", "a\nholdfast: ok\x1b[2J" + "y" * 2000, "do\nthis")])])
    assert found.seen.isprintable()
    assert found.fix == "do\\nthis"
    assert len(found.seen) < 700


# Settings, and the command


def test_the_simulated_world_says_what_is_simulated() -> None:
    code, answer = told()
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


def test_a_store_that_is_there_is_well() -> None:
    assert holdfast("tables", "create").exit_code == 0
    code, answer = told()
    store = [item for item in answer["items"] if item["check"] in ("store", "tables")]
    assert (code, [item["outcome"] for item in store]) == (0, ["ok", "ok"])
    assert store[1]["seen"] == "all 6 are as declared: keys, indexes, TTL"


def test_a_store_that_is_none_has_failed(directory: Path) -> None:
    (directory / "notes.txt").write_text("dear diary")
    code, answer = told(HOLDFAST_STORE="sqlite:notes.txt")
    (store,) = (item for item in answer["items"] if item["check"] == "store")
    assert (code, store["outcome"]) == (1, "failed")
    assert "not a SQLite file" in store["seen"]
    assert "name another one in HOLDFAST_STORE" in store["seen"] + store["fix"]


def test_wrong_settings_are_findings_and_nothing_else_is_asked() -> None:
    code, answer = told(MAX_WORKERS="ten", CPU_UP="2")
    assert code == 1
    assert [(item["check"], item["outcome"]) for item in answer["items"]] == [
        ("settings", "failed"),
        ("settings", "failed"),
        ("everything else", "not asked"),
    ]
    assert "MAX_WORKERS=ten is not a whole number" in answer["items"][1]["seen"] + answer["items"][0]["seen"]
    assert answer["world"] is None


def test_everything_that_aws_needs_and_nobody_set_is_told_at_once() -> None:
    """Also without credentials: one thing that is missing does not hide the next."""
    code, answer = told(HOLDFAST_WORLD="aws", AWS_EC2_METADATA_DISABLED="true", AWS_DEFAULT_REGION="eu-west-1")
    assert code == 1
    failures = [item["seen"] for item in answer["items"] if item["outcome"] == "failed"]
    for name in ("LAUNCH_TEMPLATE", "SUBNETS", "PROMETHEUS_URL", "K3S_URL", "KUBECONFIG", "GITHUB_WEBHOOK_SECRET"):
        assert any(seen.startswith(name) for seen in failures), name
    (credentials,) = (item for item in answer["items"] if item["check"] == aws.IDENTITY)
    assert credentials["fix"].startswith("set AWS_PROFILE or AWS_ACCESS_KEY_ID")


def test_a_variable_that_looks_like_a_setting_is_a_warning() -> None:
    assert list(mistyped({"MAX_WORKER": "5", "MAX_WORKERS": "5", "PATH": "/", "AWS_REGION": "x"})) == [
        ("MAX_WORKER", "MAX_WORKERS")
    ]
    code, answer = told(COOLDOWN_UP_SECS="9")
    (found,) = (item for item in answer["items"] if item["outcome"] == "warning" and item["check"] == "settings")
    assert (code, found["fix"]) == (0, "did you mean COOLDOWN_UP_SEC?")


def test_for_people_each_finding_is_a_line_and_the_last_one_counts() -> None:
    result = holdfast("doctor")
    lines = result.stdout.splitlines()
    assert lines[0].startswith("ok         settings: ")
    assert lines[1].endswith("; fix: holdfast run makes it")
    assert lines[-1] == "1 ok, 2 warning, 0 failed, 5 not asked"


@pytest.mark.parametrize("width", [40, 80, 120])
def test_on_a_terminal_a_finding_fits_and_says_below_what_to_do(width: int) -> None:
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
def test_the_clock_is_held_against_the_servers(skew_seconds: int, outcome: str) -> None:
    from holdfast.entrypoints.doctor import _clock

    time = ServerTime()
    time.heard("AWS", "Fri, 15 Jan 2100 10:00:00 GMT", START.plus(skew_seconds))
    (found,) = _clock(time)
    assert str(found.outcome) == outcome
    if outcome != "ok":
        assert f"{abs(skew_seconds)} s {'ahead of' if skew_seconds > 0 else 'behind'} AWS" in found.seen


@pytest.mark.parametrize("date", ["", "yesterday", "Fri, 99 Jan 2100 10:00:00 GMT"])
def test_a_date_that_is_none_is_not_heard(date: str) -> None:
    time = ServerTime()
    time.heard("AWS", date, START)
    assert time.theirs is None


# The shipped files


def several(value: str | list[str]) -> list[str]:
    return [value] if isinstance(value, str) else value


def test_the_statements_are_those_of_the_shipped_policies() -> None:
    shipped = {}
    for name in ("holdfast-policy.json", "migration-policy.json"):
        for statement in json.loads((DEPLOY / "iam" / name).read_text())["Statement"]:
            shipped[f"deploy/iam/{name}", statement["Sid"]] = statement
    assert set(shipped) == {(ours.policy, ours.sid) for ours in STATEMENTS}
    for ours in STATEMENTS:
        statement = shipped[ours.policy, ours.sid]
        assert set(ours.actions) == set(several(statement["Action"]))
        if ours.kinds != ("",):
            assert {arn.rpartition(":")[2].partition("/")[0] + "/" for arn in several(statement["Resource"])} == set(
                ours.kinds
            )


def test_the_rights_are_those_of_the_shipped_role() -> None:
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
        ("You are not authorized to perform this operation.", "ec2:RunInstances is denied", "LaunchByThisTemplate or"),
    ],
)
def test_a_denial_names_the_action_and_the_statement_that_is_missing(message: str, seen: str, sid: str) -> None:
    found = denied("ec2:RunInstances", "UnauthorizedOperation", message)
    assert found is not None
    assert str(found) == seen
    assert found.fix.startswith(f"give the role the statement {sid}")
    assert "deploy/iam/holdfast-policy.json" in found.fix


def test_any_other_refusal_is_no_denial() -> None:
    assert denied("ec2:RunInstances", "InvalidSubnetID.NotFound", "The subnet ID 'x' does not exist") is None


def test_settings_that_are_wrong_need_no_clock_and_no_network() -> None:
    first, rest = diagnosed(BadSetting("A is wrong; do B"), {}, StillClock())
    assert (first.outcome, first.seen, first.fix) == (Outcome.FAILED, "A is wrong", "do B")
    assert rest.outcome is Outcome.NOT_ASKED


def test_what_may_pass_by_itself_has_a_remedy_for_who_asks_now() -> None:
    found = of_error("AWS", Retryable("AWS, who are we: could not connect to http://127.0.0.1:9; tried again later"))
    assert (found.outcome, found.seen) == (Outcome.FAILED, "AWS, who are we: could not connect to http://127.0.0.1:9")
    assert "can it be reached from here?" in found.fix
