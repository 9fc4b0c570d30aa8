"""Writes under a storm of Ctrl-C, in a separate process: interrupts reach the main thread only."""

import os
import random
import signal
import sys
import threading
from pathlib import Path

from holdfast.kernel.errors import StoreUnavailable
from holdfast.ports.store import Key, attr
from tests.unit.adapters.sqlite.cases import DRIVERS, FLAGS, OpenStore

_INTERRUPTS = 100
_OTHERS = 6


class Storm:
    """Counters that many threads count up, while one of them is interrupted again and again."""

    def __init__(self, path: Path, driver_name: str) -> None:
        [driver] = [driver for driver in DRIVERS if driver.name == driver_name]
        self.opened = OpenStore(path, driver)
        self.is_over = threading.Event()
        self.is_open = False  # whether an interrupt may be sent
        self.acknowledged, self.unknown = [0] * (_OTHERS + 1), [0] * (_OTHERS + 1)

    def write(self, number: int) -> None:
        self.unknown[number] += 1
        try:
            self.opened.store.update(FLAGS, Key(f"f{number}"), attr("count").plus(1))
        except StoreUnavailable:
            return
        # In this order: an interrupt in between then only makes the count a little less exact.
        self.acknowledged[number] += 1
        self.unknown[number] -= 1

    def go_on_writing(self, number: int) -> None:
        while not self.is_over.is_set():
            self.write(number)

    def go_on_interrupting(self) -> None:
        source = random.Random(7)
        while not self.is_over.is_set():
            for _ in range(source.randrange(20_000)):
                pass
            os.kill(os.getpid(), signal.SIGINT)

    def interrupt(self, *_: object) -> None:
        """Once for each write, so that none arrives while this program handles another."""
        if self.is_open:
            self.is_open = False
            raise KeyboardInterrupt

    def write_under_interrupts(self) -> None:
        handled = 0
        while handled < _INTERRUPTS:
            try:
                self.is_open = True
                self.write(0)
                self.is_open = False
            except KeyboardInterrupt:
                handled += 1

    def check(self) -> None:
        for number in range(_OTHERS + 1):
            item = self.opened.store.get(FLAGS, Key(f"f{number}"))
            least = self.acknowledged[number]
            assert item is not None
            most = least + self.unknown[number]
            assert least <= item["count"] <= most, (number, least, item["count"], most)


def main(path: Path, driver_name: str) -> None:
    storm = Storm(path, driver_name)
    signal.signal(signal.SIGINT, storm.interrupt)
    threads = [threading.Thread(target=storm.go_on_writing, args=(number,)) for number in range(1, _OTHERS + 1)]
    threads.append(threading.Thread(target=storm.go_on_interrupting))
    for thread in threads:
        thread.start()
    storm.write_under_interrupts()
    storm.is_over.set()
    for thread in threads:
        thread.join()
    storm.check()
    storm.opened.store.close()
    sys.stdout.write("all threads ended, and the counts are right\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2])
