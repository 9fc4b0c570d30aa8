"""The compound label: what it says, and what it cannot say."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.settings.runner_kinds import Span
from holdfast.runners.compound_label import MachineRequest, is_compound, parsed
from tests.support.runner_offers import REQUESTS


def request_of(label: str) -> MachineRequest:
    request, problems = parsed(label)
    assert problems == []
    return request


def problems_of(label: str) -> list[str]:
    return parsed(label)[1]


@given(request=REQUESTS)
def test_parse_show_parse(request: MachineRequest) -> None:
    """What a request shows is read as the same request, with slashes and with commas."""
    assert request_of(request.label()) == request
    assert request_of(request.label().replace("/", ",")) == request


@given(text=st.text(alphabet="holdfast=/,cpuram0123456789+-.", max_size=60))
def test_what_is_understood_shows_itself_again(text: str) -> None:
    """Whatever was written, the understood part of it is a label without problems."""
    request, _ = parsed(f"holdfast={text}")
    assert request_of(request.label()) == request


def test_the_issues_example() -> None:
    assert request_of("holdfast=9876543210/cpu=4/ram=16/family=m7+c7/spot=false") == MachineRequest(
        token="9876543210", cpu=Span(4, 4), ram=Span(16, 16), family=("m7", "c7"), spot=False
    )


def test_slashes_and_commas_may_be_mixed_and_the_order_does_not_matter() -> None:
    assert request_of("holdfast=1/ram=16,cpu=4-8") == request_of("holdfast=1,cpu=4-8/ram=16")


def test_the_token_is_optional() -> None:
    assert request_of("holdfast/cpu=4") == request_of("holdfast=1/cpu=4").without_token()
    assert request_of("holdfast") == MachineRequest()


def test_an_architecture_has_several_names() -> None:
    assert {request_of(f"holdfast/arch={name}").arch for name in ("x64", "x86_64", "amd64")} == {"x64"}
    assert {request_of(f"holdfast/arch={name}").arch for name in ("arm64", "aarch64")} == {"arm64"}


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("holdfast", True),
        ("holdfast=1", True),
        ("holdfast/cpu=4", True),
        ("holdfast,cpu=4", True),
        ("holdfast-large", False),
        ("xholdfast=1", False),
        ("hold", False),
        ("holdfast\n", False),
        ("", False),
    ],
)
def test_which_labels_are_meant_for_holdfast(label: str, expected: bool) -> None:
    assert is_compound(label) == expected


@pytest.mark.parametrize(
    ("part", "says"),
    [
        ("cpus=4", "cpus=4 has no known key (did you mean cpu?)"),
        ("ami=ami-0123", "ami=ami-0123 has no known key (did you mean ram?)"),
        ("subnet=subnet-1", "subnet=subnet-1 has no known key (the keys are profile, cpu, ram, family,"),
        ("", "an empty part has no known key"),
        ("=4", "=4 has no known key"),
        ("cpu", "cpu is not a whole number from 1 to 99999"),
        ("cpu=", "cpu= is not a whole number"),
        ("cpu=0", "cpu=0 is not a whole number"),
        ("cpu=-4", "cpu=-4 is not a whole number"),
        ("cpu=1e9", "cpu=1e9 is not a whole number"),
        ("cpu=4.5", "cpu=4.5 is not a whole number"),
        ("cpu=100000", "cpu=100000 is not a whole number"),
        ("cpu=٤", "cpu=٤ is not a whole number"),
        ("cpu=8-4", "cpu=8-4 is not a whole number"),
        ("cpu=4-8-16", "cpu=4-8-16 is not a whole number"),
        ("cpu=4=8", "cpu=4=8 is not a whole number"),
        ("disk=40-80", "disk=40-80 is not a whole number from 1 to 99999"),
        ("family=.*", "family=.* is not instance families"),
        ("family=m7|c7", "family=m7|c7 is not instance families"),
        ("family=m7+", "family=m7+ is not instance families"),
        ("family=" + "+".join(["m7"] * 17), "is not instance families"),
        ("spot=yes", "spot=yes is not true or false"),
        ("arch=sparc", "arch=sparc is not x64 or arm64"),
        ("image=../../etc/passwd", "image=.. is not the name of an image"),
        ("image=$(id)", "image=$(id) is not the name of an image"),
    ],
)
def test_what_is_not_spelled_right_is_refused(part: str, says: str) -> None:
    problems = problems_of(f"holdfast=1/{part}")
    assert any(says in problem for problem in problems), problems


def test_a_key_that_is_given_twice_is_refused_unless_it_says_the_same() -> None:
    assert problems_of("holdfast=1/cpu=4/cpu=8") == ["cpu is given twice"]
    assert problems_of("holdfast=1/cpu=4/cpu=4") == []


@pytest.mark.parametrize("token", ["", "a b", "$(id)", "a'b", "x" * 101, "é", "\x1b[2j"])
def test_a_token_that_could_be_anything_else_is_refused(token: str) -> None:
    request, problems = parsed(f"holdfast={token}")
    assert request.token is None
    assert len(problems) == 1
    assert "the token is not 1 to 100" in problems[0]
    assert problems[0].isprintable()


def test_a_long_label_is_refused_before_it_is_read() -> None:
    request, problems = parsed(f"holdfast=1/{'cpu=4/' * 100_000}")
    assert request == MachineRequest()
    assert len(problems) == 1
    assert len(problems[0]) < 150
