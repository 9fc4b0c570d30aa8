"""Signing in with a token, and out. The session is a cookie that scripts cannot read and other sites cannot send."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import parse_qsl

from msgspec import Struct
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.console.http.access import (
    COOKIE,
    LOGIN_PATH,
    LOGOUT_PATH,
    SESSION_SECONDS,
    TOO_MANY_ATTEMPTS,
    Access,
    Visitor,
    is_same_origin,
    next_path,
)
from holdfast.console.http.answers import body_of, error_response
from holdfast.console.pages.shell import Shell

_FORM_BYTES_MOST: Final = 8 * 1024


class LoginPage(Struct, frozen=True):
    """`onward`: where to go after signing in."""

    onward: str
    problem: str = ""


@dataclass(frozen=True, slots=True)
class SessionPages:
    shell: Shell
    access: Access

    def routes(self) -> list[Route]:
        if not self.access.has_tokens:
            return [Route(LOGIN_PATH, _onward, methods=["GET"])]
        return [
            Route(LOGIN_PATH, self._form, methods=["GET"]),
            Route(LOGIN_PATH, self._sign_in, methods=["POST"]),
            Route(LOGOUT_PATH, self._sign_out, methods=["POST"]),
        ]

    async def _form(self, request: Request) -> Response:
        onward = next_path(request.query_params.get("next", "/"))
        return self.shell.render(request, "login.html", LoginPage(onward), title="Sign in")

    async def _sign_in(self, request: Request) -> Response:
        # The guard lets everyone reach this route, so requests of other sites are refused here.
        if not is_same_origin(request):
            return error_response(403, "forbidden", "sign in on a page of this server")
        body = await body_of(request, _FORM_BYTES_MOST)
        if body is None:
            return error_response(413, "too_large", f"at most {_FORM_BYTES_MOST} bytes")
        try:
            form = dict(parse_qsl(body.decode()))
        except ValueError:
            return error_response(400, "bad_request", "not a form")
        onward = next_path(form.get("next", "/"))
        role = self.access.role_of_attempt(request, form.get("token", ""))
        seconds = 0 if role else self.access.refused_seconds(request)
        if seconds:
            page = LoginPage(onward, problem=TOO_MANY_ATTEMPTS)
            refused = self.shell.render(request, "login.html", page, title="Sign in", status=429)
            refused.headers["Retry-After"] = str(seconds)
            return refused
        if role is None:
            page = LoginPage(onward, problem="This token is not valid here.")
            return self.shell.render(request, "login.html", page, title="Sign in", status=401)
        answer = RedirectResponse(onward, 303)
        answer.set_cookie(
            COOKIE,
            self.access.cookie(self.access.new_session(role)),
            max_age=SESSION_SECONDS,
            httponly=True,
            samesite="strict",
            # As the browser sees it: TLS may end before this server.
            secure=request.headers.get("origin", "").startswith("https:"),
        )
        return answer

    def _sign_out(self, request: Request) -> Response:
        """A plain function, so it runs in a thread: it writes to the store."""
        visitor = request.scope.get("visitor")
        if isinstance(visitor, Visitor) and visitor.session is not None:
            self.access.signed_out.end(visitor.session.id)
        answer = RedirectResponse(LOGIN_PATH, 303)
        answer.delete_cookie(COOKIE, httponly=True, samesite="strict")
        return answer


async def _onward(request: Request) -> Response:
    """A server without tokens: a bookmark of the login page leads to the console."""
    return RedirectResponse(next_path(request.query_params.get("next", "/")), 303)
