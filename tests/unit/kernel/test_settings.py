"""Settings: their sources, and the messages for bad values."""

from dataclasses import dataclass
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import SETTINGS, Settings, StoreAddress, load_settings
from holdfast.kernel.settings.declaring import Declaration, setting, settings_of
from holdfast.kernel.settings.kinds import Choice, Flag, Maybe, Number, Seconds, Text, Whole, WholeSeconds
from holdfast.kernel.settings.loading import load
from holdfast.kernel.text import cut, one_line

SECRET = "hunter2-hunter2"


@dataclass(frozen=True, kw_only=True)
class Sample(Declaration):
    """One setting of each kind."""

    max_workers: int = setting(Whole(0, 100), default=10, example="10", group="", help_text="")
    cpu_up: float = setting(Number(0, 1), default=0.7, example="0.7", group="", help_text="")
    wait_sec: float = setting(Seconds(0.1, 60), default=8.0, example="8", group="", help_text="", unit="seconds")
    careful: bool = setting(Flag(), default=True, example="false", group="", help_text="")
    rule: str = setting(Choice(("all", "any")), default="all", example="any", group="", help_text="")
    token: str | None = setting(
        Text("a token (letters, digits and -)", "[a-z0-9-]+"),
        default=None,
        example="abc",
        group="",
        help_text="",
        secret=True,
    )


@pytest.fixture(autouse=True)
def directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty working directory, without a holdfast.toml."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def problems(environment: dict[str, str], flags: dict[str, str] | None = None) -> list[str]:
    with pytest.raises(BadSetting) as caught:
        load(Sample, environment, flags)
    assert caught.value.exit_code == 2
    return str(caught.value).split("\n")


def problems_of_file(text: str) -> list[str]:
    Path("holdfast.toml").write_text(text, encoding="utf-8")
    return problems({})


# Sources


def test_without_sources_every_value_is_its_default() -> None:
    """Nothing needs to be set."""
    settings = load_settings({})
    assert settings.holdfast_port == 8080
    assert settings.state_table == "k3s-autoscaler-state"
    assert set(settings.sources.values()) == {"default"}


def test_the_strongest_source_wins(directory: Path) -> None:
    """A flag beats the environment, which beats the file, which beats the default; each value knows its source."""
    (directory / "holdfast.toml").write_text('HOLDFAST_PORT = 1\nHOLDFAST_HOST = "h1"\nSTATE_TABLE = "from-file"\n')
    environment = {"HOLDFAST_PORT": "2", "HOLDFAST_HOST": "h2"}
    settings = load_settings(environment, {"HOLDFAST_PORT": "3"})
    assert (settings.holdfast_port, settings.holdfast_host, settings.state_table) == (3, "h2", "from-file")
    names = ("HOLDFAST_PORT", "HOLDFAST_HOST", "STATE_TABLE", "LOGS_TABLE")
    assert [settings.sources[name] for name in names] == ["--port", "environment", "holdfast.toml", "default"]


def test_the_store_is_in_the_data_directory_unless_it_is_set() -> None:
    """One setting moves everything; the other moves only the store."""
    moved = load_settings({"HOLDFAST_DATA": "/srv/hold"})
    assert moved.holdfast_store == StoreAddress("sqlite", Path("/srv/hold/holdfast.db"))
    named = load_settings({"HOLDFAST_DATA": "/srv/hold", "HOLDFAST_STORE": "sqlite:x.db"})
    assert str(named.holdfast_store) == "sqlite:x.db"
    assert load_settings({"HOLDFAST_STORE": "dynamodb:"}).holdfast_store == StoreAddress("dynamodb")


@pytest.mark.parametrize("by_flag", [True, False])
def test_another_file_can_be_named(directory: Path, by_flag: bool) -> None:
    """By flag or by environment; its name is then the source."""
    (directory / "prod.toml").write_text("MAX_WORKERS = 7\n")
    named = {"HOLDFAST_CONFIG": "prod.toml"}
    settings = load(Sample, {}, named) if by_flag else load(Sample, named)
    assert (settings.max_workers, settings.sources["MAX_WORKERS"]) == (7, "prod.toml")


def test_a_file_may_contain_toml_values_or_text(directory: Path) -> None:
    """`MAX_WORKERS = 7` and `MAX_WORKERS = "7"` mean the same."""
    for text in (
        "MAX_WORKERS = 7\nCPU_UP = 1\nCAREFUL = false\n",
        'MAX_WORKERS = "7"\nCPU_UP = "1"\nCAREFUL = "False"\n',
    ):
        (directory / "holdfast.toml").write_text(text)
        settings = load(Sample, {})
        assert (settings.max_workers, settings.cpu_up, settings.careful) == (7, 1.0, False)


def test_foreign_variables_are_ignored() -> None:
    """Only names that begin with HOLDFAST_ must be known."""
    assert load_settings({"AWS_REGION": "eu-west-1", "PATH": "/bin", "MAX_SPEED": "ten"})


# Wrong values


@pytest.mark.parametrize(
    ("name", "value", "line"),
    [
        ("MAX_WORKERS", "ten", "MAX_WORKERS=ten is not a whole number from 0 to 100; for example MAX_WORKERS=10"),
        ("MAX_WORKERS", "101", "MAX_WORKERS=101 is not a whole number from 0 to 100; for example MAX_WORKERS=10"),
        ("MAX_WORKERS", "1_0", "MAX_WORKERS=1_0 is not a whole number from 0 to 100; for example MAX_WORKERS=10"),
        ("MAX_WORKERS", "", "MAX_WORKERS= is not a whole number from 0 to 100; for example MAX_WORKERS=10"),
        ("CPU_UP", "nan", "CPU_UP=nan is not a number from 0 to 1; for example CPU_UP=0.7"),
        ("WAIT_SEC", "0", "WAIT_SEC=0 is not a number of seconds from 0.1 to 60; for example WAIT_SEC=8"),
        ("CAREFUL", "maybe", "CAREFUL=maybe is not true or false; for example CAREFUL=false"),
        ("RULE", "some", "RULE=some is not one of all, any; for example RULE=any"),
    ],
)
def test_a_wrong_value_is_one_line_with_a_good_example(name: str, value: str, line: str) -> None:
    """It names the setting, the value, what was expected, and a valid example."""
    assert problems({name: value}) == [line]


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("HOLDFAST_STORE", "sqlite:"),
        ("HOLDFAST_STORE", "sqlite::memory:"),
        ("HOLDFAST_STORE", "dynamodb:eu-west-1"),
        ("HOLDFAST_STORE", "postgres://x"),
        ("HOLDFAST_PORT", "65536"),
        ("HOLDFAST_HOST", "a b"),
        ("HOLDFAST_DATA", "a\0b"),
        ("STATE_TABLE", "ab"),
        ("STATE_TABLE", "name with spaces"),
        ("STATE_TABLE", "x" * 256),
        ("LOG_LEVEL", "loud"),
        ("DYNAMODB_BILLING", "free"),
    ],
)
def test_holdfasts_own_settings_refuse_invalid_values(name: str, value: str) -> None:
    """At startup rather than in the middle of the night."""
    with pytest.raises(BadSetting, match=rf"^{name}="):
        load_settings({name: value})


def test_all_problems_are_reported_at_once() -> None:
    """One line each, so that they can be fixed together."""
    lines = problems({"MAX_WORKERS": "ten", "CPU_UP": "hot", "HOLDFAST_PROT": "1"})
    assert [line.split("=")[0].split(" ")[0] for line in lines] == ["HOLDFAST_PROT", "MAX_WORKERS", "CPU_UP"]


def test_a_wrong_flag_is_reported_in_the_syntax_of_the_command_line() -> None:
    """The user typed --port, not HOLDFAST_PORT."""
    with pytest.raises(BadSetting, match=r"^--port x is not a whole number from 0 to 65535; for example --port 8080$"):
        load_settings({}, {"HOLDFAST_PORT": "x"})


@pytest.mark.parametrize(
    ("entry", "line"),
    [
        ("MAX_WORKERS = [1]", "MAX_WORKERS = [1] is not a whole number from 0 to 100; for example MAX_WORKERS = 10"),
        ("MAX_WORKERS = true", "MAX_WORKERS = true is not a whole number from 0 to 100; for example MAX_WORKERS = 10"),
        ("MAX_WORKERS = 1.5", "MAX_WORKERS = 1.5 is not a whole number from 0 to 100; for example MAX_WORKERS = 10"),
        ("CPU_UP = inf", "CPU_UP = Infinity is not a number from 0 to 1; for example CPU_UP = 0.7"),
        ("CAREFUL = 1", "CAREFUL = 1 is not true or false; for example CAREFUL = false"),
        ("RULE = 1979-05-27", 'RULE = "1979-05-27" is not one of all, any; for example RULE = "any"'),
    ],
)
def test_a_wrong_type_in_the_file_is_reported_in_the_syntax_of_the_file(entry: str, line: str) -> None:
    """The example can be pasted into the file."""
    assert problems_of_file(entry) == [f"holdfast.toml: {line}"]


def test_an_unknown_name_is_an_error_with_a_suggestion() -> None:
    """In the environment (with our prefix) as in the file."""
    guess = "is not a setting; did you mean MAX_WORKERS? for example MAX_WORKERS=10"
    assert problems({"HOLDFAST_MAX_WORKERS": "3"}) == [f"HOLDFAST_MAX_WORKERS {guess}"]
    assert problems_of_file("max_workrs = 3") == [f"holdfast.toml: max_workrs {guess}"]
    nothing_like_it = "is not a setting; 'holdfast settings' lists all settings"
    assert problems_of_file("[zzz]\na = 1") == [f"holdfast.toml: zzz {nothing_like_it}"]


def test_a_broken_file_names_the_line() -> None:
    """And the file."""
    assert problems_of_file("MAX_WORKERS = 1\nCPU_UP = \n") == ["holdfast.toml line 2, column 10: Invalid value"]
    assert problems_of_file("MAX_WORKERS =") == [
        "holdfast.toml, at its end: Invalid value; a value or a bracket is missing"
    ]
    (line,) = problems_of_file("A = " + "[" * 100_000)
    assert line.startswith("holdfast.toml: ")


def test_a_file_that_cannot_be_read_says_why(directory: Path) -> None:
    """Missing although named, not text, not a file, naming another file."""
    assert problems({"HOLDFAST_CONFIG": "no.toml"}) == ["HOLDFAST_CONFIG=no.toml: no such file"]
    assert problems({}, {"HOLDFAST_CONFIG": "no.toml"}) == ["--config no.toml: no such file"]
    assert problems({"HOLDFAST_CONFIG": "."}) == [". cannot be read: Is a directory"]
    (directory / "holdfast.toml").write_bytes(b"A = 1\n\xff")
    assert problems({}) == ["holdfast.toml is not UTF-8 text (at byte 6)"]
    assert problems({"HOLDFAST_CONFIG": ""})[0].startswith("HOLDFAST_CONFIG= is not a path to a file")
    assert "cannot be set in the file that it names" in problems_of_file('HOLDFAST_CONFIG = "x"')[0]


# What is never printed


def test_a_hostile_value_is_escaped_and_cut() -> None:
    """It can neither control the terminal nor fill it."""
    (line,) = problems({"MAX_WORKERS": "\x1b[2J\nholdfast: all is well" + "x" * 10_000})
    assert line.isprintable()
    assert r"\x1b[2J\nholdfast: all is well" in line
    assert len(line) < 200


@given(st.text())
def test_any_text_becomes_one_printable_line(text: str) -> None:
    """Also lone surrogates, which no terminal can encode."""
    assert one_line(text).isprintable()
    assert len(cut(text, most=10)) <= 11
    one_line(text).encode()


@pytest.mark.parametrize("value", [SECRET + "!", SECRET + "\n"])
def test_a_wrong_secret_is_not_printed(value: str) -> None:
    """Errors end up in logs."""
    assert problems({"TOKEN": value}) == [
        "TOKEN=(not shown) is not a token (letters, digits and -); for example TOKEN=abc"
    ]
    (line,) = problems_of_file(f'TOKEN = ["{SECRET}"]')
    assert SECRET not in line


def test_a_secret_with_a_mistyped_name_is_not_printed() -> None:
    """The value of an unknown name is not printed."""
    assert SECRET not in problems({"HOLDFAST_TOKN": SECRET})[0]


def test_a_valid_secret_is_shown_nowhere() -> None:
    """Not in repr, and not as a public value; only whether there is one."""
    settings = load(Sample, {"TOKEN": SECRET})
    assert settings.token == SECRET
    assert SECRET not in repr(settings)
    (row,) = (row for row in settings_of(Sample) if row.secret)
    assert (row.public(settings.token), row.public(None)) == ("(not shown)", None)


# The table


def test_every_default_and_example_is_valid() -> None:
    """The values in the help must work."""
    for row in SETTINGS:
        assert row.kind.parse(row.example) is not None, row.name
        default = row.default_after({"holdfast_data": Path("x"), "cluster_id": "x"})
        assert row.kind.parse(row.words(default)) == default, row.name


def test_every_setting_is_documented() -> None:
    """One sentence, a group, and a unit where it is a number of something."""
    for row in SETTINGS:
        assert row.help_text.endswith("."), row.name
        assert row.group, row.name
        kind = row.kind.kind if isinstance(row.kind, Maybe) else row.kind
        assert bool(row.unit) == isinstance(kind, Seconds | WholeSeconds), row.name
        assert bool(row.flag) == bool(row.flag_value), row.name


def test_settings_are_values() -> None:
    """Equal if all values are equal, whatever their sources; and immutable."""
    assert load_settings({}) == load_settings({"HOLDFAST_PORT": "8080"})
    with pytest.raises(AttributeError):
        load_settings({}).holdfast_port = 1  # type: ignore[misc]
    assert isinstance(load_settings({}), Settings)


@pytest.mark.parametrize(
    ("given", "says"),
    [
        ({"MIN_WORKERS": "20", "MAX_WORKERS": "3"}, "MIN_WORKERS=20 is more than MAX_WORKERS=3"),
        ({"CPU_UP": "0.2", "CPU_DOWN": "0.5"}, "CPU_DOWN=0.5 is not below CPU_UP=0.2"),
        ({"JOBS_TABLE": "workflow_runs"}, "RUNS_TABLE=workflow_runs is also the value of JOBS_TABLE"),
        ({"JOIN_TIMEOUT_SEC": "0"}, "JOIN_TIMEOUT_SEC=0 is less than a worker takes"),
        ({"STUCK_SEC": "100"}, "STUCK_SEC=100 is less than DRAIN_SEC=300"),
        ({"NOT_READY_SEC": "1"}, "NOT_READY_SEC=1 would replace nodes that are only restarting"),
        (
            {"CONSOLE_TOKEN": "0123456789abcdef", "CONSOLE_READ_TOKEN": "0123456789abcdef"},
            "CONSOLE_READ_TOKEN is the same as CONSOLE_TOKEN",
        ),
        (
            {"CONSOLE_USER_HEADER": "X-User", "CONSOLE_HOSTS": "a.example"},
            "CONSOLE_USER_HEADER=X-User needs CONSOLE_PROXY_SECRET",
        ),
        (
            {"CONSOLE_USER_HEADER": "X-User", "CONSOLE_PROXY_SECRET": "0123456789abcdef"},
            "CONSOLE_USER_HEADER=X-User needs CONSOLE_HOSTS",
        ),
    ],
    ids=["workers", "cpu", "tables", "join", "stuck", "not ready", "tokens", "proxy secret", "proxy hosts"],
)
def test_settings_that_contradict_each_other_are_refused_together(given: dict[str, str], says: str) -> None:
    """Each is valid by itself: only together they are wrong, and the line names both."""
    with pytest.raises(BadSetting) as refused:
        load_settings(given)
    assert says in str(refused.value)
    assert "for example" in str(refused.value)


@pytest.mark.parametrize(
    "given",
    [
        {"KUBECONFIG": "a", "KUBE_SERVER": "https://b"},
        {"KUBE_CONTEXT": "a"},
        {"KUBE_TOKEN_PARAMETER": "/a"},
        {"KUBE_CA_FILE": "a"},
        {"PROMETHEUS_TOKEN_FILE": "a", "PROMETHEUS_TOKEN_PARAMETER": "/b"},
    ],
    ids=lambda given: "+".join(given),
)
def test_settings_that_would_be_silently_ignored_are_refused(given: dict[str, str]) -> None:
    """On AWS only: in the simulated world, a developer's own variables do no harm."""
    with pytest.raises(BadSetting, match=r"leave (it|one) out"):
        load_settings({"HOLDFAST_WORLD": "aws", **given})
    assert load_settings({"HOLDFAST_WORLD": "sim", **given}).holdfast_world == "sim"
