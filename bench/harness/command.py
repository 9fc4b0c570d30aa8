"""The command line. Figures go to stdout, progress to stderr.

A missed goal is shown, but is not a failure: machines are noisy. Exit codes: 0 measured, 1 a benchmark failed, 2 wrong
usage, 130 interrupted.
"""

import sys
import traceback
from contextlib import redirect_stdout
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final

import click

from bench.harness import machine, report
from bench.harness.catalogue import BENCHMARKS, Benchmark, NoSuchBenchmark, benchmark, every_benchmark
from bench.harness.report import Result
from bench.harness.run import prepared
from holdfast.cli.terminal.output import print_json, print_table

RESULTS: Final = BENCHMARKS / "RESULTS.md"

INTERRUPTED: Final = 130  # 128 + SIGINT, as shells count


class BenchmarkFailed(Exception):
    """Some of the benchmarks raised an error; the others were measured."""


@click.command("python -m bench")
@click.argument("name")
@click.option("as_json", "--json", is_flag=True, help="One JSON object on stdout, nothing else.")
@click.option("--quick", is_flag=True, help="Few operations: shows that it runs; the figures say nothing.")
def command(name: str, *, as_json: bool, quick: bool) -> None:
    """Run the benchmark NAME; `all` runs all of them and writes bench/RESULTS.md, `list` lists their names."""
    if name == "list":
        _list(as_json=as_json)
    elif name == "all":
        _run_all(as_json=as_json, quick=quick)
    else:
        result = _run(benchmark(name), quick=quick)
        _print(result, as_json=as_json)


def main(arguments: list[str]) -> int:
    try:
        command.main(arguments, standalone_mode=False)
    except click.Abort:
        return INTERRUPTED
    except (click.ClickException, NoSuchBenchmark) as error:
        text = error.format_message() if isinstance(error, click.ClickException) else str(error)
        print(f"bench: {text}", file=sys.stderr)
        return 2
    except BenchmarkFailed as error:
        print(f"bench: {error}", file=sys.stderr)
        return 1
    return 0


def _list(*, as_json: bool) -> None:
    found = every_benchmark()
    if as_json:
        print_json(_listing([{"name": each.name, "about": each.about} for each in found]))
    else:
        print_table(["name", "what it measures"], [(each.name, each.title) for each in found])


def _run_all(*, as_json: bool, quick: bool) -> None:
    """Run all, even if one fails: a run takes half an hour."""
    results, failed = [], []
    for each in every_benchmark():
        try:
            results.append(_run(each, quick=quick))
        except Exception:
            traceback.print_exc()
            failed.append(each.name)
    if as_json:
        print_json(_listing([result.as_json() for result in results]))
    else:
        for result in results:
            _print(result, as_json=False)
    if quick:
        print(f"bench: a quick run is not representative; {RESULTS.name} is unchanged", file=sys.stderr)
    else:
        described = machine.description(Path.cwd())
        RESULTS.write_text(report.page(results, described, datetime.now(UTC).date()), encoding="utf-8")
        print(f"bench: wrote {BENCHMARKS.name}/{RESULTS.name}", file=sys.stderr)
    if failed:
        raise BenchmarkFailed(f"failed, and missing from the results: {', '.join(failed)}")


def _run(each: Benchmark, *, quick: bool) -> Result:
    # Helpers that benchmarks use may print what they do; stdout is for figures.
    with prepared(each.name, quick=quick) as run, redirect_stdout(sys.stderr):
        figures = each.measure(run)
    return Result(each, figures, run.notes)


def _print(result: Result, *, as_json: bool) -> None:
    if as_json:
        print_json(result.as_json())
    else:
        print_table(report.COLUMNS, report.rows(result.figures))


def _listing(items: list[dict[str, Any]]) -> dict[str, Any]:
    return {"items": items, "cursor": None}
