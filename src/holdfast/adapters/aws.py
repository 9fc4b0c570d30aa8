"""What the AWS adapters share: a request is sent once, and whatever boto3 raises has one form.

Retries are the caller's: only the caller knows what may be repeated, and with which token.
"""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Final

import boto3
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from botocore.parsers import ResponseParserError

from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable
from holdfast.kernel.text import cut

MESSAGE_MOST: Final = 500  # EC2 appends a thousand encoded characters to a refused permission

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
# botocore's own: it sent nothing, and never will with what it has.
_NOTHING_TO_SIGN_WITH: Final = frozenset({"NoCredentialsError", "NoRegionError", "PartialCredentialsError"})
_NEVER_RIGHT: Final = frozenset({"ParamValidationError"})


class AwsError(Exception):
    """An answer that is not a success, or none at all.

    `code` is the service's, or the name of what befell the connection; `status` is HTTP's, 0 without an answer.
    """

    def __init__(self, code: str, message: str, *, status: int = 0) -> None:
        super().__init__(f"{code}: {message}")
        self.code = code
        self.message = message
        self.status = status

    @property
    def may_pass(self) -> bool:
        """Whether the same request may succeed later, with nobody doing anything about it."""
        if self.status == 0:
            return self.code not in _NOTHING_TO_SIGN_WITH | _NEVER_RIGHT
        return self.status >= 500 or self.code in _THROTTLES


def aws_config(*, read_seconds: float, connect_seconds: float = 2, connections: int = 10) -> Config:
    """How a client sends: once, and never waiting for ever."""
    return Config(
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=connect_seconds,
        read_timeout=read_seconds,
        max_pool_connections=connections,
        tcp_keepalive=True,
    )


def aws_client(service: str, config: Config, **options: Any) -> Any:
    """A client of boto3's; its own variables and files apply."""
    try:
        return boto3.client(service, config=config, **options)  # type: ignore[call-overload]
    except (BotoCoreError, ValueError) as error:  # ValueError: an endpoint that is no address
        raise NeedsOperator(
            f"no client for {service}: {error}; set AWS_DEFAULT_REGION, and check AWS_PROFILE and AWS_ENDPOINT_URL"
        ) from error


@contextmanager
def aws_errors() -> Iterator[None]:
    """Around each call: AwsError is all that leaves it."""
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
        # An answer that was cut off, or that a proxy made up. botocore lets these two through as they are.
        raise AwsError("ResponseParserError", cut(str(error), MESSAGE_MOST)) from error


def explained(error: AwsError, what: str) -> HoldfastError:
    """The error as ours; `what` was asked, and of whom."""
    if error.may_pass:
        return Retryable(f"{what}: {error}; tried again later")
    if error.code in _NOTHING_TO_SIGN_WITH or "AccessDenied" in error.code or error.status in (401, 403):
        return NeedsOperator(f"{what}: {error}; check the credentials, the region and the role's permissions")
    return NeedsOperator(f"{what}: {error}; nothing is known to help but looking at the cause")
