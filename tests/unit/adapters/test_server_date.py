"""The servers' time is read from their responses, of every client that a process has."""

import json
from pathlib import Path

import pytest
from botocore.credentials import Credentials

from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport, boto3_client
from holdfast.adapters.dynamodb.calls import DynamoTransport, DynamoTransportError
from holdfast.adapters.dynamodb.lean_transport import Endpoint, LeanTransport
from holdfast.adapters.github.calls import GitHubCalls
from holdfast.adapters.http_calls import HttpEndpoint
from holdfast.adapters.server_date import ServerDate, ServerTimes
from holdfast.control.clock_check import WrongClock, check_clocks
from holdfast.kernel.instants import Instant
from holdfast.ports.github import GitHubRefused
from tests.clocks import StillClock
from tests.servers.certificates import new_authority
from tests.servers.processes import HOST
from tests.servers.scripted_http import Asked, Reply, ScriptedServer, serving

DATE = "Thu, 15 Jan 2099 10:00:00 GMT"
THEN = Instant.from_iso("2099-01-15T10:00:00Z")


def is_then(found: Instant | None) -> bool:
    """Within an hour: the time since the response is added."""
    return found is not None and 0 <= found.seconds_since(THEN) < 3600


def lean(server: ScriptedServer, date: ServerDate) -> DynamoTransport:
    return LeanTransport(Endpoint(HOST, server.server_address[1], None, "eu-west-1"), Credentials("a", "b"), date)


def with_boto3(server: ScriptedServer, date: ServerDate) -> DynamoTransport:
    client = boto3_client(
        endpoint_url=server.url, region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b"
    )
    return Boto3Transport(client, date=date)


@pytest.mark.parametrize("opened", [lean, with_boto3])
@pytest.mark.parametrize("status", [200, 400])
def test_dynamodbs_time_is_known_also_from_a_rejection(opened: object, status: int) -> None:
    """A clock that is off by a quarter of an hour makes every signature invalid."""
    assert callable(opened)
    date = ServerDate()
    with serving(lambda _: Reply(b"{}", status, headers={"Date": DATE})) as server:
        transport = opened(server, date)
        try:
            transport.call("GetItem", {"TableName": "t", "Key": {"pk": {"S": "a"}}})
        except DynamoTransportError as error:
            assert error.status == status  # noqa: PT017
        transport.close()
    assert is_then(date.now())


@pytest.mark.parametrize("status", [200, 404])
def test_githubs_time_is_known_also_from_a_rejection(tmp_path: Path, status: int) -> None:
    authority, date = new_authority(tmp_path), ServerDate()

    def script(_: Asked) -> Reply:
        return Reply(json.dumps({}).encode(), status, headers={"Date": DATE})

    with serving(script, authority.server_context(HOST)) as server:
        place = HttpEndpoint(server.url, StillClock(), setting="GITHUB_API_URL", ca_file=authority.file)
        calls = GitHubCalls(place, StillClock(), date=date)
        try:
            calls.send("GET", "/x", "token", "the App")
        except GitHubRefused as error:
            assert error.status == status  # noqa: PT017
    assert is_then(date.now())


@pytest.mark.parametrize(
    "header", ["", "yesterday", "Thu, 99 Jan 2099 10:00:00 GMT", "Thu, 15 Jan 9999999 10:00:00 GMT"]
)
def test_an_invalid_date_is_unknown(header: str) -> None:
    date = ServerDate()
    date.note(header)
    assert date.now() is None


def test_the_first_server_that_is_known_decides() -> None:
    """EC2's or DynamoDB's time over GitHub's: a GitHub server of one's own may be wrong itself."""
    times = ServerTimes()
    assert list(times.known()) == ["DynamoDB", "GitHub"]
    assert set(times.known().values()) == {None}
    times.github.note(DATE)
    assert is_then(times.known()["GitHub"])
    now, wrong = THEN, THEN.plus(-120)
    check_clocks(now, {"EC2": None, "DynamoDB": now, "GitHub": wrong})
    check_clocks(now, {"EC2": None, "GitHub": None})
    for times_of in ({"EC2": wrong, "DynamoDB": now}, {"EC2": None, "DynamoDB": wrong}, {"EC2": None, "GitHub": wrong}):
        with pytest.raises(WrongClock, match="120 s ahead of"):
            check_clocks(now, times_of)
