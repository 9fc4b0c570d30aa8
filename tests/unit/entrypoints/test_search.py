"""A search over many seeds, in worker processes."""

import signal
import sys
from multiprocessing import active_children
from pathlib import Path

import pytest

from holdfast.entrypoints.simulation.program import RunRequest
from holdfast.entrypoints.simulation.search import Tally, search
from holdfast.simulator.proof.swarm import Faultiness


@pytest.mark.skipif(sys.platform != "linux", reason="reads the signal mask of a process from /proc")
def test_ctrl_c_never_reaches_a_worker_not_even_one_that_is_starting() -> None:
    """A terminal sends it to the workers too. One that is still importing would print a traceback."""
    blocked: list[bool] = []

    def report(_total: Tally) -> None:
        for worker in active_children():
            status = Path(f"/proc/{worker.pid}/status").read_text(encoding="utf-8")
            mask = next(int(line.split()[1], 16) for line in status.splitlines() if line.startswith("SigBlk:"))
            blocked.append(bool(mask >> (signal.SIGINT - 1) & 1))

    search(RunRequest(1, Faultiness.NONE, 0.1, None), iter([1]), 1, report)
    assert blocked == [True]
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, ())
