"""`holdfast runners`: what profiles offer and what labels become; and what `jobs explain` says about them."""

import json
import shutil
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result
from jsonschema import Draft202012Validator

from holdfast.adapters.sqlite import sqlite_store
from holdfast.cli.main import cli
from holdfast.cli.runners import split_labels
from holdfast.console.schema.documents import document
from holdfast.ports.store.tables import TABLES
from tests.clocks import StillClock
from tests.payloads import REPOSITORY
from tests.support.job_world import NOW, JobWorld, in_the_afternoon
from tests.support.runner_offers import EXAMPLE, described


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    in_the_afternoon(tmp_path, monkeypatch)
    shutil.copy(EXAMPLE, tmp_path / "holdfast.toml")
    return tmp_path


def holdfast(*arguments: str) -> Result:
    return CliRunner().invoke(cli, arguments, prog_name="holdfast")


def tried(*arguments: str, exit_code: int = 0) -> dict[str, Any]:
    result = holdfast("runners", "try", *arguments, "--json")
    assert (result.exit_code, result.stderr) == (exit_code, ""), result.output
    found: dict[str, Any] = json.loads(result.stdout)
    Draft202012Validator(document("runner-labels")).validate(found)
    return found


def test_classes_are_a_line_for_each_profile_and_one_for_the_bounds() -> None:
    shown = holdfast("runners", "classes").stdout.splitlines()
    assert [line.split()[0] for line in shown] == ["PROFILE", "small", "deploy", "holdfast=…"]
    assert shown[1].endswith("m7i.large, m7a.large and 1 more")
    assert "acme/web, acme/api" in shown[2]


def test_classes_as_json_follow_their_schema() -> None:
    found = json.loads(holdfast("runners", "classes", "--json").stdout)
    Draft202012Validator(document("runner-classes")).validate(found)
    deploy = found["items"][1]
    assert (deploy["profile"], deploy["maximum"], deploy["scope"]) == ("deploy", 2, "repository")
    assert deploy["machine"] == {
        "types": ["m7i.xlarge"],
        "vcpus": "4",
        "memory_gib": "16",
        "architecture": "x64",
        "market": "on-demand",
        "image": "ubuntu-24",
        "launch_template": "lt-0123456789abcdef0:3",
        "disk_gib": 30,
    }


def test_labels_that_are_served_have_a_machine_and_exit_code_0() -> None:
    found = tried("Self-Hosted,holdfast=7/cpu=4/ram=16/spot=false", "--repository", "acme/web")
    assert found["verdict"] == "served"
    assert found["labels"] == ["holdfast=7/cpu=4/ram=16/spot=false", "self-hosted"]
    assert found["served_by"]["machine"]["types"] == ["m7a.xlarge", "m7i-flex.xlarge", "m7i.xlarge"]
    assert found["served_by"]["machine"]["market"] == "on-demand"


def test_labels_that_nobody_can_serve_have_exit_code_1() -> None:
    found = tried("holdfast=7/cpu=64", exit_code=1)
    assert (found["verdict"], found["nearest"], found["served_by"]) == ("unservable", ["holdfast=7/cpu=16"], None)
    shown = holdfast("runners", "try", "holdfast=7/cpu=64")
    assert shown.exit_code == 1
    assert shown.stdout.splitlines()[1:] == [
        "verdict    unservable",
        "labels     holdfast=7/cpu=64",
        "reason     cpu=64 is outside 2-16 of runners.bounds",
        "nearest    holdfast=7/cpu=16",
    ]


@pytest.mark.parametrize("labels", ["ubuntu-latest", "self-hosted,gpu"])
def test_labels_of_other_runners_are_no_error(labels: str) -> None:
    assert tried(labels)["verdict"] == "not_ours"


def test_a_repository_that_is_not_allowed_is_refused() -> None:
    assert tried("deploy", "--repository", "acme/web")["verdict"] == "served"
    assert tried("deploy", "--repository", "acme/docs", exit_code=1)["nearest"] == ["small"]


def test_hostile_labels_are_shown_escaped() -> None:
    result = holdfast("runners", "try", "small", "\x1b[2J\x07" + "x" * 5000)
    assert result.exit_code == 1
    assert "\\x1b[2j\\x07" in result.stdout
    assert all(line.isprintable() for line in result.stdout.splitlines())


@pytest.mark.parametrize(
    ("arguments", "labels"),
    [
        (("a,b",), ["a", "b"]),
        (("a", "b"), ["a", "b"]),
        (("a, b,",), ["a", "b"]),
        (("a,holdfast=1/cpu=4,ram=16",), ["a", "holdfast=1/cpu=4,ram=16"]),
        (("holdfast=1,cpu=4,ram=16,small",), ["holdfast=1,cpu=4,ram=16", "small"]),
        (("holdfast=1", "cpu=4"), ["holdfast=1", "cpu=4"]),
        (("holdfast=1,holdfast=2",), ["holdfast=1", "holdfast=2"]),
    ],
)
def test_commas_separate_labels_and_the_parts_of_a_compound_label(
    arguments: tuple[str, ...], labels: list[str]
) -> None:
    assert split_labels(arguments) == labels


def test_without_profiles_nothing_is_offered_and_nothing_is_ours(directory: Path) -> None:
    (directory / "holdfast.toml").unlink()
    assert holdfast("runners", "classes").stdout.startswith("nothing is offered: holdfast.toml has neither")
    assert json.loads(holdfast("runners", "classes", "--json").stdout) == {"items": [], "cursor": None}
    assert tried("small")["verdict"] == "not_ours"


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ('types = ["m7i.lrge"]', ".types: m7i.lrge is not a known instance type; the nearest is m7i.large"),
        ('family = "m77"\ncpu = 4', ".family: m77 is not a known instance family; the nearest is m7"),
        ('family = "m7g"\ncpu = 4', ": no instance type fits cpu, ram, arch and family, and has an image"),
        ('family = "m7i"\ncpu = 5', ": no instance type fits"),
    ],
)
@pytest.mark.parametrize("command", ["runners classes", "jobs list", "serve"])
def test_a_profile_that_no_machine_fits_is_reported_at_start(
    directory: Path, command: str, line: str, says: str
) -> None:
    (directory / "holdfast.toml").write_text(
        f'[runners.images.u]\ntemplate = "lt-0a:1"\narch = "x64"\n[runners.profiles.x]\nimage = "u"\n{line}\n'
    )
    result = holdfast(*command.split())
    assert (result.exit_code, result.stdout) == (2, "")
    assert result.stderr.startswith(f"holdfast: holdfast.toml: runners.profiles.x{says}")


# jobs explain


@pytest.fixture
def world(directory: Path) -> Iterator[JobWorld]:
    (directory / ".holdfast").mkdir()
    clock = StillClock(NOW)
    with closing(sqlite_store(directory / ".holdfast" / "holdfast.db", clock, tables=TABLES)) as store:
        yield JobWorld(store, clock)


def explained(world: JobWorld, *labels: str) -> list[str]:
    world.run()
    world.job(3, "queued", labels=list(labels))
    result = holdfast("jobs", "explain", "3")
    assert result.exit_code == 0, result.output
    return result.stdout.splitlines()


def test_a_queued_job_is_told_which_machine_its_labels_ask_for(world: JobWorld) -> None:
    _, because, following = explained(world, "small")
    assert because.endswith(
        "Its labels: small. Profile small serves them with m7i.large, m7a.large, m6i.large; spot first; "
        "image ubuntu-24 (x64); 30 GiB of disk."
    )
    assert following == "Next: the runner fleet schedules a runner"


def test_a_queued_job_that_nobody_can_serve_is_told_why_and_what_would_do(world: JobWorld) -> None:
    _, because, following = explained(world, "deploy")
    assert f"profile deploy is only for acme/web, acme/api, and not for {REPOSITORY}" in because
    assert because.endswith("The nearest that would do: small.")
    assert following == "Next: change its labels and run it again; GitHub cancels it after 24 hours"


def test_a_queued_job_for_other_runners_is_not_ours(world: JobWorld) -> None:
    _, because, following = explained(world, "ubuntu-latest")
    assert because.endswith("They are not for Holdfast: its labels are those of GitHub's own runners.")
    assert following == "Next: a runner of GitHub or of another fleet starts it"


def test_without_profiles_a_queued_job_is_explained_as_before(world: JobWorld, directory: Path) -> None:
    (directory / "holdfast.toml").unlink()
    _, because, following = explained(world, "small")
    assert because == "No runner has been requested yet. Its labels: small."
    assert following == "Next: the runner fleet schedules a runner"


def test_the_labels_of_waiting_jobs_are_counted_with_what_becomes_of_them(world: JobWorld) -> None:
    world.run()
    for number, labels in enumerate((["small"], ["ubuntu-latest"], ["Small"], ["deploy"], ["small", "\x1b[2J"]), 3):
        world.job(number, "queued", labels=labels, after=number)
    found = json.loads(holdfast("runners", "classes", "--waiting", "--json").stdout)
    Draft202012Validator(document("runner-classes")).validate(found)
    assert [(each["jobs"], each["labels"], each["verdict"]) for each in found["waiting"]] == [
        (2, ["small"], "served"),
        (1, ["ubuntu-latest"], "not_ours"),
        (1, ["deploy"], "unservable"),
        (1, ["\x1b[2j", "small"], "unservable"),
    ]
    shown = holdfast("runners", "classes", "--waiting").stdout.splitlines()[-4:]
    assert shown[0].split(maxsplit=3) == ["2", REPOSITORY, "small", "m7i.large, m7a.large, m6i.large"]
    assert "unservable: profile deploy is only for" in shown[2]
    assert all(line.isprintable() for line in shown)


# The table of instance types


NEW = ("m99i.large", 2, 8192, "x86_64")
OLD = [("m7i.large", 2, 8192, "x86_64"), ("m7a.large", 2, 8192, "x86_64"), ("m6i.large", 2, 8192, "x86_64")]
MORE = [("m7i.xlarge", 4, 16384, "x86_64"), ("mac2.metal", 8, 16384, "arm64_mac"), ("c7g.large", 2, 4096, "arm64")]


def test_a_newer_table_is_used_from_then_on(directory: Path) -> None:
    (directory / "types.json").write_text(described(NEW, *OLD, *MORE))
    text = EXAMPLE.read_text(encoding="utf-8").replace('"m7i.large", ', '"m99i.large", ')
    (directory / "holdfast.toml").write_text(text)
    assert "m99i.large is not a known instance type" in holdfast("runners", "classes").stderr
    dry = holdfast("runners", "refresh", "types.json", "--dry-run")
    assert dry.stdout.startswith("6 instance types would be written to .holdfast/instance_types.json: 1 new, ")
    assert "m99i.large is not" in holdfast("runners", "classes").stderr
    refreshed = json.loads(holdfast("runners", "refresh", "types.json", "--json").stdout)
    Draft202012Validator(document("runner-types")).validate(refreshed)
    assert (refreshed["types"], refreshed["added"], refreshed["done"]) == (6, ["m99i.large"], True)
    assert tried("small")["served_by"]["machine"]["types"][0] == "m99i.large"


@pytest.mark.parametrize(
    "text",
    ["", "[]", "{}", '{"InstanceTypes": [{}]}', '{"InstanceTypes": 4}', described(), described(("x.y", 0, 1, "arm64"))],
)
def test_a_file_that_is_not_ec2s_answer_changes_nothing(directory: Path, text: str) -> None:
    (directory / "types.json").write_text(text)
    result = holdfast("runners", "refresh", "types.json")
    assert (result.exit_code, result.stdout, result.stderr.count("\n")) == (1, "", 1), result.output
    assert not (directory / ".holdfast" / "instance_types.json").exists()
    assert holdfast("runners", "refresh", "missing.json").exit_code == 1


def test_a_broken_table_names_its_remedy(directory: Path) -> None:
    (directory / ".holdfast").mkdir()
    (directory / ".holdfast" / "instance_types.json").write_text('{"families": {"m7i": ["sparc", {"large": [2, 8]}]}}')
    result = holdfast("runners", "classes")
    assert result.exit_code == 1
    assert "replace it with 'holdfast runners refresh' or remove it" in result.stderr
