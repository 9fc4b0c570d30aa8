"""`[runners]` in holdfast.toml: what it may say, and what a mistake in it is told."""

from pathlib import Path

import pytest

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import load_settings
from holdfast.kernel.settings.runner_kinds import Span
from holdfast.kernel.settings.runners import IMAGE_KEYS, PROFILE_KEYS, Profile, RunnerSettings
from holdfast.kernel.settings.tables import REQUIRED

IMAGE = '[runners.images.ubuntu]\ntemplate = "lt-0abc:3"\narch = "x64"\n'


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path


def runners_of(text: str) -> RunnerSettings:
    Path("holdfast.toml").write_text(text, encoding="utf-8")
    return load_settings({}).runners


def problems_of(text: str) -> list[str]:
    with pytest.raises(BadSetting) as caught:
        runners_of(text)
    assert caught.value.exit_code == 2
    return str(caught.value).split("\n")


def profile_of(lines: str) -> Profile:
    (profile,) = runners_of(f'{IMAGE}[runners.profiles.large]\nimage = "ubuntu"\n{lines}').profiles
    return profile


def profile_problems(lines: str) -> list[str]:
    return problems_of(f'{IMAGE}[runners.profiles.large]\nimage = "ubuntu"\n{lines}')


def test_without_the_table_nothing_is_offered() -> None:
    assert load_settings({}).runners.offered == ()


def test_a_profile_is_read_with_its_defaults() -> None:
    profile = profile_of('family = ["m7", "c7i"]\ncpu = [2, 16]\nram = 8')
    assert (profile.name, profile.family, profile.image) == ("large", ("m7", "c7i"), ("ubuntu",))
    assert (profile.cpu, profile.ram, profile.disk) == (Span(2, 16), Span(8, 8), Span(30, 30))
    assert (profile.spot, profile.maximum, profile.repositories) == ("prefer", 10, ())


@pytest.mark.parametrize(("written", "rule"), [("true", "prefer"), ("false", "never"), ('"only"', "only")])
def test_spot_is_allowed_refused_or_required(written: str, rule: str) -> None:
    assert profile_of(f'types = "m7i.large"\nspot = {written}').spot == rule


@pytest.mark.parametrize(
    ("lines", "scope"),
    [
        ("", "organization"),
        ('repositories = ["acme/*"]', "organization"),
        ('repositories = ["acme/web"]', "repository"),
        ('repositories = ["acme/web"]\ngroup = "builders"', "organization"),
        ('scope = "repository"', "repository"),
    ],
)
def test_runners_for_named_repositories_register_where_no_other_can_get_them(lines: str, scope: str) -> None:
    assert profile_of(f'types = "m7i.large"\n{lines}').runner_scope == scope


def test_repositories_are_compared_without_case() -> None:
    assert profile_of('types = "m7i.large"\nrepositories = ["Acme/Web"]').repositories == ("acme/web",)


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ("cpus = 4", "runners.profiles.large.cpus is not a key; did you mean cpu? for example cpu = [2, 16]"),
        ("colour = 4", "runners.profiles.large.colour is not a key; expected one of types, family, cpu"),
        ('types = "m7i"', 'runners.profiles.large.types = "m7i" is not a list of instance types, each once; for'),
        ('types = ["m7i.large", "m7i.large"]', "is not a list of instance types, each once"),
        ('family = ".*"\ncpu = 4', 'runners.profiles.large.family = ".*" is not a list of instance families'),
        ("", "runners.profiles.large needs either types or family, and not both"),
        ('types = "m7i.large"\nfamily = "m7"\ncpu = 4', "needs either types or family, and not both"),
        ('family = "m7"', "runners.profiles.large needs cpu with family"),
        ('types = "m7i.large"\ncpu = [8, 4]', "large.cpu = [8, 4] is not a whole number from 1 to 99999, or the least"),
        ('types = "m7i.large"\ncpu = true', "large.cpu = true is not a whole number"),
        ('types = "m7i.large"\ncpu = [1, 2, 3]', "large.cpu = [1, 2, 3] is not a whole number"),
        ('types = "m7i.large"\nram = 0', "large.ram = 0 is not a whole number"),
        ('types = "m7i.large"\nspot = "never"', 'large.spot = "never" is not true (spot first;'),
        ('types = "m7i.large"\nmaximum = 0', "large.maximum = 0 is not a whole number from 1 to 10000"),
        ('types = "m7i.large"\nrepositories = ["web"]', "is not a list of repositories owner/name or owner/*"),
        ('types = "m7i.large"\nscope = "everyone"', 'large.scope = "everyone" is not organization or repository'),
        ('types = "m7i.large"\narch = "sparc"', 'large.arch = "sparc" is not x64 or arm64'),
        (
            'types = "m7i.large"\nscope = "organization"\nrepositories = ["acme/web"]',
            "large.scope: GitHub may give a runner of the organization to any repository; name a runner group",
        ),
    ],
)
def test_a_mistake_in_a_profile_names_file_key_and_what_is_allowed(lines: str, says: str) -> None:
    (line,) = profile_problems(lines)
    assert line.startswith("holdfast.toml: runners.profiles.large")
    assert says in line


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("runners = 4", "holdfast.toml: runners = 4 is not a table; expected the keys images, profiles, bounds"),
        ("[runners.profile.x]", "holdfast.toml: runners.profile is not a key; did you mean profiles?"),
        ("[runners]\nprofiles = 1", "holdfast.toml: runners.profiles = 1 is not a table"),
        ("[runners.profiles]\nx = 1", "holdfast.toml: runners.profiles.x = 1 is not a table"),
        ("[runners.profiles.Large]", "holdfast.toml: runners.profiles.Large: its name must be a name of up to 50"),
        ("[runners.profiles.ubuntu-latest]", "no label that GitHub gives a meaning"),
        ("[runners.profiles.self-hosted]", "no label that GitHub gives a meaning"),
        ("[runners.profiles.holdfast]", "no label that GitHub gives a meaning"),
        ('[runners.images."a b"]', "holdfast.toml: runners.images.a b: the name is not a name of up to 50"),
        ('[runners.images.a]\narch = "x64"', "runners.images.a needs template, the id of a launch template"),
        (
            '[runners.profiles.x]\ntypes = "m7i.large"\nimage = "ubuntu"',
            "runners.profiles.x.image: ubuntu is not in [runners.images]; known are: none",
        ),
        ('[runners.bounds]\ntypes = "m7i.large"', "holdfast.toml: runners.bounds needs image, the name of an image"),
    ],
)
def test_a_mistake_elsewhere_in_the_table_is_one_line(text: str, says: str) -> None:
    (line,) = problems_of(text)
    assert says in line


def test_every_problem_is_reported_at_once_beside_those_of_settings() -> None:
    lines = problems_of(f"MAX_WORKERS = 0\n{IMAGE}[runners.profiles.a]\ncpus = 1\n[runners.bounds]\nrum = 1\n")
    assert [line.partition(";")[0].partition(" is ")[0] for line in lines] == [
        "holdfast.toml: runners.profiles.a.cpus",
        "holdfast.toml: runners.profiles.a needs image, the name of an image in [runners.images], or a list of them",
        "holdfast.toml: runners.bounds.rum",
        "holdfast.toml: runners.bounds needs image, the name of an image in [runners.images], or a list of them",
        "holdfast.toml: MAX_WORKERS = 0",
    ]


def test_a_hostile_name_is_escaped_and_cut() -> None:
    (line,) = problems_of(f'[runners.profiles."\\u001b[2J{"x" * 5000}"]')
    assert line.isprintable()
    assert len(line) < 400


def test_every_example_of_a_key_is_valid() -> None:
    """They are shown in errors and in the reference page."""
    import tomllib

    for key in (*IMAGE_KEYS, *PROFILE_KEYS):
        assert key.kind.parse(tomllib.loads(f"x = {key.example}")["x"]), key.name
        assert key.help_text.endswith("."), key.name
        assert key.default is REQUIRED or key.name not in ("template", "image")
