"""DynamoDB through boto3: credentials, signing and HTTP are boto3's; retries are not."""

from functools import cache
from typing import Any, Final

import boto3
from botocore import xform_name
from botocore.config import Config
from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    ConnectTimeoutError,
    EndpointConnectionError,
    NoCredentialsError,
    NoRegionError,
    ParamValidationError,
    PartialCredentialsError,
    ProxyConnectionError,
)

from holdfast.adapters.aws_region import region_variable
from holdfast.adapters.dynamodb.calls import DynamoTransportError
from holdfast.adapters.dynamodb.wire import Wire
from holdfast.adapters.server_date import ServerDate
from holdfast.kernel.errors import StoreRefused

# The connection was never made, so nothing was sent.
_NOT_SENT: Final = (
    EndpointConnectionError,
    ConnectTimeoutError,
    ProxyConnectionError,
    NoCredentialsError,
    NoRegionError,
    PartialCredentialsError,
)


class Boto3Transport:
    """Implements `holdfast.adapters.dynamodb.calls.DynamoTransport`, with boto3's own configuration."""

    def __init__(self, client: Any = None, *, connections: int = 50, date: ServerDate | None = None) -> None:
        self._client = client or boto3_client(connections=connections)
        if date is not None:
            self._client.meta.events.register("after-call.dynamodb", date.record)

    def call(self, operation: str, request: Wire) -> Wire:
        try:
            # boto3 generates its methods, and offers no other public way to call an operation by name.
            answer: Wire = getattr(self._client, _method(operation))(**request)
        except ClientError as error:
            raise _refused(error) from error
        except ParamValidationError as error:
            # boto3 validates a request before it sends it.
            raise DynamoTransportError("ValidationException", str(error), status=400, sent=False) from error
        except BotoCoreError as error:
            raise DynamoTransportError(
                type(error).__name__, str(error), sent=not isinstance(error, _NOT_SENT)
            ) from error
        return answer

    def close(self) -> None:
        self._client.close()


def boto3_client(*, connections: int = 50, **options: Any) -> Any:
    """A client that sends each request once.

    The timeouts are short: DynamoDB answers in milliseconds, and a request that hangs is better retried.
    """
    config = Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=1,
        read_timeout=3,
        max_pool_connections=connections,
        tcp_keepalive=True,
    )
    options = {"region_name": region_variable(), **options}
    try:
        return boto3.client("dynamodb", config=config, **options)
    except (BotoCoreError, ValueError) as error:  # ValueError: the endpoint is not a URL
        raise StoreRefused(
            f"no DynamoDB client: {str(error).rstrip('.')}; "
            "set AWS_DEFAULT_REGION, and check AWS_PROFILE and AWS_ENDPOINT_URL_DYNAMODB"
        ) from error


@cache
def _method(operation: str) -> str:
    return xform_name(operation)


def _refused(error: ClientError) -> DynamoTransportError:
    answer: Any = error.response
    status = int(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
    details = answer.get("Error", {})
    return DynamoTransportError(
        str(details.get("Code", "Unknown")), str(details.get("Message", "")), status=status, answer=answer
    )
