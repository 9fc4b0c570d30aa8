"""A real Chromium, driven by Playwright: the one of this machine, never a download.

It is searched under the names of Debian's package (`chromium`) and Google's. CHROMIUM names another.
"""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from importlib.resources import files
from typing import Any, Final

from playwright.sync_api import Browser, BrowserContext, ConsoleMessage, Page, expect, sync_playwright

_NAMES: Final = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
_FLAGS: Final = ("--no-sandbox", "--disable-dev-shm-usage")
# The machine may be busy with other tests; no wait is longer than needed.
PATIENCE_MS = 120_000  # a busy machine is slow, not wrong
NO_CHROMIUM: Final = "no Chromium; install it with: apt-get install chromium (or name one in CHROMIUM)"
AXE: Final = files("axe_playwright_python").joinpath("axe.min.js").read_text(encoding="utf-8")
_JUDGED: Final = """
async () => (await axe.run(document, { resultTypes: ["violations"] })).violations.flatMap((found) =>
  found.nodes.map((node) => [found.impact, found.id, node.html.slice(0, 120), node.failureSummary].join(" | ")))
"""

SCREENS: Final[dict[str, dict[str, Any]]] = {
    "desktop-light": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "light"},
    "desktop-dark": {"viewport": {"width": 1280, "height": 900}, "color_scheme": "dark"},
    "phone": {"viewport": {"width": 390, "height": 844}, "color_scheme": "dark", "is_mobile": True, "has_touch": True},
}

expect.set_options(timeout=PATIENCE_MS)


def found_chromium() -> str | None:
    named = os.environ.get("CHROMIUM")
    return named or next((path for name in _NAMES if (path := shutil.which(name))), None)


@contextmanager
def running_chromium(program: str) -> Iterator[Browser]:
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=program, args=_FLAGS)
        try:
            yield browser
        finally:
            browser.close()


@dataclass
class Visitor:
    """A visitor of one server's pages. Problems that the browser reports are recorded."""

    browser: Browser
    problems: list[str] = field(default_factory=list)
    _contexts: list[BrowserContext] = field(default_factory=list)

    def opens(self, address: str, screen: str = "desktop-light", **more: Any) -> Page:
        context = self.browser.new_context(**SCREENS[screen], locale="en-GB", **more)
        self._contexts.append(context)
        context.set_default_timeout(PATIENCE_MS)
        page = context.new_page()
        page.on("console", self._said)
        page.on("pageerror", lambda error: self.problems.append(str(error)))
        page.goto(address)
        return page

    def leaves(self) -> None:
        """An open page would keep updating itself."""
        while self._contexts:
            self._contexts.pop().close()

    def _said(self, message: ConsoleMessage) -> None:
        if message.type in ("error", "warning"):
            self.problems.append(f"{message.text} {message.location.get('url', '')}")


def barriers(page: Page) -> list[str]:
    """Accessibility violations that axe-core finds."""
    page.evaluate(AXE)  # run by the browser itself: the page's security policy stays on, and does not block it
    found: list[str] = page.evaluate(_JUDGED)
    return found
