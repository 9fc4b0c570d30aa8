"""`holdfast simulate`: the program in a simulated world, with faults, and checkers that watch."""

from __future__ import annotations

import difflib
import sys
import time
from itertools import count, islice
from pathlib import Path
from typing import TYPE_CHECKING, Final

import click
from click.shell_completion import CompletionItem

from holdfast.cli.options import as_json
from holdfast.cli.output import print_json
from holdfast.kernel.errors import NeedsOperator

if TYPE_CHECKING:
    from holdfast.entrypoints.simulation import Question, Tally
    from holdfast.simulator.run import Outcome

_SHOWN_MOST: Final = 3  # violations that are shrunk and told in full
_BAR: Final = 30


class ScenarioName(click.ParamType[str]):
    """The name of a scenario, or 'list'."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        names = self._names()
        if value not in names:
            close = difflib.get_close_matches(value, names, n=1)
            hint = f"did you mean {close[0]!r}? " if close else ""
            self.fail(
                f"there is no scenario {value!r}; {hint}'holdfast simulate --scenario list' shows all", param, ctx
            )
        return value

    def shell_complete(
        self, _ctx: click.Context, _param: click.Parameter, incomplete: str
    ) -> list[CompletionItem[str]]:
        return [CompletionItem(name) for name in self._names() if name.startswith(incomplete)]

    def _names(self) -> list[str]:
        from holdfast.simulator.scenarios import SCENARIOS

        return ["list", *SCENARIOS]


@click.command("simulate")
@click.option("--seed", type=click.IntRange(0), default=1, show_default=True, help="The seed, or the first of many.")
@click.option("--seeds", type=click.IntRange(1), help="How many seeds to search, one after the other.")
@click.option("--jobs", type=click.IntRange(1), default=1, show_default=True, help="Processes for a search.")
@click.option("--days", type=click.FloatRange(0.1, 365), help="Virtual days for each seed.  [default: 0.25]")
@click.option(
    "--scenario",
    type=ScenarioName(),
    help="A scenario of the library instead of what the seed draws; 'list' shows them.",
)
@click.option(
    "--faults",
    type=click.Choice(["none", "mild", "wild"]),
    help="How much goes wrong.  [default: wild; none for a scenario]",
)
@click.option("--only", help="Of the seed's faults only these, by name, separated by commas.")
@click.option("--plot", type=click.Path(dir_okay=False, path_type=Path), help="Draw the run into this SVG file.")
@click.option("--story", is_flag=True, help="Tell everything that happened, line by line.")
@as_json
def simulate_command(
    *,
    seed: int,
    seeds: int | None,
    jobs: int,
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
    if scenario == "list":
        _list_scenarios(as_json=as_json)
        return
    if seeds is not None and (plot or only or story):
        raise click.UsageError("--plot, --only and --story are about one run; leave out --seeds")
    mood = Faultiness(faults or ("none" if scenario else "wild"))
    question = Question(seed, mood, days, scenario)
    if seeds is None:
        chosen = None if only is None else [name.strip() for name in only.split(",") if name.strip()]
        _one(question, chosen, plot=plot, story=story, as_json=as_json)
    else:
        _many(question, seeds, jobs, as_json=as_json)


def _one(question: Question, only: list[str] | None, *, plot: Path | None, story: bool, as_json: bool) -> None:
    from holdfast.entrypoints.simulation import answer, tallied

    outcome = answer(question, only, sampled=plot is not None)
    if plot is not None:
        _draw(plot, outcome)
    tally = tallied(outcome)
    if as_json:
        print_json({**tally.shown(), "seed": question.seed, "story": outcome.story.digest()})
    else:
        if story:
            for line in outcome.story.lines():
                click.echo(line)
        click.echo(_setup_words(outcome))
        click.echo(_tally_words(tally))
    if outcome.violations:
        _tell_violation(question, outcome, only)
        sys.exit(1)


def _many(question: Question, seeds: int, jobs: int, *, as_json: bool) -> None:
    from holdfast.entrypoints.simulation import search

    progress = _Progress(seeds, shows=sys.stderr.isatty())
    tally = search(question, islice(count(question.seed), seeds), jobs, progress.told)
    progress.end()
    if as_json:
        print_json(tally.shown())
    else:
        click.echo(_tally_words(tally))
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
        f"{setup.workers} workers in {setup.zones} zones, {setup.shape} load, "
        f"{setup.numbers.min_workers} to {setup.numbers.max_workers} allowed"
    )
    jobs = f"{tracked.jobs} jobs of {tracked.runs} runs at GitHub, {tracked.webhooks} webhooks"
    told = [*([workers] if setup.ticks else []), *([jobs] if setup.github else [])]
    return f"seed {setup.seed}: {'; '.join(told)}; {len(outcome.fault_names)} faults"


def _tally_words(tally: Tally) -> str:
    found = f"{len(tally.found)} violations" if len(tally.found) != 1 else "1 violation"
    seeds = f"{tally.seeds} seeds" if tally.seeds != 1 else "1 seed"
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
        full = round(_BAR * tally.seeds / self._seeds)
        bar = "█" * full + "·" * (_BAR - full)
        rates = f"{tally.seeds / seconds:.1f} seeds/s, {tally.virtual_days / seconds:.1f} virtual days/s"
        click.echo(f"\r{bar} {tally.seeds}/{self._seeds}  {rates}, {len(tally.found)} violations ", err=True, nl=False)

    def end(self) -> None:
        if self._shows:
            click.echo("", err=True)
