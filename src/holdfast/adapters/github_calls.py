"""One call to GitHub's API: what it costs, what it may lead to, and what its answer means.

    2xx, 304             an answer
    401                  NotSignedIn: whoever asked may sign in anew, once
    403, 429 by limit    RateLimited, until the moment that GitHub names; until then nothing is sent
    5xx, broken, odd     GitHubUnavailable
    any other            GitHubRefused

The last tenth of an hour's calls is left to others who use the same App. Addresses in an answer are followed below the
API's own address only. GitHub's words are shown in part, and never with a secret in them.
"""

import re
from collections.abc import Callable, Mapping
from typing import Final, TypeVar
from urllib.parse import parse_qs, urlsplit

import msgspec

from holdfast.adapters.http_calls import HttpAnswer, HttpFailed, HttpPlace
from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.github import GitHubRefused, GitHubUnavailable, RateLimited

T = TypeVar("T")

_REDIRECTS_MOST: Final = 2
_RESERVE_SHARE: Final = 0.1
# GitHub's advice where it names no time; and no time that it names is further off than its hour.
_WAIT_SECONDS: Final = 60
_WAIT_SECONDS_MOST: Final = 3600
_NUMBER: Final = re.compile(r"[0-9]{1,12}")
_NEXT: Final = re.compile(r'<([^<>]{1,2000})>;\s*rel="next"')
_CURSOR: Final = re.compile(r"[A-Za-z0-9_.=-]{1,200}")
_HEADERS: Final = {"Accept": "application/vnd.github+json", "X-GitHub-Api-Version": "2022-11-28"}


# Told of each call: whose limit it counts against, the status (0: no answer), and how many calls that limit has left.
Called = Callable[[str, int, int | None], None]


def _nobody(_scope: str, _status: int, _left: int | None) -> None:
    """Nobody counts."""


class NotSignedIn(Exception):
    """GitHub does not accept the token: 401, nothing was done."""


class _Told(msgspec.Struct):
    message: str = ""


class GitHubCalls:
    """`scope` is whose limit a call counts against: the App's, or an installation's."""

    def __init__(self, place: HttpPlace, clock: Clock, called: Called = _nobody) -> None:
        if not place.is_private:
            raise BadSetting(f"a token for GitHub at {place} could be read on the way; use an https:// address")
        self._place = place
        self._clock = clock
        self._called = called
        self._closed_until: dict[str, Instant] = {}

    def __str__(self) -> str:
        return f"GitHub at {self._place}"

    def send(self, method: str, path: str, bearer: str, scope: str, etag: str = "") -> HttpAnswer:
        """The answer, if it is one; otherwise an error from the table above."""
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
        """Where the next page begins. One that is not ours to read is an error: it must not look like the end."""
        found = _NEXT.search(answer.headers.get("link", ""))
        if found is None:
            return None
        path = self._place.path_of(found[1])
        cursor = parse_qs(urlsplit(path or "").query).get("cursor", [""])[0]
        if path is None or not _CURSOR.fullmatch(cursor):
            raise GitHubUnavailable(f"{self}: the next page is not at an address of this API; it is not followed")
        return cursor

    def decoded(self, body: bytes, kind: type[T]) -> T:
        try:
            return typed_json.decoded(body, kind)
        except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError) as error:
            raise GitHubUnavailable(f"{self}: the answer is not what was expected: {cut(str(error), 120)}") from error

    def _followed(self, method: str, path: str, headers: Mapping[str, str], scope: str) -> HttpAnswer:
        for _ in range(_REDIRECTS_MOST + 1):
            try:
                answer = self._place.send(method, headers, path=path)
            except HttpFailed as error:
                self._called(scope, 0, None)
                raise GitHubUnavailable(f"GitHub at {error}") from error
            self._called(scope, answer.status, _number(answer, "x-ratelimit-remaining"))
            # A repository that was renamed is elsewhere. 301 and 302 may turn a POST into something else.
            if answer.status not in ((301, 302, 307, 308) if method == "GET" else (307, 308)):
                return answer
            there = self._place.path_of(answer.headers.get("location", ""))
            if there is None:
                raise GitHubRefused(f"{self}: sends us to another address, which is not followed", answer.status)
            path = there
        raise GitHubRefused(f"{self}: sends us on again and again", answer.status)

    def _check_limit(self, scope: str) -> None:
        until = self._closed_until.get(scope)
        if until is not None and self._clock.now() < until:
            raise RateLimited(f"{self}: the calls of {scope} are used up; nothing is asked until {until}", until)

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
            return RateLimited(f"{self}: too many calls of {scope}; nothing is asked until {until}", until)
        what = f"{self}: {method} was answered with {status}" + (f": {words}" if words else "")
        return GitHubUnavailable(what) if status >= 500 else GitHubRefused(what, status)

    def _wait_seconds(self, answer: HttpAnswer) -> float:
        """How long GitHub wants to be left alone: as it says; until the hour is over; or as its manual says."""
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
    """Whether a 403 is about how often we ask, and not about what."""
    is_spent = answer.headers.get("x-ratelimit-remaining") == "0"
    return is_spent or "retry-after" in answer.headers or "rate limit" in words.lower()


def _number(answer: HttpAnswer, name: str) -> int | None:
    text = answer.headers.get(name, "")
    return int(text) if _NUMBER.fullmatch(text) else None


def _words(body: bytes, bearer: str) -> str:
    """What GitHub says, if it says something; a server that repeats what it was sent does not get our token shown."""
    try:
        told = typed_json.decoded(body, _Told).message
    except (msgspec.MsgspecError, RecursionError, UnicodeDecodeError):
        return ""
    return cut(told.replace(bearer, "…"), 200)
