"""The benchmarks: what they print, how they are found, and that both sides of a comparison do the same work."""

import json
import math
import os
import re
import socket
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from datetime import date
from pathlib import Path
from typing import Any

import msgspec
import pytest

from bench import console, reaction, tick
from bench.contenders.cluster_answers import PODS_PER_NODE, Answers, Host
from bench.contenders.dynamodb import BareBoto3, OurDynamo
from bench.contenders.leases import Leases, Size
from bench.contenders.sqlite import BareSqlite, OurSqlite
from bench.harness import catalogue, command, machine, report
from bench.harness.catalogue import BadBenchmark, Benchmark
from bench.harness.figures import Figure, ratio_at_least, ratio_at_most, value_at_least
from bench.harness.measuring import Sample, in_turns, timed
from bench.harness.report import Result
from bench.harness.run import Progress, Run
from holdfast.adapters.kube.reader import node_reader, pod_reader
from holdfast.adapters.sqlite import best_driver
from holdfast.kernel.errors import WriteConflict
from tests.browser.browsing import found_chromium
from tests.servers import dynamodb_local
from tests.support.real_servers import skip_or_fail

ROOT = Path(__file__).parents[3]
KEYS = ["what", "value", "unit", "reference", "ratio", "goal", "met"]


def run_bench(*arguments: str, path: str | None = None) -> subprocess.CompletedProcess[str]:
    """`python -m bench`; with another PATH, if given, and then without JAVA_HOME."""
    environment = None if path is None else {"PATH": path}
    return subprocess.run(
        [sys.executable, "-m", "bench", *arguments],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )


# What is printed


def check_shape(printed: str) -> list[dict[str, Any]]:
    said = json.loads(printed)
    assert list(said) == ["name", "figures"]
    for figure in said["figures"]:
        assert list(figure) == KEYS
        assert isinstance(figure["what"], str)
        assert isinstance(figure["unit"], str)
        assert isinstance(figure["value"], float)
        assert (figure["reference"] is None) == (figure["ratio"] is None)
        assert (figure["goal"] is None) == (figure["met"] is None)
        if figure["reference"] is not None:
            assert math.isclose(figure["ratio"], figure["value"] / figure["reference"], rel_tol=0.01)
    figures: list[dict[str, Any]] = said["figures"]
    return figures


@pytest.fixture(scope="module")
def without_java(tmp_path_factory: pytest.TempPathFactory) -> subprocess.CompletedProcess[str]:
    """A quick run of the store's benchmark without Java."""
    return run_bench("store", "--quick", "--json", path=str(tmp_path_factory.mktemp("empty")))


def test_json_is_one_object_of_the_agreed_shape(without_java: subprocess.CompletedProcess[str]) -> None:
    """Also without Java: then DynamoDB is left out, and one line says so."""
    done = without_java
    assert done.returncode == 0, done.stderr
    figures = check_shape(done.stdout)
    assert {figure["unit"] for figure in figures} == {"/s", "µs", "updates"}
    assert not any("DynamoDB" in figure["what"] for figure in figures)
    assert [line for line in done.stderr.splitlines() if "DynamoDB is left out: " in line and "no java" in line]


def test_every_goal_of_the_store_has_its_figure(without_java: subprocess.CompletedProcess[str]) -> None:
    """The default driver's figures have them, and only those."""
    figures = check_shape(without_java.stdout)
    goals = {figure["what"].partition(", ")[2]: figure["goal"] for figure in figures if figure["goal"]}
    assert goals == {
        "1 writer: CPU per update, beside bare sqlite3": "ratio <= 2.5",
        "64 writers: CPU per update, beside bare sqlite3": "ratio <= 1.5",
        "64 writers: updates, beside 1 writer": "ratio >= 4",
        "64 writers: updates per commit": "value >= 16",
    }
    assert all(best_driver().name in figure["what"] for figure in figures if figure["goal"])


@pytest.mark.real
@pytest.mark.slow
def test_dynamodb_is_measured_where_it_runs() -> None:
    """Its figures join SQLite's, each beside bare boto3."""
    try:
        dynamodb_local.find_java()
        dynamodb_local.fetch()
    except dynamodb_local.Unavailable as error:
        skip_or_fail(str(error))
    done = run_bench("store", "--quick", "--json")
    figures = [figure for figure in check_shape(done.stdout) if figure["what"].startswith("DynamoDB")]
    assert [figure["goal"] for figure in figures if figure["unit"] == "µs"] == [
        "ratio <= 1.15",
        "ratio <= 0.33",
    ] * 2
    assert "left out" not in done.stderr


@pytest.fixture(scope="module")
def quick_tick() -> subprocess.CompletedProcess[str]:
    return run_bench("tick", "--quick", "--json")


@pytest.mark.slow
def test_a_tick_is_measured_over_http_beside_the_bare_reading(quick_tick: subprocess.CompletedProcess[str]) -> None:
    """Each side checks that it saw every node, pod and machine, or the run fails."""
    assert quick_tick.returncode == 0, quick_tick.stderr
    figures = check_shape(quick_tick.stdout)
    assert {figure["unit"] for figure in figures} == {"ms", "MB", "µs"}
    assert all(figure["value"] > 0 and figure["reference"] > 0 for figure in figures)
    for nodes in tick.QUICK_SIZES:
        for kind in tick.TICKS:
            assert len([figure for figure in figures if figure["what"].startswith(f"{nodes} nodes, {kind}")]) == 2


def test_every_goal_of_a_tick_has_its_figure() -> None:
    """The floor at each size, the memory at the largest, and growth between the two largest."""
    cost = tick.Cost(cpu_seconds=1.0, peak_mb=100.0)
    sides = dict.fromkeys([*tick.TICKS.values(), tick.BARE], cost)
    found = [
        (figure.what, str(figure.goal)) for figure in tick.figures(dict.fromkeys(tick.SIZES, sides)) if figure.goal
    ]
    goals = {}
    for kind in ("quiet", "idle"):
        for nodes in ("100", "1,000", "5,000"):
            goals[f"{nodes} nodes, {kind} tick: CPU, beside reading alone"] = "ratio <= 3"
        goals[f"5,000 nodes, {kind} tick: peak of memory, beside reading alone"] = "value <= 400"
        goals[f"{kind} tick: CPU per node with 5,000 nodes, beside 1,000"] = "ratio <= 1.3"
    assert dict(found) == goals
    assert len(found) == len(goals)


@pytest.mark.slow
def test_pages_are_measured_over_stored_jobs() -> None:
    """Both sides show a full page, or the run fails. Without Chromium, the paint is left out with a note."""
    done = run_bench("console", "--quick", "--json")
    assert done.returncode == 0, done.stderr
    figures = check_shape(done.stdout)
    assert {figure["unit"] for figure in figures} - {"ms"} == {"KB"}
    assert ("first useful paint" in done.stdout) == (found_chromium() is not None)
    # Compressed, or a reader on a phone waits for five times as much.
    assert all(figure["ratio"] < 0.5 and figure["met"] for figure in figures if figure["unit"] == "KB")


def test_every_goal_of_the_console_has_its_figure() -> None:
    looked_at = ("overview", "jobs page, 100,000 stored")
    sizes = (console.MOST, console.FEW)
    figures = console.figures(
        dict.fromkeys(looked_at, 400.0),
        dict.fromkeys(looked_at, (20.0, 60.0)),
        dict.fromkeys(console.PATHS, (1, 1)),
        sizes,
    )
    assert {figure.what: str(figure.goal) for figure in figures} == {
        "overview: first useful paint": "value <= 1000",
        "overview: over the wire, beside uncompressed": "value <= 150",
        "jobs page, 100,000 stored: first useful paint": "value <= 1000",
        "jobs page, 100,000 stored: over the wire, beside uncompressed": "value <= 150",
        "all jobs: CPU of a page with 1,000,000, beside 1,000": "ratio <= 1.1",
        "finished jobs: CPU of a page with 1,000,000, beside 1,000": "ratio <= 1.1",
        "one repository's jobs: CPU of a page with 1,000,000, beside 1,000": "ratio <= 1.1",
    }


def test_every_reaction_has_the_goal_and_is_judged_by_its_longest_sample() -> None:
    found = list(reaction.figures({reaction.PENDING: [0.5], reaction.NOTICE: [0.5, 2.5, 1.0]}))
    assert [(figure.value, str(figure.goal), figure.met) for figure in found] == [
        (0.5, "value <= 2", True),
        (2.5, "value <= 2", False),
    ]


FIGURES = [
    Figure("good", 5.0, "/s", 1.0, ratio_at_least(4)),
    Figure("bad", 12345.678, "µs", 4000.0, ratio_at_most(1.5)),
    Figure("few", 3.5, "updates", goal=value_at_least(16)),
    Figure("plain", 0.123456, "s"),
]


def pretend(monkeypatch: pytest.MonkeyPatch, directory: Path, figures: list[Figure], note: str = "") -> Path:
    """One benchmark with these figures, and its own results page."""

    def measure(run: Run) -> list[Figure]:
        print("a helper says what it does")  # noqa: T201 -- as helpers may
        run.progress.step("looking")
        if note:
            run.note(note)
        return figures

    pretended = Benchmark("pretended", "Looks at nothing. Quickly.", measure)
    monkeypatch.setattr(command, "every_benchmark", lambda: [pretended])
    monkeypatch.setattr(command, "benchmark", lambda _: pretended)
    monkeypatch.setattr(command, "RESULTS", directory / "RESULTS.md")
    monkeypatch.chdir(directory)
    return directory / "RESULTS.md"


def test_a_missed_goal_is_shown_and_is_not_a_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Machines are noisy; the reader of the table decides."""
    pretend(monkeypatch, tmp_path, FIGURES)
    assert command.main(["pretended"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert [line.split() for line in out[1:]] == [
        ["good", "5.00", "/s", "1.00", "5.00", "ratio", ">=", "4", "met"],
        ["bad", "12,346", "µs", "4,000", "3.09", "ratio", "<=", "1.5", "missed"],
        ["few", "3.50", "updates", "value", ">=", "16", "missed"],
        ["plain", "0.12", "s"],
    ]


def test_only_figures_reach_stdout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Progress messages of a benchmark and its helpers go to stderr."""
    pretend(monkeypatch, tmp_path, FIGURES, note="Nothing was left out.")
    assert command.main(["pretended", "--json"]) == 0
    said = capsys.readouterr()
    assert len(check_shape(said.out)) == 4
    for line in ("a helper says what it does", "looking", "Nothing was left out.", "done"):
        assert line in said.err


def test_the_data_is_removed_after_a_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pretend(monkeypatch, tmp_path, FIGURES)
    command.main(["pretended"])
    assert [path.name for path in tmp_path.iterdir()] == ["build"]
    assert not list((tmp_path / "build").iterdir())


def test_a_goal_for_a_ratio_needs_a_reference() -> None:
    with pytest.raises(ValueError, match="no reference to divide by"):
        _ = Figure("odd", 1.0, "s", goal=ratio_at_most(2)).met


# The page of results


def test_all_writes_the_results_and_a_quick_run_does_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = pretend(monkeypatch, tmp_path, FIGURES)
    assert command.main(["all", "--quick"]) == 0
    assert not results.exists()
    capsys.readouterr()
    assert command.main(["all", "--json"]) == 0
    assert "## pretended" in results.read_text(encoding="utf-8")
    (item,) = json.loads(capsys.readouterr().out)["items"]
    assert item["name"] == "pretended"


def test_a_benchmark_that_fails_costs_no_other_ones_figures(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    results = pretend(monkeypatch, tmp_path, FIGURES)
    [measured] = command.every_benchmark()  # type: ignore[attr-defined]

    def fail(_: Run) -> list[Figure]:
        raise RuntimeError("its server died")

    broken = Benchmark("broken", "Never ends well.", fail)
    monkeypatch.setattr(command, "every_benchmark", lambda: [broken, measured])
    assert command.main(["all"]) == 1
    assert "## pretended" in results.read_text(encoding="utf-8")
    said = capsys.readouterr().err
    assert "its server died" in said
    assert said.endswith("bench: failed, and missing from the results: broken\n")


def test_the_page_says_what_was_measured_where_and_which_goals_were_missed(tmp_path: Path) -> None:
    """But not on whose machine, nor in which directory."""
    result = Result(Benchmark("pretended", "Looks at nothing. Quickly.", lambda _: []), FIGURES, ["Java is missing."])
    page = report.page([result], machine.description(tmp_path), date(2030, 1, 15))
    for words in ("Looks at nothing. Quickly.", "Java is missing.", "| CPU |", "| SQLite |", "| day | 2030-01-15 |"):
        assert words in page
    assert "| bad | 12,346 | µs | 4,000 | 3.09 | ratio <= 1.5 | missed |" in page
    assert str(tmp_path) not in page
    assert str(ROOT) not in page
    assert f" {socket.gethostname()} " not in page


def test_the_results_belong_to_existing_benchmarks() -> None:
    """As `make bench` wrote them. A missing one was not measured yet."""
    page = command.RESULTS.read_text(encoding="utf-8")
    known = {benchmark.name: benchmark for benchmark in catalogue.every_benchmark()}
    measured = re.findall(r"^## (\w+)$", page, re.MULTILINE)
    assert measured
    assert [name for name in measured if name not in known] == []


def test_the_filesystem_is_that_of_the_innermost_mount(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of two at the same path the later one counts, which hides the other; a space in a name is escaped."""
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "1 0 8:1 / / rw - ext4 /dev/a rw\n"
        "2 1 8:2 / /data\\040here rw shared:1 - xfs /dev/b rw\n"
        "3 1 0:9 / /tmp rw - ext4 /dev/c rw\n"
        "4 1 0:9 / /tmp rw - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr(machine, "_MOUNTS", mounts)
    paths = ("/", "/data here/files", "/data", "/tmp/x", "/tmpfile")  # noqa: S108 -- looked up, not used
    assert [machine.filesystem_of(Path(path)) for path in paths] == ["ext4", "xfs", "ext4", "tmpfs", "ext4"]
    monkeypatch.setattr(machine, "_MOUNTS", tmp_path / "absent")
    assert machine.filesystem_of(Path("/")) == "unknown"


def test_the_cpu_use_of_other_processes_is_reported(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a reader can distinguish a calm machine from a busy one."""
    ticks, stat = os.sysconf("SC_CLK_TCK"), tmp_path / "stat"
    monkeypatch.setattr(machine, "_CPU_TIMES", stat)
    stat.write_text("cpu  0 0 0 0 0 0 0 0 0 0\ncpu0 1 1 1 1\n")
    neighbours = machine.Neighbours()
    # A thousand seconds of CPU: 400 in use (of them a moment by this process), 600 idle or waiting for the disk.
    stat.write_text(f"cpu  {200 * ticks} {100 * ticks} {50 * ticks} {500 * ticks} {100 * ticks} 0 0 {50 * ticks} 7 7\n")
    share = neighbours.cpu_share()
    assert share is not None
    assert math.isclose(share, 0.4, abs_tol=0.01)
    monkeypatch.setattr(machine, "_CPU_TIMES", tmp_path / "absent")
    assert machine.Neighbours().cpu_share() is None


# Which benchmarks there are


def test_list_has_every_benchmark(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()[1:]]
    assert names == catalogue.names()
    assert command.main(["list", "--json"]) == 0
    listed = json.loads(capsys.readouterr().out)
    assert [item["name"] for item in listed["items"]] == names
    assert listed["cursor"] is None


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["stroe"], "there is no benchmark 'stroe'; did you mean store? (python -m bench list shows all)"),
        (["xyz"], "there is no benchmark 'xyz' (python -m bench list shows all)"),
        (["lst"], "there is no benchmark 'lst'; did you mean list? (python -m bench list shows all)"),
        ([], "Missing argument 'NAME'."),
        (["store", "--jsn"], "No such option '--jsn'. Did you mean '--json'?"),
    ],
)
def test_wrong_usage_is_one_line_and_exit_code_2(
    arguments: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    assert command.main(arguments) == 2
    printed = capsys.readouterr()
    assert printed.err == f"bench: {said}\n"
    assert printed.out == ""


@pytest.mark.parametrize(
    ("name", "text", "problem"),
    [
        ("silent", "def measure(run): return []", "bench_with_silent/silent.py has no docstring"),
        ("idle", '"""Measures."""', r"bench_with_idle/idle.py has no function measure\(run\)"),
        ("all", '"""Measures."""\ndef measure(run): return []', "`python -m bench all` means something else"),
    ],
)
def test_a_module_that_is_not_a_benchmark_is_noticed(
    name: str, text: str, problem: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is silently left out of `all`."""
    package = tmp_path / f"bench_with_{name}"  # Python remembers packages by name
    package.mkdir()
    (package / "__init__.py").touch()
    (package / f"{name}.py").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    assert catalogue.names(package) == [name]
    with pytest.raises(BadBenchmark, match=problem):
        catalogue.benchmark(name, package.name, catalogue.names(package))


def test_every_module_beside_the_harness_is_a_benchmark() -> None:
    """With a docstring that says what, against what and how."""
    found = catalogue.every_benchmark()
    assert {benchmark.name for benchmark in found} >= {"store"}
    assert all(len(benchmark.about) > len(benchmark.title) for benchmark in found)


# How it is measured


def sample_maker(name: str, log: list[str]) -> Callable[[], Sample]:
    def measured() -> Sample:
        log.append(name)
        return Sample(10, 2.0, 1.0)

    return measured


def test_contenders_take_turns_and_the_first_round_does_not_count(capsys: pytest.CaptureFixture[str]) -> None:
    """Each round reverses the order; each is a line on stderr."""
    log: list[str] = []
    contenders = {name: sample_maker(name, log) for name in "abc"}
    samples = in_turns(Progress("turns"), "letters", contenders, 2)
    assert "".join(log) == "cba" + "abc" + "cba"
    assert {name: len(taken) for name, taken in samples.items()} == {"a": 2, "b": 2, "c": 2}
    assert (samples["a"][0].per_second, samples["a"][0].cpu_us) == (5.0, 100_000.0)
    steps = [line.partition("letters: ")[2] for line in capsys.readouterr().err.splitlines()]
    assert steps == ["warming up", "round 1 of 2", "round 2 of 2"]


def test_a_worker_that_fails_fails_the_measurement() -> None:
    """Failed calls must not count as throughput."""

    def fail() -> None:
        raise RuntimeError("out of order")

    with pytest.raises(RuntimeError, match="out of order"):
        timed([fail, lambda: None], 2)


# Both sides do the same work


class Recorder:
    """A client or a transport that records its requests."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []

    def update_item(self, **request: Any) -> None:
        self.requests.append(request)

    def call(self, operation: str, request: dict[str, Any]) -> dict[str, Any]:
        assert operation == "UpdateItem"
        self.requests.append(request)
        return {"Attributes": {"pk": {"S": "x"}, "fence": {"N": "3"}}}

    def close(self) -> None: ...


def test_both_sides_send_dynamodb_the_same_request() -> None:
    """The same expressions, condition and return values; only the item's name differs."""
    ours, bare = Recorder(), Recorder()
    OurDynamo(ours).take("cluster-0001", 3)
    BareBoto3(bare).take("cluster-0001", 3)
    (sent,), (expected,) = ours.requests, bare.requests
    assert sent.pop("Key") == {"pk": {"S": "ours-cluster-0001"}}
    assert expected.pop("Key") == {"pk": {"S": "bare-cluster-0001"}}
    assert sent == expected


def test_the_pages_of_a_large_cluster_are_complete_and_as_long_as_real_ones() -> None:
    """Both readers find every object once, whatever the size of a page."""
    hosts = [Host(f"i-{number:017x}", f"10.0.0.{number}", "eu-west-1a") for number in range(7)]
    answers = Answers(hosts)
    pods, start = [], 0
    while True:
        body = answers.page("pods", start, 40)
        page, bare = pod_reader().page(body), msgspec.json.decode(body)
        assert [pod.uid for pod in page.items] == [pod["metadata"]["uid"] for pod in bare["items"]]
        sizes = [len(msgspec.json.encode(pod)) for pod in bare["items"]]
        assert min(sizes) > 3_000
        assert max(sizes) < 9_000
        pods += page.items
        if not page.more:
            break
        start = int(page.more)
    assert len({pod.uid for pod in pods}) == len(pods) == 7 * PODS_PER_NODE
    (nodes,) = [node_reader().page(answers.page("nodes", 0, 40))]
    assert [(node.name, node.internal_ip) for node in nodes.items] == [(host.instance, host.address) for host in hosts]
    assert {pod.node for pod in pods} == {node.name for node in nodes.items if node.is_ready}


def test_both_sides_leave_the_same_items_in_sqlite(tmp_path: Path) -> None:
    """And each refuses a lease that another holds."""
    size = Size(items=4, updates_each={1: 6}, rounds=1)
    with closing(OurSqlite(tmp_path / "o.db", best_driver())) as ours, closing(BareSqlite(tmp_path / "b.db")) as bare:
        for side in (ours, bare):
            leases = Leases(side, size)
            assert leases.taken_by(1).operations == 6
            leases.check()
            with pytest.raises((WriteConflict, RuntimeError), match="fence"):
                side.take("cluster-0000", 99)
        items = [ours.read(f"cluster-000{number}") for number in range(4)]
        assert items == [bare.read(f"cluster-000{number}") for number in range(4)]
    assert sum(item["fence"] for item in items) == 6


def test_a_missing_update_fails_the_benchmark(tmp_path: Path) -> None:
    """Otherwise a store that loses writes would look fast."""
    with closing(BareSqlite(tmp_path / "bare.db")) as bare:
        leases = Leases(bare, Size(items=2, updates_each={1: 4}, rounds=1))
        leases.taken_by(1)
        bare.take("cluster-0000", 2)
        with pytest.raises(RuntimeError, match="cluster-0000: fence 3, expected 2 after the updates"):
            leases.check()
