"""Readings from Prometheus, by instant queries over HTTP.

Whatever is missing, stale, invalid or unreachable is Unknown with a reason: never zero, and never an exception.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from ipaddress import ip_address
from pathlib import Path
from typing import Final, TypeVar
from urllib.parse import urlencode

import msgspec

from holdfast.adapters.http_calls import HttpEndpoint, HttpFailed
from holdfast.adapters.prometheus.queries import Queries
from holdfast.kernel import typed_json
from holdfast.kernel.errors import BadSetting, HoldfastError
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.readings import Known, Reading, Unknown
from holdfast.ports.signals import PendingPods

T = TypeVar("T")
Token = Callable[[], str]

STALE_SECONDS: Final = 120.0
COVERAGE_LEAST: Final = 0.5
# Counters of different cores are read at slightly different times, so CPU use can be slightly below 0 or above 1.
_CPU_SLACK: Final = 0.1
_NUMBER_MOST: Final = 1e12  # more than any time in seconds, or any number of pods
_REASON_MOST: Final = 200


class _NotKnown(Exception):
    """No reading; the message says why."""


class _Sample(msgspec.Struct, frozen=True):
    metric: dict[str, str]
    value: tuple[float, str]


class _Data(msgspec.Struct, frozen=True):
    result: msgspec.Raw
    kind: str = msgspec.field(name="resultType")


class _Answer(msgspec.Struct, frozen=True):
    status: str
    data: _Data | None = None
    error: str = ""
    warnings: list[str] = []


@dataclass(frozen=True, slots=True)
class _Value:
    labels: dict[str, str]
    number: float


def token_from(file: Path) -> Token:
    """The token in a file, read on each use: Kubernetes and Vault replace such files."""
    return lambda: file.read_text(encoding="utf-8")


class PrometheusSignals:
    """Implements `holdfast.ports.signals.Signals`."""

    def __init__(
        self,
        endpoint: HttpEndpoint,
        clock: Clock,
        queries: Queries | None = None,
        *,
        token: Token | None = None,
        stale_seconds: float = STALE_SECONDS,
    ) -> None:
        if token is not None and not endpoint.is_private:
            raise BadSetting(f"refusing to send a token to Prometheus at {endpoint} unencrypted; use an https:// URL")
        self._endpoint = endpoint
        self._clock = clock
        self._queries = queries or Queries()
        self._token = token
        self._stale_seconds = stale_seconds

    def cpu(self) -> Reading[float]:
        return _reading("CPU", self._cpu)

    def pending_pods(self) -> Reading[PendingPods]:
        return _reading("pending pods", self._pending_pods)

    def ready_addresses(self) -> Reading[frozenset[str]]:
        return _reading("Ready nodes", self._ready_addresses)

    def _cpu(self) -> Known[float]:
        seen = self._seen(self._queries.cpu_seen)
        share = self._number(self._queries.cpu)
        if not -_CPU_SLACK <= share <= 1 + _CPU_SLACK:
            raise _NotKnown(f"{share:g} is not between 0 and 1")
        self._check_coverage()
        return Known(min(max(share, 0.0), 1.0), seen)

    def _check_coverage(self) -> None:
        covered = self._values(self._queries.cpu_coverage) if self._queries.cpu_coverage else []
        # Without kube-state-metrics there is nothing to compare with; then the average is used unchecked.
        if len(covered) == 1 and covered[0].number < COVERAGE_LEAST:
            raise _NotKnown(f"only {covered[0].number:.0%} of the Ready workers report it")

    def _pending_pods(self) -> Known[PendingPods]:
        seen = self._seen(self._queries.pending_seen)
        count = self._number(self._queries.pending)
        if count < 0 or not count.is_integer():
            raise _NotKnown(f"{count:g} is not a number of pods")
        oldest_seconds = self._number(self._queries.pending_oldest_seconds) if count else 0.0
        return Known(PendingPods(int(count), max(oldest_seconds, 0.0)), seen)

    def _ready_addresses(self) -> Known[frozenset[str]]:
        seen = self._seen(self._queries.ready_seen)
        nodes = self._values(self._queries.ready)
        if not nodes:
            raise _NotKnown("Prometheus has no nodes")
        ready = (node.labels.get("internal_ip", "") for node in nodes if node.number == 1)
        return Known(frozenset(address for address in ready if _is_address(address)), seen)

    # One response, and its checks

    def _seen(self, query: str) -> Instant:
        """The time of the newest sample, if it is fresh enough."""
        now = self._clock.now()
        if not query:
            return now
        seen = Instant(round(self._number(query) * 1000))
        self._check_age(now.seconds_since(seen), "the newest sample")
        return seen

    def _check_age(self, seconds: float, what: str) -> None:
        if seconds > self._stale_seconds:
            raise _NotKnown(f"{what} is {seconds:.0f} s old, more than {self._stale_seconds:g} s")
        if seconds < -self._stale_seconds:
            raise _NotKnown(f"{what} is {-seconds:.0f} s ahead of our clock")

    def _number(self, query: str) -> float:
        values = self._values(query)
        if not values:
            raise _NotKnown(f"no data for {cut(query, _REASON_MOST)}")
        if len(values) > 1:
            raise _NotKnown(f"{len(values)} values instead of one for {cut(query, _REASON_MOST)}")
        return values[0].number

    def _values(self, query: str) -> list[_Value]:
        return [self._value(sample) for sample in _samples(self._answer(query))]

    def _value(self, sample: _Sample) -> _Value:
        at_seconds, text = sample.value
        # The time of the evaluation: old, if a cache answered.
        self._check_age(self._clock.now().epoch_ms / 1000 - at_seconds, "the response")
        try:
            number = float(text)
        except ValueError:
            number = math.nan
        if not math.isfinite(number):
            raise _NotKnown(f"{cut(text, 20)} is not a finite number")
        if abs(number) > _NUMBER_MOST:
            raise _NotKnown(f"{cut(text, 20)} is out of range")
        return _Value(sample.metric, number)

    def _answer(self, query: str) -> _Answer:
        headers = {"Content-Type": "application/x-www-form-urlencoded", **self._authorization()}
        try:
            answer = self._endpoint.post(urlencode({"query": query}).encode(), headers, path="/api/v1/query")
        except HttpFailed as error:
            raise _NotKnown(f"Prometheus at {error}") from error
        decoded = _decoded(answer.body)
        if decoded is not None and decoded.status == "error":
            raise _NotKnown(f"Prometheus refused the query: {cut(decoded.error, _REASON_MOST)}")
        if answer.status != 200:
            raise _NotKnown(f"Prometheus at {self._endpoint}: HTTP status {answer.status}")
        if decoded is None or decoded.status != "success":
            raise _NotKnown(f"Prometheus at {self._endpoint}: the response is not from Prometheus")
        return decoded

    def _authorization(self) -> dict[str, str]:
        if self._token is None:
            return {}
        try:
            token = self._token().strip()
        except (OSError, ValueError) as error:
            raise _NotKnown(f"cannot read the Prometheus token: {type(error).__name__}") from error
        except HoldfastError as error:
            raise _NotKnown(f"cannot fetch the Prometheus token: {error}") from error
        if not token or not token.isascii() or not token.isprintable():
            raise _NotKnown("the Prometheus token is empty or contains invalid characters")
        return {"Authorization": f"Bearer {token}"}


def _reading(subject: str, measured: Callable[[], Known[T]]) -> Reading[T]:
    try:
        return measured()
    except _NotKnown as why:
        return Unknown(f"{subject}: {why}")


def _decoded(body: bytes) -> _Answer | None:
    try:
        return typed_json.decoded(body, _Answer)
    except (msgspec.MsgspecError, ValueError, RecursionError):
        return None


def _samples(answer: _Answer) -> list[_Sample]:
    # Some servers return partial results with a warning. Older versions of Prometheus also return remarks on a query as
    # warnings.
    warnings = [warning for warning in answer.warnings if not warning.startswith("PromQL info:")]
    if warnings:
        raise _NotKnown(f"Prometheus warns: {cut(warnings[0], _REASON_MOST)}")
    kind = answer.data.kind if answer.data else "no"
    try:
        if answer.data and kind == "vector":
            return typed_json.decoded(answer.data.result, list[_Sample])
        if answer.data and kind == "scalar":
            return [_Sample({}, typed_json.decoded(answer.data.result, tuple[float, str]))]
    except (msgspec.MsgspecError, ValueError) as error:
        raise _NotKnown("the result of the query has an unexpected format") from error
    raise _NotKnown(f"the query has a {cut(kind, 20)} result; expected a vector or a scalar")


def _is_address(text: str) -> bool:
    try:
        ip_address(text)
    except ValueError:
        return False
    return True
