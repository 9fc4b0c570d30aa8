"""The console in a real browser, with the live simulated system."""

import os
import re
import signal
from pathlib import Path
from typing import Any
from uuid import UUID

import pytest
from playwright.sync_api import Page, expect

from holdfast.console.pages.shell import environment
from tests.browser.browsing import NO_CHROMIUM, SCREENS, Visitor, barriers, found_chromium
from tests.payloads import sample
from tests.support.demo_server import RunningHoldfast, running_holdfast
from tests.support.real_servers import REAL

if found_chromium() is None and not REAL:
    pytest.skip(NO_CHROMIUM, allow_module_level=True)  # once, and not for each test

pytestmark = pytest.mark.real
PAGES = ["/", "/cluster", "/cluster/decisions", "/jobs", "/deployments", "/costs", "/events", "/simulator", "/system"]
HOSTILE = "<img src=x onerror=\"document.title='broken'\">"
_HIDE = """(is_hidden) => {
  Object.defineProperty(document, "hidden", { configurable: true, get: () => is_hidden });
  document.dispatchEvent(new Event("visibilitychange"));
}"""
# The narrowest screen first, which is also dark; `make test-real` checks all of them.
EACH_SCREEN = [pytest.param(name, marks=[] if name == "phone" else pytest.mark.slow) for name in SCREENS]
GROUND = "getComputedStyle(document.body).backgroundColor"


def marked(page: Page) -> None:
    """A reload of the page loses the mark."""
    page.evaluate("window.mark = 'same page'")


def is_marked(page: Page) -> bool:
    return bool(page.evaluate("window.mark === 'same page'"))


@pytest.mark.parametrize("screen", EACH_SCREEN)
@pytest.mark.parametrize("path", PAGES)
def test_each_page_fits_the_screen_and_is_accessible(
    visitor: Visitor, holdfast: RunningHoldfast, pictures: Path, path: str, screen: str
) -> None:
    """Nothing is wider than the screen; enough contrast, and everything has a label."""
    page = visitor.opens(holdfast.url + path, screen)
    expect(page.locator("main h1").first).to_be_visible()
    name = path.strip("/").replace("/", "-") or "overview"
    page.screenshot(path=pictures / f"{name}-{screen}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen]["viewport"]["width"]
    expect(page.locator(".top nav [aria-current]")).to_be_in_viewport(ratio=0.9)
    assert barriers(page) == []


_CUT_OFF = """() => [...document.querySelectorAll(".top nav, #jobs")].filter(
  (part) => part.scrollWidth > part.clientWidth + 1).map((part) => part.id || part.tagName)"""
_NARROW = """() => Math.min(...[...document.querySelectorAll("#jobs tbody th")].map((cell) => cell.clientWidth))"""


@pytest.mark.parametrize("width", [800, 820, 900, 960, 1024, 1100])
def test_jobs_and_navigation_fit_a_tablet(visitor: Visitor, holdfast: RunningHoldfast, width: int) -> None:
    """Nothing is cut off, and the names of jobs have room for a line."""
    page = visitor.opens(f"{holdfast.url}/jobs")
    page.set_viewport_size({"width": width, "height": 900})
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    assert page.evaluate(_CUT_OFF) == []
    assert page.evaluate(_NARROW) > 200


@pytest.mark.parametrize("screen", EACH_SCREEN)
def test_a_job_and_its_run_are_a_click_away(
    visitor: Visitor, holdfast: RunningHoldfast, pictures: Path, screen: str
) -> None:
    # One that ran: a job that was cancelled in the queue, or skipped, has only one stage.
    page = visitor.opens(f"{holdfast.url}/jobs?tab=finished&conclusion=success", screen)
    page.locator("#live").click()
    page.locator("#jobs tbody th a").first.click()
    expect(page.locator("#stages")).to_contain_text("Time by stage")
    assert page.locator(".stages rect").count() > 2
    page.screenshot(path=pictures / f"job-{screen}.png", full_page=True)
    assert barriers(page) == []
    page.locator("#live").click()
    page.locator("#facts a[href^='/runs/']").first.click()
    expect(page.locator(".gantt-row").first).to_be_visible()
    page.screenshot(path=pictures / f"run-{screen}.png", full_page=True)
    assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS[screen]["viewport"]["width"]
    assert barriers(page) == []


_ASIDE = """() => [...document.querySelectorAll(".gantt-row svg")].map((part) => part.getBoundingClientRect())
  .map((box) => [Math.round(box.left), Math.round(box.width)].join(" "))"""
_OVERLAPS = """([left, right]) => [...document.querySelectorAll(left)].filter((part) => {
  const beside = part.parentElement.querySelector(right);
  if (beside === null) return false;  // a tick that failed has no numbers
  const one = part.firstElementChild.getBoundingClientRect();
  const other = beside.getBoundingClientRect();
  return one.bottom > other.top && one.right > other.left;
}).length"""


@pytest.mark.parametrize("width", [390, 820, 1440, 2560])
def test_the_times_under_a_run_are_as_wide_as_its_bars(visitor: Visitor, holdfast: RunningHoldfast, width: int) -> None:
    job = holdfast.get("/api/jobs?status=completed")["items"][0]
    page = visitor.opens(f"{holdfast.url}/runs/{job['installation_id']}/{job['run_id']}/{job['run_attempt']}")
    page.set_viewport_size({"width": width, "height": 900})
    assert page.locator(".gantt .axis-times").count() == 1
    assert len(set(page.evaluate(_ASIDE))) == 1


@pytest.mark.parametrize(
    ("path", "left", "right"), [("/events", ".happenings .at", ".what"), ("/cluster/decisions", ".at", ".numbers")]
)
@pytest.mark.parametrize("has_script", [True, False])
def test_times_do_not_run_into_the_text_beside_them(
    visitor: Visitor, holdfast: RunningHoldfast, path: str, left: str, right: str, has_script: bool
) -> None:
    """Without a script they are in UTC, which is longer."""
    holdfast.until("/api/events", lambda found: found["items"])
    page = visitor.opens(holdfast.url + path, java_script_enabled=has_script)
    assert page.locator(left).count() > 0
    assert page.locator(right).count() > 0
    assert page.evaluate(_OVERLAPS, [left, right]) == 0


def test_a_page_updates_by_itself(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    """Opened details stay open, and text being typed stays."""
    page = visitor.opens(f"{holdfast.url}/cluster")
    marked(page)
    opened = page.locator(".node details").first.evaluate("(each) => { each.open = true; return each.id; }")
    page.locator("#reason").press_sequentially("half a w")
    before = page.locator("#action").inner_text()
    expect(page.locator("#action")).not_to_have_text(before, use_inner_text=True)
    assert is_marked(page)
    assert page.locator("#reason").input_value() == "half a w"
    assert page.evaluate("(id) => document.getElementById(id)?.open ?? true", opened) is True


def test_any_number_of_tabs_can_be_open(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    """A browser allows six connections to a server: a hidden tab must not hold one."""
    page = visitor.opens(f"{holdfast.url}/system")
    tabs = [page, *(page.context.new_page() for _ in range(8))]
    for tab in tabs:
        tab.goto(f"{holdfast.url}/system", wait_until="load")
        tab.evaluate(_HIDE, True)
    first = tabs[0]
    stood = first.locator("#system").inner_text()
    first.evaluate(_HIDE, False)
    expect(first.locator("#system")).not_to_have_text(stood, use_inner_text=True)


def test_live_updates_can_be_stopped(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    page = visitor.opens(f"{holdfast.url}/simulator")
    page.locator("#live").click()
    expect(page.locator("#live")).to_have_attribute("aria-pressed", "false")
    stood = page.locator("#clock").inner_text()
    asked: list[str] = []
    page.on("request", lambda request: asked.append(request.url))
    # Two changes that another page is notified of: the response to the first would be there by the second.
    page.evaluate(
        "new Promise((done) => { let changes = 0;"
        " new EventSource('/live').addEventListener('changed', () => { if (++changes === 2) done(); }); })"
    )
    assert page.locator("#clock").inner_text() == stood
    assert asked == [f"{holdfast.url}/live"]
    page.locator("#live").click()
    expect(page.locator("#clock")).not_to_have_text(stood, use_inner_text=True)


def test_pause_and_resume_with_the_keyboard_alone(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    page = visitor.opens(f"{holdfast.url}/cluster")
    page.keyboard.press("Tab")
    expect(page.locator("a.skip")).to_be_focused()
    for _ in range(80):
        page.keyboard.press("Tab")
        if page.evaluate("document.activeElement.id") == "reason":
            break
    page.keyboard.insert_text(HOSTILE)
    page.keyboard.press("Enter")
    expect(page.locator("#pause .chip")).to_be_visible()
    expect(page.locator("#pause")).to_contain_text(HOSTILE)
    assert holdfast.get("/api/cluster")["paused"]["reason"] == HOSTILE
    page.locator("#pause button").focus()
    page.keyboard.press("Enter")
    expect(page.locator("#reason")).to_be_visible()
    assert holdfast.get("/api/cluster")["paused"] is None
    assert page.title() == "Cluster · Holdfast"


def test_filters_narrow_the_jobs(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    page = visitor.opens(f"{holdfast.url}/jobs")
    named = page.locator("#jobs tbody th small")
    repository = named.first.inner_text().split(" · ")[0]
    page.get_by_label("Repository").fill(repository)
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/jobs?*repo=*")
    assert {text.split(" · ")[0] for text in named.all_inner_texts()} == {repository}
    page.get_by_role("link", name="clear").click()
    page.wait_for_url(lambda url: "repo=" not in url)
    page.get_by_label("Repository").fill(repository.split("/")[1][:4].upper())
    page.get_by_role("button", name="Filter").click()
    page.wait_for_url("**/jobs?*repo=*")
    assert repository in {text.split(" · ")[0] for text in named.all_inner_texts()}, "a part of the name, in capitals"
    page.goto(f"{holdfast.url}/jobs?repo=tidewater/none")
    expect(page.locator("#jobs")).to_contain_text("No matching jobs")


@pytest.mark.parametrize("name", [HOSTILE, "x" * 190, "\u202egnp.exe\u2066"], ids=["markup", "long", "turned"])
def test_hostile_names_are_shown_as_text(visitor: Visitor, holdfast: RunningHoldfast, name: str) -> None:
    """They create no element, are no wider than a phone, and do not change the text after them."""
    payload = sample("workflow_job")
    number = payload["workflow_job"]["id"] + len(name)
    payload["workflow_job"] |= {"id": number, "name": name, "workflow_name": name, "labels": [name[:100]]}
    payload["installation"]["id"] = 61_204_417
    now = holdfast.get("/api/simulator")["now"][:19] + "Z"
    payload["workflow_job"] |= {"created_at": now, "started_at": now, "run_id": number}
    assert holdfast.webhook("workflow_job", payload, str(UUID(int=number))) == 200
    shown = name.replace("\u202e", "\\u202e").replace("\u2066", "\\u2066")
    page = visitor.opens(f"{holdfast.url}/jobs/61204417/{number}", "phone")
    for path in (f"/jobs/61204417/{number}", f"/runs/61204417/{number}/1", "/jobs", "/jobs?tab=queue"):
        page.goto(holdfast.url + path)
        expect(page.locator("main")).to_contain_text(shown)
        assert "broken" not in page.title()
        assert page.locator("main img").count() == 0
        assert page.evaluate("document.documentElement.scrollWidth") <= SCREENS["phone"]["viewport"]["width"]


def test_the_chosen_theme_is_kept(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    page = visitor.opens(f"{holdfast.url}/")
    ground = page.evaluate(GROUND)
    page.locator("#theme").click()
    assert page.evaluate(GROUND) != ground
    page.goto(f"{holdfast.url}/jobs")
    assert page.evaluate(GROUND) != ground


def test_times_are_in_the_readers_time_zone(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    page = visitor.opens(f"{holdfast.url}/system", timezone_id="Asia/Kolkata")
    time = page.locator("main time").first
    expect(time).not_to_contain_text("UTC")
    meant = time.get_attribute("datetime") or ""
    minutes = (int(meant[14:16]) + 30) % 60
    assert f":{minutes:02d}:" in time.inner_text()


def test_an_injected_fault_is_visible_in_the_cluster(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    page = visitor.opens(f"{holdfast.url}/simulator")
    page.get_by_role("button", name="Burst of 30 pods").click()
    expect(page.locator("#orders")).to_contain_text("added 30 pods for 30 minutes")
    for speed in ("600", "240"):
        page.locator(f"button[value='{speed}']").click()
        expect(page.locator(f"button[value='{speed}']")).to_have_attribute("aria-pressed", "true")


@pytest.mark.parametrize("path", ["/nowhere", "/jobs/1/2", "/jobs?tab=odd"])
def test_a_missing_page_says_so(visitor: Visitor, holdfast: RunningHoldfast, pictures: Path, path: str) -> None:
    page = visitor.opens(holdfast.url + path)
    expect(page.locator("main h1")).to_have_text(re.compile("Not found|Bad request"))
    assert page.locator("main a").count() > 0
    assert barriers(page) == []
    page.screenshot(path=pictures / "error.png")
    # The browser reports only the status, each time the page requests updates.
    visitor.leaves()
    assert visitor.problems
    assert [problem for problem in visitor.problems if "the server responded with a status of 40" not in problem] == []
    visitor.problems.clear()


def test_an_unavailable_page_loads_by_itself_later(visitor: Visitor, holdfast: RunningHoldfast) -> None:
    """The store does not respond at first; then it does."""
    page = visitor.opens(holdfast.url + "/system")
    error = environment().get_template("error.html")
    about = {
        "title": "Not now",
        "kind": "Not now",
        "problem": "throttled",
        "passes": True,
        "json_path": None,
        "back": None,
    }
    frame: dict[str, Any] = {"version": "1", "places": (), "path": "/costs", "query": {}, "world": "", "visitor": None}
    body = error.render(**about, **frame, is_operator=False)
    page.route("**/costs", lambda route: route.fulfill(status=503, body=body, content_type="text/html"))
    page.clock.install()
    page.goto(holdfast.url + "/costs")
    expect(page.locator("main h1")).to_have_text("Not now")
    page.clock.fast_forward(5_000)
    expect(page.locator("#lost")).to_be_visible()
    page.unroute("**/costs")
    page.clock.fast_forward(5_000)
    expect(page.locator("main h1")).to_have_text("Costs")
    visitor.leaves()
    assert [problem for problem in visitor.problems if "the server responded with a status of 503" not in problem] == []
    visitor.problems.clear()


def test_signing_in_with_a_token(visitor: Visitor, pictures: Path, tmp_path: Path) -> None:
    """A wrong one is refused, the right one redirects to the requested page; readers see no buttons."""
    tokens = {"CONSOLE_TOKEN": "operator-0123456789abcdef", "CONSOLE_READ_TOKEN": "reader-0123456789abcdef"}
    with running_holdfast(tmp_path / "data", settings=tokens) as running:
        page = visitor.opens(f"{running.url}/cluster?hours=1")
        field = page.get_by_label("Token")
        field.fill("guessed")
        field.press("Enter")
        expect(page.locator("main")).to_contain_text("This token is not valid here.")
        assert barriers(page) == []
        page.screenshot(path=pictures / "login.png")
        assert "401" in visitor.problems.pop()
        field.fill(tokens["CONSOLE_READ_TOKEN"])
        field.press("Enter")
        page.wait_for_url("**/cluster?hours=1")
        expect(page.locator("#pause button")).to_have_count(0)
        page.get_by_role("button", name="sign out (reader)").click()
        field.fill(tokens["CONSOLE_TOKEN"])
        field.press("Enter")
        expect(page.locator("main h1")).to_be_visible()
        page.goto(f"{running.url}/cluster")
        page.locator("#pause button").click()
        expect(page.locator("#pause .chip")).to_be_visible()
        page.context.clear_cookies()
        expect(page.locator("#lost")).to_contain_text("You are signed out.")
        visitor.leaves()
        visitor.problems[:] = [problem for problem in visitor.problems if "401" not in problem]


def test_a_run_of_the_simulator_is_started_watched_and_stopped(
    visitor: Visitor, holdfast: RunningHoldfast, pictures: Path
) -> None:
    page = visitor.opens(f"{holdfast.url}/simulator", "phone")
    run = page.locator("#run")
    page.get_by_label("First seed").fill("7")
    page.get_by_label("Seeds", exact=True).fill("2")
    page.get_by_label("Faults").select_option("mild")
    page.get_by_role("button", name="Start").click()
    expect(run).to_contain_text("2 of 2 seeds")
    expect(run).to_contain_text("holdfast simulate --seed 7 --seeds 2 --faults mild")
    run.get_by_text("checkers; all invariants held").click()
    expect(run).to_contain_text("the fence never decreases")
    page.evaluate("scrollTo(0, 0)")  # otherwise the header would be in the middle of the picture
    page.screenshot(path=pictures / "simulator-run.png", full_page=True)
    assert barriers(page) == []
    page.get_by_label("Seeds", exact=True).fill("900")
    page.get_by_role("button", name="Start").click()
    marked(page)
    expect(run).to_contain_text("of 900 seeds")
    expect(run).not_to_contain_text("0 of 900 seeds")
    assert is_marked(page)
    run.get_by_role("button", name="Stop").click()
    expect(run).to_contain_text("stopped")
    assert holdfast.get("/api/simulator")["run"]["state"] == "stopped"


def test_the_page_shows_that_the_server_died_and_restarted(visitor: Visitor, tmp_path: Path) -> None:
    """Killed without warning; restarted on the same directory it continues, and so does the page."""
    with running_holdfast(tmp_path / "data") as first:
        first.until("/api/overview", lambda data: data["latest"])
        page = visitor.opens(f"{first.url}/cluster")
        marked(page)
        os.kill(first.process.pid, signal.SIGKILL)
        expect(page.locator("#lost")).to_be_visible()
        expect(page.locator("#live")).to_have_text("Not live")
        port = first.port
    before = page.locator("#action").inner_text()
    with running_holdfast(tmp_path / "data", port) as second:
        expect(page.locator("#lost")).to_be_hidden()
        expect(page.locator("#live")).to_have_text("Live")
        expect(page.locator("#action")).not_to_have_text(before, use_inner_text=True)
        assert is_marked(page)
        assert second.get("/api/overview")["time_line"]["points"]
        # While the server was down, the browser reported that, and nothing else.
        refused = re.compile("net::ERR_|Failed to load resource")
        visitor.problems[:] = [problem for problem in visitor.problems if not refused.search(problem)]
        visitor.leaves()
