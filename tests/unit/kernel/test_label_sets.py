"""One form for a label set, and one hash: what jobs store, and what runners look for."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.label_sets import is_github_hosted, label_set, label_set_hash

LABELS = st.lists(st.text(), max_size=8)


@given(labels=LABELS, draw=st.data())
def test_order_case_and_repetition_do_not_matter(labels: list[str], draw: st.DataObject) -> None:
    """GitHub compares labels without case; text in other scripts has letters that only exist in one case."""
    other = draw.draw(st.permutations(labels + labels))
    assert label_set(other) == label_set(labels)
    lowered = [label.lower() for label in other]
    assert label_set(lowered) == label_set(labels)
    assert label_set_hash(lowered) == label_set_hash(labels)


@given(labels=LABELS)
def test_the_form_is_final(labels: list[str]) -> None:
    """Taking the label set of a label set changes nothing, so a stored one has the same hash."""
    assert label_set(label_set(labels)) == label_set(labels)


@given(first=LABELS, second=LABELS)
def test_only_equal_sets_have_the_same_hash(first: list[str], second: list[str]) -> None:
    assert (label_set_hash(first) == label_set_hash(second)) == (label_set(first) == label_set(second))


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (["a,b"], ["a", "b"]),
        (["a\nb"], ["a", "b"]),
        (['a", "b'], ["a", "b"]),
        ([""], []),
        (["a", ""], ["a"]),
        (["\ud800"], ["\\ud800"]),
    ],
)
def test_no_separator_makes_two_sets_one(first: list[str], second: list[str]) -> None:
    assert label_set_hash(first) != label_set_hash(second)


def test_a_hash_is_the_same_in_every_version() -> None:
    """It is stored with jobs. A new form would need a new attribute."""
    assert label_set_hash(["Self-Hosted", "holdfast=1/cpu=4", "self-hosted"]) == "c2c3f8320453bc32d82c5645096ab732"


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("ubuntu-latest", True),
        ("Ubuntu-24.04", True),
        ("ubuntu-24.04-arm", True),
        ("ubuntu-slim", True),
        ("windows-2025", True),
        ("windows-11-arm", True),
        ("macos-15-xlarge", True),
        ("macos-26-intel", True),
        ("ubuntu", False),
        ("ubuntu-large", False),
        ("ubuntu-24.04-gpu", False),
        ("my-ubuntu-latest", False),
        ("ubuntu-latest\n", False),
    ],
)
def test_labels_of_githubs_own_runners_are_recognised(label: str, expected: bool) -> None:
    assert is_github_hosted(label) == expected
