"""The lean client: it signs as botocore does, and knows what may have been sent when a connection breaks."""

import base64
import json
import socket
import ssl
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from pathlib import Path
from threading import Thread
from typing import Any
from unittest.mock import patch

import pytest
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials

from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport
from holdfast.adapters.dynamodb.calls import DynamoTransportError
from holdfast.adapters.dynamodb.lean_transport import Endpoint, Keys, LeanTransport, lean_transport
from holdfast.entrypoints.wiring.stores import open_store
from holdfast.kernel.errors import StoreRefused
from holdfast.kernel.settings import load_settings
from tests.servers.certificates import new_authority
from tests.servers.processes import free_port
from tests.servers.scripted_http import Asked, Reply, Reset, Script, ScriptedServer, Silence, serving

CREDENTIALS = Credentials("AKID", "secret")
AT = datetime(2026, 1, 15, 10, 0, 1, tzinfo=UTC)
REQUEST = {"TableName": "t", "Key": {"pk": {"S": "ä"}}, "Item": {"b": {"B": b"\x00\xff"}}}


def place_of(server: ScriptedServer, tls: ssl.SSLContext | None = None) -> Endpoint:
    return Endpoint("127.0.0.1", server.server_address[1], tls, "eu-west-1")


@contextmanager
def client_of(script: Script) -> Iterator[tuple[LeanTransport, ScriptedServer]]:
    with serving(script) as server:
        transport = LeanTransport(place_of(server), Credentials("AKID", "secret"))
        yield transport, server
        transport.close()


def answer(body: Any = None, status: int = 200) -> Reply:
    return Reply(json.dumps(body if body is not None else {}).encode(), status)


@pytest.mark.parametrize("token", [None, "session/token+=="])
@pytest.mark.parametrize("host", [("dynamodb.eu-west-1.amazonaws.com", 443), ("127.0.0.1", 8000)])
def test_it_signs_as_botocore_does(token: str | None, host: tuple[str, int]) -> None:
    """DynamoDB Local accepts any signature, so this test shows that AWS would accept ours."""
    tls = ssl.create_default_context() if host[1] == 443 else None
    place = Endpoint(*host, tls, "eu-west-1")
    body = json.dumps({"TableName": "t"}).encode()
    ours = place.headers("GetItem", body, Keys("AKID", "se/cret", token), AT)
    url = f"{'https' if tls else 'http'}://{place.authority}/"
    theirs = AWSRequest("POST", url, data=body, headers={name: ours[name] for name in ("content-type", "x-amz-target")})
    with patch("botocore.auth.get_current_datetime", return_value=AT.replace(tzinfo=None)):
        SigV4Auth(Credentials("AKID", "se/cret", token), "dynamodb", "eu-west-1").add_auth(theirs)
    assert ours["authorization"] == theirs.headers["Authorization"]
    assert ours["x-amz-date"] == theirs.headers["X-Amz-Date"]


def test_a_new_day_and_new_credentials_have_another_key() -> None:
    place = Endpoint("h", 80, None, "eu-west-1")
    moments = [(AT, "one"), (AT.replace(day=16), "one"), (AT, "two"), (AT, "one")]
    signed = [place.headers("GetItem", b"", Keys("A", secret), at)["authorization"] for at, secret in moments]
    assert signed[0] == signed[3]
    assert len(set(signed)) == 3
    # As one that has kept no key would sign: an old key under a new date is refused, from midnight UTC on.
    fresh = [
        Endpoint("h", 80, None, "eu-west-1").headers("GetItem", b"", Keys("A", secret), at)["authorization"]
        for at, secret in moments
    ]
    assert signed == fresh


def test_a_request_is_sent_in_dynamodbs_format() -> None:
    asked: list[Asked] = []

    def script(one: Asked) -> Reply:
        asked.append(one)
        return answer({"ok": True})

    with client_of(script) as (client, _):
        assert client.call("PutItem", REQUEST) == {"ok": True}
    (one,) = asked
    headers = {name.lower(): value for name, value in one.headers.items()}
    assert (headers["x-amz-target"], headers["content-type"]) == (
        "DynamoDB_20120810.PutItem",
        "application/x-amz-json-1.0",
    )
    sent = json.loads(one.body)
    assert sent["Item"]["b"]["B"] == base64.b64encode(b"\x00\xff").decode()
    assert sent["Key"]["pk"]["S"] == "ä"


def test_a_refusal_has_its_code_and_the_item() -> None:
    body = {"__type": "com.amazonaws.dynamodb.v20120810#ConditionalCheckFailedException", "Message": "no", "Item": {}}
    with client_of(lambda _: answer(body, 400)) as (client, _), pytest.raises(DynamoTransportError) as caught:
        client.call("PutItem", REQUEST)
    error = caught.value
    assert (error.code, error.message, error.status) == ("ConditionalCheckFailedException", "no", 400)
    assert error.answer == body


@pytest.mark.parametrize("body", [b"<html>Bad gateway</html>", b"[]", b"\xff"])
def test_a_response_not_from_dynamodb_is_reported_by_its_status(body: bytes) -> None:
    with client_of(lambda _: Reply(body, 502)) as (client, _), pytest.raises(DynamoTransportError) as caught:
        client.call("GetItem", REQUEST)
    assert (caught.value.code, caught.value.status, caught.value.sent) == ("HTTP 502", 502, True)


@pytest.mark.parametrize("failure", [Reset, "cut", "damaged", "not JSON"])
def test_after_a_broken_response_the_request_may_have_been_executed(failure: Any) -> None:
    def script(_: Asked) -> Reply:
        if failure is Reset:
            raise Reset
        if failure == "cut":
            return Reply(b"{}", missing_bytes=5)
        return Reply(b"{}", headers={"x-amz-crc32": "1"}) if failure == "damaged" else Reply(b"{")

    with client_of(script) as (client, _), pytest.raises(DynamoTransportError) as caught:
        client.call("UpdateItem", REQUEST)
    assert (caught.value.status, caught.value.sent) == (0, True)


def test_a_server_that_never_responds_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("holdfast.adapters.dynamodb.lean_transport.READ_SECONDS", 0.1)

    def script(_: Asked) -> Reply:
        raise Silence

    with client_of(script) as (client, _), pytest.raises(DynamoTransportError) as caught:
        client.call("GetItem", REQUEST)
    assert (caught.value.code, caught.value.sent) == ("TimeoutError", True)


def test_without_a_connection_the_request_was_not_sent() -> None:
    transport = LeanTransport(Endpoint("127.0.0.1", free_port(), None, "eu-west-1"), Credentials("a", "b"))
    with pytest.raises(DynamoTransportError) as caught:
        transport.call("GetItem", REQUEST)
    assert (caught.value.sent, caught.value.status) == (False, 0)


def test_a_response_with_a_correct_checksum_is_accepted() -> None:
    body = b'{"a": 1}'
    with client_of(lambda _: Reply(body, headers={"x-amz-crc32": str(zlib.crc32(body))})) as (client, _):
        assert client.call("GetItem", REQUEST) == {"a": 1}


@contextmanager
def saying(*pieces: bytes) -> Iterator[LeanTransport]:
    """A client of a server that accepts any request, sends these pieces one by one, and closes the connection."""
    with socket.create_server(("127.0.0.1", 0)) as listener:

        def serve() -> None:
            with suppress(OSError):
                connection = listener.accept()[0]
                with connection:
                    connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                    connection.recv(65536)
                    for piece in pieces:
                        connection.sendall(piece)

        thread = Thread(target=serve)
        thread.start()
        transport = LeanTransport(Endpoint("127.0.0.1", listener.getsockname()[1], None, "eu-west-1"), CREDENTIALS)
        try:
            yield transport
        finally:
            transport.close()
            listener.shutdown(socket.SHUT_RDWR)
            thread.join()


@pytest.mark.parametrize(
    "pieces",
    [
        [b"HTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n", b'{"a"', b": 1}"],
        [*(bytes([byte]) for byte in b'HTTP/1.1 200 OK\r\nContent-Length:8\r\nX: y\r\n\r\n{"a": 1}')],
        [b'HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{"a"\r\n', b"4\r\n: 1}\r\n0\r\n\r\n"],
        [b'HTTP/1.0 200 OK\r\n\r\n{"a"', b": 1}"],
        [b'HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 200 OK\r\ncontent-length: 8\r\n\r\n{"a": 1}'],
    ],
)
def test_a_response_is_read_in_any_encoding_and_any_pieces(pieces: list[bytes]) -> None:
    with saying(*pieces) as client:
        assert client.call("GetItem", REQUEST) == {"a": 1}


@pytest.mark.parametrize(
    "said",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\n{}{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ncontent-length: 99999999999\r\n\r\n{}",
        b"HTTP/1.1 OK\r\ncontent-length: 2\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\nx: " + b"y" * 200_000,
        b"nonsense\r\n\r\n",
        b"HTTP/1.0 200 OK\r\ncontent-length: 3\r\n\r\n{}",
        b"HTTP/1.1 200 OK\r\ntransfer-encoding: chunked\r\n\r\n4\r\n{}",
    ],
)
def test_after_a_malformed_response_the_request_may_have_been_executed(said: bytes) -> None:
    with saying(said) as client, pytest.raises(DynamoTransportError) as caught:
        client.call("UpdateItem", REQUEST)
    assert (caught.value.status, caught.value.sent) == (0, True)


def test_a_connection_that_the_server_closes_is_not_reused() -> None:
    with client_of(lambda _: Reply(b"{}", headers={"connection": "close"})) as (client, _):
        client.call("GetItem", REQUEST)
        assert not client._idle


def test_a_connection_is_reused() -> None:
    with client_of(lambda _: answer()) as (client, _):
        client.call("GetItem", REQUEST)
        assert len(client._idle) == 1


def test_without_credentials_nothing_is_sent() -> None:
    transport = LeanTransport(Endpoint("127.0.0.1", 1, None, "eu-west-1"), None)
    with pytest.raises(DynamoTransportError) as caught:
        transport.call("GetItem", REQUEST)
    assert (caught.value.code, caught.value.sent) == ("NoCredentialsError", False)


def test_with_an_untrusted_certificate_nothing_is_sent(tmp_path: Path) -> None:
    asked: list[Asked] = []
    authority, other = new_authority(tmp_path / "a"), new_authority(tmp_path / "b")

    def script(one: Asked) -> Reply:
        asked.append(one)
        return answer()

    with serving(script, authority.server_context("127.0.0.1")) as server:
        for trusted, is_taken in ((other, False), (authority, True)):
            context = ssl.create_default_context(cafile=trusted.file)
            transport = LeanTransport(place_of(server, context), Credentials("a", "b"))
            if is_taken:
                assert transport.call("GetItem", REQUEST) == {}
            else:
                with pytest.raises(DynamoTransportError) as caught:
                    transport.call("GetItem", REQUEST)
                assert (caught.value.sent, asked) == (False, [])
            transport.close()


# Settings


def test_botocores_settings_apply(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_ENDPOINT_URL_DYNAMODB", "http://127.0.0.1:8123/prefix")
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "from the environment")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "x")
    transport = lean_transport()
    assert transport is not None
    assert (transport._endpoint.authority, transport._endpoint.path) == ("127.0.0.1:8123", "/prefix")
    assert transport._endpoint.region == "eu-north-1"
    assert transport._keys().access == "from the environment"


@pytest.mark.parametrize("connect", [lean_transport, Boto3Transport])
def test_aws_region_alone_names_the_region(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, connect: Callable[[], Any]
) -> None:
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    monkeypatch.setenv("AWS_REGION", "eu-north-1")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    transport = connect()
    region = transport._client.meta.region_name if connect is Boto3Transport else transport._endpoint.region
    assert region == "eu-north-1"
    transport.close()


def test_without_a_region_it_says_what_to_set(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("AWS_DEFAULT_REGION", "AWS_REGION"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    with pytest.raises(StoreRefused, match="set AWS_DEFAULT_REGION"):
        lean_transport()


@pytest.mark.parametrize(
    ("given", "proxy", "kind"),
    [("lean", "", LeanTransport), ("boto3", "", Boto3Transport), ("lean", "x", Boto3Transport)],
)
def test_a_setting_chooses_and_a_proxy_needs_boto3(
    monkeypatch: pytest.MonkeyPatch, given: str, proxy: str, kind: type
) -> None:
    monkeypatch.setenv("AWS_DEFAULT_REGION", "eu-west-1")
    for name in ("HTTPS_PROXY", "https_proxy", "NO_PROXY", "no_proxy"):
        monkeypatch.delenv(name, raising=False)
    if proxy:
        monkeypatch.setenv("https_proxy", "http://127.0.0.1:3128")
    store: Any = open_store(load_settings({"HOLDFAST_STORE": "dynamodb:", "DYNAMODB_CLIENT": given}))
    assert isinstance(store._calls.transport, kind)
    store.close()
