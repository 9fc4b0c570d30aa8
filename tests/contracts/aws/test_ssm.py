"""Secrets in SSM's Parameter Store."""

from collections.abc import Iterator
from typing import Any

import pytest

from holdfast.adapters.aws.ssm import KEPT_SECONDS, SsmParameters, ssm_client
from holdfast.kernel.errors import NeedsOperator, Retryable
from tests.clocks import StillClock
from tests.servers.scripted_http import Asked, Reply, serving

SECRET = "canary-31e0"


@pytest.fixture
def clock() -> StillClock:
    return StillClock()


@pytest.fixture
def parameters(aws: dict[str, Any], clock: StillClock) -> Iterator[SsmParameters]:
    parameters = SsmParameters(clock, ssm_client(**aws))
    yield parameters
    parameters.close()


def put(raw: Any, value: str, name: str = "/k3s/token") -> None:
    raw("ssm").put_parameter(Name=name, Value=value, Type="SecureString", Overwrite=True)


def test_a_secret_is_decrypted(parameters: SsmParameters, raw: Any) -> None:
    put(raw, SECRET)
    assert parameters.secret("/k3s/token") == SECRET


def test_a_secret_is_cached_for_five_minutes_and_no_longer(
    parameters: SsmParameters, raw: Any, clock: StillClock
) -> None:
    put(raw, "old")
    assert parameters.secret("/k3s/token") == "old"
    put(raw, "new")
    clock.advance(KEPT_SECONDS - 1)
    assert parameters.secret("/k3s/token") == "old"
    clock.advance(1)
    assert parameters.secret("/k3s/token") == "new"
    assert KEPT_SECONDS <= 300


def test_a_deleted_secret_is_no_longer_used(parameters: SsmParameters, raw: Any, clock: StillClock) -> None:
    put(raw, SECRET, "/gone")
    parameters.secret("/gone")
    raw("ssm").delete_parameter(Name="/gone")
    clock.advance(KEPT_SECONDS)
    for _ in range(2):
        with pytest.raises(NeedsOperator, match="SSM parameter /gone: not found"):
            parameters.secret("/gone")
        assert SECRET not in repr(vars(parameters))


def test_a_missing_parameter_is_named_with_its_remedy(parameters: SsmParameters) -> None:
    with pytest.raises(NeedsOperator, match=r"SSM parameter /nothing: not found .*create it as a SecureString"):
        parameters.secret("/nothing")


def test_the_value_is_never_shown(parameters: SsmParameters, raw: Any) -> None:
    put(raw, SECRET)
    parameters.secret("/k3s/token")
    assert SECRET not in repr(parameters)


def refusal(code: str, status: int) -> Reply:
    body = f'{{"__type": "{code}", "message": "so it is"}}'.encode()
    return Reply(body, status=status, headers={"Content-Type": "application/x-amz-json-1.1"})


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDeniedException", 400, NeedsOperator),
        ("InvalidKeyId", 400, NeedsOperator),
        ("ThrottlingException", 400, Retryable),
        ("InternalServerError", 500, Retryable),
    ],
)
def test_a_refusal_is_retryable_or_for_an_operator(
    aws: dict[str, Any], clock: StillClock, code: str, status: int, error: type[Exception]
) -> None:
    def refuse(_: Asked) -> Reply:
        return refusal(code, status)

    with serving(refuse) as server:
        parameters = SsmParameters(clock, ssm_client(**{**aws, "endpoint_url": server.url}))
        with pytest.raises(error, match=f"SSM parameter /k3s/token: {code}"):
            parameters.secret("/k3s/token")
        parameters.close()
    assert len(server.asked) == 1


def test_a_refused_connection_is_retryable(aws: dict[str, Any], clock: StillClock) -> None:
    with serving(lambda _: Reply()) as gone:
        url = gone.url
    parameters = SsmParameters(clock, ssm_client(**{**aws, "endpoint_url": url}))
    with pytest.raises(Retryable, match="EndpointConnectionError"):
        parameters.secret("/k3s/token")
    parameters.close()
