"""Who may read the console, and who may act through it."""

from dataclasses import replace
from typing import NoReturn

import pytest
from starlette.requests import Request

from holdfast.console.http.access import (
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
from tests.support.console_access import CLOCK, OPEN, TOKENS, bearer
from tests.support.console_world import OPERATOR, ORIGIN, OWN, READER, ConsoleWorld

CLOSED = Access(CLOCK, "0.0.0.0", OWN)  # noqa: S104 -- what is tested is that it is not enough
PROXY = Access(
    CLOCK,
    "0.0.0.0",  # noqa: S104
    OWN,
    user_header="X-Forwarded-Email",
    operators=frozenset({"ada@example.com"}),
    proxies=frozenset({"10.0.0.5"}),
    proxy_secret="proxy-secret-0123456789",
    hosts=frozenset({"127.0.0.1:8080"}),
)
SENT_BY_PROXY = {"x-holdfast-proxy": "proxy-secret-0123456789"}
ADA = {**SENT_BY_PROXY, "x-forwarded-email": "ada@example.com"}
FORM = {"reason": "upgrade"}


def is_paused(world: ConsoleWorld) -> bool:
    return bool(world.boards.cluster({}).paused)


@pytest.mark.parametrize("host", ["127.0.0.1", "127.0.0.1:8080", "localhost:1", "[::1]:8080", "LOCALHOST"])
def test_on_this_machine_everyone_may_read_and_act(host: str) -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.get("/", {"host": host}).status == 200
    sent = world.post("/cluster/pause", FORM, {"host": host, "origin": f"http://{host}"})
    assert (sent.status, sent.headers["location"]) == (303, "/cluster#pause")
    assert is_paused(world)


def test_without_sign_in_the_form_redirects() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.get("/login", next="/jobs?tab=queue").headers["location"] == "/jobs?tab=queue"
    assert world.get("/login", next="//evil.example").headers["location"] == "/"


@pytest.mark.parametrize("host", ["evil.example", "evil.example:8080", "127.0.0.1.evil.example", "", "192.168.0.7"])
@pytest.mark.parametrize("path", ["/", "/api/overview", "/live", "/metrics", "/nowhere"])
def test_a_foreign_host_name_is_refused(host: str, path: str) -> None:
    """A site can resolve its own name to 127.0.0.1, and its scripts then have the same origin as the page."""
    found = ConsoleWorld(access=OPEN).get(path, {"host": host})
    assert found.status == 403
    assert found.json["error"]["code"] == "forbidden"
    assert found.headers["cache-control"] == "no-store"


def test_health_checks_and_static_files_need_no_sign_in() -> None:
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


def test_an_empty_token_opens_nothing() -> None:
    assert replace(TOKENS, own_token="", reader_token="").role_of_token("") is None


@pytest.mark.parametrize("access", [replace(TOKENS, listens_on="127.0.0.1"), replace(PROXY, listens_on="127.0.0.1")])
def test_access_settings_apply_on_this_machine_too(access: Access) -> None:
    world = ConsoleWorld(access=access)
    assert world.get("/api/overview").status == 401
    assert world.post("/cluster/pause", FORM, ORIGIN).status == 401
    assert not is_paused(world)


@pytest.mark.parametrize(
    "path", ["/healthz/x", "/loginx", "/login/x", "/staticx", "/static", "/api/static/x", "/events/aws/x"]
)
def test_a_path_that_only_looks_open_is_protected(path: str) -> None:
    assert ConsoleWorld(access=CLOSED).get(path).status == 403


def test_a_reader_may_read_and_not_act() -> None:
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


def test_a_page_redirects_to_the_sign_in_and_back() -> None:
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


def test_the_process_own_token_starts_no_session() -> None:
    """It is for programs; without an operator's token, no cookie may act as an operator."""
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
def test_a_forged_cookie_is_no_session(change: str) -> None:
    headers = [(b"cookie", f"holdfast={change}".encode("latin-1"))]
    assert TOKENS.visitor(Request({"type": "http", "headers": headers})) is None


def test_a_readers_cookie_cannot_become_an_operators() -> None:
    world = ConsoleWorld(access=TOKENS)
    cookie = world.post("/login", {"token": READER}, ORIGIN).headers["set-cookie"].partition(";")[0]
    forged = {"cookie": cookie.replace("reader", "operator")}
    assert world.get("/api/overview", forged).status == 401
    same = replace(TOKENS, operator_token=READER)
    forged = {"cookie": f"holdfast={same.cookie(same.new_session(Role.READER)).replace('reader', 'operator')}"}
    assert ConsoleWorld(access=same).get("/api/overview", forged).status == 401


def test_a_cookie_cannot_be_extended() -> None:
    session = TOKENS.new_session(Role.OPERATOR)
    role, until, number, signature = TOKENS.cookie(session).split(".")
    for changed in (f"{role}.{int(until) + 1}.{number}", f"{role}.{until}.{number[::-1]}"):
        forged = {"cookie": f"holdfast={changed}.{signature}"}
        assert ConsoleWorld(access=TOKENS).get("/api/overview", forged).status == 401


@pytest.mark.parametrize("token", [OPERATOR, READER])
def test_sign_out_works_and_another_site_cannot_trigger_it(token: str) -> None:
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
def test_no_other_site_can_act_through_a_browser(path: str, headers: dict[str, str]) -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.post(path, FORM, headers).status == 403
    assert not is_paused(world)


def test_without_origin_or_fetch_metadata_no_action_is_accepted() -> None:
    world = ConsoleWorld(access=TOKENS)
    cookie = {"cookie": f"holdfast={TOKENS.cookie(TOKENS.new_session(Role.OPERATOR))}"}
    assert world.post("/cluster/pause", FORM, {**cookie, "host": ""}).status == 403
    assert not is_paused(world)


def test_a_form_that_the_user_resubmits_is_accepted() -> None:
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
def test_actions_of_programs_need_an_operators_token_and_not_a_cookie(
    visitor: Visitor | None, status: int | None
) -> None:
    refused = refusal_without_token(Request({"type": "http", "headers": [], "visitor": visitor}), OWN)
    assert (refused.status_code if refused else None) == status


def test_another_site_cannot_sign_a_user_in() -> None:
    found = ConsoleWorld(access=TOKENS).post("/login", {"token": READER}, {"origin": "http://evil.example"})
    assert found.status == 403


def test_a_proxy_names_the_user() -> None:
    world = ConsoleWorld(access=PROXY)
    ada, bob = ADA, {**SENT_BY_PROXY, "x-forwarded-email": "bob@example.com"}
    assert world.ask("GET", "/", ada, client="10.0.0.5").status == 200
    assert world.ask("POST", "/cluster/pause", {**bob, **ORIGIN}, client="10.0.0.5").status == 403
    assert world.ask("POST", "/cluster/pause", {**ada, **ORIGIN}, client="10.0.0.5").status == 303
    paused = world.boards.cluster({}).paused
    assert paused
    assert paused.by == "ada@example.com, in the console"
    assert world.ask("POST", "/cluster/resume", ada, client="10.0.0.5").status == 403  # not from one of our pages


@pytest.mark.parametrize(
    ("header", "name", "role"),
    [
        (" ada@example.com\t", "ada@example.com", Role.OPERATOR),
        ("ADA@example.com", "ADA@example.com", Role.READER),
        ("x" * 5000, "x" * 256, Role.READER),
    ],
)
def test_a_name_is_taken_as_the_proxy_gives_it(header: str, name: str, role: Role) -> None:
    given = {**SENT_BY_PROXY, "host": "127.0.0.1:8080", "x-forwarded-email": header}
    headers = [(name.encode(), value.encode()) for name, value in given.items()]
    assert PROXY.visitor(Request({"type": "http", "headers": headers, "client": ("10.0.0.5", 1)})) == Visitor(
        name, role
    )


def test_only_the_proxy_may_name_a_user() -> None:
    assert ConsoleWorld(access=PROXY).ask("GET", "/", ADA, client="10.0.0.6").status == 401


@pytest.mark.parametrize("secret", ["", "proxy-secret-012345678", "proxy-secret-0123456789x", "\u00e9"])
def test_a_program_on_the_proxys_machine_cannot_name_a_user_without_the_secret(secret: str) -> None:
    world = ConsoleWorld(access=PROXY)
    assert world.ask("GET", "/", {**ADA, "x-holdfast-proxy": secret}, client="10.0.0.5").status == 401
    assert world.ask("GET", "/", {"x-forwarded-email": "ada@example.com"}, client="10.0.0.5").status == 401


@pytest.mark.parametrize("host", ["evil.example", "127.0.0.1", "127.0.0.1:8081", ""])
def test_a_foreign_name_that_resolves_to_the_proxy_shows_nothing(host: str) -> None:
    assert ConsoleWorld(access=PROXY).ask("GET", "/", {**ADA, "host": host}, client="10.0.0.5").status == 401


def test_a_user_header_without_a_configured_secret_opens_nothing() -> None:
    for access in (replace(PROXY, proxy_secret=None), replace(PROXY, hosts=frozenset())):
        for secret in ("", "proxy-secret-0123456789"):
            found = ConsoleWorld(access=access).ask("GET", "/", {**ADA, "x-holdfast-proxy": secret}, client="10.0.0.5")
            assert found.status == 401


@pytest.mark.parametrize("other", ["ada@example.com", "bob@example.com", ""])
def test_a_repeated_user_header_is_refused(other: str) -> None:
    """A proxy that adds its header without dropping the client's is not safe."""
    world, twice = ConsoleWorld(access=PROXY), [("x-forwarded-email", other)]
    found = world.ask("GET", "/", ADA, client="10.0.0.5", more_headers=twice)
    assert found.status == 401


def test_a_malformed_form_is_refused_at_the_sign_in() -> None:
    assert ConsoleWorld(access=TOKENS).ask("POST", "/login", ORIGIN, body=b"token=\xff\xfe").status == 400


def test_a_large_form_is_refused_at_the_sign_in_though_its_token_is_right() -> None:
    form = {"token": OPERATOR, "next": "/" + "x" * 10_000}
    assert ConsoleWorld(access=TOKENS).post("/login", form, ORIGIN).status == 413


def test_the_sign_in_redirects_to_no_other_site() -> None:
    world = ConsoleWorld(access=TOKENS)
    assert 'name="next" value="/"' in world.get("/login", next="//evil.example").text
    sent = world.post("/login", {"token": OPERATOR, "next": "//evil.example"}, ORIGIN)
    assert (sent.status, sent.headers["location"]) == (303, "/")


def test_over_tls_the_cookie_is_secure() -> None:
    """Also if TLS ends at a proxy: the browser reports the scheme."""
    world = ConsoleWorld(access=TOKENS)
    for scheme, is_secure in (("http", False), ("https", True)):
        answer = world.post("/login", {"token": OPERATOR}, {"origin": f"{scheme}://127.0.0.1:8080"})
        assert answer.status == 303
        assert ("; Secure" in answer.headers["set-cookie"]) == is_secure


@pytest.mark.parametrize("given", ["//evil.example", "https://evil.example", "/\\evil.example", "", "/\r\nx", "x"])
def test_the_redirect_after_sign_in_stays_on_this_site(given: str) -> None:
    assert next_path(given) == "/"


def test_which_addresses_are_this_machine() -> None:
    assert [is_loopback(host) for host in ("127.0.0.1", "127.9.9.9", "::1", "::1%lo", "localhost")] == [True] * 5
    assert [is_loopback(host) for host in ("0.0.0.0", "::", "10.0.0.1", "example.com")] == [False] * 4  # noqa: S104
    assert not is_local_name("[::1")


def test_tokens_are_not_printed() -> None:
    assert OPERATOR not in repr(TOKENS)
    assert READER not in repr(TOKENS)
    assert OWN not in repr(TOKENS)


def test_a_malformed_form_is_refused() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.ask("POST", "/cluster/pause", ORIGIN, body=b"reason=\xff\xfe").status == 400
    assert not is_paused(world)


def test_a_large_form_is_refused_unread() -> None:
    world = ConsoleWorld(access=OPEN)
    assert world.post("/cluster/pause", {"reason": "x" * 10_000}, ORIGIN).status == 413
    assert not is_paused(world)


@pytest.mark.parametrize("host", ["x/logout?", "127.0.0.1:8080/logout?", "x/logout#"])
def test_a_path_in_the_host_header_does_not_make_a_reader_an_operator(host: str) -> None:
    """Starlette before 1.1 takes the path of `request.url` from the Host header."""
    world = ConsoleWorld(access=TOKENS)
    sent = world.post("/cluster/pause", FORM, {"host": host, **bearer(READER)})
    assert (sent.status, is_paused(world)) == (403, False)


class NoControls:
    """Simulator controls that must not be reached."""

    def _reached(self, *_arguments: object) -> NoReturn:
        raise AssertionError("a command reached the simulator")

    state = go_at = switch_slow_motion = inject = start = stop = _reached


def test_every_command_checks_its_sender_even_without_the_guard() -> None:
    world = ConsoleWorld(access=None, controls=NoControls())
    routes = [route for pages in (*world.pages, world.api) for route in pages.routes()]
    commands = [route.path for route in routes if "POST" in (route.methods or ())]
    assert len(commands) == 11
    for path in commands:
        assert world.post(path.format(installation_id=1, job_id=1), FORM, ORIGIN).status in (401, 403), path
    assert not is_paused(world)


def test_strangers_see_no_navigation_on_an_error_page() -> None:
    found = ConsoleWorld(access=TOKENS).get("/static/nothing", {"accept": "text/html"})
    assert found.status == 404
    assert 'href="/jobs"' not in found.text
