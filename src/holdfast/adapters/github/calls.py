"""One call to GitHub's API: rate limits, redirects, and the meaning of responses.

    2xx, 304                success
    401                     NotSignedIn: the caller may retry once with a new token
    403, 429 rate limit     RateLimited until the time that GitHub names; nothing is sent before
    5xx, broken, invalid    GitHubUnavailable
    other                   GitHubRefused

The last tenth of an hour's calls is left to other users of the same App. URLs in a response are followed only below the
API's own URL. GitHub's messages are shortened, and never contain a secret.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast.adapters.http_calls import HttpAnswer, HttpEndpoint, HttpFailed
from holdfast.adapters.server_date import ServerDate
from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.github import GitHubRefused, GitHubUnavailable, RateLimited

T = TypeVar("T")

_REDIRECTS_MOST: Final = 2
_RESERVE_SHARE: Final = 0.1
# GitHub's advice if it names no time; and the longest time that it may name.
_WAIT_SECONDS: Final = 60
_WAIT_SECONDS_MOST: Final = 3600
_NUMBER: Final = re.compile(r"[0-9]{1,12}")
_NEXT: Final = re.compile(r'<([^<>]{1,2000})>;\s*rel="next"')
_CURSOR: Final = re.compile(r"[A-Za-z0-9_.=-]{1,200}")
_HEADERS: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}


# Called after each call: whose limit it counts against, the status (0: no response), and the calls left.
Called = Callable[[str, int, int | None], None]


def _uncounted(_scope: str, _status: int, _left: int | None) -> None:
    """Calls are not counted."""


class NotSignedIn(Exception):
    """GitHub refused the token (401); nothing was done."""


class _ErrorBody(msgspec.Struct):
    message: str = ""


class GitHubCalls:
    """`scope` says whose limit a call counts against: the App's, or an installation's."""

    def __init__(
        self, endpoint: HttpEndpoint, clock: Clock, called: Called = _uncounted, date: ServerDate | None = None
    ) -> None:
        if not endpoint.is_private:
            raise BadSetting(f"refusing to send a token to GitHub at {endpoint} unencrypted; use an https:// URL")
        self._endpoint = endpoint
        self._clock = clock
        self._called = called
        self._date = date or ServerDate()
        self._closed_until: dict[str, Instant] = {}

    def __str__(self) -> str:
        return f"GitHub at {self._endpoint}"

    def send(self, method: str, path: str, bearer: str, scope: str, etag: str = "") -> HttpAnswer:
        """The response if it is a success; otherwise raises an error from the table above."""
        self._check_limit(scope)
        headers = {**_HEADERS, "Authorization": f"Bearer {bearer}"}
        if etag:
            headers["If-None-Match"] = etag
        answer = self._followed(method, path, headers, scope)
        self._note_limit(scope, answer)
        if 200 <= answer.status < 300 or answer.status == 304:
            return answer
        raise self._problem(method, scope, answer, bearer)

    def next_cursor(self, answer: HttpAnswer) -> str | None:
        """The cursor of the next page. A link that we do not follow is an error: it must not look like the end."""
        found = _NEXT.search(answer.headers.get("link", ""))
        if found is None:
            return None
        path = self._endpoint.path_of(found[1])
        cursor = parse_qs(urlsplit(path or "").query).get("cursor", [""])[0]
        if path is None or not _CURSOR.fullmatch(cursor):
            raise GitHubUnavailable(f"{self}: the next page is not at a URL of this API; not followed")
        return cursor

    def decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return typed_json.decoded(body, kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise GitHubUnavailable(f"{self}: unexpected response: {cut(str(error), 120)}") from error

    def _followed(self, method: str, path: str, headers: Mapping[str, str], scope: str) -> HttpAnswer:
        for _ in range(_REDIRECTS_MOST + 1):
            try:
                answer = self._endpoint.send(method, headers, path=path)
            except HttpFailed as error:
                self._called(scope, 0, None)
                raise GitHubUnavailable(f"GitHub at {error}") from error
            self._date.note(answer.headers.get("date", ""))
            self._called(scope, answer.status, _number(answer, "x-ratelimit-remaining"))
            # A renamed repository redirects. 301 and 302 may turn a POST into a GET.
            if answer.status not in ((301, 302, 307, 308) if method == "GET" else (307, 308)):
                return answer
            target = self._endpoint.path_of(answer.headers.get("location", ""))
            if target is None:
                raise GitHubRefused(f"{self}: redirects to another server; not followed", answer.status)
            path = target
        raise GitHubRefused(f"{self}: too many redirects", answer.status)

    def _check_limit(self, scope: str) -> None:
        until = self._closed_until.get(scope)
        if until is not None and self._clock.now() < until:
            raise RateLimited(f"{self}: rate limit of {scope} used up; no calls until {until}", until)

    def _note_limit(self, scope: str, answer: HttpAnswer) -> None:
        remaining, limit = (_number(answer, f"x-ratelimit-{name}") for name in ("remaining", "limit"))
        if remaining is not None and limit is not None and remaining < limit * _RESERVE_SHARE:
            self._close(scope, self._reset_seconds(answer))

    def _problem(self, method: str, scope: str, answer: HttpAnswer, bearer: str) -> Exception:
        status, words = answer.status, _words(answer.body, bearer)
        if status == 401:
            return NotSignedIn(words)
        if status == 429 or (status == 403 and _is_limit(answer, words)):
            until = self._close(scope, self._wait_seconds(answer))
            return RateLimited(f"{self}: rate limit of {scope} exceeded; no calls until {until}", until)
        what = f"{self}: {method} failed with {status}" + (f": {words}" if words else "")
        return GitHubUnavailable(what) if status >= 500 else GitHubRefused(what, status)

    def _wait_seconds(self, answer: HttpAnswer) -> float:
        """How long to wait: as GitHub says, until the limit resets, or as GitHub's docs recommend."""
        named = _number(answer, "retry-after")
        if named is not None:
            return named
        return self._reset_seconds(answer) if answer.headers.get("x-ratelimit-remaining") == "0" else _WAIT_SECONDS

    def _reset_seconds(self, answer: HttpAnswer) -> float:
        reset = _number(answer, "x-ratelimit-reset")
        if reset is None:
            return _WAIT_SECONDS
        return Instant.from_epoch_seconds(reset).seconds_since(self._clock.now())

    def _close(self, scope: str, seconds: float) -> Instant:
        until = self._clock.now().plus(min(max(seconds, 1), _WAIT_SECONDS_MOST))
        self._closed_until[scope] = until
        return until


def _is_limit(answer: HttpAnswer, words: str) -> bool:
    """Whether a 403 is about the rate limit, and not about permissions."""
    is_spent = answer.headers.get("x-ratelimit-remaining") == "0"
    return is_spent or "retry-after" in answer.headers or "rate limit" in words.lower()


def _number(answer: HttpAnswer, name: str) -> int | None:
    text = answer.headers.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else None


def _words(body: bytes, bearer: str) -> str:
    """GitHub's message, if there is one; without our token, in case the server repeats it."""
    try:
        message = typed_json.decoded(body, _ErrorBody).message
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    return cut(message.replace(bearer, "…"), 200)
