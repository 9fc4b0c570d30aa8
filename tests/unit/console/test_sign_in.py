"""Guessing a token is slow and seen, nobody is kept out by a stranger, and a session ends when it is signed out."""

import logging
from dataclasses import replace

import pytest

from holdfast.adapters.embedded import EmbeddedStore
from holdfast.adapters.memory import MemoryRows, memory_store
from holdfast.console.http.access import SESSION_SECONDS, Access, Role
from holdfast.console.http.sign_in_limits import (
    ADDRESSES_MOST,
    WINDOW_SECONDS,
    WRONG_OVERALL_MOST,
    WRONG_PER_ADDRESS_MOST,
    SignInLimits,
)
from holdfast.console.http.signed_out import LOOK_SECONDS, SignedOut, session_key
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.store.tables import STATE
from tests.clocks import StillClock
from tests.support.console_access import TOKENS, bearer
from tests.support.console_world import OPERATOR, ORIGIN, OWN, READER, ConsoleWorld, Page

NOW = Instant.from_iso("2026-03-01T10:00:00Z")
STRANGER = "203.0.113.9"
FRIEND = "198.51.100.7"


def fresh(**changes: object) -> Access:
    changes = {"clock": StillClock(), "limits": SignInLimits(), "signed_out": SignedOut(), **changes}
    return replace(TOKENS, **changes)  # type: ignore[arg-type]


def sign_in(world: ConsoleWorld, token: str, client: str = STRANGER, **headers: str) -> Page:
    return world.ask("POST", "/login", {**ORIGIN, **headers}, body=f"token={token}".encode(), client=client)


def cookie_of(page: Page) -> dict[str, str]:
    return {"cookie": page.headers["set-cookie"].partition(";")[0]}


def test_after_ten_wrong_tokens_an_address_is_refused_even_with_the_right_one() -> None:
    access = fresh()
    world = ConsoleWorld(access=access)
    for number in range(WRONG_PER_ADDRESS_MOST - 1):
        assert sign_in(world, f"wrong-{number}").status == 401
    refused = [sign_in(world, "wrong-last"), sign_in(world, OPERATOR)]
    assert [page.status for page in refused] == [429, 429]
    assert refused[0].headers["retry-after"] == str(WINDOW_SECONDS)
    assert "Too many wrong tokens" in refused[0].text
    api = world.ask("GET", "/api/overview", bearer(OPERATOR), client=STRANGER)
    assert (api.status, api.json["error"]["code"]) == (429, "too_many_attempts")
    access.clock.advance(WINDOW_SECONDS)  # type: ignore[attr-defined]
    assert sign_in(world, OPERATOR).status == 303


def test_wrong_bearer_tokens_count_as_well() -> None:
    world = ConsoleWorld(access=fresh())
    for number in range(WRONG_PER_ADDRESS_MOST):
        assert world.ask("GET", "/api/overview", bearer(f"wrong-{number}"), client=STRANGER).status in (401, 429)
    assert sign_in(world, OPERATOR).status == 429


def test_others_an_open_session_and_the_command_line_are_not_refused() -> None:
    world = ConsoleWorld(access=fresh())
    kept = cookie_of(sign_in(world, READER))
    for number in range(WRONG_OVERALL_MOST):
        sign_in(world, f"wrong-{number}")
    assert sign_in(world, OPERATOR).status == 429
    assert world.ask("GET", "/api/overview", kept, client=STRANGER).status == 200
    assert world.ask("GET", "/api/overview", bearer(OWN), client=STRANGER).status == 200
    assert sign_in(world, OPERATOR, FRIEND).status == 303
    assert world.ask("GET", "/api/overview", bearer(READER), client=FRIEND).status == 200


def test_the_same_wrong_token_again_is_no_guess(caplog: pytest.LogCaptureFixture) -> None:
    """A program with an old token does not lock out the people at its address."""
    world = ConsoleWorld(access=fresh())
    for _ in range(WRONG_PER_ADDRESS_MOST * 3):
        assert world.ask("GET", "/metrics", bearer("the-token-of-last-year"), client=STRANGER).status == 401
    assert sign_in(world, OPERATOR).status == 303
    assert caplog.messages == [f"sign-in failed: wrong token 1 from {STRANGER}"]


def test_requests_without_a_token_do_not_count() -> None:
    world = ConsoleWorld(access=fresh())
    for _ in range(WRONG_PER_ADDRESS_MOST * 3):
        world.ask("GET", "/api/overview", client=STRANGER)
        sign_in(world, "")
    assert sign_in(world, OPERATOR).status == 303


def test_behind_a_known_proxy_the_address_that_it_appended_counts() -> None:
    world = ConsoleWorld(access=fresh(proxies=frozenset({"10.0.0.5"})))
    for number in range(WRONG_PER_ADDRESS_MOST):
        forged = f"192.0.2.{number}, {STRANGER}"
        sign_in(world, f"wrong-{number}", "10.0.0.5", **{"x-forwarded-for": forged})
    assert sign_in(world, OPERATOR, "10.0.0.5", **{"x-forwarded-for": STRANGER}).status == 429
    assert sign_in(world, OPERATOR, "10.0.0.5", **{"x-forwarded-for": FRIEND}).status == 303


def test_a_stranger_cannot_name_another_address() -> None:
    world = ConsoleWorld(access=fresh(proxies=frozenset({"10.0.0.5"})))
    for number in range(WRONG_PER_ADDRESS_MOST):
        sign_in(world, f"wrong-{number}", STRANGER, **{"x-forwarded-for": f"192.0.2.{number}"})
    assert sign_in(world, OPERATOR).status == 429


def test_from_many_addresses_each_has_one_attempt_and_a_new_one_is_still_checked() -> None:
    limits = SignInLimits()
    for number in range(WRONG_OVERALL_MOST + 1):
        limits.failed(f"10.1.{number // 250}.{number % 250}", "wrong", NOW)
    assert limits.refused_seconds("10.1.0.1", NOW) == WINDOW_SECONDS
    assert limits.refused_seconds(FRIEND, NOW) == 0
    assert limits.refused_seconds("10.1.0.1", NOW.plus(WINDOW_SECONDS)) == 0


def test_one_ipv6_network_is_one_address() -> None:
    limits = SignInLimits()
    for number in range(WRONG_PER_ADDRESS_MOST):
        limits.failed(f"2001:db8:1:2::{number:x}", f"wrong-{number}", NOW)
    assert limits.refused_seconds("2001:db8:1:2:ffff::1", NOW) > 0
    assert limits.refused_seconds("2001:db8:1:3::1", NOW) == 0
    limits.failed("::ffff:192.0.2.1", "wrong", NOW)
    assert "192.0.2.1" in limits._wrong


def test_memory_and_log_are_bounded(caplog: pytest.LogCaptureFixture) -> None:
    limits = SignInLimits()
    with caplog.at_level(logging.WARNING):
        for number in range(ADDRESSES_MOST * 3):
            limits.failed(f"10.{number >> 16}.{number >> 8 & 255}.{number & 255}", "a-wrong-token", NOW)
    assert len(limits._wrong) == ADDRESSES_MOST
    assert len(caplog.records) == WRONG_OVERALL_MOST + 2
    assert caplog.records[0].getMessage() == "sign-in failed: wrong token 1 from 10.0.0.0"
    assert "each now has one attempt" in caplog.text
    assert "a-wrong-token" not in caplog.text + repr(limits)


def test_a_clock_that_was_set_back_refuses_nobody_for_longer() -> None:
    limits = SignInLimits()
    for number in range(WRONG_PER_ADDRESS_MOST):
        limits.failed(STRANGER, f"wrong-{number}", NOW)
    assert limits.refused_seconds(STRANGER, NOW.plus(-86_400)) == 0


def test_an_address_that_is_none_is_logged_as_unknown(caplog: pytest.LogCaptureFixture) -> None:
    SignInLimits().failed("x\nforged line", "wrong", NOW)
    assert caplog.messages == ["sign-in failed: wrong token 1 from unknown"]


def test_a_signed_out_cookie_no_longer_works_in_any_process() -> None:
    clock, store = StillClock(), memory_store(StillClock())
    worlds = [
        ConsoleWorld(access=fresh(signed_out=SignedOut(store, clock, SESSION_SECONDS)))  # two processes, and a third
        for _ in range(3)
    ]
    kept, other = (cookie_of(sign_in(worlds[0], READER)) for _ in range(2))
    assert [world.get("/api/overview", kept).status for world in worlds[:2]] == [200, 200]
    assert worlds[0].post("/logout", {}, {**kept, **ORIGIN}).status == 303
    assert worlds[0].get("/api/overview", kept).status == 401
    assert worlds[2].get("/api/overview", kept).status == 401
    worlds[1].access.clock.advance(LOOK_SECONDS)  # type: ignore[union-attr]
    assert worlds[1].get("/api/overview", kept).status == 401
    assert [world.get("/api/overview", other).status for world in worlds] == [200, 200, 200]


def test_what_is_stored_of_a_sign_out_expires_with_the_cookie() -> None:
    clock = StillClock()
    store = memory_store(clock)
    SignedOut(store, clock, SESSION_SECONDS).end("0" * 32)
    stored = store.get(STATE, session_key("0" * 32))
    assert stored
    assert stored["expiresAt"] == clock.now().epoch_seconds + SESSION_SECONDS


class NoStore(EmbeddedStore):
    def get(self, *_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")

    def put(self, *_: object, **__: object) -> None:
        raise StoreUnavailable("the store is away")


def test_without_the_store_sessions_continue_and_a_sign_out_holds_in_its_process(
    caplog: pytest.LogCaptureFixture,
) -> None:
    clock = StillClock()
    world = ConsoleWorld(access=fresh(signed_out=SignedOut(NoStore(MemoryRows(), clock), clock, SESSION_SECONDS)))
    kept = cookie_of(sign_in(world, READER))
    assert world.get("/api/overview", kept).status == 200
    assert world.post("/logout", {}, {**kept, **ORIGIN}).status == 303
    assert world.get("/api/overview", kept).status == 401
    assert "only in this process" in caplog.text


def test_two_sign_ins_at_the_same_second_are_two_sessions() -> None:
    access = fresh()
    assert access.cookie(access.new_session(Role.READER)) != access.cookie(access.new_session(Role.READER))
