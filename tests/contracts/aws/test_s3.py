"""Objects: one contract, for S3 as moto implements it and for the simulated bucket."""

from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from itertools import count
from typing import Any

import pytest

from holdfast.adapters.aws.s3 import S3Objects, s3_client
from holdfast.kernel.errors import NeedsOperator, Retryable
from holdfast.ports.objects import Archived, Objects, every_entry
from tests.clocks import StillClock
from tests.servers.scripted_http import Asked, Reply, serving
from tests.simulated_objects import SimulatedObjects

_NUMBERS = count(1)
RULE: dict[str, Any] = {
    "ID": "ours",
    "Status": "Enabled",
    "Filter": {"And": {"Prefix": "w/", "ObjectSizeGreaterThan": 0}},
    "Transitions": [{"Days": 90, "StorageClass": "GLACIER"}],
}


@pytest.fixture
def bucket(aws: dict[str, Any], raw: Any) -> str:
    name = f"bucket-{next(_NUMBERS)}"
    raw("s3").create_bucket(Bucket=name, CreateBucketConfiguration={"LocationConstraint": aws["region_name"]})
    return name


@pytest.fixture(params=["s3", "simulated"])
def objects(request: pytest.FixtureRequest, aws: dict[str, Any]) -> Iterator[Objects]:
    if request.param == "simulated":
        yield SimulatedObjects(StillClock())
        return
    found = S3Objects(request.getfixturevalue("bucket"), s3_client(**aws))
    yield found
    found.close()


def test_an_object_is_read_back_unchanged(objects: Objects) -> None:
    metadata = {"delivery": "a-b", "received-ms": "17"}
    assert objects.put("w/1/queued.json", b'{"a": 1}', metadata)
    found = objects.get("w/1/queued.json")
    assert found is not None
    assert (found.body, dict(found.metadata)) == (b'{"a": 1}', metadata)
    assert objects.get("w/1/waiting.json") is None


def test_only_the_beginning_of_an_overlong_object_is_read(objects: Objects) -> None:
    objects.put("w/long", b"0123456789")
    for most, body in ((None, b"0123456789"), (10, b"0123456789"), (9, b"0123456789"), (3, b"0123")):
        assert getattr(objects.get("w/long", most), "body", None) == body


def test_the_unread_rest_of_an_object_is_not_transferred(aws: dict[str, Any], bucket: str) -> None:
    """The connection is closed; the next call opens another one."""
    objects = S3Objects(bucket, s3_client(**aws))
    objects.put("w/long", b"0" * 30_000_000)
    assert len(getattr(objects.get("w/long", 100), "body", b"")) == 101
    assert objects.get("w/short") is None
    objects.close()


def test_an_archived_object_must_be_restored_first(aws: dict[str, Any], bucket: str, raw: Any) -> None:
    raw("s3").put_object(Bucket=bucket, Key="w/old", Body=b"{}", StorageClass="GLACIER")
    objects = S3Objects(bucket, s3_client(**aws))
    with pytest.raises(Archived, match="is archived; restore it"):
        objects.get("w/old")
    objects.close()


def test_an_invalid_endpoint_is_reported(aws: dict[str, Any]) -> None:
    with pytest.raises(NeedsOperator, match="no client for s3: Invalid endpoint"):
        s3_client(**{**aws, "endpoint_url": "nonsense"})


def test_keys_may_contain_special_characters(objects: Objects) -> None:
    key = "holdfast/unstored/w/1:2/queued.json?a-_B="
    objects.put(key, b"{}")
    assert objects.get(key) is not None
    assert [entry.key for entry in every_entry(partial(objects.page, "holdfast/"))] == [key]
    objects.delete(key)
    assert objects.get(key) is None


def test_a_write_if_absent_happens_only_once(objects: Objects) -> None:
    assert objects.put("w/1", b"first", if_absent=True)
    assert not objects.put("w/1", b"second", if_absent=True)
    assert getattr(objects.get("w/1"), "body", None) == b"first"


def test_an_object_changed_since_it_was_read_is_not_overwritten(objects: Objects) -> None:
    objects.put("w/1", b"first")
    first = objects.get("w/1")
    assert first is not None
    assert objects.put("w/1", b"second", if_etag=first.etag)
    assert not objects.put("w/1", b"third", if_etag=first.etag)
    assert getattr(objects.get("w/1"), "body", None) == b"second"
    objects.delete("w/1")
    assert not objects.put("w/1", b"fourth", if_etag=first.etag)
    assert objects.get("w/1") is None


def test_deleting_twice_is_no_error(objects: Objects) -> None:
    objects.put("w/1", b"")
    objects.delete("w/1")
    objects.delete("w/1")


def test_pages_are_in_order_and_miss_nothing(objects: Objects) -> None:
    keys = sorted(["other/1", "w", "w/", *(f"w/{number}" for number in range(25)), "w0"])
    for key in keys:
        objects.put(key, b"{}")
    page = objects.page("w/", most=10)
    assert (len(page.entries), page.is_last) == (10, False)
    assert [entry.key for entry in every_entry(partial(objects.page, "w/"))] == [
        key for key in keys if key.startswith("w/")
    ]
    after = objects.page("w/", after="w/5", most=3)
    assert [entry.key for entry in after.entries] == ["w/6", "w/7", "w/8"]
    assert objects.page("nothing/").entries == []
    assert objects.page("w/", after="w/9").is_last


def test_a_lifecycle_is_replaced_as_a_whole(objects: Objects) -> None:
    assert objects.lifecycle() == []
    objects.set_lifecycle([RULE])
    assert [rule["ID"] for rule in objects.lifecycle()] == ["ours"]
    other = {**RULE, "ID": "theirs", "Filter": {"Prefix": "logs/"}}
    objects.set_lifecycle([other, RULE])
    assert [rule["ID"] for rule in objects.lifecycle()] == ["theirs", "ours"]
    assert objects.lifecycle()[1]["Filter"]["And"]["Prefix"] == "w/"


# What S3 refuses


def test_a_missing_bucket_is_named_with_its_remedy(aws: dict[str, Any]) -> None:
    objects = S3Objects("not-there", s3_client(**aws))
    calls: list[Callable[[], object]] = [
        lambda: objects.get("w"),
        lambda: objects.put("w", b""),
        lambda: objects.page("w"),
        objects.lifecycle,
    ]
    for call in calls:
        with pytest.raises(
            NeedsOperator, match=r"S3 bucket not-there, .*: no such bucket .* create it, or use another"
        ):
            call()
    objects.close()


def refusal(code: str, status: int) -> Reply:
    body = f"<Error><Code>{code}</Code><Message>so it is</Message></Error>".encode()
    return Reply(body, status=status, headers={"Content-Type": "application/xml"})


@pytest.mark.parametrize(
    ("code", "status", "error"),
    [
        ("AccessDenied", 403, NeedsOperator),
        ("InvalidObjectState", 403, NeedsOperator),
        ("InternalError", 500, Retryable),
        ("SlowDown", 503, Retryable),
        ("ConditionalRequestConflict", 409, Retryable),
        ("OperationAborted", 409, Retryable),
        ("RequestTimeout", 400, Retryable),
    ],
)
def test_a_refusal_is_retryable_or_for_an_operator(
    aws: dict[str, Any], code: str, status: int, error: type[Exception]
) -> None:
    """And is sent once: retries are up to the caller."""

    def refuse(_: Asked) -> Reply:
        return refusal(code, status)

    with serving(refuse) as server:
        objects = S3Objects("bucket", s3_client(**{**aws, "endpoint_url": server.url}))
        with pytest.raises(error, match="S3 bucket bucket, reading 'w'"):
            objects.get("w")
        objects.close()
    assert len(server.asked) == 1


def test_a_truncated_response_is_retryable(aws: dict[str, Any]) -> None:
    def cut_off(_: Asked) -> Reply:
        headers = {"ETag": '"a"', "Last-Modified": "Thu, 15 Jan 2026 10:00:00 GMT"}
        return Reply(b"{}", headers=headers, missing_bytes=10)

    with serving(cut_off) as server:
        objects = S3Objects("bucket", s3_client(**{**aws, "endpoint_url": server.url}))
        with pytest.raises(Retryable):
            objects.get("w")
        objects.close()


def test_the_bucket_setting_for_small_objects_is_kept(aws: dict[str, Any]) -> None:
    """It applies to the whole lifecycle, not only to our rule."""

    def answer(asked: Asked) -> Reply:
        header = {"x-amz-transition-default-minimum-object-size": "varies_by_storage_class"}
        return Reply(b"<LifecycleConfiguration></LifecycleConfiguration>", headers=header)

    with serving(answer) as server:
        client = s3_client(**{**aws, "endpoint_url": server.url})
        sent: list[dict[str, Any]] = []
        client.meta.events.register(
            "provide-client-params.s3.PutBucketLifecycleConfiguration", lambda params, **_: sent.append(params)
        )
        objects = S3Objects("bucket", client)
        with suppress(Retryable):  # the server here does not support PUT; only the request matters
            objects.set_lifecycle([RULE])
        objects.close()
    assert [params["TransitionDefaultMinimumObjectSize"] for params in sent] == ["varies_by_storage_class"]
