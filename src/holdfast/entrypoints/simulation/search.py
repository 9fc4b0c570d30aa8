"""Search many seeds in several processes, and add up what they found."""

import gc
import logging
import os
import signal
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ProcessPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from multiprocessing import active_children, get_context, parent_process
from threading import Event, Thread, current_thread, main_thread
from typing import Any, Final

from holdfast.entrypoints.simulation.program import RunRequest, outcome_of
from holdfast.simulator.proof.run import Outcome

_INTERRUPT_SECONDS: Final = 0.2  # a search looks this often whether it was interrupted


@dataclass
class Tally:
    """The sum of many runs. `found` has the invariant that each failing seed broke."""

    seeds: int = 0
    virtual_days: float = 0.0
    port_calls: int = 0
    faults: Counter[str] = field(default_factory=Counter)
    found: dict[int, str] = field(default_factory=dict)
    github_jobs: int = 0
    webhooks: int = 0

    def add(self, other: "Tally") -> None:
        self.seeds += other.seeds
        self.virtual_days += other.virtual_days
        self.port_calls += other.port_calls
        self.faults += other.faults
        self.found |= other.found
        self.github_jobs += other.github_jobs
        self.webhooks += other.webhooks

    def shown(self) -> dict[str, Any]:
        return {
            "seeds": self.seeds,
            "virtual_days": round(self.virtual_days, 4),
            "port_calls": self.port_calls,
            "github_jobs": self.github_jobs,
            "webhooks": self.webhooks,
            "faults": self.faults.total(),
            "violations": len(self.found),
            "faults_by_kind": dict(sorted(self.faults.items())),
            "found": [{"seed": seed, "invariant": name} for seed, name in sorted(self.found.items())],
        }


def tallied(outcome: Outcome) -> Tally:
    faults = Counter({str(kind): count for kind, count in outcome.faults.items()})
    found = {outcome.setup.seed: outcome.invariants[0]} if outcome.violations else {}
    tracked = outcome.tracked
    return Tally(1, outcome.virtual_days, outcome.port_calls, faults, found, tracked.jobs, tracked.webhooks)


def tally_of(request: RunRequest, seeds: Sequence[int]) -> Tally:
    total = Tally()
    for seed in seeds:
        total.add(tallied(outcome_of(replace(request, seed=seed))))
    return total


def search(
    request: RunRequest, seeds: Iterator[int], jobs: int, report: Callable[[Tally], bool | None], chunk: int = 5
) -> Tally:
    """Run the seeds in `jobs` processes. `report` is called after each chunk; False ends the search."""
    total = Tally()
    # Spawned, not forked: the caller may have threads.
    with (
        _interrupt_noted() as interrupted,
        ProcessPoolExecutor(jobs, mp_context=get_context("spawn"), initializer=_prepare_worker) as pool,
    ):
        running: set[Future[Tally]] = set()
        has_more = True
        while has_more or running:
            while has_more and len(running) < 2 * jobs:
                part = [seed for _, seed in zip(range(chunk), seeds, strict=False)]
                if not part:
                    has_more = False
                    break
                with _interrupts_blocked():
                    running.add(pool.submit(tally_of, request, part))
            done, running = wait(running, _INTERRUPT_SECONDS, FIRST_COMPLETED)
            if interrupted.is_set():
                _abandon(pool)
                raise KeyboardInterrupt
            for future in done:
                total.add(future.result())
            has_more = (not done or report(total) is not False) and has_more
    return total


@contextmanager
def _interrupt_noted() -> Iterator[Event]:
    """Ctrl-C sets the event and raises nothing: an exception inside `submit` leaves a pool that never shuts down."""
    interrupted = Event()
    if current_thread() is not main_thread():  # only the main thread may handle signals
        yield interrupted
        return
    before = signal.signal(signal.SIGINT, lambda _signal, _frame: interrupted.set())
    try:
        yield interrupted
    finally:
        signal.signal(signal.SIGINT, before)


@contextmanager
def _interrupts_blocked() -> Iterator[None]:
    """`submit` starts the workers. They inherit this: Ctrl-C while one is still importing would print its traceback."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


def _abandon(pool: ProcessPoolExecutor) -> None:
    """End the workers at once: a chunk of long runs takes minutes."""
    pool.shutdown(wait=False, cancel_futures=True)
    for worker in active_children():
        worker.terminate()


def _prepare_worker() -> None:
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # a terminal sends Ctrl-C to all processes; the parent handles it
    Thread(target=_end_with_parent, daemon=True).start()
    prepare()


def _end_with_parent() -> None:
    """A worker whose parent was killed would wait for work forever."""
    parent = parent_process()
    if parent is not None:
        parent.join()
        os._exit(1)


def prepare() -> None:
    """Prepare a process for many seeds.

    Logging is off: the program logs every fault. Objects that exist by now stay, so the garbage collector need not
    scan them again and again.
    """
    logging.disable(logging.CRITICAL)
    gc.collect()
    gc.freeze()
