"""A Chromium, and Holdfast as `make run` starts it: in the simulated world, on an empty directory."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.browser.browsing import NO_CHROMIUM, Visitor, found_chromium, running_chromium
from tests.support.demo_server import RunningHoldfast, running_holdfast

PICTURES = Path(__file__).parents[2] / "build" / "pictures"


@pytest.fixture(scope="session")
def chromium() -> str:
    """Checked before anything starts. If it may be missing, the tests are not even collected."""
    program = found_chromium()
    if program is None:
        pytest.fail(NO_CHROMIUM)
    return program


@pytest.fixture(scope="module")
def holdfast(chromium: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningHoldfast]:
    """One for all tests that only read, or undo their changes."""
    with running_holdfast(tmp_path_factory.mktemp("console") / "data") as running:
        running.until("/api/overview", lambda data: data["jobs"]["installations"] and data["latest"])
        running.until("/api/jobs?status=completed", lambda found: len(found.get("items", ())) >= 3)
        yield running


@pytest.fixture(scope="module")
def browser(chromium: str) -> Iterator[Browser]:
    with running_chromium(chromium) as browser:
        yield browser


@pytest.fixture
def visitor(browser: Browser) -> Iterator[Visitor]:
    """The test fails if its browser reports a problem."""
    visitor = Visitor(browser)
    yield visitor
    visitor.leaves()
    assert visitor.problems == []


@pytest.fixture(scope="session")
def pictures() -> Path:
    PICTURES.mkdir(parents=True, exist_ok=True)
    return PICTURES
