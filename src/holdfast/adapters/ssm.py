"""Secrets from SSM's Parameter Store, through boto3."""

from typing import TYPE_CHECKING, Any, Final

from holdfast.adapters.aws import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.kernel.errors import NeedsOperator
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock

if TYPE_CHECKING:
    from types_boto3_ssm.client import SSMClient

# A secret that was replaced is followed within this time, and one that was taken away is forgotten.
KEPT_SECONDS: Final = 300.0
READ_SECONDS: Final = 5

_MISSING: Final = frozenset({"ParameterNotFound", "ParameterVersionNotFound"})


def ssm_client(**options: Any) -> "SSMClient":
    client: SSMClient = aws_client("ssm", aws_config(read_seconds=READ_SECONDS), **options)
    return client


class SsmParameters:
    """Implements `holdfast.ports.parameters.Parameters`. Values are in memory only, and in no message."""

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
        # Forgotten before it is asked for: an old secret is not used because a new one cannot be had.
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
                    f"{what}: not found in this region and account; create it as a SecureString, or name another"
                ) from error
            raise explained(error, what) from error
        return answer["Parameter"]["Value"]
