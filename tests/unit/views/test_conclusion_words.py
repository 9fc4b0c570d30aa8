"""How jobs ended, in words."""

from holdfast.views.conclusion_words import conclusion_counts


def test_conclusions_are_counted_as_a_person_would() -> None:
    counts = {"failure": 13, "neutral": 2, "success": 184, "timed_out": 1, "some_new_word": 3}
    assert conclusion_counts(counts) == "184 succeeded, 13 failed, 1 timed out, 2 neutral, 3 some new word"
    assert conclusion_counts({}) == ""
