"""Time and CPU of many operations, in rounds that take turns.

CPU is that of this process, user and system, over all its threads; a server's is not in it. Each round measures every
contender once, one after the other, so that a busy machine slows all of them; the figure is the median of rounds.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from threading import Barrier

from bench.harness.run import Progress

Worker = Callable[[], None]


@dataclass(frozen=True, slots=True)
class Sample:
    """One contender in one round. `commits` is set by contenders that count them."""

    operations: int
    seconds: float
    cpu_seconds: float
    commits: int = 0

    @property
    def per_second(self) -> float:
        return self.operations / self.seconds

    @property
    def cpu_us(self) -> float:
        """CPU of one operation."""
        return self.cpu_seconds / self.operations * 1e6


Contender = Callable[[], Sample]


def timed(workers: Sequence[Worker], operations: int) -> Sample:
    """Run the workers at once, each on a thread of its own, and stop the clocks when the last is done."""
    ready = Barrier(len(workers) + 1)

    def start_together(worker: Worker) -> None:
        ready.wait()
        worker()

    with ThreadPoolExecutor(len(workers)) as pool:
        running = [pool.submit(start_together, worker) for worker in workers]
        while ready.n_waiting < len(workers):  # so that the clocks see no thread being started
            time.sleep(0.001)
        started, cpu_started = time.perf_counter(), time.process_time()
        ready.wait()
        for worker in running:
            worker.result()
        return Sample(operations, time.perf_counter() - started, time.process_time() - cpu_started)


def in_turns(
    progress: Progress, subject: str, contenders: Mapping[str, Contender], rounds: int
) -> dict[str, list[Sample]]:
    """Measure each contender once a round; the samples by its name. Those of round 0, the warm-up, are dropped.

    Every other round is reversed, so that no contender always follows the same one.
    """
    samples: dict[str, list[Sample]] = {name: [] for name in contenders}
    for number in range(rounds + 1):
        step = f"{subject}: {f'round {number} of {rounds}' if number else 'warming up'}"
        progress.step(step)
        for name in list(contenders) if number % 2 else reversed(list(contenders)):
            progress.detail(f"{step}: {name}")
            sample = contenders[name]()
            if number:
                samples[name].append(sample)
    return samples
