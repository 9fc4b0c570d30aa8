"""`holdfast simulate`: the program in a simulated world, with faults, and checkers that watch."""

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
from holdfast.cli.output import print_json, print_words
from holdfast.cli.simulate_options import Days, ScenarioName, SvgFile, check_together, names_of
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.text import some

if TYPE_CHECKING:
    from holdfast.entrypoints.simulation import Question, Tally
    from holdfast.simulator.run import Outcome

_SHOWN_MOST: Final = 3  # violations that are shrunk and told in full
_BAR: Final = 30


@click.command("simulate", short_help="Run Holdfast in a simulated world, under its invariants.")
@click.option(
    "--seed", metavar="N", type=click.IntRange(0), default=1, show_default=True, help="The seed, or the first of many."
)
@click.option("--seeds", metavar="N", type=click.IntRange(1), help="How many seeds to search, one after the other.")
@click.option("--jobs", metavar="N", type=click.IntRange(1, 64), help="Processes for a search.  [default: 1]")
@click.option("--days", metavar="DAYS", type=Days(0.1, 365), help="Virtual days for each seed.  [default: 0.25]")
@click.option(
    "--scenario",
    metavar="NAME",
    type=ScenarioName(),
    help="A scenario of the library instead of what the seed draws; 'list' shows them.",
)
@click.option(
    "--faults",
    type=click.Choice(["none", "mild", "wild"]),
    help="How much goes wrong.  [default: wild; none for a scenario]",
)
@click.option(
    "--only", metavar="NAMES", help="Of the run's faults only these, by name, separated by commas; 'none' for no fault."
)
@click.option("--plot", type=SvgFile(), metavar="FILE.svg", help="Draw the run into this file.")
@click.option("--story", is_flag=True, help="Tell everything that happened, line by line.")
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
    """Run Holdfast in a simulated world and hold it to its invariants.

    A seed decides everything: the cluster, its load, the settings, the jobs at GitHub, and what goes wrong. It stands
    for six hours, four with faults and two in which the world is well and everything must settle. The exit code is 1
    when an invariant did not hold; then the faults that are needed for it are told, what happened, and the command to
    see it again.
    """
    import logging

    from holdfast.entrypoints.simulation import Question
    from holdfast.simulator.swarm import Faultiness

    logging.disable(logging.WARNING)  # the program complains of every fault
    check_together(
        {"--seeds": seeds, "--jobs": jobs, "--days": days, "--only": only, "--plot": plot, "--story": story or None},
        scenario,
        as_json=as_json,
    )
    if scenario == "list":
        _list_scenarios(as_json=as_json)
        return
    mood = Faultiness(faults or ("none" if scenario else "wild"))
    question = Question(seed, mood, days, scenario)
    if seeds is None:
        _one(question, None if only is None else names_of(only), plot=plot, story=story, as_json=as_json)
    else:
        _many(question, seeds, jobs or 1, as_json=as_json)


def _one(question: Question, only: list[str] | None, *, plot: Path | None, story: bool, as_json: bool) -> None:
    from holdfast.entrypoints.simulation import answer, tallied

    outcome = answer(question, only, sampled=plot is not None)
    if only is not None:
        _check_names(question, only, outcome)
    if plot is not None:
        _draw(plot, outcome)
    tally = tallied(outcome)
    if as_json:
        about = {"seed": question.seed, "story": outcome.story.digest(), "fault_names": outcome.fault_names}
        print_json({**tally.shown(), **about, **({"plot": str(plot)} if plot else {})})
    else:
        if story:
            for line in outcome.story.lines():
                click.echo(line)
        print_words(_setup_words(outcome))
        print_words(_tally_words(tally))
    if outcome.violations:
        _tell_violation(question, outcome, only)
        sys.exit(1)


def _check_names(question: Question, only: list[str], outcome: Outcome) -> None:
    """Names of faults that the run does not have are an error. Those that only others bring about are told."""
    from holdfast.entrypoints.simulation import answer

    missing = [name for name in only if name not in outcome.fault_names]
    if not missing:
        return
    all_names = answer(question, stop_at_first=False).fault_names
    unknown = [name for name in missing if name not in all_names]
    if unknown:
        close = difflib.get_close_matches(unknown[0], all_names, n=1)
        hint = f"did you mean {close[0]}? " if close else ""
        words = "no such fault" if len(unknown) == 1 else "no such faults"
        raise click.UsageError(f"--only: {words} in this run: {', '.join(unknown)}; {hint}--json lists fault_names")
    click.echo(f"did not come about without other faults: {', '.join(missing)}", err=True)


def _many(question: Question, seeds: int, jobs: int, *, as_json: bool) -> None:
    from holdfast.entrypoints.simulation import search

    progress = _Progress(seeds, shows=sys.stderr.isatty())
    tally = search(question, islice(count(question.seed), seeds), jobs, progress.told)
    progress.end()
    if as_json:
        print_json(tally.shown())
    else:
        print_words(_tally_words(tally))
    if tally.found:
        _tell_found(question, tally)
        sys.exit(1)


def _tell_found(question: Question, tally: Tally) -> None:
    from dataclasses import replace

    from holdfast.entrypoints.simulation import answer

    for seed in sorted(tally.found)[:_SHOWN_MOST]:
        again = replace(question, seed=seed)
        _tell_violation(again, answer(again), None)
    left = len(tally.found) - _SHOWN_MOST
    if left > 0:
        others = ", ".join(str(seed) for seed in sorted(tally.found)[_SHOWN_MOST:][:20])
        click.echo(f"and {left} more seeds: {others}", err=True)


def _tell_violation(question: Question, outcome: Outcome, only: list[str] | None) -> None:
    """On stderr, so that --json stays alone on stdout: what broke, what is needed for it, how it came about."""
    from holdfast.entrypoints.simulation import answer, needed_faults
    from holdfast.simulator.checkers import EVERY

    needed = needed_faults(question, outcome) if only is None else only
    shortest = answer(question, needed) if only is None else outcome
    violation, position = shortest.violations[0]
    says = next(checker.says for checker in EVERY if checker.name == violation.invariant)
    lines = [
        "",
        f"{violation.invariant} does not hold: {says}",
        f"  seed {question.seed}: {violation.found}",
        f"  faults that are needed ({len(needed)} of {len(outcome.fault_names)}):",
        *(f"    {name}" for name in needed),
        "  what happened:",
        *(f"    {line}" for line in shortest.story.until(position)),
        "",
        "to see it again:",
        f"  {question.command(needed)}",
    ]
    for line in lines:
        click.echo(line, err=True)


def _draw(path: Path, outcome: Outcome) -> None:
    from holdfast.simulator.plot import drawn_run

    try:
        path.write_text(drawn_run(outcome), encoding="utf-8")
    except OSError as error:
        raise NeedsOperator(f"cannot write {path}: {error.strerror}; name another file with --plot") from error
    click.echo(f"drawn: {path}", err=True)


def _list_scenarios(*, as_json: bool) -> None:
    from holdfast.cli.output import print_table
    from holdfast.simulator.scenarios import SCENARIOS

    rows = [(name, (setup.__doc__ or "").strip()) for name, setup in SCENARIOS.items()]
    if as_json:
        print_json({"items": [{"name": name, "about": about} for name, about in rows], "cursor": None})
    else:
        print_table(["SCENARIO", "WHAT HAPPENS"], rows)


def _setup_words(outcome: Outcome) -> str:
    setup, tracked = outcome.setup, outcome.tracked
    workers = (
        f"{some(setup.workers, 'worker')} in {some(setup.zones, 'zone')}, {setup.shape} load, "
        f"{setup.numbers.min_workers} to {setup.numbers.max_workers} allowed"
    )
    jobs = f"{some(tracked.jobs, 'job')} of {some(tracked.runs, 'run')} at GitHub, {some(tracked.webhooks, 'webhook')}"
    told = [*([workers] if setup.ticks else []), *([jobs] if setup.github else [])]
    return f"seed {setup.seed}: {'; '.join(told)}; {some(len(outcome.fault_names), 'fault')}"


def _tally_words(tally: Tally) -> str:
    found, seeds = some(len(tally.found), "violation"), some(tally.seeds, "seed")
    calls, faults = f"{tally.port_calls:,}", f"{tally.faults.total():,}"
    return f"{seeds}, {tally.virtual_days:.2f} virtual days, {calls} port calls, {faults} faults: {found}"


class _Progress:
    """A bar on stderr, where somebody looks."""

    def __init__(self, seeds: int, *, shows: bool) -> None:
        self._seeds = seeds
        self._shows = shows
        self._started = time.monotonic()

    def told(self, tally: Tally) -> None:
        if not self._shows:
            return
        seconds = max(0.001, time.monotonic() - self._started)
        rates = f"{tally.seeds / seconds:.1f} seeds/s, {tally.virtual_days / seconds:.1f} virtual days/s"
        words = f" {tally.seeds}/{self._seeds}  {rates}, {some(len(tally.found), 'violation')} "
        # One that went on in the next line would leave a piece of itself behind each time.
        width = shutil.get_terminal_size().columns - 1
        room = min(_BAR, max(0, width - len(words)))
        full = round(room * tally.seeds / self._seeds)
        click.echo(f"\r{'█' * full}{'·' * (room - full)}{words[:width]}", err=True, nl=False)

    def end(self) -> None:
        if self._shows:
            click.echo("", err=True)
