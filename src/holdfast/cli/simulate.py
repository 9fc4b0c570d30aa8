"""`holdfast simulate`: run Holdfast in a simulated world with faults, and check its invariants."""

from __future__ import annotations

import difflib
import shutil
import sys
import time
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click

from holdfast.cli.options import as_json
from holdfast.cli.simulate_options import Days, ScenarioName, SvgFile, check_combination, fault_names
from holdfast.cli.terminal.output import print_json, print_words
from holdfast.kernel.errors import MissingExtra, NeedsOperator
from holdfast.kernel.text import some

if TYPE_CHECKING:
    from holdfast.entrypoints.simulation.program import RunRequest
    from holdfast.entrypoints.simulation.search import Tally
    from holdfast.simulator.proof.run import Outcome

_SHOWN_MOST: Final = 3  # violations that are shrunk and shown in full
_BAR: Final = 30


@click.command("simulate", short_help="Test Holdfast in a simulated world with faults.")
@click.option(
    "--seed",
    metavar="N",
    type=click.IntRange(0),
    default=1,
    show_default=True,
    help="The seed, or the first seed of a search.",
)
@click.option("--seeds", metavar="N", type=click.IntRange(1), help="Search this many consecutive seeds.")
@click.option("--jobs", metavar="N", type=click.IntRange(1, 64), help="Number of processes for a search.  [default: 1]")
@click.option("--days", metavar="DAYS", type=Days(0.1, 365), help="Virtual days per seed.  [default: 0.25]")
@click.option(
    "--scenario",
    metavar="NAME",
    type=ScenarioName(),
    help="Run this scenario instead of one drawn from the seed; 'list' lists them.",
)
@click.option(
    "--faults",
    type=click.Choice(["none", "mild", "wild"]),
    help="How many faults to inject.  [default: wild; none for a scenario]",
)
@click.option(
    "--only", metavar="NAMES", help="Inject only these faults of the run, separated by commas; 'none' for no faults."
)
@click.option("--plot", type=SvgFile(), metavar="FILE.svg", help="Plot the run to this file.")
@click.option("--story", is_flag=True, help="Print everything that happened, line by line.")
@as_json
def simulate_command(
    *,
    seed: int,
    seeds: int | None,
    jobs: int | None,
    days: float | None,
    scenario: str | None,
    faults: str | None,
    only: str | None,
    plot: Path | None,
    story: bool,
    as_json: bool,
) -> None:
    """Run Holdfast in a simulated world and check its invariants.

    The seed determines everything: the cluster, its load, the settings, the jobs at GitHub, and the faults. A run lasts
    six simulated hours: four with faults, then two without, in which everything must settle. If an invariant is
    violated, the exit code is 1, and the output shows the minimal set of faults, what happened, and the command to
    reproduce it.
    """
    import logging

    try:
        from holdfast.entrypoints.simulation.program import RunRequest
        from holdfast.simulator.proof.swarm import Faultiness
    except ModuleNotFoundError as error:
        raise MissingExtra("'holdfast simulate'", error.name, "simulator") from error

    logging.disable(logging.WARNING)  # every injected fault would be logged
    check_combination(
        {"--seeds": seeds, "--jobs": jobs, "--days": days, "--only": only, "--plot": plot, "--story": story or None},
        scenario,
        as_json=as_json,
    )
    if scenario == "list":
        _list_scenarios(as_json=as_json)
        return
    level = Faultiness(faults or ("none" if scenario else "wild"))
    request = RunRequest(seed, level, days, scenario)
    if seeds is None:
        _run_one(request, None if only is None else fault_names(only), plot=plot, story=story, as_json=as_json)
    else:
        _search(request, seeds, jobs or 1, as_json=as_json)


def _run_one(request: RunRequest, only: list[str] | None, *, plot: Path | None, story: bool, as_json: bool) -> None:
    from holdfast.entrypoints.simulation.program import outcome_of
    from holdfast.entrypoints.simulation.search import tallied

    try:
        outcome = outcome_of(request, only, sampled=plot is not None)
    except KeyboardInterrupt:
        click.echo(f"interrupted; seed {request.seed} was not completed", err=True)
        raise
    if only is not None:
        _check_names(request, only, outcome)
    if plot is not None:
        _draw(plot, outcome)
    tally = tallied(outcome)
    if as_json:
        about = {"seed": request.seed, "story": outcome.story.digest(), "fault_names": outcome.fault_names}
        print_json({**tally.shown(), **about, **({"plot": str(plot)} if plot else {})})
    else:
        if story:
            for line in outcome.story.lines():
                click.echo(line)
        print_words(_setup_words(outcome))
        print_words(_tally_words(tally))
    if outcome.violations:
        _print_violation(request, outcome, only)
        sys.exit(1)


def _check_names(request: RunRequest, only: list[str], outcome: Outcome) -> None:
    """Unknown fault names are an error. Faults that occur only together with others are reported."""
    from holdfast.entrypoints.simulation.program import outcome_of

    missing = [name for name in only if name not in outcome.fault_names]
    if not missing:
        return
    all_names = outcome_of(request, stop_at_first=False).fault_names
    unknown = [name for name in missing if name not in all_names]
    if unknown:
        close = difflib.get_close_matches(unknown[0], all_names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        words = "unknown fault" if len(unknown) == 1 else "unknown faults"
        raise click.UsageError(
            f"--only: {words} in this run: {', '.join(unknown)}; {hint}--json lists them as fault_names"
        )
    click.echo(f"did not occur without the other faults: {', '.join(missing)}", err=True)


def _search(request: RunRequest, seeds: int, jobs: int, *, as_json: bool) -> None:
    from holdfast.entrypoints.simulation.search import Tally, search

    progress = _SearchProgress(seeds, shows=sys.stderr.isatty() and not as_json)
    progress.show(Tally())
    # One seed at a time: a bar that moves only after five long ones looks stuck.
    try:
        tally = search(request, islice(count(request.seed), seeds), jobs, progress.show, chunk=1 if seeds < 500 else 5)
    except KeyboardInterrupt:
        progress.end()
        click.echo(f"interrupted after {progress.words()}", err=True)
        raise
    progress.end()
    if as_json:
        print_json(tally.shown())
    else:
        print_words(_tally_words(tally))
    if tally.found:
        _print_violations(request, tally)
        sys.exit(1)


def _print_violations(request: RunRequest, tally: Tally) -> None:
    from dataclasses import replace

    from holdfast.entrypoints.simulation.program import outcome_of

    for seed in sorted(tally.found)[:_SHOWN_MOST]:
        again = replace(request, seed=seed)
        _print_violation(again, outcome_of(again), None)
    left = len(tally.found) - _SHOWN_MOST
    if left > 0:
        others = ", ".join(str(seed) for seed in sorted(tally.found)[_SHOWN_MOST:][:20])
        click.echo(f"and {left} more seeds: {others}", err=True)


def _print_violation(request: RunRequest, outcome: Outcome, only: list[str] | None) -> None:
    """On stderr, because stdout may hold JSON: the violation, the faults it needs, and what happened."""
    from holdfast.entrypoints.simulation.program import needed_faults, outcome_of
    from holdfast.simulator.checkers import EVERY

    needed = needed_faults(request, outcome) if only is None else only
    shortest = outcome_of(request, needed) if only is None else outcome
    violation, position = shortest.violations[0]
    says = next(checker.says for checker in EVERY if checker.name == violation.invariant)
    lines = [
        "",
        f"{violation.invariant} violated: {says}",
        f"  seed {request.seed}: {violation.found}",
        f"  faults needed ({len(needed)} of {len(outcome.fault_names)}):",
        *(f"    {name}" for name in needed),
        "  what happened:",
        *(f"    {line}" for line in shortest.story.until(position)),
        "",
        "to reproduce:",
        f"  {request.command(needed)}",
    ]
    for line in lines:
        click.echo(line, err=True)


def _draw(path: Path, outcome: Outcome) -> None:
    from holdfast.simulator.proof.plot import drawn_run

    try:
        path.write_text(drawn_run(outcome), encoding="utf-8")
    except OSError as error:
        raise NeedsOperator(f"cannot write {path}: {error.strerror}; choose another file with --plot") from error
    click.echo(f"plot written to {path}", err=True)


def _list_scenarios(*, as_json: bool) -> None:
    from holdfast.cli.terminal.output import print_table
    from holdfast.simulator.proof.scenarios import SCENARIOS

    rows = [(name, (setup.__doc__ or "").strip()) for name, setup in SCENARIOS.items()]
    if as_json:
        print_json({"items": [{"name": name, "about": about} for name, about in rows], "cursor": None})
    else:
        print_table(["SCENARIO", "DESCRIPTION"], rows)


def _setup_words(outcome: Outcome) -> str:
    setup, tracked = outcome.setup, outcome.tracked
    workers = (
        f"{some(setup.workers, 'worker')} in {some(setup.zones, 'zone')}, {setup.shape} load, "
        f"{setup.numbers.min_workers} to {setup.numbers.max_workers} allowed"
    )
    jobs = f"{some(tracked.jobs, 'job')} of {some(tracked.runs, 'run')} at GitHub, {some(tracked.webhooks, 'webhook')}"
    parts = [*([workers] if setup.ticks else []), *([jobs] if setup.github else [])]
    return f"seed {setup.seed}: {'; '.join(parts)}; {some(len(outcome.fault_names), 'fault')}"


def _tally_words(tally: Tally) -> str:
    found, seeds = some(len(tally.found), "violation"), some(tally.seeds, "seed")
    calls, faults = f"{tally.port_calls:,}", f"{tally.faults.total():,}"
    return f"{seeds}, {tally.virtual_days:.2f} virtual days, {calls} port calls, {faults} faults: {found}"


class _SearchProgress:
    """A progress bar on stderr, if that is a terminal."""

    def __init__(self, seeds: int, *, shows: bool) -> None:
        self._seeds = seeds
        self._shows = shows
        self._started = time.monotonic()
        self._tally: Tally | None = None

    def words(self) -> str:
        """How far it came, and the seeds that were found."""
        found = sorted(self._tally.found) if self._tally else []
        done = f"{self._tally.seeds if self._tally else 0} of {some(self._seeds, 'seed')}"
        seeds = f" (seeds {', '.join(map(str, found[:20]))})" if found else ""
        return f"{done}: {some(len(found), 'violation')}{seeds}"

    def show(self, tally: Tally) -> None:
        self._tally = tally
        if not self._shows:
            return
        seconds = max(0.001, time.monotonic() - self._started)
        rates = f"{tally.seeds / seconds:.1f} seeds/s, {tally.virtual_days / seconds:.1f} virtual days/s"
        words = f" {tally.seeds}/{self._seeds}  {rates}, {some(len(tally.found), 'violation')} "
        # A line that wraps would leave fragments behind at each update.
        width = shutil.get_terminal_size().columns - 1
        room = min(_BAR, max(0, width - len(words)))
        full = round(room * tally.seeds / self._seeds)
        click.echo(f"\r{'█' * full}{'·' * (room - full)}{words[:width]}", err=True, nl=False)

    def end(self) -> None:
        if self._shows:
            click.echo("", err=True)
