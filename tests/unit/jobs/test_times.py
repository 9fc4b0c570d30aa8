"""When GitHub sent a delivery, read from its id."""

import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.jobs.model.times import made_at, not_before
from holdfast.kernel.instants import Instant

FIRST = "c232ab00-9414-11ec-b3c8-9f6bdeced846"  # of RFC 9562: 2022-02-22T19:22:22Z


def test_the_time_is_read_from_an_id_of_version_1() -> None:
    assert str(made_at(FIRST)) == "2022-02-22T19:22:22.000Z"
    assert made_at(FIRST.upper()) == made_at(FIRST)


@given(st.integers(0, 2**128 - 1), st.sampled_from([1, 3, 4, 5]))
def test_a_uuid_of_version_1_has_the_time_that_python_reads_and_other_versions_none(number: int, version: int) -> None:
    found = uuid.UUID(int=number, version=version)
    made = made_at(str(found))
    expected = found.time // 10_000 - 12_219_292_800_000 if version == 1 else None
    assert (made.epoch_ms if made else None) == expected


@pytest.mark.parametrize("text", ["", "x", FIRST[:-1], FIRST + "0", f"{{{FIRST}}}", FIRST.replace("-", ""), "٣" * 36])
def test_any_other_text_has_no_time(text: str) -> None:
    assert made_at(text) is None


WRITTEN = Instant.from_iso("2026-01-01T00:00:00Z")
NOW = Instant.from_iso("2026-03-01T10:00:00Z")
YEAR = 366 * 86_400


@pytest.mark.parametrize(
    ("now", "sent", "counts"),
    [
        (NOW, None, NOW),
        (NOW, NOW.plus(-60), NOW),
        (NOW, NOW.plus(60), NOW.plus(60)),
        (NOW, NOW.plus(YEAR), NOW.plus(YEAR)),
        (NOW, Instant.from_iso("2499-12-31T00:00:00Z"), NOW.plus(YEAR)),
        (Instant.from_iso("1976-03-01T10:00:00Z"), NOW, NOW),
        (Instant.from_iso("1976-03-01T10:00:00Z"), Instant.from_iso("2499-12-31T00:00:00Z"), WRITTEN.plus(YEAR)),
    ],
)
def test_an_item_expires_whatever_time_its_sender_names(now: Instant, sent: Instant | None, counts: Instant) -> None:
    assert not_before(now, sent) == counts
