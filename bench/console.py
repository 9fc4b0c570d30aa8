"""Pages of the console: time to first paint, bytes transferred, and CPU with many jobs.

The overview shows six hours of ticks; the jobs page has a SQLite file with 100,000 jobs. The paint is the first
contentful paint in a Chromium with an empty cache; pages are rendered on the server, so the first paint is useful.
Bytes include the page, everything it loads and all headers, compressed as a browser requests them; the reference is
the same uncompressed. CPU is user and system time of `holdfast serve` for each page, with a million jobs compared to
a thousand.
"""

import re
from collections.abc import Iterator, Mapping
from contextlib import ExitStack
from functools import partial
from http.client import HTTPConnection
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Final

from bench.contenders.ingest_sides import cpu_seconds, ours
from bench.contenders.stored_jobs import repository, store_jobs, tick_for
from bench.harness.figures import Figure, ratio_at_most, value_at_most
from bench.harness.measuring import Contender, Sample, in_turns
from bench.harness.run import Run
from holdfast.console.pages.job_list import PAGE
from holdfast.kernel.settings import load_settings
from tests.browser.browsing import NO_CHROMIUM, found_chromium, running_chromium
from tests.servers.processes import HOST, RunningServer

FEW, MANY, MOST = 1_000, 100_000, 1_000_000
QUICK: Final = (300, 350, 400)
MINUTES: Final = 360
ROUNDS, PAGES, PAINTS = 7, 40, 9

PAINT_GOAL: Final = value_at_most(1_000)
BYTES_GOAL: Final = value_at_most(150)
CPU_GOAL: Final = ratio_at_most(1.1)
PATHS: Final = {
    "all jobs": "/jobs",
    "finished jobs": "/jobs?tab=finished",
    "one repository's jobs": f"/jobs?repo={repository(1)}",
}
_PAINTED: Final = """
new Promise((done) => new PerformanceObserver((list) => {
  for (const entry of list.getEntriesByName("first-contentful-paint")) done(entry.startTime);
}).observe({ type: "paint", buffered: true }))
"""


def measure(run: Run) -> list[Figure]:
    few, many, most = QUICK if run.quick else (FEW, MANY, MOST)
    with ExitStack() as opened:
        servers = {}
        for count in (few, many, most):
            run.progress.step(f"storing {count:,} jobs")
            servers[count] = served(run.directory / str(count), count, minutes=5 if run.quick else MINUTES)
            opened.callback(servers[count].stop)
        looked_at = {"overview": (servers[many], "/"), f"jobs page, {many:,} stored": (servers[many], "/jobs")}
        paints = painted(run, looked_at)
        wires = {name: wire(server.port, path) for name, (server, path) in looked_at.items()}
        costs = {what: page_costs(run, what, path, servers[most], servers[few]) for what, path in PATHS.items()}
    return list(figures(paints, wires, costs, (most, few)))


def served(directory: Path, count: int, minutes: int) -> RunningServer:
    """`holdfast serve` with this number of jobs and a cluster with a history."""
    store = f"sqlite:{directory / 'holdfast.db'}"
    directory.mkdir()
    settings = load_settings({"HOLDFAST_STORE": store, "HOLDFAST_DATA": str(directory)})
    tick_for(settings, minutes)
    store_jobs(settings, count)
    return ours(directory, store)


def painted(run: Run, looked_at: Mapping[str, tuple[RunningServer, str]]) -> dict[str, float]:
    program = found_chromium()
    if program is None:
        run.note(f"The paint is left out: {NO_CHROMIUM}")
        return {}
    run.progress.step("painting")
    times: dict[str, list[float]] = {name: [] for name in looked_at}
    with running_chromium(program) as browser:
        for _ in range(1 if run.quick else PAINTS):
            for name, (server, path) in looked_at.items():
                context = browser.new_context()
                page = context.new_page()
                page.goto(server.url + path)
                times[name].append(page.evaluate(_PAINTED))
                context.close()
    return {name: median(each) for name, each in times.items()}


def wire(port: int, path: str) -> tuple[float, float]:
    """Kilobytes of the page and everything it loads: compressed and uncompressed."""
    page = asked(port, path, "identity")[1].decode()
    loaded = [path, *sorted(set(re.findall(r'(?:href|src)="(/static/[^"]+)"', page)))]
    compressed, plain = (
        sum(len(head) + len(body) for head, body in (asked(port, each, encoding) for each in loaded)) / 1000
        for encoding in ("gzip", "identity")
    )
    return compressed, plain


def asked(port: int, path: str, encoding: str) -> tuple[bytes, bytes]:
    connection = HTTPConnection(HOST, port, timeout=60)
    try:
        connection.request("GET", path, headers={"Accept-Encoding": encoding, "Accept": "text/html"})
        answer = connection.getresponse()
        if answer.status != 200:
            raise RuntimeError(f"{path}: {answer.status}")
        return str(answer.headers).encode(), answer.read()
    finally:
        connection.close()


def page_costs(run: Run, what: str, path: str, most: RunningServer, few: RunningServer) -> tuple[float, float]:
    """CPU of a page in milliseconds, with many jobs and with few. Both show a full page of jobs."""
    for server in (most, few):
        rows = asked(server.port, path, "identity")[1].count(b'<th scope="row">')
        if rows != PAGE:
            raise RuntimeError(f"{path}: {rows} jobs, and not {PAGE}")
    pages, rounds = (2, 1) if run.quick else (PAGES, ROUNDS)
    sides: dict[str, Contender] = {
        name: partial(_pages, server, path, pages) for name, server in (("most", most), ("few", few))
    }
    samples = in_turns(run.progress, what, sides, rounds)
    with_most, with_few = (median(sample.cpu_us for sample in samples[name]) / 1000 for name in sides)
    return with_most, with_few


def _pages(server: RunningServer, path: str, count: int) -> Sample:
    cpu_before, begun = cpu_seconds(server.process.pid), perf_counter()
    for _ in range(count):
        asked(server.port, path, "gzip")
    return Sample(count, perf_counter() - begun, cpu_seconds(server.process.pid) - cpu_before)


def figures(
    paints: Mapping[str, float],
    wires: Mapping[str, tuple[float, float]],
    costs: Mapping[str, tuple[float, float]],
    sizes: tuple[int, int],
) -> Iterator[Figure]:
    for name, (compressed, plain) in wires.items():
        if name in paints:
            yield Figure(f"{name}: first useful paint", paints[name], "ms", goal=PAINT_GOAL)
        yield Figure(f"{name}: over the wire, beside uncompressed", compressed, "KB", plain, BYTES_GOAL)
    most, few = sizes
    for what, (with_most, with_few) in costs.items():
        yield Figure(f"{what}: CPU of a page with {most:,}, beside {few:,}", with_most, "ms", with_few, CPU_GOAL)
