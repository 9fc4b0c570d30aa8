"""Shared by the AWS adapters: clients that send a request once, and a single error type.

Retries are up to the caller: only the caller knows what may be repeated, and with which token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from holdfast.adapters.aws_region import region_variable
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable
from holdfast.kernel.text import cut

MESSAGE_MOST: Final = 500  # EC2 appends a thousand encoded characters to a denied permission

_THROTTLES: Final = frozenset(
    {
        "LimitExceededException",
        "RequestLimitExceeded",
        "RequestThrottled",
        "RequestThrottledException",
        "Throttled",
        "ThrottledException",
        "Throttling",
        "ThrottlingException",
        "TooManyRequestsException",
    }
)
# botocore's own errors: nothing was sent, and a retry does not help.
_NOTHING_TO_SIGN_WITH: Final = frozenset({"NoCredentialsError", "NoRegionError", "PartialCredentialsError"})
_NEVER_RIGHT: Final = frozenset({"ParamValidationError"})


class AwsError(Exception):
    """A response that is not a success, or no response.

    `code` is the service's, or the name of the connection error; `status` is HTTP's, 0 without a response.
    """

    def __init__(self, code: str, message: str, *, status: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    @property
    def is_transient(self) -> bool:
        """Whether the same request may succeed later without anyone acting."""
        if self.status == 0:
            return self.code not in _NOTHING_TO_SIGN_WITH | _NEVER_RIGHT
        return self.status >= 500 or self.code in _THROTTLES


def aws_config(*, read_seconds: float, connect_seconds: float = 2, connections: int = 10) -> Config:
    """A client configuration without retries, and with timeouts."""
    return Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=connect_seconds,
        read_timeout=read_seconds,
        max_pool_connections=connections,
        tcp_keepalive=True,
    )


def aws_client(service: str, config: Config, **options: Any) -> Any:
    """A boto3 client, with boto3's own configuration; AWS_REGION counts, too."""
    options = {"region_name": region_variable(), **options}
    try:
        return boto3.client(service, config=config, **options)  # type: ignore[call-overload]
    except (BotoCoreError, ValueError) as error:  # ValueError: the endpoint is not a URL
        raise NeedsOperator(
            f"no client for {service}: {str(error).rstrip('.')}; "
            "set AWS_DEFAULT_REGION, and check AWS_PROFILE and AWS_ENDPOINT_URL"
        ) from error


@contextmanager
def aws_errors() -> Iterator[None]:
    """Around each call: turns every error of boto3 into an AwsError."""
    try:
        yield
    except ClientError as error:
        details = error.response.get("Error", {})
        status = int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))
        message = cut(str(details.get("Message", "")), MESSAGE_MOST)
        raise AwsError(str(details.get("Code", "Unknown")), message, status=status) from error
    except BotoCoreError as error:
        raise AwsError(type(error).__name__, cut(str(error), MESSAGE_MOST)) from error
    except (ResponseParserError, ValueError) as error:
        # A truncated response, or one made up by a proxy. botocore does not wrap these two.
        raise AwsError("ResponseParserError", cut(str(error), MESSAGE_MOST)) from error


def explained(error: AwsError, what: str) -> HoldfastError:
    """The error as one of ours; `what` names the failed call."""
    if error.is_transient:
        return Retryable(f"{what}: {error}; retried later")
    if error.code in _NOTHING_TO_SIGN_WITH or "AccessDenied" in error.code or error.status in (401, 403):
        return NeedsOperator(f"{what}: {error}; check the credentials, the region and the role's permissions")
    return NeedsOperator(f"{what}: {error}; unexpected, find and fix the cause")
