"""Instants, keys, waits and errors, which every room uses."""

import random
from decimal import Decimal
from itertools import islice

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel import errors
from holdfast.kernel.backoff import Backoff
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import joined_key, nonce
from holdfast.kernel.instants import Instant
from holdfast.kernel.text import dollars

instants = st.builds(Instant, st.integers(0, 4_000_000_000_000))


@given(instants)
def test_an_instant_is_read_back_from_its_own_text(instant: Instant) -> None:
    assert Instant.from_iso(instant.iso()) == instant
    assert Instant.from_iso(instant.iso_seconds()).epoch_seconds == instant.epoch_seconds
    assert Instant.from_epoch_seconds(instant.epoch_seconds).epoch_seconds == instant.epoch_seconds


@given(instants, instants)
def test_the_order_of_texts_is_the_order_of_times(one: Instant, other: Instant) -> None:
    assert (one < other) == (one.iso() < other.iso())


@pytest.mark.parametrize(
    ("text", "iso"),
    [
        ("2026-01-15T10:00:01Z", "2026-01-15T10:00:01.000Z"),
        ("2026-01-15T10:00:01.5Z", "2026-01-15T10:00:01.500Z"),
        ("2026-01-15T10:00:01.1239999Z", "2026-01-15T10:00:01.123Z"),
        ("2026-01-15T12:30:01+02:30", "2026-01-15T10:00:01.000Z"),
        ("1969-12-31T23:59:59.999Z", "1969-12-31T23:59:59.999Z"),
        ("2024-02-29T00:00:00Z", "2024-02-29T00:00:00.000Z"),
    ],
)
def test_iso_times_of_any_zone_become_utc_to_the_millisecond(text: str, iso: str) -> None:
    assert Instant.from_iso(text).iso() == iso


@pytest.mark.parametrize(
    "text",
    [
        "",
        "2026-01-15",
        "2026-01-15T10:00:01",
        "2026-01-15 10:00:01Z",
        "2026-13-15T10:00:01Z",
        "2026-02-30T10:00:01Z",
        "2026-01-15T25:00:01Z",
        "2026-01-15T10:00:01Z\n",
        "٢٠٢٦-01-15T10:00:01Z",
        "now",
        "9999-12-31T23:59:59-23:59",
        "0001-01-01T00:00:00Z",
    ],
)
def test_a_time_without_a_zone_or_of_another_form_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"."):
        Instant.from_iso(text)


def test_instants_add_and_subtract() -> None:
    noon = Instant.from_iso("2026-01-15T12:00:00Z")
    assert noon.plus(90.5).iso() == "2026-01-15T12:01:30.500Z"
    assert noon.plus(-60).seconds_since(noon) == -60
    assert noon.date() == "2026-01-15"
    assert str(noon) == "2026-01-15T12:00:00.000Z"


parts = st.lists(
    st.integers(0, 10**18) | st.text(st.characters(codec="utf-8"), min_size=1, max_size=8), min_size=1, max_size=4
)


@given(parts, parts)
def test_two_keys_are_equal_only_if_all_their_parts_are(one: list[str | int], other: list[str | int]) -> None:
    """Whatever characters names contain: no list of parts equals another of the same length."""
    keys = []
    for each in (one, other):
        try:
            keys.append(joined_key(*each))
        except BadRequest:
            return
    if len(one) == len(other):
        assert (keys[0] == keys[1]) == ([str(part) for part in one] == [str(part) for part in other])


def test_a_key_is_joined_as_the_seeds_write_it() -> None:
    assert joined_key(12345, 67890) == "12345#67890"
    assert joined_key(0, 123) == "0#123"
    assert joined_key(12345, "runs-on/test#1") == "12345#runs-on/test#1"


@pytest.mark.parametrize("bad", [("a#b", "c"), ("", "c"), (-1, "c"), (True, "c"), ("a", "")])
def test_a_part_that_would_make_two_keys_equal_is_refused(bad: tuple[str | int, ...]) -> None:
    with pytest.raises(BadRequest):
        joined_key(*bad)


def test_a_nonce_comes_from_the_seed_when_there_is_one() -> None:
    assert nonce(random.Random(1)) == nonce(random.Random(1))
    assert nonce() != nonce()
    assert len(nonce()) == len(nonce(random.Random(2))) == 8


def test_waits_grow_to_a_maximum_and_are_drawn_from_the_seed() -> None:
    backoff = Backoff(first_seconds=1, factor=2, most_seconds=8)
    assert [backoff.ceiling_seconds(n) for n in (1, 2, 3, 4, 5, 10_000)] == [1, 2, 4, 8, 8, 8]
    waits = list(islice(backoff.waits(random.Random(3)), 200))
    assert waits == list(islice(backoff.waits(random.Random(3)), 200))
    assert all(0 <= wait <= 8 for wait in waits)
    assert len(set(waits)) > 190


@pytest.mark.parametrize("wrong", [{"first_seconds": 0}, {"factor": 0.5}, {"first_seconds": 9, "most_seconds": 8}])
def test_a_backoff_that_never_waits_or_shrinks_is_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(ValueError, match="expected"):
        Backoff(**wrong)


def test_the_error_classes_match_the_tree_at_the_top_of_their_file() -> None:
    """Every class is in the drawing, under its parent."""
    drawing = [line for line in (errors.__doc__ or "").splitlines() if "─ " in line or line.strip() == "HoldfastError"]
    drawn = {}
    above = {0: "HoldfastError"}
    for line in drawing[1:]:
        depth, name = line.index("─ ") // 4, line.split("─ ")[1].split()[0]
        drawn[name] = above[depth - 1]
        above[depth] = name
    classes = [c for c in vars(errors).values() if isinstance(c, type) and issubclass(c, errors.HoldfastError)]
    assert drawn == {c.__name__: c.__bases__[0].__name__ for c in classes if c is not errors.HoldfastError}


@pytest.mark.parametrize(
    ("amount", "text"),
    [
        (0, "0.00"),
        (1234.5, "1,234.50"),
        (0.49, "0.49"),
        (0.1, "0.10"),
        (0.05, "0.05"),
        (0.0418, "0.042"),
        (0.0034, "0.0034"),
        (Decimal("0.00000001"), "0.00"),
        (-0.0418, "-0.042"),
    ],
)
def test_money_has_cents_and_small_amounts_two_digits_that_count(amount: float | Decimal, text: str) -> None:
    assert dollars(amount) == text
