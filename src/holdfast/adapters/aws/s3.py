"""Objects in an S3 bucket, through boto3.

A request is sent once. Conditional writes use If-None-Match and If-Match, so that two writers need no lock.
"""

from collections.abc import Mapping, Sequence
from contextlib import closing
from datetime import datetime
from typing import Any, Final

from holdfast.adapters.aws.clients import AwsError, aws_client, aws_config, aws_errors, explained
from holdfast.kernel.errors import HoldfastError, NeedsOperator, Retryable
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import cut
from holdfast.ports.objects import Archived, ObjectEntry, ObjectPage, Rule, StoredObject

# GitHub waits 10 s for a response, and a put may be tried twice.
READ_SECONDS: Final = 3
CONNECT_SECONDS: Final = 1
CONNECTIONS: Final = 64

_CONDITION_FAILED: Final = frozenset({"PreconditionFailed", "412"})
# For example, another writer was putting the same key: S3 asks for a retry.
_RETRY: Final = frozenset({"ConditionalRequestConflict", "OperationAborted", "SlowDown", "RequestTimeout"})
_NO_OBJECT: Final = frozenset({"NoSuchKey", "404"})
_NO_LIFECYCLE: Final = frozenset({"NoSuchLifecycleConfiguration"})


def s3_client(**options: Any) -> Any:
    config = aws_config(read_seconds=READ_SECONDS, connect_seconds=CONNECT_SECONDS, connections=CONNECTIONS)
    return aws_client("s3", config, **options)


class S3Objects:
    """Implements `holdfast.ports.objects.Objects`."""

    def __init__(self, bucket: str, client: Any = None) -> None:
        self._bucket = bucket
        self._client = client or s3_client()

    def close(self) -> None:
        self._client.close()

    def page(self, prefix: str, after: str = "", most: int = 1000) -> ObjectPage:
        request = {"Bucket": self._bucket, "Prefix": prefix, "MaxKeys": most}
        if after:
            request["StartAfter"] = after
        try:
            with aws_errors():
                answer = self._client.list_objects_v2(**request)
        except AwsError as error:
            raise self._explained(error, f"listing {cut(prefix, 80)!r}") from error
        entries = (
            [ObjectEntry(one["Key"], _instant(one["LastModified"]), one["Size"]) for one in answer["Contents"]]
            if answer.get("KeyCount")
            else []
        )
        return ObjectPage(entries, is_last=not answer.get("IsTruncated", False))

    def get(self, key: str, most_bytes: int | None = None) -> StoredObject | None:
        try:
            with aws_errors():
                answer = self._client.get_object(Bucket=self._bucket, Key=key)
                body = _read(answer["Body"], answer["ContentLength"], most_bytes)
        except AwsError as error:
            if error.code in _NO_OBJECT:
                return None
            raise self._explained(error, f"reading {cut(key, 120)!r}") from error
        return StoredObject(key, body, answer.get("Metadata", {}), answer["ETag"], _instant(answer["LastModified"]))

    def put(
        self,
        key: str,
        body: bytes,
        metadata: Mapping[str, str] | None = None,
        *,
        if_absent: bool = False,
        if_etag: str | None = None,
    ) -> bool:
        condition = {"IfNoneMatch": "*"} if if_absent else {"IfMatch": if_etag} if if_etag is not None else {}
        try:
            with aws_errors():
                self._client.put_object(
                    Bucket=self._bucket,
                    Key=key,
                    Body=body,
                    Metadata=dict(metadata or {}),
                    ContentType="application/json",
                    **condition,
                )
        except AwsError as error:
            # If the object is gone, S3 answers an etag condition with "no such key".
            if error.code in _CONDITION_FAILED or (if_etag is not None and error.code in _NO_OBJECT):
                return False
            raise self._explained(error, f"writing {cut(key, 120)!r}") from error
        return True

    def delete(self, key: str) -> None:
        try:
            with aws_errors():
                self._client.delete_object(Bucket=self._bucket, Key=key)
        except AwsError as error:
            raise self._explained(error, f"deleting {cut(key, 120)!r}") from error

    def lifecycle(self) -> list[Rule]:
        return list(self._lifecycle().get("Rules", []))

    def set_lifecycle(self, rules: Sequence[Rule]) -> None:
        # Keep this: reset to its default, it would change the meaning of other rules.
        kept = {
            name: value for name, value in self._lifecycle().items() if name == "TransitionDefaultMinimumObjectSize"
        }
        try:
            with aws_errors():
                self._client.put_bucket_lifecycle_configuration(
                    Bucket=self._bucket, LifecycleConfiguration={"Rules": list(rules)}, **kept
                )
        except AwsError as error:
            raise self._explained(error, "setting the lifecycle") from error

    def _lifecycle(self) -> dict[str, Any]:
        try:
            with aws_errors():
                return dict(self._client.get_bucket_lifecycle_configuration(Bucket=self._bucket))
        except AwsError as error:
            if error.code in _NO_LIFECYCLE:
                return {}
            raise self._explained(error, "reading the lifecycle") from error

    def _explained(self, error: AwsError, what: str) -> HoldfastError:
        where = f"S3 bucket {cut(self._bucket, 80)}, {what}"
        if error.code == "NoSuchBucket":
            return NeedsOperator(f"{where}: no such bucket in this region and account; create it, or use another")
        if error.code == "InvalidObjectState":
            return Archived(f"{where}: the object is archived; restore it before reading it")
        if error.code in _RETRY:
            return Retryable(f"{where}: {error}; retried later")
        return explained(error, where)


def _read(stream: Any, length: int, most_bytes: int | None) -> bytes:
    """The whole body, whose length botocore verifies; or the beginning of a body that is too long."""
    if most_bytes is None or length <= most_bytes:
        whole: bytes = stream.read()
        return whole
    with closing(stream):  # and its connection: do not read the rest
        beginning: bytes = stream.read(most_bytes + 1)
        return beginning


def _instant(moment: datetime) -> Instant:
    return Instant(round(moment.timestamp() * 1000))
