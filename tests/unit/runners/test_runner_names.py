"""Runner names: each leads to its batch, index and machine, and nothing else is taken for one."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstanceId
from holdfast.runners.runner_names import RunnerName, read_name

HEX = "0123456789abcdef"
INSTANCES = st.one_of(st.text(HEX, min_size=8, max_size=8), st.text(HEX, min_size=17, max_size=17)).map(
    lambda digits: InstanceId(f"i-{digits}")
)
NAMES = st.builds(
    RunnerName,
    st.text("0123456789abcdefghijklmnopqrstuvwxyz", min_size=6, max_size=6),
    st.integers(0, 10**9),
    st.integers(0, 19),
    INSTANCES,
    st.integers(0, 10**9),
)


@given(NAMES)
def test_a_name_says_what_it_was_made_from_and_fits_githubs_limit(name: RunnerName) -> None:
    assert read_name(str(name)) == name
    assert len(str(name)) <= 64


@given(NAMES)
def test_a_name_of_a_young_fleet_has_at_most_40_characters(name: RunnerName) -> None:
    """Up to 60 million batches and ticks."""
    young = RunnerName(name.incarnation, name.batch % 36**5, name.index, name.instance, name.fence % 36**5)
    assert len(str(young)) <= 40


@given(NAMES, st.data())
def test_a_changed_name_is_foreign_or_means_something_else(name: RunnerName, data: st.DataObject) -> None:
    text = str(name)
    place = data.draw(st.integers(0, len(text) - 1))
    other = (
        text[:place] + data.draw(st.characters(codec="utf-8").filter(lambda c: c != text[place])) + text[place + 1 :]
    )
    assert read_name(other) != name


@pytest.mark.parametrize(
    "text",
    [
        "",
        "runner-1",
        "hfabcdef-1-0-1-1",
        "hfabcdef-01-0-2rrvthnxtt-1",
        "HFabcdef-1-0-2rrvthnxtt-1",
        "hfabcdef-1-0-2rrvthnxtt-1\n",
        "hfabcdef-1-0-" + "z" * 60 + "-1",
        "hfabcdef-\N{ARABIC-INDIC DIGIT ONE}-0-2rrvthnxtt-1",
    ],
)
def test_what_is_no_name_of_ours_is_foreign(text: str) -> None:
    assert read_name(text) is None


@pytest.mark.parametrize(
    "instance", ["i-", "i-0123", "mi-0123456789abcdef0", "i-0123456789ABCDEF0", "i-0123456789abcdef0 "]
)
def test_a_name_is_only_made_for_an_instance_id(instance: str) -> None:
    with pytest.raises(BadRequest):
        str(RunnerName("abcdef", 1, 0, InstanceId(instance), 1))
