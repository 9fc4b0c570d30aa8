"""The live demonstration: an organisation whose webhooks use the real endpoint, faults on demand, another speed."""

import json
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.simulation.console_controls import SimulatorConsole
from holdfast.entrypoints.simulation.runs import SimulatorRuns
from holdfast.entrypoints.webhook_receiver import record_internal_event, take_webhook
from holdfast.jobs.intake.tracker import Tracker
from holdfast.jobs.intake.webhook import WebhookSecrets
from holdfast.jobs.model.facts import Status
from holdfast.jobs.read import queries
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.ports.machines import LaunchOrder, MachineError, Market
from holdfast.simulator.demo.organisation import OUTBOX_MOST, Organisation, OutboxMessage
from holdfast.simulator.demo.persistent_world import PersistentWorld
from holdfast.simulator.demo.repositories import INSTALLATION
from holdfast.simulator.world.github_objects import Webhook
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.timeline import Timeline
from holdfast.simulator.world.world import DAWN
from tests.simulation.harness import Stage
from tests.support.console_access import OPEN
from tests.support.console_world import ConsoleWorld
from tests.support.persistent_worlds import TAGS, begin, persistent_world

SECRETS = WebhookSecrets.from_text("a secret of the simulated world")


def worked(hours: float, seed: int = 1) -> tuple[Timeline, list[OutboxMessage]]:
    timeline = Timeline(DAWN)
    organisation = Organisation(timeline, seed)
    found: list[OutboxMessage] = []
    for _ in range(int(hours * 60)):
        timeline.sleep(60)
        found += organisation.outbox
        organisation.outbox.clear()
    return timeline, found


def test_a_day_has_matrices_approvals_interruptions_and_new_attempts() -> None:
    _, messages = worked(24)
    events = Counter(
        message.event if isinstance(message, Webhook) else json.loads(message.body)["type"] for message in messages
    )
    for event in (
        "workflow_job",
        "workflow_run",
        "deployment_review",
        "runner_scheduled",
        "runner_rescheduled",
        "runner_attached",
        "runner_interrupted",
        "runner_terminated",
    ):
        assert events[event] > 0, event
    bodies = [json.loads(message.body) for message in messages if isinstance(message, Webhook)]
    jobs = [body["workflow_job"] for body in bodies if "workflow_job" in body]
    assert any("(3.12, postgres-17)" in job["name"] for job in jobs)
    assert {job["run_attempt"] for job in jobs} >= {1, 2}
    assert {body["action"] for body in bodies if "workflow_job_runs" in body} == {"approved", "rejected"}


def test_the_same_seed_gives_the_same_events_and_another_seed_others() -> None:
    assert worked(4)[1] == worked(4)[1]
    assert worked(4, seed=2)[1] != worked(4)[1]


def test_nothing_is_pushed_while_webhooks_are_pending() -> None:
    timeline = Timeline(DAWN)
    organisation = Organisation(timeline, 1)
    timeline.sleep(7 * 86_400)
    assert len(organisation.outbox) < OUTBOX_MOST + 500
    assert len(organisation.github.jobs) < 100


def test_all_its_webhooks_are_accepted_like_githubs() -> None:
    """Signed, through the endpoint's own function: nothing is refused, every completed job is stored as such."""
    timeline, messages = worked(8)
    store = memory_store(timeline)
    tracker = Tracker(store, timeline, "here")
    for message in messages:
        if isinstance(message, Webhook):
            headers = message.headers(SECRETS.signature_of(message.body))
            outcome = take_webhook(headers, message.body, SECRETS, tracker)
            assert (outcome.status, outcome.result) == (200, "stored"), (message, outcome)
        else:
            event = {"attempt": 1, "instance_id": None, **json.loads(message.body)}
            assert record_internal_event(tracker, str(INSTALLATION), str(message.job.id), event).result == "stored"
    ended = {
        body["workflow_job"]["id"]
        for body in (json.loads(message.body) for message in messages if isinstance(message, Webhook))
        if "workflow_job" in body and body["action"] == "completed"
    }
    found = queries.gathered(
        lambda paging: queries.jobs_by_status(store, InstallationId(INSTALLATION), Status.COMPLETED, paging=paging),
        10_000,
    )
    assert len(found.items) == len(ended) > 50


# The live world


def kept(taken: list[OutboxMessage], message: OutboxMessage) -> bool:
    taken.append(message)
    return True


def test_webhooks_are_delivered_until_they_are_accepted(tmp_path: Path) -> None:
    with persistent_world(tmp_path) as world:
        world.pass_time(7200)
        waiting = world.outbox_size
        assert waiting > 0
        assert world.deliver_outbox(lambda _: False, 10) == 0
        assert world.outbox_size >= waiting
        taken: list[OutboxMessage] = []
        assert world.deliver_outbox(lambda message: kept(taken, message), 5) == 5
        assert len(taken) == 5
        world.deliver_outbox(lambda message: kept(taken, message), 10_000)
        assert world.outbox_size == 0
        assert len(taken) == len({(type(message), message.body) for message in taken}) >= waiting


def test_after_a_kill_the_same_webhooks_are_delivered_again(tmp_path: Path) -> None:
    first: list[OutboxMessage] = []
    world = persistent_world(tmp_path)
    world.pass_time(7200)
    world.keep()
    world.deliver_outbox(lambda message: kept(first, message), 5)
    world._hold = None  # killed: nothing is saved, and the kernel releases the lock
    second: list[OutboxMessage] = []
    again = PersistentWorld(tmp_path / "world", begin, speed=1, writable=False)
    again.deliver_outbox(lambda message: kept(second, message), 5)
    assert [message.body for message in first] == [message.body for message in second]


def test_another_speed_applies_from_now_on(tmp_path: Path) -> None:
    with persistent_world(tmp_path) as world:
        before = world.now()
        world.go_at(3600)
        assert world.speed == 3600
        assert 0 <= world.now().seconds_since(before) < 3600 * 5


@pytest.fixture
def controls(tmp_path: Path) -> Any:
    woken: list[int] = []
    with persistent_world(tmp_path) as world:
        yield SimulatorConsole(world, 7, lambda: woken.append(1), SimulatorRuns(lambda: None)), world, woken


def order(zone: str, market: Market) -> LaunchOrder:
    return LaunchOrder(f"{zone} {market}", "lt-0:1", "t3.medium", market, f"subnet-{zone}", zone, TAGS, "")


def test_faults_happen_in_the_live_world(controls: Any) -> None:
    orders, world, woken = controls
    assert orders.inject("spot").done.startswith("EC2 gave notice to i-")
    told_of: list[dict[str, Any]] = []
    world.deliver_events(told_of.append)
    assert [event["detail-type"] for event in told_of] == ["EC2 Spot Instance Interruption Warning"]
    pods = len(world.kube.pods())
    assert orders.inject("burst").done == "added 30 pods for 30 minutes"
    assert len(world.kube.pods()) == pods + 30
    orders.inject("sold-out-eu-west-1b")
    for market in Market:
        with pytest.raises(MachineError, match="InsufficientInstanceCapacity"):
            world.machines.launch(order("eu-west-1b", market))
    orders.inject("blind")
    assert not hasattr(world.signals.cpu(), "value")
    world.pass_time(3601)
    assert hasattr(world.signals.cpu(), "value") or "node" in str(world.signals.cpu())
    assert len(world.kube.pods()) < pods + 30
    assert len(orders.state({}).orders) == len(woken) == 4


def test_without_prometheus_pending_pods_are_known_as_its_button_says(controls: Any) -> None:
    """The text beside a button matches what the ticks see."""
    orders, _, _ = controls
    stage = Stage(workers=2)
    stage.world.k3s.run(Workload("web", 30))
    stage.tick()
    stage.world.prometheus.is_away = True
    ticked = stage.tick()
    assert ticked is not None
    verdicts = {rule.name: str(rule.verdict) for rule in ticked.plan.rules}
    assert (verdicts["cpu_high"], verdicts["pods_waiting"]) == ("unknown", "yes")
    (text,) = [fault.text for fault in orders.state({}).faults if fault.name == "blind"]
    assert "CPU is unknown, and pending pods are counted by Kubernetes" in text


def test_after_a_restart_the_page_does_not_claim_that_no_fault_was_injected(controls: Any) -> None:
    """The world still has the fault; the list belongs to this process."""
    orders, world, _ = controls
    orders.inject("burst")
    again = SimulatorConsole(world, 7, lambda: None, SimulatorRuns(lambda: None))
    page = ConsoleWorld(access=OPEN, controls=again).get("/simulator").text
    assert burst_pods(world) == 30
    assert "Nothing since this process started." in page


def burst_pods(world: PersistentWorld) -> int:
    return sum(pod.name.startswith("burst") for pod in world.kube.pods())


def test_each_burst_has_its_own_pods_and_its_own_half_hour(controls: Any) -> None:
    orders, world, _ = controls
    orders.inject("burst")
    world.pass_time(20 * 60)
    orders.inject("burst")
    assert burst_pods(world) == 60
    world.pass_time(15 * 60)
    assert burst_pods(world) == 30
    world.pass_time(20 * 60)
    assert burst_pods(world) == 0


def test_repeated_clicks_do_not_flood_the_world(controls: Any) -> None:
    orders, world, _ = controls
    done = [orders.inject("burst").done for _ in range(7)]
    assert done[4:] == ["added 30 pods for 30 minutes", *["5 bursts are running already; nothing was added"] * 2]
    assert burst_pods(world) == 150


def test_a_repeated_outage_lasts_from_the_latest_click(controls: Any) -> None:
    orders, world, _ = controls
    orders.inject("blind")
    orders.inject("sold-out-eu-west-1b")
    world.pass_time(8 * 60)
    orders.inject("blind")
    world.pass_time(8 * 60)
    assert not hasattr(world.signals.cpu(), "value")
    world.pass_time(40 * 60)
    orders.inject("sold-out-eu-west-1b")
    world.pass_time(50 * 60)
    with pytest.raises(MachineError, match="InsufficientInstanceCapacity"):
        world.machines.launch(order("eu-west-1b", Market.ON_DEMAND))
    world.pass_time(15 * 60)
    assert world.machines.launch(replace(order("eu-west-1b", Market.ON_DEMAND), token="later")).id


def test_no_machine_gets_two_notices(controls: Any) -> None:
    orders, _, _ = controls
    assert orders.inject("spot").done.startswith("EC2 gave notice to i-")
    assert orders.inject("spot").done == "there is no spot machine to interrupt"


def test_the_machine_of_a_running_job_is_interrupted_once(controls: Any) -> None:
    """Its job fails once; until then the next click interrupts another job's machine."""
    orders, world, _ = controls
    assert orders.inject("runner").done == "no job runs on a spot machine"
    said: list[dict[str, Any]] = []

    def is_taken(message: OutboxMessage) -> bool:
        said.append(json.loads(message.body))
        return True

    for _ in range(240):
        world.pass_time(30)
        if orders.inject("runner").done.startswith("EC2 gave notice to the runner of "):
            break
    world.pass_time(7200)
    world.deliver_outbox(is_taken, 100_000)
    assert "runner_interrupted" in {each.get("type") for each in said}
    ended = [each["workflow_job"] for each in said if each.get("action") == "completed" and "workflow_job" in each]
    assert "failure" in {job["conclusion"] for job in ended}
    assert len({job["id"] for job in ended}) == len(ended)


def test_a_broken_machine_is_gone(controls: Any) -> None:
    orders, world, _ = controls
    orders.inject("break")
    assert all(machine.is_gone for machine in world.machines.tagged(TAGS))
    assert orders.inject("break").done == "there is no machine to break"
    assert orders.inject("spot").done == "there is no spot machine to interrupt"


def test_an_unknown_fault_is_refused(controls: Any) -> None:
    orders, world, woken = controls
    with pytest.raises(BadRequest):
        orders.inject("<script>")
    with pytest.raises(BadRequest):
        orders.go_at("1e9")
    with pytest.raises(BadRequest):
        orders.state({"x": "1"})
    assert orders.go_at("240").speed == 240.0
    assert (world.speed, len(woken)) == (240, 1)
