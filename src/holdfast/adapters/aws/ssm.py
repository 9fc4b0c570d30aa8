"""Secrets from the SSM Parameter Store, through boto3."""

from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock

if TYPE_CHECKING:
    from types_boto3_ssm.client import SSMClient

# Within this time, a replaced or deleted secret takes effect.
KEPT_SECONDS: Final = 300.0
READ_SECONDS: Final = 5

_MISSING: Final = frozenset({"ParameterNotFound", "ParameterVersionNotFound"})


def ssm_client(**options: Any) -> "SSMClient":
    client: SSMClient = aws_client("ssm", aws_config(read_seconds=READ_SECONDS), **options)
    return client


class SsmParameters:
    """Implements `holdfast.ports.parameters.Parameters`. Values stay in memory, and never appear in messages."""

    def __init__(self, clock: Clock, client: "SSMClient | None" = None) -> None:
        self._clock = clock
        self._client = client or ssm_client()
        self._kept: dict[str, tuple[str, float]] = {}

    def close(self) -> None:
        self._kept.clear()
        self._client.close()

    def secret(self, name: str) -> str:
        value, until_seconds = self._kept.get(name, ("", 0.0))
        now_seconds = self._clock.monotonic_seconds()
        if now_seconds < until_seconds:
            return value
        # Forget it first: if fetching the new one fails, the old one must not be used.
        self._kept.pop(name, None)
        value = self._fetched(name)
        self._kept[name] = (value, now_seconds + KEPT_SECONDS)
        return value

    def _fetched(self, name: str) -> str:
        try:
            with aws_errors():
                answer = self._client.get_parameter(Name=name, WithDecryption=True)
        except AwsError as error:
            what = f"SSM parameter {cut(name, 120)}"
            if error.code in _MISSING:
                raise NeedsOperator(
                    f"{what}: not found in this region and account; create it as a SecureString, or use another"
                ) from error
            raise explained(error, what) from error
        return answer["Parameter"]["Value"]
