"""Busy organisations, without a cluster: faults first, then healing; the checkers watch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from holdfast.adapters.sqlite import sqlite_store
from holdfast.entrypoints.simulation import HoldfastProgram
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.ports.store.tables import TABLES
from holdfast.simulator.faults import RATES, Kind
from holdfast.simulator.job_plans import GitHubPlan, drawn_plan
from holdfast.simulator.numbers import Numbers
from holdfast.simulator.run import Outcome, Run
from holdfast.simulator.swarm import Faultiness, Setup, drawn_setup

KILLS = {kind: RATES[kind] for kind in (Kind.KILL_BEFORE, Kind.KILL_AFTER, Kind.LOST)}


def busy(seed: int, *, organisations: int = 4) -> Setup:
    """The organisations of some seeds in one, with the faults of one of them, and kills in any case."""
    setup = drawn_setup(seed, Faultiness.WILD)
    plans = [drawn_plan(seed * 100 + number, setup.safety_seconds, has_faults=True) for number in range(organisations)]
    runs = sorted((run for plan in plans for run in plan.runs), key=lambda run: run.at_seconds)
    return replace(
        setup,
        numbers=Numbers(min_workers=0),
        workers=0,
        daemons=0,
        ticks=False,
        begins_with={},
        load=(),
        rates={**KILLS, **setup.rates},
        github=GitHubPlan(tuple(runs), sweep_seconds=600),
    )


def told(outcome: Outcome) -> Sequence[str]:
    return [str(violation) for violation, _ in outcome.violations]


@lru_cache
def lived(seed: int) -> tuple[Run, Outcome]:
    """Lived once, looked at by several tests."""
    run = Run(HoldfastProgram(), busy(seed))
    return run, run.outcome()


@pytest.mark.parametrize("seed", range(6))
def test_a_busy_organisation_is_known_in_the_end(seed: int) -> None:
    """Lost, late and repeated deliveries, a store that fails and processes that die: in the end nothing is wrong."""
    _, outcome = lived(seed)
    assert told(outcome) == []
    assert outcome.faults[Kind.KILL_BEFORE] + outcome.faults[Kind.KILL_AFTER] > 3, "without kills it shows nothing"
    assert outcome.tracked.jobs > 20


def test_runs_that_spot_took_down_are_run_again_at_all() -> None:
    found = [run.watch.facts.jobs for run, _ in (lived(seed) for seed in range(6))]
    assert sum(len(jobs.run_again) for jobs in found if jobs is not None) > 3


class OnSqlite(HoldfastProgram):
    """The same over a file, where a delivery is one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stores: list[Store] = []

    def open_store(self, clock: Clock) -> Store:
        self.stores.append(sqlite_store(self._path, clock, tables=TABLES))
        return self.stores[-1]


@pytest.mark.parametrize("seed", range(50, 53))
def test_a_busy_organisation_on_sqlite_is_known_in_the_end(seed: int, tmp_path: Path) -> None:
    program = OnSqlite(tmp_path / "jobs.db")
    outcome = Run(program, busy(seed, organisations=2), recorded=True).outcome()
    program.stores[0].close()
    assert told(outcome) == []
    assert ("store", "together") in {call[2:] for call in outcome.calls}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(100, 121), *range(122, 140)])
def test_many_busy_organisations_are_known_in_the_end(seed: int) -> None:
    assert told(Run(HoldfastProgram(), busy(seed, organisations=8)).outcome()) == []


def test_seed_121_a_day_that_is_full_is_told_on_the_run_that_it_held_back() -> None:
    """RetryLive: spot took more runs of a repository than may be run again in a day, and nothing told of the last."""
    run = Run(HoldfastProgram(), busy(121, organisations=8))
    assert told(run.outcome()) == []
    jobs = run.watch.facts.jobs
    assert jobs is not None
    left = jobs.claimed.keys() - jobs.run_again.keys()
    told_of = [jobs.run_item(jobs.github.runs[run_id], attempt)["retry"] for run_id, attempt in left]
    refused = {retry["because"] for retry in told_of if retry["state"] == "refused"}
    assert refused == {"today's cap of its repository is reached: AUTO_RETRY_DAILY=20"}


def test_seed_455_a_claim_that_another_sweep_came_upon_is_settled() -> None:
    """RunDoneOnce: of two sweeps at once, the slower one took the other's claim for its end, and dropped the note."""
    assert told(Run(HoldfastProgram(), busy(455, organisations=8)).outcome()) == []


def test_seed_699_two_sweeps_that_take_up_a_claim_do_not_settle_it_as_refused() -> None:
    """RetryOnDemand: one had it run again; the other was refused for that, said so, and the jobs got spot machines."""
    assert told(Run(HoldfastProgram(), busy(699, organisations=8)).outcome()) == []


def test_seed_1037_a_day_is_full_although_somebody_else_had_one_of_its_runs_run_again() -> None:
    """RetryLive: it was claimed and counted, GitHub refused it since a person had been quicker, and it counts."""
    assert told(Run(HoldfastProgram(), busy(1037, organisations=14)).outcome()) == []
