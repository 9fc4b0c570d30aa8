"""The Lambda handlers, in the simulated world: they act, and they stop before their time is up."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.cluster.policy import Policy
from holdfast.entrypoints import lambda_handlers
from holdfast.entrypoints.lambda_handlers import ec2_event, scheduled_tick
from holdfast.entrypoints.reports import Reports
from holdfast.kernel.errors import BadSetting, StoreRefused
from holdfast.ports.machines import LaunchOrder, Market
from holdfast.ports.notify import Notice
from tests.simulation.harness import Stage
from tests.simulation.hooks import before, raising


class SteppedTime:
    """Passes only where the program waits, and a little with each look: a slow machine changes nothing."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 0.001
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds


@dataclass
class Call:
    """What Lambda tells of a call."""

    aws_request_id: str = "7a3c-1"
    seconds_left: float = 300

    def get_remaining_time_in_millis(self) -> int:
        return int(self.seconds_left * 1000)


@pytest.fixture(autouse=True)
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A process of its own for each test."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    monkeypatch.setattr("holdfast.simulator.living.time", SteppedTime())
    kept = lambda_handlers._process  # a test may put another in its place
    kept.cache_clear()
    yield
    kept.cache_clear()


def event(instance: str, kind: str = "EC2 Spot Instance Interruption Warning") -> dict[str, object]:
    cluster = lambda_handlers._process().cluster
    now = cluster.hands.clock.now().iso_seconds()
    return {"source": "aws.ec2", "detail-type": kind, "time": now, "detail": {"instance-id": instance}}


def spot_machine() -> str:
    cluster = lambda_handlers._process().cluster
    subnet = cluster.senses.subnets[0]
    order = LaunchOrder(
        "one", "lt-0:1", "t3.medium", Market.SPOT, subnet, subnet.removeprefix("subnet-"), cluster.senses.tags, ""
    )
    return cluster.hands.machines.launch(order).id


def test_the_schedule_ticks_once_when_nothing_is_under_way() -> None:
    told = scheduled_tick({}, Call())
    assert (told["ticks"], told["stopped"]) == (1, None)


def test_with_no_time_left_it_still_looks_once_and_stops() -> None:
    """A tick promises before it acts: the next call carries on."""
    assert scheduled_tick({}, Call(seconds_left=3))["ticks"] == 1


def test_what_is_built_is_kept_for_the_next_call() -> None:
    scheduled_tick({}, Call())
    before = lambda_handlers._process()
    scheduled_tick({}, Call("7a3c-2"))
    assert lambda_handlers._process() is before


def test_an_interruption_is_noted_and_acted_on_at_once() -> None:
    instance = spot_machine()
    lambda_handlers._process().cluster.hands.clock.sleep(60)
    told = ec2_event(event(instance), Call(seconds_left=3))  # one tick: at some hours its node is empty, and soon gone
    assert (told["event"], told["instance"], told["ticks"]) == ("noted", instance, 1)
    assert ec2_event(event(instance), Call("7a3c-2"))["event"] == "known"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({}, "unusable"),
        ({"source": "aws.ec2", "detail": {}}, "ignored"),
        ({"source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {}}, "unusable"),
    ],
)
def test_what_is_no_event_for_us_is_over(given: dict[str, object], outcome: str) -> None:
    """Not raised: Lambda would deliver it again, and it would be the same."""
    assert ec2_event(given, Call())["event"] == outcome


def test_a_machine_of_others_is_left_alone() -> None:
    assert ec2_event(event("i-0123456789abcdef0"), Call())["event"] == "not ours"


@dataclass
class Mailbox:
    got: list[str] = field(default_factory=list)

    def tell(self, notice: Notice) -> None:
        self.got.append(notice.text)


def broken_process(monkeypatch: pytest.MonkeyPatch, method: str, error: Exception) -> Mailbox:
    """A process in which a call of a port fails."""
    stage, box = Stage(), Mailbox()
    cluster = stage.cluster(before(method, raising(error)))
    process = lambda_handlers._Process(cluster, Reports(cluster, [box]))
    monkeypatch.setattr(lambda_handlers, "_process", lambda: process)
    return box


@pytest.mark.parametrize(
    ("error", "told"),
    [
        (ZeroDivisionError("oh"), "a tick failed in a way that was not foreseen: ZeroDivisionError; see the log"),
        (StoreRefused("AccessDeniedException"), "AccessDeniedException"),
    ],
)
def test_an_error_that_lasts_is_told_and_fails_the_call(
    monkeypatch: pytest.MonkeyPatch, error: Exception, told: str
) -> None:
    box = broken_process(monkeypatch, "batch_get", error)
    with pytest.raises(type(error)):
        scheduled_tick({}, Call())
    assert box.got == [told]


def test_an_event_that_cannot_be_noted_is_told_and_comes_again(monkeypatch: pytest.MonkeyPatch) -> None:
    box = broken_process(monkeypatch, "found", KeyError("tags"))
    given = {
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "2026-01-15T08:00:00Z",
        "detail": {"instance-id": "i-0123456789abcdef0"},
    }
    with pytest.raises(KeyError):
        ec2_event(given, Call())
    assert box.got == ["a tick failed in a way that was not foreseen: KeyError; see the log"]


def test_a_call_stops_before_lambda_would_stop_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch takes four seconds; there are twenty to make, and thirty seconds for them."""
    stage = Stage(workers=0, policy=Policy(min_workers=20, max_workers=30, max_batch_up=20))
    cluster = stage.cluster(before("launch", lambda: stage.clock.sleep(4)))
    process = lambda_handlers._Process(cluster, Reports(cluster, []))
    monkeypatch.setattr(lambda_handlers, "_process", lambda: process)
    began = stage.clock.monotonic_seconds()
    told = scheduled_tick({}, Call(seconds_left=30))
    assert stage.clock.monotonic_seconds() - began < 30
    assert "too few to begin more" in told["stopped"]
    assert stage.state.lock_owner == ""


def test_a_wrong_setting_stops_everything_at_the_first_call(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOLDFAST_WORLD", "aws")
    with pytest.raises(BadSetting, match="LAUNCH_TEMPLATE is not set"):
        scheduled_tick({}, Call())


def test_a_cold_start_for_aws_loads_no_console_no_simulator_and_no_command_line() -> None:
    script = (
        "import sys, holdfast.entrypoints.lambda_handlers\n"
        "print([m for m in sys.modules if m.split('.')[:2] in "
        "(['holdfast', 'console'], ['holdfast', 'simulator'], ['holdfast', 'cli'])"
        " or m in ('click', 'starlette', 'uvicorn', 'jinja2', 'rich', 'prometheus_client', 'sqlite3', 'boto3')])"
    )
    found = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert found.stdout.strip() == "[]"
