"""The walks of docs/ARCHITECTURE.md are correct: what they name exists, and is called in that order."""

import ast
import re
import sys
import threading
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import FrameType
from typing import Final, NamedTuple

import pytest
from click.testing import CliRunner

from holdfast.cli.main import cli
from holdfast.entrypoints.daemon import Ticker
from holdfast.entrypoints.tick_reports import TickReports
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.entrypoints.wiring.world import open_world
from holdfast.kernel.settings import load_settings
from tests.support.console_world import ConsoleWorld
from tests.support.webhook_app import Endpoint

ROOT: Final = Path(__file__).parents[3]
SOURCE: Final = ROOT / "src" / "holdfast"
ARCHITECTURE: Final = (ROOT / "docs" / "ARCHITECTURE.md").read_text(encoding="utf-8")
_STOP: Final = re.compile(r"^\d+\. `(?P<file>[\w/]+\.py)`(?P<functions>(?:,? `[\w.]+`)+): ", re.MULTILINE)

Called = dict[tuple[str, str], int]


class Stop(NamedTuple):
    """One step of a walk: a file and functions in it."""

    file: str
    functions: tuple[str, ...]


def walk(title: str) -> list[Stop]:
    section = ARCHITECTURE.partition(f"\n### {title}\n")[2].partition("\n##")[0]
    found = [(each["file"], re.findall(r"`([\w.]+)`", each["functions"])) for each in _STOP.finditer(section)]
    stops = [Stop(file, tuple(functions)) for file, functions in found]
    assert len(stops) == len(re.findall(r"^\d+\. ", section, re.MULTILINE)) > 0, "a step is not `file` `function`: …"
    return stops


WALKS: Final = ("A tick", "A webhook", "A page", "A seed")


@cache
def defined_in(file: str) -> set[str]:
    tree = ast.parse((SOURCE / file).read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef | ast.ClassDef)}
    for node in tree.body:
        if isinstance(node, ast.ClassDef):
            names |= {
                f"{node.name}.{each.name}"
                for each in node.body
                if isinstance(each, ast.FunctionDef | ast.AsyncFunctionDef)
            }
    return names


@pytest.mark.parametrize("title", WALKS)
def test_every_file_and_function_of_a_walk_exists(title: str) -> None:
    for stop in walk(title):
        assert set(stop.functions) <= defined_in(stop.file), stop.file


def called_by(work: Callable[[], object]) -> Called:
    """The functions of the package that `work` calls, on any thread, with the order of their first calls."""
    called: Called = {}
    prefix = f"{SOURCE}/"

    def note(frame: FrameType, event: str, _argument: object) -> None:
        code = frame.f_code
        if event == "call" and code.co_filename.startswith(prefix):
            called.setdefault((code.co_filename.removeprefix(prefix), code.co_qualname), len(called))

    before = sys.getprofile()
    threading.setprofile(note)
    sys.setprofile(note)
    try:
        work()
    finally:
        sys.setprofile(before)
        threading.setprofile(None)
    return called


def check_order(title: str, called: Called) -> None:
    orders = []
    for stop in walk(title):
        for function in stop.functions:
            assert (stop.file, function) in called, f"{stop.file} {function} is not called"
        orders.append(called[stop.file, stop.functions[0]])
    assert orders == sorted(orders), "the functions are called in another order"


def test_the_walk_of_a_tick_is_correct(tmp_path: Path) -> None:
    """With at most 15 modules from the daemon's loop to a recorded launch."""
    settings = load_settings({"HOLDFAST_DATA": str(tmp_path)})
    with open_world(settings) as world:
        store = open_store(settings, world.clock)
        cluster = world.cluster(settings, store)
        ticker = Ticker(cluster, world, TickReports(cluster, []), 60)
        assert world.simulated is not None
        world.simulated.pass_time(60)
        ticker.run()
        world.simulated.pass_time(180)
        called = called_by(ticker.run)
        store.close()
    check_order("A tick", called)
    assert len({stop.file for stop in walk("A tick")}) <= 15


def test_the_walk_of_a_webhook_is_correct() -> None:
    endpoint = Endpoint()
    check_order("A webhook", called_by(endpoint.send_job))


def test_the_walk_of_a_page_is_correct() -> None:
    """With at most 20 modules."""
    world = ConsoleWorld()
    world.tick(2)
    check_order("A page", called_by(lambda: world.get("/")))
    assert len({stop.file for stop in walk("A page")}) <= 20


def test_the_walk_of_a_seed_is_correct() -> None:
    command = ["simulate", "--seed", "7", "--days", "0.1"]
    check_order("A seed", called_by(lambda: CliRunner().invoke(cli, command, catch_exceptions=False)))
