"""Each page opens, shows the same data as its JSON, has working links, and survives hostile names."""

import json
import re
from html import escape, unescape
from html.parser import HTMLParser
from typing import Any

import pytest
from msgspec import structs

from holdfast.console.pages.cluster import folded
from holdfast.console.pages.event_groups import by_action, grouped
from holdfast.console.pages.shell import environment, unbroken, words
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.text import one_line
from holdfast.ports.store.tables import JOB_EVENTS
from holdfast.simulator.world.k3s import Workload
from holdfast.views.check_findings import CheckFinding
from holdfast.views.cluster_history import ClusterEvent
from holdfast.views.decisions import StepTaken
from tests.payloads import CREATED, INSTALLATION_ID, REPOSITORY, RUN_ID
from tests.support.console_access import OPEN
from tests.support.console_world import ORIGIN, OWN, ConsoleWorld
from tests.support.job_world import HOSTILE

PAGES = [
    "/",
    "/cluster",
    "/cluster/decisions",
    "/events",
    "/jobs",
    "/deployments",
    "/costs",
    "/system",
    f"/jobs/{INSTALLATION_ID}/1",
    f"/runs/{INSTALLATION_ID}/{RUN_ID}/1",
]
TABS = ["all", "queue", "running", "waiting", "stuck", "finished"]
DEPLOYMENT = 77


def populated_world(**fields: Any) -> ConsoleWorld:
    """A cluster that has scaled up, and jobs in every status."""
    world = ConsoleWorld(access=OPEN)
    world.stage.world.k3s.run(Workload("web", 55))
    world.tick(12)
    world.job("completed", 1, conclusion="success", started=CREATED.plus(5), **fields)
    world.job("queued", 2, **fields)
    world.job("in_progress", 3, started=CREATED.plus(5), **fields)
    world.job("waiting", 4, deployment=DEPLOYMENT, **fields)
    return world


@pytest.fixture(scope="module")
def world() -> ConsoleWorld:
    return populated_world()


class Reader(HTMLParser):
    """Elements in the order of the page, and structural problems."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))

    def all(self, tag: str) -> list[dict[str, str | None]]:
        return [attributes for name, attributes in self.elements if name == tag]


@pytest.mark.parametrize("path", PAGES)
def test_every_page_opens_empty(path: str) -> None:
    """Before the first tick and the first webhook: it says what to do, or that nothing was found."""
    page = ConsoleWorld(access=OPEN).get(path)
    assert page.status == (404 if re.search(r"\d", path) else 200)
    assert "class=" in page.text


@pytest.mark.parametrize("path", [*PAGES, *(f"/jobs?tab={tab}" for tab in TABS), "/deployments/12345678/77"])
def test_every_page_is_valid(world: ConsoleWorld, path: str) -> None:
    """One top-level heading, unique ids, every field with a label, nothing inline, every link works."""
    path, _, query = path.partition("?")
    page = world.ask("GET", path, query=query.encode())
    assert page.status == 200
    seen = Reader(page.text)
    assert len(seen.all("h1")) == 1
    ids = [attributes["id"] for _, attributes in seen.elements if "id" in attributes]
    assert len(ids) == len(set(ids))
    assert not re.search(r"<script(?! src=)|<style|\sstyle=|\son\w+=", page.text)
    assert all(element.get("id") for _, element in seen.elements if "data-live" in element)
    labelled = {attributes["for"] for attributes in seen.all("label") if "for" in attributes}
    fields = [each for each in [*seen.all("input"), *seen.all("select")] if each.get("type") != "hidden"]
    assert all(each.get("id") in labelled or "id" not in each for each in fields)
    assert all("scope" in each for each in seen.all("th"))
    for svg in seen.all("svg"):
        assert svg.get("aria-hidden") == "true" or svg.get("aria-label")
    for link in {str(each["href"]) for each in seen.all("a")}:
        target = unescape(link).partition("#")[0]
        if target.startswith("/") and not target.startswith("/simulator"):
            where, _, asked = target.partition("?")
            assert world.ask("GET", where, query=asked.encode()).status == 200, link


@pytest.mark.parametrize("path", PAGES)
def test_every_page_has_its_data_as_json(world: ConsoleWorld, path: str) -> None:
    found = re.search(r'href="([^"]+)">this page as JSON', world.get(path).text)
    assert found
    where, _, query = unescape(found[1]).partition("?")
    answer = world.ask("GET", where, query=query.encode())
    assert answer.status == 200
    assert answer.json


@pytest.mark.parametrize("tab", TABS)
def test_every_list_of_jobs_is_the_same_as_json(world: ConsoleWorld, tab: str) -> None:
    """Filters and cursor are passed along."""
    for query in ({}, {"repo": REPOSITORY, "since": "24"}, {"label": "gpu"}):
        page = world.get("/jobs", tab=tab, **query)
        found = re.search(r'href="([^"]+)">this page as JSON', page.text)
        assert found
        where, _, asked = unescape(found[1]).partition("?")
        answer = world.ask("GET", where, query=asked.encode())
        assert answer.status == 200
        shown = re.findall(rf'<th scope="row"><a href="/jobs/{INSTALLATION_ID}/(\d+)"', page.text)
        assert [str(job["job_id"]) for job in answer.json["items"]] == shown


def test_the_queue_and_pending_approvals_are_json_too(world: ConsoleWorld) -> None:
    (queued,) = world.get("/api/jobs/queue").json["items"]
    assert (queued["position"], queued["why"][:24]) == (1, "no runner requested yet;")
    (gate,) = world.get("/api/deployments").json["items"]
    assert (gate["id"], [job["status"] for job in gate["jobs"]]) == (DEPLOYMENT, ["waiting"])
    for path in ("/api/jobs/queue?cursor=x", "/api/jobs/queue?odd=1", "/api/deployments?odd=1"):
        where, _, query = path.partition("?")
        assert world.ask("GET", where, query=query.encode()).status == 400
    assert world.get("/api/deployments", installation_id="5").status == 404
    assert ConsoleWorld(access=OPEN).get("/api/jobs/queue").json["items"] == []


def test_the_overview_shows_current_activity(world: ConsoleWorld) -> None:
    data = world.get("/api/overview").json
    page = world.get("/").text
    assert data["headline"][0].startswith(f"{len(world.stage.alive)} workers with ")
    assert data["headline"][-1] == "1 job running, 1 queued, 1 held back by GitHub."
    for sentence in data["headline"]:
        assert sentence in page
    assert data["cost"]["usd_per_hour"] > 0
    assert data["cost"]["saved_usd_per_hour"] > 0


def test_spot_savings_include_runners() -> None:
    world = ConsoleWorld(access=OPEN, runs_ticks=False)
    world.job("queued", 1)
    on_spot(world, 1)
    data = world.get("/api/overview").json["jobs"]
    assert data["runners_saved_usd_per_hour"] == pytest.approx(data["runners_usd_per_hour"] * 1.5), "40% are paid"
    page = re.sub(r"\s+", " ", world.get("/").text)
    assert re.search(r"Saved by spot</dt> <dd>\$[0-9.]+ <small>60%</small>", page)
    assert "This process runs no ticks" in page, "and the page still shows what it knows"


def test_an_operator_runs_the_checks_of_doctor_in_the_console() -> None:
    found = CheckFinding(check="EC2", outcome="failed", seen="no route to <b>", fix="check the network")
    world = ConsoleWorld(access=OPEN, findings=[found])
    assert 'action="/system/checks"' in world.get("/system").text
    page = world.post("/system/checks", {}, ORIGIN)
    assert (page.status, "1 failed" in page.text) == (200, True)
    assert "no route to &lt;b&gt;<small>→ check the network</small>" in page.text
    assert world.post("/system/checks", {}).status == 403, "only from a page of this server"
    link = world.get("/system/checks")
    assert (link.status, link.headers["location"]) == (303, "/system#checks"), "a link or a reload does not start them"


def test_the_overviews_figures_for_completed_jobs_add_up() -> None:
    """Two of four jobs have completed: the page shows their conclusions, not shares of all four."""
    world = populated_world()
    world.job("completed", 2, conclusion="failure", started=CREATED.plus(5))
    world.count()
    expected = "Of the 4 jobs of the last 7 days, 2 have completed: 1 succeeded, 1 failed; median queue time"
    assert expected in world.get("/").text


def test_the_cluster_shows_each_node_with_its_pods_and_each_rule(world: ConsoleWorld) -> None:
    data = world.get("/api/cluster/now").json
    page = world.get("/cluster").text
    assert {node["zone"] for node in data["nodes"]} == {"eu-west-1a", "eu-west-1b", "eu-west-1c"}
    assert {node["market"] for node in data["nodes"]} == {"spot", "on-demand"}
    for node in data["nodes"]:
        assert node["id"] in page
        assert all(pod in page for pod in node["pod_names"])
    for group in data["groups"]:
        for rule in group["rules"]:
            assert rule["words"] in page
    assert [action["kind"] for action in data["time_line"]["actions"]][:1] == ["up"]


def test_the_action_under_way_is_shown_step_by_step() -> None:
    world = ConsoleWorld(access=OPEN)
    world.stage.world.k3s.run(Workload("web", 60))
    shown = set()
    for _ in range(60):
        world.tick(seconds=10)
        page = world.get("/cluster").text
        if "Scaling up" in page:
            shown |= set(re.findall(r'<li class="(?:done|now|next)"[^>]*>([^<]+)</li>', page))
    assert {"launch machines", "wait for nodes to join"} <= shown


def test_ticks_that_decided_the_same_are_one_row() -> None:
    world = ConsoleWorld(access=OPEN)
    world.tick(times=6)
    ticks = world.boards.decisions({}).items
    quiet = [structs.replace(ticks[0], steps=[], messages=[], stopped=None) for _ in range(3)]
    acted = structs.replace(quiet[0], steps=[StepTaken(kind="launch_slot", because="x")])
    other = structs.replace(quiet[0], rules=[])
    rows = folded([*quiet, acted, acted, *quiet, other, quiet[0]])
    assert [len(row.same) for row in rows] == [2, 0, 0, 2, 0, 0]
    assert len(folded(ticks)) < len(ticks)
    page = world.get("/cluster/decisions").text
    assert page.count('class="tick-row"') == len(ticks)
    assert re.search(r"\d since <time", page)


def test_events_of_an_action_stand_together() -> None:
    def events(*kinds: str) -> list[ClusterEvent]:
        return [ClusterEvent(at=CREATED.iso(), kind=kind, text="") for kind in kinds]

    up = ("complete_scale_up", "launch_slot", "begin_scale_up")
    found = events("told", *up, "told", *up[1:], "pause", *up[:2])
    groups = by_action(found)
    sizes = [(group.action, len(group.items)) for group in groups]
    # The second action has no end: what was reported after its beginning belongs to it. The last one began earlier.
    assert sizes == [(None, 1), ("up", 3), ("up", 3), (None, 1), ("up", 2)]
    assert [event for group in groups for event in group.items] == found
    assert by_action([]) == []


def test_events_of_a_worker_that_leaves_stand_together() -> None:
    """Also in the middle of an action, and with what was reported about that worker."""
    found = [
        ClusterEvent(at=CREATED.plus(60 * (9 - number)).iso(), kind=kind, text=text)
        for number, (kind, text) in enumerate(
            [
                ("complete_scale_up", "2 of 2 joined"),
                ("close_notice", "i-1: it is gone"),
                ("evict_interrupted", "i-1: 1 pod left"),
                ("told", "pods a, b stay on i-1 for now: budget"),
                ("told", "launched i-11: t3.large"),
                ("evict_interrupted", "i-1: 4 pods left"),
                ("told", "pods a, b stay on i-1 for now: budget"),
                ("cordon_interrupted", "i-1: spot interruption"),
                ("begin_scale_up", "30 pods pending"),
                ("close_notice", "i-1: the hint expired"),
                ("told", "launched i-1: t3.large"),
            ]
        )
    ]
    action, leaving, single, launched = grouped(found)
    assert (single.leaving, single.items[0].text) == (None, "i-1: the hint expired"), "another notice"
    assert (launched.leaving, launched.items[0].kind) == (None, "told"), "long before it left"
    assert (action.action, [event.kind for event in action.items]) == (
        "up",
        ["complete_scale_up", "told", "begin_scale_up"],
    )
    assert (leaving.leaving, len(leaving.items)) == ("i-1", 6)
    assert [(row.event.kind, row.event.text, row.times, row.since) for row in leaving.rows] == [
        ("close_notice", "i-1: it is gone", 1, CREATED.plus(480).iso()),
        ("evict_interrupted", "i-1: 1 pod left", 2, CREATED.plus(240).iso()),
        ("told", "pods a, b stay on i-1 for now: budget", 2, CREATED.plus(180).iso()),
        ("cordon_interrupted", "i-1: spot interruption", 1, CREATED.plus(120).iso()),
    ]


def test_the_page_of_events_shows_actions_and_a_search_shows_lines(world: ConsoleWorld) -> None:
    assert 'class="during up"' in world.get("/events").text
    assert 'class="during' not in world.get("/events", q="launch").text


def test_a_queued_job_shows_how_long_it_has_waited() -> None:
    world = ConsoleWorld(access=OPEN)
    world.job("queued", 1)
    world.stage.clock.sleep(3600)
    assert re.search(r'data-name="queue">1 h[^<]*…</td>', world.get("/jobs").text)
    assert "waiting for 1 h" in world.get(f"/jobs/{INSTALLATION_ID}/1").text


def test_the_stages_of_a_job_are_explained(world: ConsoleWorld) -> None:
    page = world.get(f"/jobs/{INSTALLATION_ID}/1").text
    assert "<small>until the job completed, or so far</small>" in page


def test_every_tick_is_listed_with_its_reasons(world: ConsoleWorld) -> None:
    ticks = world.get("/api/cluster/decisions").json["items"]
    assert len(ticks) == 12
    assert ticks[0]["at"] > ticks[-1]["at"]
    page = world.get("/cluster/decisions").text
    assert page.count('class="tick-row"') == 12
    acted = world.get("/api/cluster/decisions", acted="yes").json["items"]
    assert acted
    assert all(tick["steps"] for tick in acted)
    assert world.get("/cluster/decisions", until="yesterday").status == 400


def test_events_are_found_by_text(world: ConsoleWorld) -> None:
    everything = world.get("/api/events").json
    some = world.get("/api/events", q="begin SCALE").json
    assert 0 < some["found"] < everything["found"]
    assert "No events in the last 24 hours match" in world.get("/events", q="no such thing").text
    assert world.get("/api/events", q="begin_scale_up").json["items"] == some["items"]


def test_pause_and_resume_on_the_page() -> None:
    world = ConsoleWorld(access=OPEN)  # a separate one: the log keeps these entries
    world.tick()
    assert world.post("/cluster/pause", {"reason": "<b>upgrade</b>"}, ORIGIN).status == 303
    page = world.get("/cluster").text
    assert "Paused by this machine, in the console: &lt;b&gt;upgrade&lt;/b&gt;" in page
    assert "Paused: no new action is started." in world.get("/").text
    world.stage.clock.sleep(1)
    assert world.post("/cluster/resume", {}, ORIGIN).status == 303
    assert "Paused by" not in world.get("/cluster").text
    found = world.get("/api/events", q="in the console").json["items"]
    assert [event["kind"] for event in found] == ["resumed", "paused"]
    page = world.get("/events").text
    assert "<b>paused</b> by this machine, in the console: &lt;b&gt;upgrade&lt;/b&gt;" in page
    ticks = world.get("/cluster/decisions").text
    assert '<span class="badge">paused</span>' in ticks
    assert "no tick" not in ticks
    ids = [attributes["id"] for _, attributes in Reader(ticks).elements if "id" in attributes]
    assert len(ids) == len(set(ids)), "the pause happened at the moment of a tick"


def test_a_name_with_hyphens_is_not_broken_at_the_end_of_a_line() -> None:
    found = unbroken("launched i-0123456789abcdef0: t3.medium in eu-west-1b, <spot-only>")
    assert found == (
        'launched <span class="whole">i-0123456789abcdef0</span>: t3.medium in <span class="whole">eu-west-1b</span>, '
        '&lt;<span class="whole">spot-only</span>&gt;'
    )
    assert unbroken("a-" * 20 + "b") == "a-" * 20 + "b", "a name as long as a phone is wide may be broken"
    assert unbroken("a-\u202eb") == "a-\\u202eb"


@pytest.mark.parametrize(
    "unseen",
    [
        *"\x00\x08\x0b\x1b\x1f\x7f\x80\x9b\x9f\xad\u061c\u180e\u200b\u200e\u200f\u2028\u2029\u202a\u202e\u2060\u2066\u2069",
        *"\u206a\u206f\ufeff\ufff9\ufffb\ud800\udfff\U000e0001\U000e0041\U000e007f",
    ],
    ids=ascii,
)
def test_invisible_characters_in_a_name_are_shown(unseen: str) -> None:
    """As on the command line: names that look the same are the same."""
    page = environment().from_string("{{ name }} {{ name | unbroken }}").render(name=f"a{unseen}b")
    assert page == f"a{one_line(unseen)}b a{one_line(unseen)}b"
    assert unseen not in page


def test_an_invalid_time_is_shown_as_text() -> None:
    page = environment().from_string("{{ at | when }} {{ at | ago(at) }}").render(at="<b>")
    assert page == "&lt;b&gt; &lt;b&gt;"


@pytest.mark.parametrize("name", ["a\tb", "a\nb", "\U0001f469\u200d\U0001f4bb", "caf\xe9", "a\xa0b"])
def test_harmless_unicode_is_shown_unchanged(name: str) -> None:
    assert environment().from_string("{{ name }}").render(name=name) == name


def test_a_page_does_not_overwrite_an_existing_pause() -> None:
    world = ConsoleWorld(access=OPEN)
    world.post("/cluster/pause", {"reason": "<b>upgrade</b>"}, ORIGIN)
    again = world.post("/cluster/pause", {"reason": "lunch"}, {**ORIGIN, "accept": "text/html"})
    assert again.status == 409
    assert "The cluster is already paused since" in again.text
    assert "&lt;b&gt;upgrade&lt;/b&gt;; nothing was changed" in again.text
    assert '<a href="/cluster#pause">Go back</a>' in again.text
    assert world.get("/api/cluster/now").json["paused"]["reason"] == "<b>upgrade</b>"


def test_a_page_resumes_the_pause_that_it_shows_and_no_other() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.post("/cluster/resume", {}, ORIGIN).json["error"]["code"] == "unchanged"
    world.post("/cluster/pause", {"reason": "upgrade"}, ORIGIN)
    (since,) = re.findall(r'name="since" value="([^"]+)"', world.get("/cluster").text)
    other = world.post("/cluster/resume", {"since": "2026-01-01T00:00:00.000Z"}, {**ORIGIN, "accept": "text/html"})
    assert (other.status, "has meanwhile been paused since" in other.text) == (409, True)
    assert world.post("/cluster/resume", {"since": since}, ORIGIN).status == 303


def test_a_retried_run_links_to_its_next_attempt_and_back() -> None:
    world = ConsoleWorld(access=OPEN)
    world.job("completed", 1, conclusion="failure", started=CREATED.plus(5))
    first = f"/runs/{INSTALLATION_ID}/{RUN_ID}/1"
    assert "run again" not in world.get(first).text
    world.job("queued", 2, run_attempt=2)
    second = f"/runs/{INSTALLATION_ID}/{RUN_ID}/2"
    assert f'<a href="{second}">rerun as attempt 2</a>' in world.get(first).text
    assert f'<a href="{first}">previous attempt</a>' in world.get(second).text
    assert [world.get(f"/api{path}").json["next_attempt"] for path in (first, second)] == [2, None]


def on_spot(world: ConsoleWorld, number: int) -> None:
    """As the runner fleet reports a job's machine."""
    key = {"host": "127.0.0.1:8080", "authorization": f"Bearer {OWN}"}
    machine = {"instance_type": "m7g.large", "instance_lifecycle": "spot"}
    event = {"type": "runner_scheduled", "at": CREATED.plus(3).iso(), "attributes": machine}
    response = world.ask("POST", f"/api/jobs/{INSTALLATION_ID}/{number}/events", key, body=json.dumps(event).encode())
    assert response.status == 200, response.text


def test_a_sum_of_estimates_is_an_estimate(world: ConsoleWorld) -> None:
    """On every page that shows it."""
    spot = populated_world()
    on_spot(spot, 1)
    spot.count()
    for path in (f"/runs/{INSTALLATION_ID}/{RUN_ID}/1", "/costs"):
        assert "<dd>≈$" in spot.get(path).text, path
        assert "<dd>≈$" not in world.get(path).text, path


def test_the_queue_has_positions_and_reasons(world: ConsoleWorld) -> None:
    page = world.get("/jobs", tab="queue").text
    assert re.search(r'<td class="number" data-name="position">1</td>', page)
    assert "no runner requested yet; needs" in page


def test_a_position_counts_all_waiting_jobs_whatever_the_filter() -> None:
    world = ConsoleWorld(access=OPEN)
    world.job("queued", 1, labels=["large"])
    world.job("queued", 2, labels=["small"])
    world.job("queued", 3, labels=["large"])
    found = world.get("/api/jobs/queue", label="large").json["items"]
    assert [(job["job_id"], job["position"]) for job in found] == [(1, 1), (3, 3)]
    assert 'data-name="position">3</td>' in world.get("/jobs", tab="queue", label="large").text


def test_a_long_queue_starts_with_the_longest_wait(monkeypatch: pytest.MonkeyPatch) -> None:
    for module in ("holdfast.views.job_views", "holdfast.console.pages.job_list"):
        monkeypatch.setattr(f"{module}.QUEUE_MOST", 3)
    world = ConsoleWorld(access=OPEN)
    for number in range(1, 6):
        world.job("queued", number)
    found = world.get("/api/jobs/queue").json["items"]
    assert [(job["job_id"], job["position"]) for job in found] == [(1, 1), (2, 2), (3, 3)]
    page = world.get("/jobs", tab="queue").text
    assert "Only the first 3 are shown" in page
    narrowed = world.get("/api/jobs/queue", repo=REPOSITORY).json["items"]
    assert [job["position"] for job in narrowed] == [3, None, None], "the newest; beyond the limit, unknown"


def test_a_filter_is_passed_only_to_lists_that_have_it(world: ConsoleWorld) -> None:
    """From failed jobs to the queue: nothing there has a conclusion, and it would look empty."""
    page = world.get("/jobs", tab="finished", conclusion="failure", repo=REPOSITORY).text
    tabs = {title: unescape(href) for href, title in re.findall(r'<a href="(/jobs\?[^"]+)"[^>]*>(\w+)</a>', page)}
    assert ("conclusion" in tabs["All"], "repo=" in tabs["All"]) == (True, True)
    assert ("conclusion" in tabs["Queue"], "repo=" in tabs["Queue"]) == (False, True)
    assert tabs["Stuck"] == "/jobs?tab=stuck"
    assert "No stuck jobs." in world.get("/jobs", tab="stuck", repo=REPOSITORY).text, "it is not filtered"
    assert 'name="conclusion"' in world.get("/jobs", tab="queue", conclusion="failure").text, (
        "the filter that empties it is visible"
    )


def test_the_costs_and_deployments_of_each_installation_are_shown() -> None:
    world = ConsoleWorld(access=OPEN)
    world.job("queued", 1)
    world.job("queued", 2, installation=5)
    page = unescape(world.get("/costs", installation_id="5").text)
    assert '<option value="5" selected>5</option>' in page
    assert 'href="/costs?by=team&installation_id=5"' in page
    assert 'href="/api/costs?by=repo&installation_id=5">this page as JSON' in page
    assert '<option value="5" selected>5</option>' in world.get("/deployments", installation_id="5").text


@pytest.mark.parametrize(
    ("query", "count"),
    [
        ({"repo": REPOSITORY}, 4),
        ({"repo": "acme-corporation/other"}, 0),
        ({"tab": "finished", "conclusion": "success"}, 1),
        ({"tab": "finished", "conclusion": "failure"}, 0),
        ({"label": "spot=true"}, 4),
        ({"label": "gpu"}, 0),
        ({"repo": REPOSITORY.split("/")[1][1:].upper()}, 4),
        ({"repo": REPOSITORY[2:-2]}, 4),
        ({"repo": "search"}, 0),
        ({"repo": "a#b/<c>"}, 0),
        ({"label": "SPOT"}, 4),
        ({"workflow": "integr"}, 4),
        ({"tab": "queue", "repo": REPOSITORY[2:-2]}, 1),
        ({"since": "24"}, 4),
        ({"workflow": "Continuous integration"}, 4),
    ],
)
def test_filters_keep_their_values(world: ConsoleWorld, query: dict[str, str], count: int) -> None:
    page = world.get("/jobs", **query)
    assert page.status == 200
    assert len(re.findall(r'<th scope="row">', page.text)) == count
    for name, value in query.items():
        assert name in ("tab", "conclusion", "since") or f'name="{name}" value="{escape(value)}"' in page.text
    assert f'<datalist id="repos"><option value="{REPOSITORY}">' in page.text
    assert ("Clear the filters" in page.text) == (count == 0)


def test_a_waiting_deployment_is_shown_with_its_job(world: ConsoleWorld) -> None:
    page = world.get("/deployments").text
    assert f"/deployments/{INSTALLATION_ID}/{DEPLOYMENT}" in page
    assert world.get(f"/deployments/{INSTALLATION_ID}/{DEPLOYMENT}").status == 200


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_names_are_escaped(name: str) -> None:
    """Of jobs, workflows, branches, labels and runners: everything that a webhook can contain."""
    world = populated_world(name=name, workflow_name=name, head_branch=name, labels=[name, "x"], runner_name=name)
    for path in [*PAGES, "/deployments/12345678/77"]:
        page = world.get(path)
        assert page.status == 200, path
        assert "<script>" not in page.text
        assert not re.search("[\x00-\x08\x0b-\x1f\u202e\u2066]", page.text)
        seen = Reader(page.text)
        assert [each.get("src") for each in seen.all("script")] == ["/static/theme.js", "/static/holdfast.js"]
        assert len(seen.all("h1")) == 1


@pytest.mark.parametrize("name", ['"><img src=x onerror=alert(1)>', "' onmouseover='x", "{{ 7 * 7 }}", "</script>"])
def test_hostile_names_of_pods_and_reasons_are_escaped(name: str) -> None:
    world = ConsoleWorld(access=OPEN)
    world.stage.world.k3s.run(Workload(name, 12, namespace=name))
    world.tick(3)
    world.post("/cluster/pause", {"reason": name}, ORIGIN)
    for path, query in (("/", {}), ("/cluster", {}), ("/events", {"q": name}), ("/jobs", {"repo": name})):
        page = world.get(path, **query)
        seen = Reader(page.text)
        assert not seen.all("img")[1:]  # the one in the frame is ours
        assert not any(attribute.startswith("on") for _, each in seen.elements for attribute in each)
        assert "49" not in re.findall(r"by this machine, in the console: (\d+)", page.text)


@pytest.mark.parametrize(
    "path",
    [
        "/jobs?tab=%3Cscript%3E",
        "/jobs?installation_id=5",
        "/jobs?cursor=%00",
        "/jobs?since=x",
        "/jobs/x/y",
        f"/jobs/{INSTALLATION_ID}/99999999999999999999999",
        "/runs/1/2/3",
        "/deployments/1/x",
        "/costs?by=moon",
        "/cluster?hours=99",
        "/cluster?hours=6&hours=6",
        "/?x=1",
        "/nowhere",
    ],
)
def test_an_invalid_request_gets_a_page_that_says_so(world: ConsoleWorld, path: str) -> None:
    path, _, query = path.partition("?")
    page = world.ask("GET", path, {"accept": "text/html"}, query=query.encode())
    assert page.status in (400, 404)
    assert len(Reader(page.text).all("h1")) == 1
    assert "<script>" not in page.text


def test_an_unavailable_store_gets_a_page_that_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    world = populated_world()

    def away(*_: object, **__: object) -> None:
        raise StoreUnavailable("table workflow_jobs: no answer in 8 s")

    monkeypatch.setattr(world.stage.store, "query", away)
    monkeypatch.setattr(world.stage.store, "get", away)
    for path in ("/", "/cluster", "/jobs", "/deployments", "/costs"):
        page = world.get(path)
        assert (page.status, "data-passes" in page.text) == (503, True), path
        assert "no answer in 8 s" in page.text


def test_the_next_page_of_jobs_continues_where_the_first_ended() -> None:
    world = ConsoleWorld(access=OPEN)
    for number in range(1, 61):
        world.job("queued", number)
    first = world.get("/jobs").text
    more = re.search(r'class="button" href="([^"]+)">Older', first)
    assert more
    _, _, query = unescape(more[1]).partition("?")
    second = world.ask("GET", "/jobs", query=query.encode()).text
    numbers = [re.findall(rf'href="/jobs/{INSTALLATION_ID}/(\d+)"', page) for page in (first, second)]
    assert [len(found) for found in numbers] == [50, 10]
    assert len({*numbers[0], *numbers[1]}) == 60


def test_the_job_page_shows_an_event_of_an_older_deployment() -> None:
    world = ConsoleWorld(access=OPEN)
    world.job("queued", 1)
    world.stage.store.put(JOB_EVENTS, {"PK": f"{INSTALLATION_ID}#1", "SK": f"{CREATED.iso()}#x"})
    page = world.get(f"/jobs/{INSTALLATION_ID}/1")
    assert page.status == 200
    assert "unknown event" in page.text
    assert "UNSET" not in page.text


def test_a_truth_value_is_shown_as_a_word() -> None:
    assert [words(value) for value in (True, False, "begin_scale_up", 1)] == ["yes", "no", "begin scale up", "1"]
