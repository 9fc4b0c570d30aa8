"""Open pages are notified of changes, not too often, and do not keep the server from stopping."""

import asyncio
from itertools import islice

import pytest

from holdfast.console.http.live import STREAMS_MOST, Live
from tests.support.console_access import OPEN
from tests.support.console_world import ConsoleWorld


async def first(live: Live, count: int) -> list[str]:
    found: list[str] = []
    stream = live.stream()
    async for line in stream:
        found.append(line)
        if len(found) == count:
            break
    await stream.aclose()  # type: ignore[attr-defined]
    return found


def test_a_change_is_sent_and_many_changes_are_sent_once() -> None:
    live = Live(look_seconds=0.001)

    async def watch() -> list[str]:
        watching = asyncio.create_task(first(live, 3))
        await asyncio.sleep(0)
        for _ in range(100):
            live.changed()
        return await watching

    lines = asyncio.run(watch())
    assert lines[0].startswith("retry: ")
    assert lines[1] == "event: changed\ndata: 100\n\n"
    assert lines[2] == "event: changed\ndata: 100\n\n"  # nothing new: time passes, and other processes change things


def test_however_fast_things_change_a_page_is_notified_at_every_fourth_check(monkeypatch: pytest.MonkeyPatch) -> None:
    live, looks, really = Live(), 0, asyncio.sleep

    async def look(_seconds: float) -> None:
        nonlocal looks
        looks += 1
        live.changed()
        if looks == 12:
            live.stop()
        await really(0)

    monkeypatch.setattr(asyncio, "sleep", look)
    assert len(asyncio.run(first(live, 1000))) == 1 + 12 // 4


def test_the_streams_end_when_the_server_does() -> None:
    live = Live(look_seconds=0.001)

    async def watch() -> list[str]:
        watching = asyncio.create_task(first(live, 1000))
        await asyncio.sleep(0)
        live.stop()
        return await watching

    assert len(asyncio.run(watch())) == 1


def test_the_number_of_streams_is_limited_and_a_closed_one_makes_room() -> None:
    world = ConsoleWorld()

    async def open_all() -> int:
        streams = [world.live.stream() for _ in range(STREAMS_MOST)]
        for stream in streams:
            await anext(stream)
        answer = await world.live._open(None)  # type: ignore[arg-type]
        for stream in islice(streams, None):
            await stream.aclose()  # type: ignore[attr-defined]
        again = await world.live._open(None)  # type: ignore[arg-type]
        assert again.status_code == 200
        assert again.headers["cache-control"] == "no-store"
        assert again.headers["x-accel-buffering"] == "no", "a buffering proxy would delay the events"
        return answer.status_code

    assert asyncio.run(open_all()) == 503


def test_only_a_client_that_accepts_it_gets_a_stream() -> None:
    assert ConsoleWorld(access=OPEN).ask("HEAD", "/live").status == 405
