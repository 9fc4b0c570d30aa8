"""Who may look at the console, and who may act through it."""

from dataclasses import replace

import pytest
from starlette.requests import Request

from holdfast.console.access import (
    SESSION_SECONDS,
    Access,
    Role,
    Visitor,
    is_local_name,
    is_loopback,
    next_path,
    refusal_without_token,
)
from tests.clocks import StillClock
from tests.unit.console_world import OPERATOR, ORIGIN, OWN, READER, ConsoleWorld

CLOCK = StillClock()
OPEN = Access(CLOCK, "127.0.0.1", OWN)
CLOSED = Access(CLOCK, "0.0.0.0", OWN)  # noqa: S104 -- what is tested is that it is not enough
TOKENS = Access(CLOCK, "0.0.0.0", OWN, operator_token=OPERATOR, reader_token=READER)  # noqa: S104
PROXY = Access(
    CLOCK,
    "0.0.0.0",  # noqa: S104
    OWN,
    user_header="X-Forwarded-Email",
    operators=frozenset({"ada@example.com"}),
    proxies=frozenset({"10.0.0.5"}),
)
FORM = {"reason": "upgrade"}


def bearer(token: str) -> dict[str, str]:
    return {"authorization": f"Bearer {token}"}


def is_paused(world: ConsoleWorld) -> bool:
    return bool(world.boards.cluster({})["paused"])


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "[::1]:8080", "LOCALHOST"])
def test_on_this_machine_everybody_may_look_and_act(host: str) -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.get("/", {"host": host}).status == 200
    sent = world.post("/cluster/pause", FORM, {"host": host, "origin": f"http://{host}"})
    assert (sent.status, sent.headers["location"]) == (303, "/cluster#pause")
    assert is_paused(world)


def test_where_nobody_signs_in_the_form_leads_on() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.get("/login", next="/jobs?tab=queue").headers["location"] == "/jobs?tab=queue"
    assert world.get("/login", next="//evil.example").headers["location"] == "/"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "192.168.0.7"])
@pytest.mark.parametrize("path", ["/", "/api/overview", "/live", "/metrics", "/nowhere"])
def test_a_name_that_is_not_this_machines_is_refused(host: str, path: str) -> None:
    """A site can bind a name of its own to 127.0.0.1, and its scripts are then of the same origin as the page."""
    found = ConsoleWorld(access=OPEN).get(path, {"host": host})
    assert found.status == 403
    assert found.json["error"]["code"] == "forbidden"
    assert found.headers["cache-control"] == "no-store"


def test_health_checks_and_static_files_are_for_everybody() -> None:
    world = ConsoleWorld(access=CLOSED)
    for path in ("/healthz", "/readyz", "/readyz/store", "/static/holdfast.css"):
        assert world.get(path, {"host": "evil.example"}).status == 200


@pytest.mark.parametrize("path", ["/", "/cluster", "/jobs", "/api/overview", "/api/status", "/live", "/metrics"])
def test_beyond_this_machine_nothing_is_shown_without_a_setting(path: str) -> None:
    found = ConsoleWorld(access=CLOSED).get(path)
    assert found.status == 403
    assert "CONSOLE_TOKEN" in found.json["error"]["message"]


def test_beyond_this_machine_the_command_line_still_has_its_own_token() -> None:
    assert ConsoleWorld(access=CLOSED).get("/api/overview", bearer(OWN)).status == 200


def test_a_token_opens_pages_and_api() -> None:
    world = ConsoleWorld(access=TOKENS)
    for path in ("/api/overview", "/live", "/metrics"):
        found = world.get(path)
        assert (found.status, found.headers["www-authenticate"]) == (401, "Bearer")
    for token in (OPERATOR, READER, OWN):
        for path in ("/api/overview", "/metrics"):
            found = world.get(path, bearer(token))
            assert (found.status, found.headers["cache-control"]) == (200, "no-store")
        page = world.get("/", bearer(token))
        assert (page.status, page.headers["cache-control"]) == (200, "no-store")
    for wrong in ("", "x", OPERATOR[:-1], OPERATOR + "x", "é" * 20):
        assert world.get("/api/overview", bearer(wrong)).status == 401
    assert world.get("/api/overview", {"authorization": f"Basic {OPERATOR}"}).status == 401


def test_a_token_that_is_empty_opens_nothing() -> None:
    assert replace(TOKENS, own_token="", reader_token="").role_of_token("") is None


@pytest.mark.parametrize("access", [replace(TOKENS, listens_on="127.0.0.1"), replace(PROXY, listens_on="127.0.0.1")])
def test_on_this_machine_a_setting_holds_as_well(access: Access) -> None:
    world = ConsoleWorld(access=access)
    assert world.get("/api/overview").status == 401
    assert world.post("/cluster/pause", FORM, ORIGIN).status == 401
    assert not is_paused(world)


@pytest.mark.parametrize(
    "path", ["/healthz/x", "/loginx", "/login/x", "/staticx", "/static", "/api/static/x", "/events/aws/x"]
)
def test_what_only_looks_like_an_open_path_is_guarded(path: str) -> None:
    assert ConsoleWorld(access=CLOSED).get(path).status == 403


def test_a_reader_may_look_and_not_act() -> None:
    world = ConsoleWorld(access=TOKENS)
    refused = world.post("/cluster/pause", FORM, bearer(READER))
    assert refused.status == 403
    assert not is_paused(world)
    for method, path in (("OPTIONS", "/cluster"), ("PUT", "/cluster"), ("POST", "/logout/x"), ("POST", "/x/logout")):
        assert world.ask(method, path, bearer(READER)).status == 403
    assert "/cluster/pause" not in world.get("/cluster", bearer(READER)).text
    assert "/cluster/pause" in world.get("/cluster", bearer(OPERATOR)).text
    assert world.post("/cluster/pause", FORM, bearer(OPERATOR)).status == 303
    assert is_paused(world)


def test_a_page_leads_a_stranger_to_the_sign_in_and_back() -> None:
    world = ConsoleWorld(access=TOKENS)
    away = world.get("/jobs", tab="queue")
    assert (away.status, away.headers["location"]) == (303, "/login?next=/jobs%3Ftab%3Dqueue")
    form = world.get("/login", next="/jobs?tab=queue")
    assert 'value="/jobs?tab=queue"' in form.text
    signed = world.post("/login", {"token": OPERATOR, "next": "/jobs?tab=queue"}, ORIGIN)
    assert (signed.status, signed.headers["location"]) == (303, "/jobs?tab=queue")
    cookie = signed.headers["set-cookie"]
    assert "HttpOnly" in cookie
    assert "SameSite=strict" in cookie
    assert f"Max-Age={SESSION_SECONDS}" in cookie
    assert OPERATOR not in cookie
    kept = {"cookie": cookie.partition(";")[0]}
    assert world.get("/", kept).status == 200
    assert world.post("/cluster/pause", FORM, {**kept, **ORIGIN}).status == 303


def test_a_wrong_token_gives_no_cookie() -> None:
    found = ConsoleWorld(access=TOKENS).post("/login", {"token": "wrong"}, ORIGIN)
    assert found.status == 401
    assert "set-cookie" not in found.headers


def test_the_process_own_token_begins_no_session() -> None:
    """It is for programs; where no operator's token is set, no cookie may stand for one."""
    access = replace(TOKENS, operator_token=None)
    world = ConsoleWorld(access=access)
    signed = world.post("/login", {"token": OWN}, ORIGIN)
    kept = {"cookie": signed.headers.get("set-cookie", "").partition(";")[0]}
    assert world.get("/api/overview", kept).status == 401


def test_a_session_ends_with_its_time_and_with_its_token() -> None:
    clock = StillClock()
    access = replace(TOKENS, clock=clock)
    cookie = ConsoleWorld(access=access).post("/login", {"token": READER}, ORIGIN).headers["set-cookie"]
    kept = {"cookie": cookie.partition(";")[0]}
    assert ConsoleWorld(access=access).get("/api/overview", kept).status == 200
    changed = replace(access, reader_token="another-token-0123456789")
    assert ConsoleWorld(access=changed).get("/api/overview", kept).status == 401
    clock.advance(SESSION_SECONDS)
    assert ConsoleWorld(access=access).get("/api/overview", kept).status == 401


@pytest.mark.parametrize(
    "change",
    [
        *("operator.1.x", "operator", "..", "operator.99999999999999.", "reader.x.y", "\x7f", "admin.1.x"),
        "operator.\xb2.x",
        pytest.param(f"operator.{'9' * 5000}.x", id="long"),
    ],
)
def test_a_cookie_that_was_not_signed_here_is_no_session(change: str) -> None:
    headers = [(b"cookie", f"holdfast={change}".encode("latin-1"))]
    assert TOKENS.visitor(Request({"type": "http", "headers": headers})) is None


def test_a_readers_cookie_cannot_be_made_an_operators() -> None:
    world = ConsoleWorld(access=TOKENS)
    cookie = world.post("/login", {"token": READER}, ORIGIN).headers["set-cookie"].partition(";")[0]
    forged = {"cookie": cookie.replace("reader", "operator")}
    assert world.get("/api/overview", forged).status == 401
    same = replace(TOKENS, operator_token=READER)
    forged = {"cookie": f"holdfast={same.session(Role.READER).replace('reader', 'operator')}"}
    assert ConsoleWorld(access=same).get("/api/overview", forged).status == 401


def test_a_cookie_cannot_be_made_to_last_longer() -> None:
    role, until, signature = TOKENS.session(Role.OPERATOR).split(".")
    forged = {"cookie": f"holdfast={role}.{int(until) + 1}.{signature}"}
    assert ConsoleWorld(access=TOKENS).get("/api/overview", forged).status == 401


@pytest.mark.parametrize("token", [OPERATOR, READER])
def test_everybody_may_sign_out_and_nobody_else_does_it_for_them(token: str) -> None:
    world = ConsoleWorld(access=TOKENS)
    cookie = {"cookie": world.post("/login", {"token": token}, ORIGIN).headers["set-cookie"].partition(";")[0]}
    assert world.post("/logout", {}, {**cookie, "origin": "http://evil.example"}).status == 403
    left = world.post("/logout", {}, {**cookie, **ORIGIN})
    assert (left.status, left.headers["location"]) == (303, "/login")
    assert "Max-Age=0" in left.headers["set-cookie"]


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"origin": "null"},
        {"origin": "http://evil.example"},
        {"origin": "http://127.0.0.1:9999"},
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "cross-site"},
        {"origin": "http://127.0.0.1:8080", "sec-fetch-site": "same-site"},
        {"origin": "http://["},
    ],
)
@pytest.mark.parametrize("path", ["/cluster/pause", "/cluster/resume"])
def test_no_other_site_can_give_orders_through_a_browser(path: str, headers: dict[str, str]) -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.post(path, FORM, headers).status == 403
    assert not is_paused(world)


def test_where_the_browser_names_neither_page_nor_server_nothing_is_ordered() -> None:
    world = ConsoleWorld(access=TOKENS)
    cookie = {"cookie": f"holdfast={TOKENS.session(Role.OPERATOR)}"}
    assert world.post("/cluster/pause", FORM, {**cookie, "host": ""}).status == 403
    assert not is_paused(world)


def test_a_form_that_somebody_sent_again_by_hand_is_ours() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.post("/cluster/pause", FORM, {**ORIGIN, "sec-fetch-site": "none"}).status == 303


@pytest.mark.parametrize(
    ("visitor", "status"),
    [
        (None, 401),
        (Visitor("token", Role.OPERATOR, is_browser=False), None),
        (Visitor("token", Role.READER, is_browser=False), 401),
        (Visitor("ada@example.com", Role.OPERATOR), 401),
    ],
)
def test_what_programs_order_needs_an_operators_token_and_no_cookie_is_one(
    visitor: Visitor | None, status: int | None
) -> None:
    refused = refusal_without_token(Request({"type": "http", "headers": [], "visitor": visitor}), OWN)
    assert (refused.status_code if refused else None) == status


def test_another_site_cannot_sign_somebody_in() -> None:
    found = ConsoleWorld(access=TOKENS).post("/login", {"token": READER}, {"origin": "http://evil.example"})
    assert found.status == 403


def test_a_proxy_names_who_is_there() -> None:
    world = ConsoleWorld(access=PROXY)
    ada, bob = {"x-forwarded-email": "ada@example.com"}, {"x-forwarded-email": "bob@example.com"}
    assert world.ask("GET", "/", ada, client="10.0.0.5").status == 200
    assert world.ask("POST", "/cluster/pause", {**bob, **ORIGIN}, client="10.0.0.5").status == 403
    assert world.ask("POST", "/cluster/pause", {**ada, **ORIGIN}, client="10.0.0.5").status == 303
    assert world.boards.cluster({})["paused"]["by"] == "ada@example.com, in the console"
    assert world.ask("POST", "/cluster/resume", ada, client="10.0.0.5").status == 403  # from no page of ours


@pytest.mark.parametrize(
    ("header", "name", "role"),
    [
        (" ada@example.com\t", "ada@example.com", Role.OPERATOR),
        ("ADA@example.com", "ADA@example.com", Role.READER),
        ("x" * 5000, "x" * 256, Role.READER),
    ],
)
def test_a_name_is_taken_as_the_proxy_gives_it(header: str, name: str, role: Role) -> None:
    headers = [(b"x-forwarded-email", header.encode())]
    assert PROXY.visitor(Request({"type": "http", "headers": headers, "client": ("10.0.0.5", 1)})) == Visitor(
        name, role
    )


def test_nobody_but_the_proxy_is_believed() -> None:
    found = ConsoleWorld(access=PROXY).ask("GET", "/", {"x-forwarded-email": "ada@example.com"}, client="10.0.0.6")
    assert found.status == 401


@pytest.mark.parametrize("other", ["ada@example.com", "bob@example.com", ""])
def test_a_header_that_came_twice_names_nobody(other: str) -> None:
    """A proxy that adds its own beside what a stranger sent has not dropped the stranger's."""
    world, twice = ConsoleWorld(access=PROXY), [("x-forwarded-email", other)]
    found = world.ask("GET", "/", {"x-forwarded-email": "ada@example.com"}, client="10.0.0.5", more_headers=twice)
    assert found.status == 401


def test_a_form_that_is_none_is_refused_at_the_sign_in() -> None:
    assert ConsoleWorld(access=TOKENS).ask("POST", "/login", ORIGIN, body=b"token=\xff\xfe").status == 400


def test_a_large_form_is_refused_at_the_sign_in_though_its_token_is_right() -> None:
    form = {"token": OPERATOR, "next": "/" + "x" * 10_000}
    assert ConsoleWorld(access=TOKENS).post("/login", form, ORIGIN).status == 413


def test_the_sign_in_leads_to_no_other_site() -> None:
    world = ConsoleWorld(access=TOKENS)
    assert 'name="next" value="/"' in world.get("/login", next="//evil.example").text
    sent = world.post("/login", {"token": OPERATOR, "next": "//evil.example"}, ORIGIN)
    assert (sent.status, sent.headers["location"]) == (303, "/")


def test_over_tls_the_cookie_never_travels_without_it() -> None:
    """Also where the TLS ends at a proxy: the browser says how it came here."""
    world = ConsoleWorld(access=TOKENS)
    for scheme, is_secure in (("http", False), ("https", True)):
        answer = world.post("/login", {"token": OPERATOR}, {"origin": f"{scheme}://127.0.0.1:8080"})
        assert answer.status == 303
        assert ("; Secure" in answer.headers["set-cookie"]) == is_secure


@pytest.mark.parametrize("given", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/\r\nx", "x"])
def test_after_the_sign_in_one_stays_here(given: str) -> None:
    assert next_path(given) == "/"


def test_what_is_this_machine() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "::1%lo", "localhost")] == [True] * 5
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com")] == [False] * 4  # noqa: S104
    assert not is_local_name("[::1")


def test_tokens_are_not_printed() -> None:
    assert OPERATOR not in repr(TOKENS)
    assert READER not in repr(TOKENS)
    assert OWN not in repr(TOKENS)


def test_a_form_that_is_none_is_refused() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.ask("POST", "/cluster/pause", ORIGIN, body=b"reason=\xff\xfe").status == 400
    assert not is_paused(world)


def test_a_large_form_is_refused_unread() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.post("/cluster/pause", {"reason": "x" * 10_000}, ORIGIN).status == 413
    assert not is_paused(world)
