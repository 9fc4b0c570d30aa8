"""From labels to a class: what is served, by which machine, and what never is."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from holdfast.kernel.ids import InstallationId
from holdfast.kernel.label_sets import label_set
from holdfast.kernel.settings.runner_kinds import ARCHITECTURES
from holdfast.kernel.settings.runners import Profile
from holdfast.runners.classes import (
    CLASSES_PER_REPOSITORY,
    NotOurs,
    Served,
    Unservable,
    Verdict,
    runner_class,
    verdict,
)
from holdfast.runners.compound_label import MachineRequest
from holdfast.runners.explain import verdict_words
from holdfast.runners.offer import Offer, is_family
from tests.support.runner_offers import LABEL_LISTS, REQUESTS, SYSTEM, example_offer, offer_of, offers

OFFER = example_offer()
REPOSITORIES = st.sampled_from([None, "acme/web", "Acme/API", "other/web"])


def served(*labels: str, repository: str | None = None, offer: Offer = OFFER) -> Served:
    found = verdict(offer, labels, repository)
    assert isinstance(found, Served), found
    return found


def unservable(*labels: str, repository: str | None = None, offer: Offer = OFFER) -> Unservable:
    found = verdict(offer, labels, repository)
    assert isinstance(found, Unservable), found
    return found


# Properties


@given(offer=offers(), labels=LABEL_LISTS, repository=REPOSITORIES, draw=st.data())
def test_order_repetition_and_case_do_not_matter(
    offer: Offer, labels: list[str], repository: str | None, draw: st.DataObject
) -> None:
    other = draw.draw(st.permutations([label.lower() for label in labels] + labels))
    assert verdict(offer, other, repository) == verdict(offer, labels, repository)


@settings(max_examples=200)  # in most of them something is served
@given(offer=offers(), labels=LABEL_LISTS, repository=REPOSITORIES)
def test_no_label_reaches_beyond_what_the_operator_allows(
    offer: Offer, labels: list[str], repository: str | None
) -> None:
    """Checked against the bounds one by one, and not with the code that applies them."""
    found = verdict(offer, labels, repository)
    if isinstance(found, Unservable):
        found = verdict(offer, found.nearest, repository)
    if not isinstance(found, Served):
        return
    profile, spec = found.profile, found.spec
    assert profile in offer.settings.offered
    assert spec.types
    for name in spec.types:
        assert_within(offer, profile, name)
        assert ARCHITECTURES[offer.types[name].architecture] == spec.image.arch
    assert spec.image in offer.settings.images
    assert spec.image.name in profile.image
    assert profile.disk.least <= spec.disk_gib <= profile.disk.most
    assert spec.spot == profile.spot or (profile.spot == "prefer" and spec.spot == "never")
    if profile.repositories and repository is not None:
        owner = repository.lower().partition("/")[0]
        assert {repository.lower(), f"{owner}/*"} & set(profile.repositories)


def assert_within(offer: Offer, profile: Profile, name: str) -> None:
    found = offer.types[name]
    assert not profile.types or name in profile.types
    assert not profile.family or any(found.family.startswith(family) for family in profile.family)
    assert profile.arch in (None, ARCHITECTURES[found.architecture])
    if profile.cpu is not None:
        assert profile.cpu.least <= found.vcpus <= profile.cpu.most
    if profile.ram is not None:
        assert profile.ram.least <= found.memory_mib / 1024 <= profile.ram.most


@given(offer=offers(), labels=LABEL_LISTS, repository=REPOSITORIES)
def test_the_nearest_labels_would_do(offer: Offer, labels: list[str], repository: str | None) -> None:
    found = verdict(offer, labels, repository)
    if isinstance(found, Unservable) and found.nearest:
        near = verdict(offer, found.nearest, repository)
        assert isinstance(near, Served), near


@given(offer=offers(), labels=LABEL_LISTS, repository=REPOSITORIES)
def test_every_verdict_is_one_printable_line(offer: Offer, labels: list[str], repository: str | None) -> None:
    words = verdict_words(verdict(offer, labels, repository))
    assert words.isprintable()
    assert len(words) < 2000


@given(offer=offers(), request=REQUESTS, system=SYSTEM)
def test_a_token_chooses_nothing_and_is_no_part_of_the_limits_key(
    offer: Offer, request: MachineRequest, system: list[str]
) -> None:
    """It is part of the class, so that a job of another run cannot take the runner."""
    first, second = (verdict(offer, [*system, replace(request, token=token).label()]) for token in ("1", "2"))
    assert type(first) is type(second)
    if isinstance(first, Served) and isinstance(second, Served):
        assert (first.spec, first.profile, first.limits_key) == (second.spec, second.profile, second.limits_key)
        assert first.labels != second.labels


# Examples


def test_the_issues_example() -> None:
    found = served("holdfast=1/cpu=4/ram=16/family=m7+c7/spot=false", repository="acme/web")
    assert found.spec.types == ("m7a.xlarge", "m7i-flex.xlarge", "m7i.xlarge")
    assert (found.spec.image.name, found.spec.spot, found.spec.disk_gib) == ("ubuntu-24", "never", 40)


def test_a_profile_is_selected_by_its_name() -> None:
    assert served("self-hosted", "Linux", "X64", "small").spec.types == ("m7i.large", "m7a.large", "m6i.large")
    assert served("holdfast=7/profile=small").spec == served("small").spec
    assert served("small", "holdfast=7").spec == served("small").spec


def test_an_architecture_selects_an_image_of_its_own() -> None:
    for labels in (("holdfast=1/arch=arm64",), ("holdfast=1", "ARM64"), ("holdfast=1/family=m7g",)):
        found = served(*labels)
        assert found.spec.image.name == "ubuntu-24-arm"
        assert all(OFFER.types[name].architecture == "arm64" for name in found.spec.types)


def test_a_family_is_one_family_or_a_whole_generation() -> None:
    assert is_family("m7", "m7i-flex")
    assert is_family("m7i", "m7i")
    assert not is_family("m7i", "m7i-flex")
    assert not is_family("m7", "m70i")
    assert not is_family("m", "m7i")
    assert not is_family("u-3tb1", "u-3tb10")


@pytest.mark.parametrize(
    ("label", "reason", "nearest"),
    [
        ("cpu=64", "cpu=64 is outside 2-16 of runners.bounds", "holdfast=1/cpu=16"),
        ("cpu=8-64", "cpu=8-64 is outside 2-16 of runners.bounds", "holdfast=1/cpu=8-16"),
        ("ram=2", "ram=2 is outside 4-64 of runners.bounds", "holdfast=1/ram=4"),
        ("disk=1000", "disk=1000 is outside 40-200 of runners.bounds", "holdfast=1/disk=200"),
        ("disk=1", "disk=1 is outside 40-200 of runners.bounds", "holdfast=1/disk=40"),
        ("family=p5", "family=p5 is not within runners.bounds", "holdfast=1/family=c7a"),
        ("family=m8", "family=m8 is not within runners.bounds", "holdfast=1/family=m7a"),
        ("image=windows", "image=windows is not an image of runners.bounds: ubuntu-24,", "holdfast=1/image=ubuntu-24"),
        (
            "cpu=4/ram=12",
            "no instance type within runners.bounds fits holdfast/cpu=4/ram=12",
            "holdfast=1/cpu=4/ram=16",
        ),
        ("cpus=4", "cpus=4 has no known key (did you mean cpu?)", "holdfast=1/cpu=4"),
        ("cpu=1e9", "cpu=1e9 is not a whole number", "holdfast=1"),
        ("cpu=4/profile=deplo", "profile=deplo does not exist (did you mean deploy?)", "deploy"),
    ],
)
def test_what_cannot_be_served_has_a_reason_and_the_nearest_that_would_do(
    label: str, reason: str, nearest: str
) -> None:
    found = unservable(f"holdfast=1/{label}", repository="acme/web")
    assert reason in found.reason
    assert found.nearest == (nearest,)


def test_spot_is_not_a_choice_where_the_profile_has_decided() -> None:
    assert unservable("holdfast/profile=deploy/spot=true").nearest == ("holdfast/profile=deploy/spot=false",)
    assert served("holdfast/profile=deploy/spot=false").spec.spot == "never"
    only = offer_of(
        '[runners.images.u]\ntemplate="lt-0a:1"\narch="x64"\n'
        '[runners.profiles.cheap]\ntypes="m7i.large"\nimage="u"\nspot="only"'
    )
    assert unservable("holdfast/profile=cheap/spot=false", offer=only).nearest == ("holdfast/profile=cheap/spot=true",)
    assert served("cheap", offer=only).spec.spot == "only"


def test_a_label_that_no_runner_would_have_is_never_served() -> None:
    """GitHub gives a job to a runner that has all of its labels."""
    found = unservable("small", "gpu", "self-hosted")
    assert found.reason == "no runner of Holdfast has the label 'gpu'"
    assert found.nearest == ("self-hosted", "small")
    assert "did you mean self-hosted?" in unservable("small", "selfhosted").reason
    assert "'windows'" in unservable("small", "windows").reason


def test_labels_that_contradict_each_other_are_unservable() -> None:
    assert "it names several profiles: deploy, small" in unservable("small", "deploy").reason
    assert "several profiles" in unservable("small", "holdfast/profile=deploy").reason
    assert "both x64 and arm64" in unservable("holdfast", "x64", "arm64").reason
    assert "both x64 and arm64" in unservable("holdfast/arch=arm64", "x64").reason
    assert "there are 2 labels that begin with holdfast" in unservable("holdfast=1", "holdfast=2").reason


def test_a_repository_that_is_not_allowed_is_told_who_is() -> None:
    found = unservable("deploy", repository="acme/docs")
    assert found.reason == "profile deploy is only for acme/web, acme/api, and not for acme/docs"
    assert found.nearest == ("small",)
    assert served("deploy", repository="ACME/Web").profile.name == "deploy"
    assert "[runners.bounds] is only for acme/*" in unservable("holdfast", repository="other/web").reason


def test_without_bounds_a_label_must_name_a_profile() -> None:
    offer = offer_of(
        '[runners.images.u]\ntemplate="lt-0a:1"\narch="x64"\n[runners.profiles.a]\ntypes="m7i.large"\nimage="u"'
    )
    found = unservable("holdfast=1/cpu=4", offer=offer)
    assert "there is no [runners.bounds]" in found.reason
    assert found.nearest == ("a",)


def test_the_sixty_fifth_label_set_of_a_repository_is_not_served() -> None:
    """Tokens do not count, and what is known already goes on."""
    keys = {f"key-{number}" for number in range(CLASSES_PER_REPOSITORY - 1)}
    first = verdict(OFFER, ["holdfast=1/cpu=4"], "acme/web", keys)
    assert isinstance(first, Served)
    full = {*keys, first.limits_key}
    assert isinstance(verdict(OFFER, ["holdfast=2/cpu=4"], "acme/web", full), Served)
    refused = verdict(OFFER, ["holdfast=1/cpu=8"], "acme/web", full)
    assert isinstance(refused, Unservable)
    assert "already has 64 different label sets" in refused.reason


def test_spellings_of_one_request_share_their_limits() -> None:
    """Or a hostile workflow would have a limit for each spelling."""
    spellings = ["holdfast=1/cpu=4/ram=16", "holdfast=2,ram=16,cpu=4", "HOLDFAST/Ram=16/CPU=4"]
    assert len({served(spelling).limits_key for spelling in spellings}) == 1
    assert len({served(spelling).labels for spelling in spellings}) == 3


@pytest.mark.parametrize(
    ("labels", "reason"),
    [
        (["ubuntu-latest"], "its labels are those of GitHub's own runners"),
        (["macos-15-xlarge", "self-hosted"], "its labels are those of GitHub's own runners"),
        (["self-hosted", "linux", "x64"], "none of its labels is a profile of Holdfast or begins with holdfast="),
        (["runs-on", "runner=4cpu-linux-x64"], "none of its labels"),
        (["smal"], "(did you mean small?)"),
        ([], "it has no labels"),
    ],
)
def test_labels_for_other_runners_are_not_ours_and_no_error(labels: list[str], reason: str) -> None:
    found = verdict(OFFER, labels)
    assert isinstance(found, NotOurs)
    assert reason in found.reason


# Hostile


@pytest.mark.parametrize(
    "labels",
    [
        ["small", *(f"x{number}" for number in range(20_000))],
        ["small", "x" * 1_000_000],
        ["holdfast=1/" + "cpu=4/" * 100_000],
        ["holdfast=1/" + "é" * 300],
        ["small", "\x1b[2J\n\r\u202e\ud800"],
        ["small", "{{7*7}}<script>"],
        [f"holdfast={number}" for number in range(20_000)],
    ],
)
def test_hostile_labels_are_refused_in_a_short_printable_line(labels: list[str]) -> None:
    words = verdict_words(unservable(*labels))
    assert words.isprintable()
    assert len(words) < 600


def test_labels_that_were_cut_when_they_were_stored_are_not_served() -> None:
    """Their rest is unknown: the runner would lack it."""
    found: Verdict = verdict(OFFER, ["small", "…"])
    assert isinstance(found, Unservable)


# Classes


def test_a_class_is_installation_scope_group_and_label_set() -> None:
    installation = InstallationId(7)
    wide = runner_class(installation, "Acme/Web", served("small", "SELF-HOSTED"))
    assert (wide.scope, wide.group, wide.labels) == ("acme", None, label_set(["self-hosted", "small"]))
    narrow = runner_class(installation, "Acme/Web", served("deploy", repository="acme/web"))
    assert narrow.scope == "acme/web"
    assert wide.labels_hash != narrow.labels_hash
