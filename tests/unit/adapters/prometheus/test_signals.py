"""Readings from Prometheus: each way in which one can be unknown, and none of them reads as zero."""

import json
import logging
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import fields, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.adapters.http_calls import HttpEndpoint, HttpLimits
from holdfast.adapters.prometheus.queries import Queries
from holdfast.adapters.prometheus.signals import STALE_SECONDS, PrometheusSignals, token_from
from holdfast.adapters.system_clock import SystemClock
from holdfast.kernel.errors import BadSetting, NeedsOperator
from holdfast.ports.readings import Known, Unknown
from holdfast.ports.signals import PendingPods, Signals
from tests.clocks import START, StillClock
from tests.servers import prometheus
from tests.servers.certificates import Authority, new_authority
from tests.servers.scripted_http import Asked, Reply, Reset, Script, ScriptedServer, Silence, serving

QUERIES = Queries()
NOW_SECONDS = START.epoch_ms / 1000
SECRET = "canary-5f1c"

Values = list[tuple[dict[str, str], str]]


def result(kind: str, value: Any, **more: Any) -> Reply:
    answer = {"status": "success", "data": {"resultType": kind, "result": value}, **more}
    return Reply(json.dumps(answer).encode(), headers={"Content-Type": "application/json"})


def vector(values: Values, at_seconds: float = NOW_SECONDS, **more: Any) -> Reply:
    return result("vector", [{"metric": labels, "value": [at_seconds, text]} for labels, text in values], **more)


def number(value: object, at_seconds: float = NOW_SECONDS) -> Reply:
    return vector([({}, str(value))], at_seconds)


def failed(status: int, error: str) -> Reply:
    return Reply(json.dumps({"status": "error", "errorType": "x", "error": error}).encode(), status=status)


# Healthy: two thirds busy, two pods pending, one of two nodes Ready, everything seen ten seconds ago.
SEEN = number(NOW_SECONDS - 10)
WELL = {
    QUERIES.cpu: number(0.66),
    QUERIES.cpu_seen: SEEN,
    QUERIES.cpu_coverage: number(1),
    QUERIES.pending: number(2),
    QUERIES.pending_oldest_seconds: number(200.5),
    QUERIES.pending_seen: SEEN,
    QUERIES.ready: vector([({"internal_ip": "10.0.0.7"}, "1"), ({"internal_ip": "10.0.0.8"}, "0")]),
    QUERIES.ready_seen: SEEN,
}


def script(**changed: Reply | type[Exception]) -> Script:
    """Healthy responses to each query, except for the given changes, by the names in `Queries`."""
    replies: dict[str, Reply | type[Exception]] = {**WELL}
    replies |= {getattr(QUERIES, name): reply for name, reply in changed.items()}

    def answer(asked: Asked) -> Reply:
        reply = replies[asked.form["query"]]
        if isinstance(reply, Reply):
            return reply
        raise reply

    return answer


def always(reply: Reply | type[Exception]) -> Script:
    return script(**{each.name: reply for each in fields(Queries)})


@contextmanager
def signals(
    answers: Script, tls: ssl.SSLContext | None = None, limits: HttpLimits | None = None, **options: Any
) -> Iterator[tuple[PrometheusSignals, ScriptedServer]]:
    ca_file = options.pop("ca_file", None)
    with serving(answers, tls) as server:
        clock = StillClock()
        place = HttpEndpoint(server.url, clock, setting="PROMETHEUS_URL", ca_file=ca_file, limits=limits)
        yield PrometheusSignals(place, clock, **options), server


def all_readings(asked: Signals) -> list[object]:
    return [asked.cpu(), asked.pending_pods(), asked.ready_addresses()]


# Known readings


def test_readings_have_the_time_of_the_newest_sample() -> None:
    with signals(script()) as (asked, _):
        seen = START.plus(-10)
        assert asked.cpu() == Known(0.66, seen)
        assert asked.pending_pods() == Known(PendingPods(2, 200.5), seen)
        assert asked.ready_addresses() == Known(frozenset({"10.0.0.7"}), seen)


def test_queries_are_posted_as_forms() -> None:
    with signals(script()) as (asked, server):
        asked.cpu()
    assert {request.path for request in server.asked} == {"/api/v1/query"}
    assert {request.method for request in server.asked} == {"POST"}
    assert QUERIES.cpu in [request.form["query"] for request in server.asked]


def test_an_address_may_have_a_path() -> None:
    with serving(script()) as server:
        place = HttpEndpoint(f"{server.url}/prometheus/", StillClock(), setting="PROMETHEUS_URL")
        assert isinstance(PrometheusSignals(place, StillClock()).cpu(), Known)
    assert server.asked[0].path == "/prometheus/api/v1/query"


def test_no_pending_pods_are_zero_and_not_unknown() -> None:
    with signals(script(pending=number(0), pending_oldest_seconds=vector([]))) as (asked, server):
        assert asked.pending_pods() == Known(PendingPods(0, 0.0), START.plus(-10))
    assert QUERIES.pending_oldest_seconds not in [request.form["query"] for request in server.asked]


def test_no_ready_node_is_an_empty_set_and_not_unknown() -> None:
    with signals(script(ready=vector([({"internal_ip": "10.0.0.8"}, "0")]))) as (asked, _):
        assert asked.ready_addresses() == Known(frozenset(), START.plus(-10))


def test_an_invalid_node_address_is_left_out() -> None:
    odd: Values = [({"internal_ip": text}, "1") for text in ("", "node-7", "10.0.0.7", "fd00::7")]
    with signals(script(ready=vector([*odd, ({}, "1")]))) as (asked, _):
        assert asked.ready_addresses() == Known(frozenset({"10.0.0.7", "fd00::7"}), START.plus(-10))


@pytest.mark.parametrize(("measured", "read"), [("-0.02", 0.0), ("1.03", 1.0), ("0", 0.0), ("1", 1.0)])
def test_cpu_slightly_above_one_counts_as_one(measured: str, read: float) -> None:
    with signals(script(cpu=number(measured))) as (asked, _):
        assert asked.cpu() == Known(read, START.plus(-10))


def test_a_scalar_is_a_number_too() -> None:
    with signals(script(cpu=result("scalar", [NOW_SECONDS, "0.5"]))) as (asked, _):
        assert asked.cpu() == Known(0.5, START.plus(-10))


def test_infos_about_a_query_are_not_warnings() -> None:
    remark = vector([({}, "0.5")], warnings=["PromQL info: metric might not be a counter"], infos=["so"])
    with signals(script(cpu=remark)) as (asked, _):
        assert asked.cpu() == Known(0.5, START.plus(-10))


def test_replaced_queries_are_sent_and_empty_ones_are_not() -> None:
    mine = replace(QUERIES, cpu="my_cpu", cpu_seen="", cpu_coverage="")
    answers = {"my_cpu": number(0.4)}
    with signals(lambda asked: answers[asked.form["query"]], queries=mine) as (asked, server):
        assert asked.cpu() == Known(0.4, START)
    assert len(server.asked) == 1


# Unknown readings

NOT_A_NUMBER = ["NaN", "+Inf", "-Inf", "many", "1e308", "-1e308"]
UNKNOWN_CPU: dict[str, dict[str, Reply]] = {
    "no such series": {"cpu_seen": vector([])},
    "no rate yet": {"cpu": vector([])},
    "more than one value": {"cpu": vector([({"a": "1"}, "0.1"), ({"a": "2"}, "0.2")])},
    "percent instead of a share": {"cpu": number(66)},
    "far below zero": {"cpu": number(-0.5)},
    "stale": {"cpu_seen": number(NOW_SECONDS - STALE_SECONDS - 1)},
    "from the future": {"cpu_seen": number(NOW_SECONDS + STALE_SECONDS + 1)},
    "answered long ago": {"cpu": number(0.5, NOW_SECONDS - STALE_SECONDS - 1)},
    "few exporters are left": {"cpu_coverage": number(0.3)},
    "a range": {"cpu": result("matrix", [])},
    "a string": {"cpu": result("string", [NOW_SECONDS, "x"])},
    "a result of another form": {"cpu": result("vector", [{"value": "x"}])},
    "a warning": {"cpu": vector([({}, "0.5")], warnings=["a store did not answer"])},
    **{f"the value {text}": {"cpu": number(text)} for text in NOT_A_NUMBER},
    **{f"seen at {text}": {"cpu_seen": number(text)} for text in NOT_A_NUMBER},
}


@pytest.mark.parametrize("changed", UNKNOWN_CPU.values(), ids=UNKNOWN_CPU.keys())
def test_cpu_is_unknown(changed: dict[str, Reply]) -> None:
    with signals(script(**changed)) as (asked, _):
        reading = asked.cpu()
    assert isinstance(reading, Unknown)
    assert reading.why.startswith("CPU: ")
    assert "\n" not in reading.why


UNKNOWN_PODS: dict[str, dict[str, Reply]] = {
    "no data": {"pending": vector([])},
    "not watched": {"pending_seen": vector([])},
    "stale": {"pending_seen": number(NOW_SECONDS - 1000)},
    "half a pod": {"pending": number(1.5)},
    "fewer than none": {"pending": number(-1)},
    "no age": {"pending_oldest_seconds": vector([])},
    **{text: {"pending": number(text)} for text in NOT_A_NUMBER},
    **{f"age {text}": {"pending_oldest_seconds": number(text)} for text in NOT_A_NUMBER},
}


@pytest.mark.parametrize("changed", UNKNOWN_PODS.values(), ids=UNKNOWN_PODS.keys())
def test_pending_pods_are_unknown(changed: dict[str, Reply]) -> None:
    with signals(script(**changed)) as (asked, _):
        assert isinstance(asked.pending_pods(), Unknown)


UNKNOWN_NODES: dict[str, dict[str, Reply]] = {
    "no node at all": {"ready": vector([])},
    "not watched": {"ready_seen": vector([])},
    "stale": {"ready_seen": number(NOW_SECONDS - 1000)},
    **{text: {"ready": vector([({"internal_ip": "10.0.0.7"}, text)])} for text in NOT_A_NUMBER},
}


@pytest.mark.parametrize("changed", UNKNOWN_NODES.values(), ids=UNKNOWN_NODES.keys())
def test_ready_nodes_are_unknown(changed: dict[str, Reply]) -> None:
    with signals(script(**changed)) as (asked, _):
        assert isinstance(asked.ready_addresses(), Unknown)


USELESS: dict[str, tuple[Reply | type[Exception], str]] = {
    "an error": (failed(422, "query timed out in expression evaluation"), "query timed out"),
    "an error with status 200": (failed(200, "no"), "refused the query: no"),
    "a status alone": (Reply(b"", status=503), "HTTP status 503"),
    "a page": (Reply(b"<html>sign in</html>"), "not from Prometheus"),
    "a page with another status": (Reply(b"<html>no</html>", status=401), "HTTP status 401"),
    "a redirect": (Reply(status=302, headers={"Location": "http://127.0.0.1:1/"}), "HTTP status 302"),
    "not UTF-8": (Reply(b'{"status": "\xff\xfe"}'), "not from Prometheus"),
    "nested without end": (Reply(b'{"status":' + b"[" * 100_000), "not from Prometheus"),
    "another JSON": (Reply(b'{"status": "pending"}'), "not from Prometheus"),
    "a list": (Reply(b"[]"), "not from Prometheus"),
    "no data": (Reply(b'{"status": "success"}'), "expected a vector"),
    "half an answer": (Reply(b'{"status": "success"', missing_bytes=100), "connection lost"),
    "a reset": (Reset, "connection lost"),
}


@pytest.mark.parametrize(("reply", "why"), USELESS.values(), ids=USELESS.keys())
def test_an_unusable_response_leaves_everything_unknown(reply: Reply | type[Exception], why: str) -> None:
    with signals(always(reply)) as (asked, server):
        for reading in all_readings(asked):
            assert isinstance(reading, Unknown)
            assert why in reading.why
    assert {request.path for request in server.asked} == {"/api/v1/query"}


def test_a_server_that_does_not_respond_is_unknown() -> None:
    with signals(always(Silence), limits=HttpLimits(whole_seconds=0.1)) as (asked, _):
        reading = asked.cpu()
    assert isinstance(reading, Unknown)
    assert "timed out" in reading.why


def test_an_endless_response_is_given_up() -> None:
    with signals(script(), limits=HttpLimits(body_bytes=50)) as (asked, _):
        reading = asked.cpu()
    assert isinstance(reading, Unknown)
    assert "larger than 50 bytes" in reading.why


class HastyClock(StillClock):
    """Six seconds pass between any two readings."""

    def monotonic_seconds(self) -> float:
        self.advance(6)
        return super().monotonic_seconds()


def test_a_response_that_trickles_in_is_given_up() -> None:
    """Each piece is in time, all of them together are not."""
    with serving(script()) as server:
        place = HttpEndpoint(server.url, HastyClock(), setting="PROMETHEUS_URL", limits=HttpLimits(whole_seconds=5))
        reading = PrometheusSignals(place, StillClock()).cpu()
    assert isinstance(reading, Unknown)
    assert "took longer than 5 s" in reading.why


def test_a_refused_connection_is_unknown() -> None:
    with signals(script()) as (asked, server):
        pass
    reading = asked.cpu()
    assert isinstance(reading, Unknown)
    assert f"Prometheus at {server.url}: cannot connect: Connection refused" in reading.why


@pytest.mark.parametrize("host", ["prometheus.invalid", "a" * 64, "two..dots"])
def test_a_host_that_does_not_exist_is_unknown(host: str) -> None:
    place = HttpEndpoint(f"http://{host}:9090", SystemClock(), setting="PROMETHEUS_URL")
    assert isinstance(PrometheusSignals(place, SystemClock()).cpu(), Unknown)


# TLS and tokens


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return new_authority(tmp_path_factory.mktemp("authority"))


def test_a_certificate_of_the_configured_authority_is_accepted(authority: Authority) -> None:
    tls = authority.server_context("127.0.0.1")
    with signals(script(), tls, ca_file=authority.file) as (asked, _):
        assert isinstance(asked.cpu(), Known)


def test_a_certificate_of_another_authority_is_refused(authority: Authority, tmp_path: Path) -> None:
    stranger = new_authority(tmp_path)
    with signals(script(), stranger.server_context("127.0.0.1"), ca_file=authority.file) as (asked, server):
        reading = asked.cpu()
    assert isinstance(reading, Unknown)
    assert "certificate verification failed" in reading.why
    assert server.asked == []


def test_a_private_authority_is_not_trusted_unless_it_is_configured(authority: Authority) -> None:
    with signals(script(), authority.server_context("127.0.0.1"), token=lambda: SECRET) as (asked, server):
        assert isinstance(asked.cpu(), Unknown)
    assert server.asked == []


def test_a_certificate_for_another_host_is_refused(authority: Authority) -> None:
    with signals(script(), authority.server_context("prometheus.example"), ca_file=authority.file) as (asked, server):
        reading = asked.cpu()
    assert isinstance(reading, Unknown)
    assert "certificate verification failed" in reading.why
    assert server.asked == []


def test_an_unusable_ca_file_is_a_bad_setting(tmp_path: Path) -> None:
    empty = tmp_path / "empty.pem"
    empty.write_text("no certificate")
    for file in (empty, tmp_path / "missing.pem"):
        with pytest.raises(BadSetting, match=f"PROMETHEUS_URL: the CA file {file}"):
            HttpEndpoint("https://prometheus.example", StillClock(), setting="PROMETHEUS_URL", ca_file=file)


@pytest.mark.parametrize(
    "address",
    [
        "",
        "prometheus:9090",
        "ftp://host",
        "https://",
        "https://host:port",
        "https://[::1",
        f"https://user:{SECRET}@host",
        "http://host/a b",
        "http://host/\r\nX: y",
        "http://host/#part",
    ],
)
def test_an_invalid_address_is_reported_and_not_shown(address: str) -> None:
    with pytest.raises(BadSetting, match=r"^PROMETHEUS_URL is not a URL") as raised:
        HttpEndpoint(address, StillClock(), setting="PROMETHEUS_URL")
    assert SECRET not in str(raised.value)


def test_a_token_is_sent_and_read_again_each_time(tmp_path: Path) -> None:
    file = tmp_path / "token"
    file.write_text("first\n")
    with signals(script(), token=token_from(file)) as (asked, server):
        asked.ready_addresses()
        file.write_text("second\n")
        asked.ready_addresses()
    sent = [request.headers["authorization"] for request in server.asked]
    assert sent == ["Bearer first", "Bearer first", "Bearer second", "Bearer second"]


def needs_operator() -> str:
    raise NeedsOperator("SSM parameter /prometheus: not found")


@pytest.mark.parametrize(
    ("token", "why"),
    [
        (token_from(Path("/nowhere/token")), "cannot read the Prometheus token: FileNotFoundError"),
        (lambda: f"{SECRET}\r\nX-Injected: yes", "invalid characters"),
        (lambda: f"{SECRET}ü", "invalid characters"),
        (lambda: " \n", "empty"),
        (needs_operator, "cannot fetch the Prometheus token: SSM parameter /prometheus: not found"),
    ],
)
def test_an_unusable_token_leaves_everything_unknown(token: Callable[[], str], why: str) -> None:
    with signals(script(), token=token) as (asked, server):
        for reading in all_readings(asked):
            assert isinstance(reading, Unknown)
            assert why in reading.why
            assert SECRET not in reading.why
    assert server.asked == []


def test_a_token_is_not_sent_over_plain_http() -> None:
    place = HttpEndpoint("http://prometheus.example:9090", StillClock(), setting="PROMETHEUS_URL")
    with pytest.raises(BadSetting, match="https://"):
        PrometheusSignals(place, StillClock(), token=lambda: SECRET)


@pytest.mark.parametrize("reply", [reply for reply, _ in USELESS.values()], ids=USELESS.keys())
def test_a_token_is_in_no_reason_and_no_log(reply: Reply | type[Exception], caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG), signals(always(reply), token=lambda: SECRET) as (asked, server):
        shown = "".join(str(reading) for reading in all_readings(asked))
    assert SECRET in server.asked[0].headers["authorization"]
    assert SECRET not in shown + caplog.text


def test_a_missing_prometheus_binary_is_reported_in_one_sentence(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(prometheus.Unavailable, match=r"^there is no prometheus on this machine; .*\.$"):
        prometheus.start(tmp_path, {})
