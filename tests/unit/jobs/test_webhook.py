"""The checks of a delivery: what is accepted, and what is refused before it is parsed."""

import json
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.intake import json_limits as limits
from holdfast.jobs.intake.json_limits import BODY_BYTES_MOST, DEPTH_MOST, NODES_MOST, check_json
from holdfast.jobs.intake.payloads import JobPayload, UnusablePayload, decoded
from holdfast.jobs.intake.webhook import WebhookRefusal, WebhookRefused, WebhookSecrets, verified_delivery
from holdfast.kernel.errors import BadRequest, BadSetting
from tests.payloads import job_payload

SECRETS = WebhookSecrets.from_text("It's a Secret to Everybody")
BODY = json.dumps(job_payload("queued")).encode()


def headers(body: bytes = BODY, /, **changed: str) -> dict[str, str]:
    found = {
        "x-hub-signature-256": SECRETS.signature_of(body),
        "x-github-event": "workflow_job",
        "x-github-delivery": "4d8ed510-a74e-11f1-9d1c-000000000000",
        "x-github-hook-installation-target-id": "99",
        "content-type": "application/json",
    }
    return found | {name.replace("_", "-"): value for name, value in changed.items()}


def refusal(found: dict[str, str], body: bytes = BODY, secrets: WebhookSecrets = SECRETS) -> WebhookRefusal:
    with pytest.raises(WebhookRefused) as caught:
        verified_delivery(found, body, secrets)
    return caught.value.refusal


def test_githubs_own_example_of_a_signature_is_reproduced() -> None:
    expected = "sha256=757107ea0eb2509fc211221cce984b8a37570b6d7586c22c46f4379c8b043e17"
    assert SECRETS.signature_of(b"Hello, World!") == expected


def test_a_signed_delivery_is_admitted() -> None:
    delivery = verified_delivery(headers(), BODY, SECRETS)
    assert (delivery.event, delivery.target, delivery.body) == ("workflow_job", "99", BODY)


@pytest.mark.parametrize("order", ["old,new", "new,old"])
def test_two_secrets_are_valid_while_one_replaces_the_other(order: str) -> None:
    for secret in ("old", "new"):
        signed = headers(x_hub_signature_256=WebhookSecrets.from_text(secret).signature_of(BODY))
        assert verified_delivery(signed, BODY, WebhookSecrets.from_text(order)).body == BODY


@pytest.mark.parametrize("text", ["", ",", "a,", "a,b,c"])
def test_an_invalid_secret_is_refused_and_not_shown(text: str) -> None:
    with pytest.raises(BadSetting, match="GITHUB_WEBHOOK_SECRET"):
        WebhookSecrets.from_text(text)


@pytest.mark.parametrize("signature", ["", "sha256=", "sha1=abc", "sha256=ü", "sha256=" + "0" * 64, "\ud800"])
def test_a_missing_or_wrong_signature_is_refused(signature: str) -> None:
    assert refusal(headers(x_hub_signature_256=signature)) is WebhookRefusal.UNSIGNED


@given(st.integers(0, len(BODY) * 8 - 1))
def test_any_flipped_bit_is_noticed(bit: int) -> None:
    flipped = bytearray(BODY)
    flipped[bit // 8] ^= 1 << bit % 8
    assert refusal(headers(), bytes(flipped)) is WebhookRefusal.UNSIGNED


def test_nothing_is_parsed_before_the_signature_is_verified() -> None:
    """Without a signature the response is the same, whatever the media type or the JSON."""
    assert refusal(headers(x_hub_signature_256="x", content_type="text/plain"), b"[[[[") is WebhookRefusal.UNSIGNED


@pytest.mark.parametrize(
    "changed",
    [{"content_type": ""}, {"content_type": "application/x-www-form-urlencoded"}, {"content_encoding": "gzip"}],
)
def test_other_media_types_and_encoded_content_are_refused(changed: dict[str, str]) -> None:
    assert refusal(headers(**changed)) is WebhookRefusal.NOT_JSON


def test_a_media_type_may_have_a_charset() -> None:
    assert verified_delivery(headers(content_type="Application/JSON; charset=utf-8"), BODY, SECRETS)


def test_a_body_over_githubs_limit_is_refused_unread() -> None:
    assert refusal(headers(), b" " * (BODY_BYTES_MOST + 1)) is WebhookRefusal.TOO_LARGE


@pytest.mark.parametrize("name", ["x_github_event", "x_github_delivery"])
@pytest.mark.parametrize("value", ["", "a\r\nX-Evil: 1", "x" * 201, "ü", "a\x00b"])
def test_missing_or_malformed_headers_are_refused(name: str, value: str) -> None:
    assert refusal(headers(**{name: value})) is WebhookRefusal.MALFORMED


HOSTILE = {
    "not UTF-8": b'{"a":"\xff"}',
    "deep lists": b"[" * (DEPTH_MOST + 1) + b"]" * (DEPTH_MOST + 1),
    "deep maps and lists in turn": b'{"a":[' * 17 + b"]}" * 17,
    "deep, hidden by brackets in texts": b'["]",' * 40 + b"1" + b',"["]' * 40,
    "very deep": b"[" * 100_000,
    "many values": b"[" + b"1," * NODES_MOST + b"1]",
    "many empty maps": b"[" + b"{}," * NODES_MOST + b"{}]",
    "a long number": b'{"a":' + b"9" * 21 + b"}",
    "a long fraction": b'{"a":0.' + b"1" * 30 + b"}",
    "many texts": b"[" + b'"a",' * 3 * NODES_MOST + b"1]",
    "brackets that do not match": b"[[}]" * 20,
}


@pytest.mark.parametrize("name", HOSTILE)
def test_json_beyond_a_limit_is_refused(name: str) -> None:
    body = HOSTILE[name]
    assert refusal(headers(body), body) is WebhookRefusal.MALFORMED


@pytest.mark.parametrize(
    "body",
    [
        b"[" * DEPTH_MOST + b"]" * DEPTH_MOST,
        b'{"a":"' + b"9" * 100 + b'"}',
        b'{"a":"' + b"[" * 1000 + b'"}',
        b'{"a":"\\"' + b"[" * 100 + b'\\\\"}',
        b'{"a":12345678901234567890}',
        '{"a":"ü…"}'.encode(),
    ],
)
def test_brackets_within_strings_do_not_count(body: bytes) -> None:
    check_json(body)


@given(
    st.recursive(
        st.none() | st.integers(0, 10**9) | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=60,
    )
)
def test_depth_and_values_are_counted_as_a_parser_would(value: object) -> None:
    """For any JSON, compared with a plain walk over the parsed value."""
    body = json.dumps(value, ensure_ascii=False).encode()
    depth, nodes = walked(value)
    outside = limits._outside_of_texts(body)
    assert limits._is_too_deep(outside) == (depth > DEPTH_MOST)
    assert 1 + outside.count(b",") + outside.count(b"{") + outside.count(b"[") >= nodes


@given(st.lists(st.sampled_from(("[]", "{}", '"]"', '"["', '"{}"', '"\\\\"', "[[]]", "1")), min_size=1), st.data())
def test_the_depth_is_found_whatever_its_siblings(siblings: list[str], data: st.DataObject) -> None:
    kinds = data.draw(st.lists(st.booleans(), min_size=DEPTH_MOST - 4, max_size=DEPTH_MOST + 4))
    value = "1"
    for is_list in kinds:
        beside = data.draw(st.sampled_from(siblings))
        value = f"[{beside},{value},{beside}]" if is_list else f'{{"a":{beside},"b":{value}}}'
    depth = walked(json.loads(value))[0]
    try:
        check_json(value.encode())
    except BadRequest:
        assert depth > DEPTH_MOST
    else:
        assert depth <= DEPTH_MOST


def walked(value: object) -> tuple[int, int]:
    if not isinstance(value, list | dict):
        return 0, 1
    inner = [walked(element) for element in (value.values() if isinstance(value, dict) else value)]
    return 1 + max((depth for depth, _ in inner), default=0), 1 + sum(nodes for _, nodes in inner)


@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_any_signed_body_is_admitted_refused_or_unusable_and_nothing_else(body: bytes) -> None:
    try:
        delivery = verified_delivery(headers(body), body, SECRETS)
        decoded(delivery.body, JobPayload)
    except (WebhookRefused, UnusablePayload):
        pass


@pytest.mark.parametrize(
    "change",
    [
        {"id": "1"},
        {"id": -1},
        {"id": 2**63},
        {"id": 1.5},
        {"labels": [1]},
        {"labels": "x"},
        {"run_attempt": 0},
        {"name": {}},
    ],
)
def test_fields_of_a_wrong_type_make_a_payload_unusable(change: dict[str, object]) -> None:
    payload = job_payload("queued")
    payload["workflow_job"] |= change
    with pytest.raises(UnusablePayload):
        decoded(json.dumps(payload).encode(), JobPayload)


def test_unknown_fields_and_values_are_skipped() -> None:
    payload = job_payload("queued", novelty={"a": [1]}) | {"novelty": "x"}
    assert decoded(json.dumps(payload).encode(), JobPayload).workflow_job is not None


def test_a_secret_is_never_shown(caplog: pytest.LogCaptureFixture) -> None:
    secrets = WebhookSecrets.from_text("canary-secret")
    with caplog.at_level(logging.DEBUG), pytest.raises(BadRequest) as caught:
        verified_delivery(headers(), b"x", secrets)
    assert "canary" not in repr(secrets) + str(secrets) + str(caught.value) + caplog.text
    assert secrets.signature_of(b"x") not in str(caught.value)
