"""The Lambda handlers, in the simulated world: they act, and they stop before their time is up."""

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from holdfast.cluster.policy import Policy
from holdfast.control.deadline import CALL_SECONDS
from holdfast.entrypoints import lambda_handlers
from holdfast.entrypoints.lambda_handlers import ec2_event, scheduled_tick
from holdfast.entrypoints.tick_reports import TickReports
from holdfast.kernel.errors import BadSetting, StoreRefused
from holdfast.ports.machines import LaunchOrder, Market
from holdfast.ports.notify import Notification
from tests.simulation.harness import Stage
from tests.simulation.hooks import before, raising
from tests.support.lambda_events import Call


class SteppedTime:
    """Advances only where the program waits, and a little with each reading: a slow machine changes nothing."""

    def __init__(self) -> None:
        self._seconds = 0.0

    def monotonic(self) -> float:
        self._seconds += 0.001
        return self._seconds

    def sleep(self, seconds: float) -> None:
        self._seconds += seconds


@pytest.fixture(autouse=True)
def process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A new process for each test."""
    monkeypatch.setenv("HOLDFAST_DATA", str(tmp_path))
    monkeypatch.setattr("holdfast.simulator.demo.persistent_world.time", SteppedTime())
    kept = lambda_handlers._process  # a test may replace it
    kept.cache_clear()
    yield
    kept.cache_clear()


def event(instance: str, kind: str = "EC2 Spot Instance Interruption Warning") -> dict[str, object]:
    cluster = lambda_handlers._process().cluster
    now = cluster.writes.clock.now().iso_seconds()
    return {"source": "aws.ec2", "detail-type": kind, "time": now, "detail": {"instance-id": instance}}


def spot_machine() -> str:
    cluster = lambda_handlers._process().cluster
    subnet = cluster.reads.subnets[0]
    order = LaunchOrder(
        "one", "lt-0:1", "t3.medium", Market.SPOT, subnet, subnet.removeprefix("subnet-"), cluster.reads.tags, ""
    )
    return cluster.writes.machines.launch(order).id


def test_the_schedule_ticks_once_when_nothing_is_under_way() -> None:
    result = scheduled_tick({}, Call())
    assert (result["ticks"], result["stopped"]) == (1, None)


def test_without_time_left_it_still_ticks_once_and_stops() -> None:
    """A tick stores its intent before it acts: the next invocation continues."""
    assert scheduled_tick({}, Call(seconds_left=3))["ticks"] == 1


def test_the_process_is_kept_for_the_next_invocation() -> None:
    scheduled_tick({}, Call())
    before = lambda_handlers._process()
    scheduled_tick({}, Call("7a3c-2"))
    assert lambda_handlers._process() is before


def test_an_interruption_is_stored_and_handled_at_once() -> None:
    instance = spot_machine()
    lambda_handlers._process().cluster.writes.clock.sleep(60)
    result = ec2_event(
        event(instance), Call(seconds_left=3)
    )  # one tick: at some hours its node is empty, and gone soon
    assert (result["event"], result["instance"], result["ticks"]) == ("noted", instance, 1)
    assert ec2_event(event(instance), Call("7a3c-2"))["event"] == "known"


@pytest.mark.parametrize(
    ("given", "outcome"),
    [
        ({}, "unusable"),
        ({"source": "aws.ec2", "detail": {}}, "ignored"),
        ({"source": "aws.ec2", "detail-type": "EC2 Instance Rebalance Recommendation", "detail": {}}, "unusable"),
    ],
)
def test_an_irrelevant_event_is_dropped(given: dict[str, object], outcome: str) -> None:
    """Without an error: Lambda would deliver it again, with the same result."""
    assert ec2_event(given, Call())["event"] == outcome


def test_a_foreign_machine_is_left_alone() -> None:
    assert ec2_event(event("i-0123456789abcdef0"), Call())["event"] == "not ours"


@dataclass
class Mailbox:
    got: list[str] = field(default_factory=list)

    def notify(self, notice: Notification) -> None:
        self.got.append(notice.text)


def broken_process(monkeypatch: pytest.MonkeyPatch, method: str, error: Exception) -> Mailbox:
    """A process in which one call of a port fails."""
    stage, box = Stage(), Mailbox()
    cluster = stage.cluster(before(method, raising(error)))
    process = lambda_handlers._Process(cluster, TickReports(cluster, [box]))
    monkeypatch.setattr(lambda_handlers, "_process", lambda: process)
    return box


@pytest.mark.parametrize(
    ("error", "notice"),
    [
        (ZeroDivisionError("oh"), "a tick failed with an unexpected error: ZeroDivisionError; see the log"),
        (StoreRefused("AccessDeniedException"), "AccessDeniedException"),
    ],
)
def test_a_lasting_error_is_reported_and_fails_the_invocation(
    monkeypatch: pytest.MonkeyPatch, error: Exception, notice: str
) -> None:
    box = broken_process(monkeypatch, "batch_get", error)
    with pytest.raises(type(error)):
        scheduled_tick({}, Call())
    assert box.got == [notice]


def test_an_event_that_cannot_be_stored_is_reported_and_delivered_again(monkeypatch: pytest.MonkeyPatch) -> None:
    box = broken_process(monkeypatch, "found", KeyError("tags"))
    given = {
        "source": "aws.ec2",
        "detail-type": "EC2 Spot Instance Interruption Warning",
        "time": "2026-01-15T08:00:00Z",
        "detail": {"instance-id": "i-0123456789abcdef0"},
    }
    with pytest.raises(KeyError):
        ec2_event(given, Call())
    assert box.got == ["a tick failed with an unexpected error: KeyError; see the log"]


def test_an_invocation_stops_before_lambda_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Twenty launches of four seconds each, and thirty seconds for all of them."""
    stage = Stage(workers=0, policy=Policy(min_workers=20, max_workers=30, max_batch_up=20))
    cluster = stage.cluster(before("launch", lambda: stage.clock.sleep(4)))
    process = lambda_handlers._Process(cluster, TickReports(cluster, []))
    monkeypatch.setattr(lambda_handlers, "_process", lambda: process)
    began = stage.clock.monotonic_seconds()
    result = scheduled_tick({}, Call(seconds_left=30))
    assert stage.clock.monotonic_seconds() - began < 30
    assert "too few to start more" in result["stopped"]
    assert stage.state.lock_owner == ""


def test_a_call_leaves_time_for_its_answer_and_its_log(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each launch takes as long as a call can, and the third would end just before Lambda stops it."""
    stage = Stage(workers=0, policy=Policy(min_workers=20, max_workers=30, max_batch_up=20))
    cluster = stage.cluster(before("launch", lambda: stage.clock.sleep(CALL_SECONDS)))
    process = lambda_handlers._Process(cluster, TickReports(cluster, []))
    monkeypatch.setattr(lambda_handlers, "_process", lambda: process)
    began, seconds_left = stage.clock.monotonic_seconds(), 3 * CALL_SECONDS + 0.5
    scheduled_tick({}, Call(seconds_left=seconds_left))
    lasted = stage.clock.monotonic_seconds() - began
    assert lasted >= CALL_SECONDS
    assert seconds_left - lasted >= lambda_handlers.SPARE_SECONDS


def test_a_wrong_setting_fails_the_first_invocation(monkeypatch: pytest.MonkeyPatch) -> None:
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
