"""Busy organisations, without a cluster: faults first, then healing; the checkers watch."""

from collections.abc import Sequence
from dataclasses import replace
from functools import lru_cache
from pathlib import Path

import pytest

from holdfast.adapters.sqlite import sqlite_store
from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.ports.store.tables import TABLES
from holdfast.simulator.proof.faults import RATES, FaultKind
from holdfast.simulator.proof.github.plans import GitHubPlan, drawn_plan
from holdfast.simulator.proof.numbers import Numbers
from holdfast.simulator.proof.run import Outcome, Run
from holdfast.simulator.proof.swarm import Faultiness, Setup, drawn_setup

KILLS = {kind: RATES[kind] for kind in (FaultKind.KILL_BEFORE, FaultKind.KILL_AFTER, FaultKind.LOST)}


def busy(seed: int, *, organisations: int = 4) -> Setup:
    """The organisations of several seeds in one world, with the faults of one of them, and always with kills."""
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


def violations(outcome: Outcome) -> Sequence[str]:
    return [str(violation) for violation, _ in outcome.violations]


@lru_cache
def finished_run(seed: int) -> tuple[Run, Outcome]:
    """One run, shared by several tests."""
    run = Run(HoldfastProgram(), busy(seed))
    return run, run.outcome()


@pytest.mark.parametrize("seed", range(6))
def test_a_busy_organisation_is_tracked_correctly_in_the_end(seed: int) -> None:
    """Lost, late and repeated deliveries, a store that fails and processes that die: in the end nothing is wrong."""
    _, outcome = finished_run(seed)
    assert violations(outcome) == []
    assert outcome.faults[FaultKind.KILL_BEFORE] + outcome.faults[FaultKind.KILL_AFTER] > 3, (
        "a run without kills proves nothing"
    )
    assert outcome.tracked.jobs > 20


def test_some_interrupted_runs_are_retried() -> None:
    found = [run.recorder.facts.jobs for run, _ in (finished_run(seed) for seed in range(6))]
    assert sum(len(jobs.rerun) for jobs in found if jobs is not None) > 3


class OnSqlite(HoldfastProgram):
    """The same over a file, where a delivery is one transaction."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self.stores: list[Store] = []

    def open_store(self, clock: Clock) -> Store:
        self.stores.append(sqlite_store(self._path, clock, tables=TABLES))
        return self.stores[-1]


@pytest.mark.parametrize("seed", range(50, 53))
def test_a_busy_organisation_on_sqlite_is_tracked_correctly_in_the_end(seed: int, tmp_path: Path) -> None:
    program = OnSqlite(tmp_path / "jobs.db")
    outcome = Run(program, busy(seed, organisations=2), recorded=True).outcome()
    program.stores[0].close()
    assert violations(outcome) == []
    assert ("store", "run_in_transaction") in {call[2:] for call in outcome.calls}


@pytest.mark.slow
@pytest.mark.parametrize("seed", [*range(100, 121), *range(122, 140)])
def test_many_busy_organisations_are_tracked_correctly_in_the_end(seed: int) -> None:
    assert violations(Run(HoldfastProgram(), busy(seed, organisations=8)).outcome()) == []


def test_seed_121_a_run_held_back_by_a_full_day_says_so() -> None:
    """RetryLive: more runs of a repository were interrupted than a day's retries allow; the last one did not say so."""
    run = Run(HoldfastProgram(), busy(121, organisations=12))
    assert violations(run.outcome()) == []
    jobs = run.recorder.facts.jobs
    assert jobs is not None
    left = jobs.claimed.keys() - jobs.rerun.keys()
    told_of = [jobs.run_item(jobs.github.runs[run_id], attempt)["retry"] for run_id, attempt in left]
    refused = {retry["because"] for retry in told_of if retry["state"] == "refused"}
    assert refused == {"the repository's daily limit is reached: AUTO_RETRY_DAILY=20"}


def test_seed_174_a_sweep_that_reads_a_job_older_than_its_index_entry_goes_on() -> None:
    """EndsWell: the entry was of a job that GitHub had announced; the item read was still the fleet's alone."""
    assert violations(Run(HoldfastProgram(), busy(174, organisations=8)).outcome()) == []


def test_seed_455_a_claim_that_another_sweep_found_is_settled() -> None:
    """RunDoneOnce: of two concurrent sweeps, the slower one took the other's claim for settled and dropped the note."""
    assert violations(Run(HoldfastProgram(), busy(455, organisations=8)).outcome()) == []


def test_seed_699_two_sweeps_with_one_claim_do_not_settle_it_as_refused() -> None:
    """RetryOnDemand: one retried the run; the other was refused because of that, stored it, and the jobs got spot."""
    assert violations(Run(HoldfastProgram(), busy(699, organisations=8)).outcome()) == []


def test_seed_1037_a_run_that_a_person_retried_first_counts_towards_a_full_day() -> None:
    """RetryLive: it was claimed and counted; GitHub refused it because a person had been quicker; it still counts."""
    assert violations(Run(HoldfastProgram(), busy(1037, organisations=14)).outcome()) == []
