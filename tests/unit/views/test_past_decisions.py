"""The cluster's past: the events of a day, the ticks before a moment, and why a tick did nothing."""

import re
from html import unescape

import pytest

from holdfast.ports.store.tables import LOGS
from holdfast.simulator.world.k3s import Workload
from tests.support.console_access import OPEN
from tests.support.console_world import ConsoleWorld


@pytest.fixture
def world() -> ConsoleWorld:
    """A cluster that has scaled up within twelve ticks."""
    world = ConsoleWorld(access=OPEN)
    world.stage.world.k3s.run(Workload("web", 55))
    world.tick(12)
    return world


def test_events_older_than_a_day_are_found_by_their_day(world: ConsoleWorld) -> None:
    """Day by day, with the search text passed along; as far back as the log is kept."""
    begun = world.get("/api/events", q="begin scale").json
    day = begun["items"][0]["at"][:10]
    world.stage.world.timeline.sleep(3 * 86_400)
    assert world.get("/api/events", q="begin scale").json["items"] == []
    old = world.get("/api/events", q="begin scale", day=day).json
    assert (old["items"], old["found"], old["day"]) == (begun["items"], begun["found"], day)
    steps, where = 0, "/events?q=begin+scale"
    while f"{begun['items'][0]['text']}" not in (page := world.ask("GET", "/events", None, where[8:].encode())).text:
        found = re.search(r'href="(/events[^"]+)">← ', page.text)
        assert found
        steps, where = steps + 1, unescape(found[1])
    assert steps == 3
    assert 'id="events" data-live' not in page.text  # the past does not change


def test_a_day_outside_the_log_is_refused(world: ConsoleWorld) -> None:
    for wrong in (
        "yesterday",
        "2026-02-30",
        "2026-01-15T00:00:00Z",
        "' or 1",
        "9999-99-99",
        "1000-01-01",
        "9999-12-31",
    ):
        assert world.get("/events", day=wrong).status == 400
    for far in ("1000-01-01T00:00:00Z", "9999-12-31T23:59:59Z"):
        assert world.get("/cluster/decisions", until=far).status == 200
        assert world.get("/cluster/decisions", until=far, acted="yes").status == 200
    assert world.get("/events", skip="-1").status == 400
    assert world.get("/api/events", skip="200").json["items"] == []


def test_a_day_with_many_events_continues_on_the_next_page(world: ConsoleWorld) -> None:
    everything: list[str] = []
    for number in range(300):
        at = world.stage.clock.now().plus(number - 400)
        key = {"pk": f"{world.stage.name}#{at.date()}", "sk": f"{at.epoch_ms:013d}#tick#x{number}"}
        item = {**key, "at": at.iso(), "steps": [{"kind": "repair", "because": str(number)}], "ttl": 2**31}
        world.stage.store.put(LOGS, item)
    where = "q=repair"
    while where:
        page = world.ask("GET", "/events", None, where.encode()).text
        everything += re.findall(r"<b>repair</b> (\d+)", page)
        found = re.search(r'href="/events\?([^"]+)">Older', page)
        where = unescape(found[1]) if found else ""
    assert sorted(map(int, everything)) == list(range(300))


def test_the_ticks_before_a_gap_of_days_are_one_click_away(world: ConsoleWorld) -> None:
    before = world.get("/api/cluster/decisions").json["items"]
    world.stage.world.timeline.sleep(5 * 86_400)
    assert world.get("/api/cluster/decisions").json["items"] == before
    acted, pages = world.get("/api/cluster/decisions", acted="yes").json, 0
    while not acted["items"]:
        acted, pages = world.get("/api/cluster/decisions", acted="yes", until=acted["earlier"]).json, pages + 1
    assert acted["items"] == [tick for tick in before if tick["steps"]]
    assert pages == 5


def test_every_tick_of_a_day_is_reachable_page_by_page() -> None:
    world = ConsoleWorld(access=OPEN)
    world.tick(130)
    seen: list[str] = []
    page = world.get("/api/cluster/decisions").json
    while True:
        seen += [tick["at"] for tick in page["items"]]
        if page["earlier"] is None:
            break
        page = world.get("/api/cluster/decisions", until=page["earlier"]).json
    assert len(seen) == len(set(seen)) == 130
    assert seen == sorted(seen, reverse=True)


def test_a_tick_that_did_nothing_says_why() -> None:
    world = ConsoleWorld(access=OPEN)
    world.stage.world.k3s.run(Workload("web", 60))
    world.tick(2)
    assert "pods have not been pending long enough" in world.get("/cluster/decisions").text
    world.tick(1, seconds=180)
    world.tick(1, seconds=5)
    assert world.get("/api/cluster/decisions").json["items"][0]["why_nothing"] == "an action is under way"
