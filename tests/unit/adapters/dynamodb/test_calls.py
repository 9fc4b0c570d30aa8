"""Calls to DynamoDB: what is retried, what is not, and which errors are raised."""

import random
from collections.abc import Iterator
from typing import Any

import pytest
from botocore.exceptions import ConnectTimeoutError, EndpointConnectionError, NoCredentialsError, ReadTimeoutError

from holdfast.adapters.dynamodb.boto3_transport import Boto3Transport, boto3_client
from holdfast.adapters.dynamodb.calls import DynamoCalls, DynamoRetries, DynamoTransportError
from holdfast.adapters.dynamodb.store import DynamoStore
from holdfast.adapters.dynamodb.wire import Wire
from holdfast.kernel.errors import BadRequest, ItemTooLarge, StoreRefused, StoreUnavailable, TableProblem
from holdfast.ports.store import Key, PutItem, attr
from holdfast.ports.store.tables import STATE
from tests.clocks import StillClock

THROTTLED = DynamoTransportError("ProvisionedThroughputExceededException", "slow down", status=400)
BROKEN = DynamoTransportError("InternalServerError", "oops", status=500)
LOST = DynamoTransportError("ReadTimeoutError", "no answer")
UNREACHED = DynamoTransportError("EndpointConnectionError", "connection refused", sent=False)


class ScriptedTransport:
    """Responses from a list, the last one for ever; records the requests."""

    def __init__(self, *answers: Wire | DynamoTransportError) -> None:
        self._answers: Iterator[Wire | DynamoTransportError] = iter(answers)
        self._last: Wire | DynamoTransportError = {}
        self.asked: list[tuple[str, Wire]] = []

    def call(self, operation: str, request: Wire) -> Wire:
        self.asked.append((operation, dict(request)))
        self._last = next(self._answers, self._last)
        if isinstance(self._last, DynamoTransportError):
            raise self._last
        return self._last

    def close(self) -> None:
        pass


def store_on(transport: ScriptedTransport, clock: StillClock | None = None) -> DynamoStore:
    calls = DynamoCalls(transport, clock or StillClock(), DynamoRetries(deadline_seconds=8), random.Random(7))
    return DynamoStore(calls)


@pytest.mark.parametrize("error", [THROTTLED, BROKEN, LOST, UNREACHED], ids=lambda error: error.code)
def test_a_temporary_error_is_retried_with_growing_waits(error: DynamoTransportError) -> None:
    clock = StillClock()
    transport = ScriptedTransport(error, error, error, {"Item": {"pk": {"S": "cluster"}}})
    assert store_on(transport, clock).get(STATE, Key("cluster")) == {"pk": "cluster"}
    assert len(transport.asked) == 4
    assert len(clock.slept_seconds) == 3
    assert all(0 <= wait <= ceiling for wait, ceiling in zip(clock.slept_seconds, (0.05, 0.1, 0.2), strict=True))


def test_retries_end_at_the_deadline_with_an_error_that_says_so() -> None:
    clock = StillClock()
    started = clock.monotonic_seconds()
    transport = ScriptedTransport(THROTTLED)
    with pytest.raises(StoreUnavailable, match=r"GetItem on k3s-autoscaler-state: .*slow down; gave up after 8 s"):
        store_on(transport, clock).get(STATE, Key("cluster"))
    assert clock.monotonic_seconds() - started <= 8
    assert len(transport.asked) > 5


def test_two_callers_wait_differently() -> None:
    """Their jitter differs, so that calls that failed together are not retried together."""
    waits = []
    for seed in (1, 2):
        clock = StillClock()
        transport = ScriptedTransport(THROTTLED, THROTTLED, {})
        DynamoCalls(transport, clock, chance=random.Random(seed)).call("GetItem", {"TableName": "t"})
        waits.append(clock.slept_seconds)
    assert waits[0] != waits[1]


@pytest.mark.parametrize("error", [BROKEN, LOST], ids=lambda error: error.code)
def test_an_addition_whose_response_was_lost_is_not_retried(error: DynamoTransportError) -> None:
    """It may have been executed: a retry would count twice."""
    transport = ScriptedTransport(error, {})
    with pytest.raises(StoreUnavailable, match="may have been executed"):
        store_on(transport).update(STATE, Key("cluster"), attr("fence").plus(1))
    assert len(transport.asked) == 1


@pytest.mark.parametrize("error", [THROTTLED, UNREACHED], ids=lambda error: error.code)
def test_an_addition_that_certainly_did_not_happen_is_retried(error: DynamoTransportError) -> None:
    transport = ScriptedTransport(error, {})
    written = store_on(transport).update(STATE, Key("cluster"), attr("fence").plus(1))
    assert written.new == {"pk": "cluster", "fence": 1}
    assert len(transport.asked) == 2


def test_a_transaction_is_retried_with_its_own_token() -> None:
    """DynamoDB does not repeat the work for a repeated token, so a lost response is harmless."""
    conflict = DynamoTransportError(
        "TransactionCanceledException",
        "cancelled",
        status=400,
        answer={"CancellationReasons": [{"Code": "TransactionConflict"}, {"Code": "None"}]},
    )
    transport = ScriptedTransport(LOST, conflict, {})
    store_on(transport).transact([PutItem(STATE, {"pk": "a"}), PutItem(STATE, {"pk": "b"})])
    tokens = {request["ClientRequestToken"] for _, request in transport.asked}
    assert (len(transport.asked), len(tokens)) == (3, 1)
    store_on(transport).transact([PutItem(STATE, {"pk": "a"})])
    assert transport.asked[-1][1]["ClientRequestToken"] not in tokens


def test_unprocessed_keys_of_a_batch_are_requested_again() -> None:
    clock = StillClock()
    name = STATE.name
    left = {name: {"Keys": [{"pk": {"S": "b"}}], "ConsistentRead": False}}
    transport = ScriptedTransport(
        {"Responses": {name: [{"pk": {"S": "a"}}]}, "UnprocessedKeys": left},
        {"Responses": {}, "UnprocessedKeys": left},
        {"Responses": {name: [{"pk": {"S": "b"}}]}, "UnprocessedKeys": {}},
    )
    found = store_on(transport, clock).batch_get(STATE, [Key("b"), Key("a")])
    assert found == [{"pk": "b"}, {"pk": "a"}]
    assert [request["RequestItems"] for _, request in transport.asked[1:]] == [left, left]
    assert len(clock.slept_seconds) == 2
    with pytest.raises(StoreUnavailable, match="1 keys still unread"):
        store_on(ScriptedTransport({"Responses": {}, "UnprocessedKeys": left})).batch_get(STATE, [Key("b")])


@pytest.mark.parametrize(
    ("code", "message", "error", "says"),
    [
        ("ResourceNotFoundException", "", TableProblem, "holdfast tables create"),
        ("AccessDeniedException", "not authorized to perform dynamodb:GetItem", StoreRefused, "dynamodb:GetItem"),
        ("UnrecognizedClientException", "the security token is invalid", StoreRefused, "credentials"),
        ("ValidationException", "bad expression", BadRequest, "bad expression"),
        ("ValidationException", "Item size to update has exceeded the maximum", ItemTooLarge, "Item size"),
        ("SomethingNew", "who knows", StoreRefused, "who knows"),
    ],
)
def test_a_permanent_error_is_raised_at_once(code: str, message: str, error: type[Exception], says: str) -> None:
    transport = ScriptedTransport(DynamoTransportError(code, message, status=400))
    with pytest.raises(error, match=says) as raised:
        store_on(transport).get(STATE, Key("cluster"))
    assert len(transport.asked) == 1
    assert isinstance(raised.value.__cause__, DynamoTransportError)


def test_nothing_is_metered_without_a_meter() -> None:
    transport = ScriptedTransport({"ConsumedCapacity": {"TableName": STATE.name, "CapacityUnits": 1.0}})
    store = store_on(transport)
    store.get(STATE, Key("cluster"))
    consumed: list[Any] = []
    store.metered(consumed.append).get(STATE, Key("cluster"))
    assert ["ReturnConsumedCapacity" in request for _, request in transport.asked] == [False, True]
    assert [c.read_units for c in consumed] == [1.0]


def test_hostile_names_and_values_stay_placeholders() -> None:
    """No attribute name or value becomes part of an expression."""
    transport = ScriptedTransport({})
    hostile = 'x" OR 1=1; #0 :0 REMOVE pk'
    store_on(transport).update(STATE, Key("k"), attr(hostile).set_to(hostile), attr(hostile).is_absent())
    request = transport.asked[0][1]
    for part in ("UpdateExpression", "ConditionExpression"):
        assert hostile not in request[part]
    assert request["UpdateExpression"] == "SET #0 = :0"
    assert request["ExpressionAttributeNames"] == {"#0": hostile}


class FailingClient:
    def __init__(self, error: Exception) -> None:
        self._error = error

    def get_item(self, **_: Any) -> None:
        raise self._error


@pytest.mark.parametrize(
    ("error", "sent"),
    [
        (EndpointConnectionError(endpoint_url="u"), False),
        (ConnectTimeoutError(endpoint_url="u"), False),
        (NoCredentialsError(), False),
        (ReadTimeoutError(endpoint_url="u"), True),
    ],
    ids=lambda value: type(value).__name__,
)
def test_boto3_errors_say_whether_the_request_may_have_arrived(error: Exception, sent: bool) -> None:
    with pytest.raises(DynamoTransportError) as raised:
        Boto3Transport(FailingClient(error)).call("GetItem", {})
    assert raised.value.sent is sent
    assert raised.value.code == type(error).__name__


def test_missing_credentials_are_reported_at_once() -> None:
    calls = DynamoCalls(Boto3Transport(FailingClient(NoCredentialsError())), StillClock())
    with pytest.raises(StoreRefused, match="credentials"):
        calls.call("GetItem", {"TableName": "t"})


def test_a_missing_region_or_profile_is_one_clear_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """boto3 notices when the client is created."""
    monkeypatch.setattr("boto3.DEFAULT_SESSION", None)
    monkeypatch.setenv("AWS_CONFIG_FILE", "/dev/null")
    monkeypatch.delenv("AWS_DEFAULT_REGION", raising=False)
    with pytest.raises(StoreRefused, match="a region; set AWS_DEFAULT_REGION"):
        boto3_client()
    monkeypatch.setenv("AWS_PROFILE", "nobody")
    with pytest.raises(StoreRefused, match="nobody"):
        boto3_client()


def test_boto3_sends_a_request_once() -> None:
    """Retries are ours (DynamoRetries): boto3 does not know what may be repeated."""
    client = boto3_client(region_name="eu-west-1", aws_access_key_id="a", aws_secret_access_key="b")
    assert client.meta.config.retries["total_max_attempts"] == 1
    client.close()
