"""The living demonstration: an organisation whose post arrives over the real door, faults on order, another speed."""

import json
import pickle
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from holdfast.adapters.memory import memory_store
from holdfast.entrypoints.simulator_desk import SimulatorDesk
from holdfast.entrypoints.simulator_runs import SimulatorRuns
from holdfast.entrypoints.telling import told
from holdfast.entrypoints.webhooks import take_webhook
from holdfast.jobs import queries
from holdfast.jobs.facts import Status
from holdfast.jobs.ingest import Tracker
from holdfast.jobs.webhook import WebhookSecrets
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import InstallationId
from holdfast.ports.machines import LaunchOrder, MachineError, Market
from holdfast.simulator.k3s import Workload
from holdfast.simulator.living import LivingWorld
from holdfast.simulator.organisation import OUTBOX_MOST, Organisation
from holdfast.simulator.organisation_objects import Parcel, Webhook
from holdfast.simulator.timeline import Timeline
from holdfast.simulator.workplace import INSTALLATION
from holdfast.simulator.world import DAWN
from tests.simulation.harness import Stage
from tests.unit.console_world import ConsoleWorld
from tests.unit.test_console_access import OPEN
from tests.unit.test_living_world import TAGS, begin

SECRETS = WebhookSecrets.from_text("a secret of the simulated world")


def worked(hours: float, seed: int = 1) -> tuple[Timeline, list[Parcel]]:
    timeline = Timeline(DAWN)
    organisation = Organisation(timeline, seed)
    found: list[Parcel] = []
    for _ in range(int(hours * 60)):
        timeline.sleep(60)
        found += organisation.outbox
        organisation.outbox.clear()
    return timeline, found


def test_a_day_has_matrices_approvals_interruptions_and_new_attempts() -> None:
    _, parcels = worked(24)
    events = Counter(
        parcel.event if isinstance(parcel, Webhook) else json.loads(parcel.body)["type"] for parcel in parcels
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
    bodies = [json.loads(parcel.body) for parcel in parcels if isinstance(parcel, Webhook)]
    jobs = [body["workflow_job"] for body in bodies if "workflow_job" in body]
    assert any("(3.12, postgres-17)" in job["name"] for job in jobs)
    assert {job["run_attempt"] for job in jobs} >= {1, 2}
    assert {body["action"] for body in bodies if "workflow_job_runs" in body} == {"approved", "rejected"}


def test_the_same_seed_tells_the_same_story_and_another_another() -> None:
    assert worked(4)[1] == worked(4)[1]
    assert worked(4, seed=2)[1] != worked(4)[1]


def test_it_can_be_kept_in_a_file_with_its_future() -> None:
    timeline = Timeline(DAWN)
    organisation = Organisation(timeline, 3)
    timeline.sleep(3600)
    copied, again = pickle.loads(pickle.dumps((timeline, organisation)))  # noqa: S301 -- our own, made a line ago
    for each in (timeline, copied):
        each.sleep(7200)
    assert organisation.outbox == again.outbox
    assert organisation.outbox


def test_nobody_pushes_while_the_post_is_not_taken() -> None:
    timeline = Timeline(DAWN)
    organisation = Organisation(timeline, 1)
    timeline.sleep(7 * 86_400)
    assert len(organisation.outbox) < OUTBOX_MOST + 500
    assert len(organisation._jobs) < 100


def test_everything_that_it_tells_is_taken_in_as_if_it_were_github() -> None:
    """Signed, through the endpoint's own function: nothing is refused, and every job that ended is known as ended."""
    timeline, parcels = worked(8)
    store = memory_store(timeline)
    tracker = Tracker(store, timeline, "here")
    for parcel in parcels:
        if isinstance(parcel, Webhook):
            headers = {
                "x-github-event": parcel.event,
                "x-github-delivery": parcel.guid,
                "x-hub-signature-256": SECRETS.signature_of(parcel.body),
                "content-type": "application/json",
            }
            outcome = take_webhook(headers, parcel.body, SECRETS, tracker)
            assert (outcome.status, outcome.body["result"]) == (200, "stored"), (parcel, outcome)
        else:
            event = {"attempt": 1, "instance_id": None, **json.loads(parcel.body)}
            assert told(tracker, str(INSTALLATION), str(parcel.job_id), event)["result"] == "stored"
    ended = {
        body["workflow_job"]["id"]
        for body in (json.loads(parcel.body) for parcel in parcels if isinstance(parcel, Webhook))
        if "workflow_job" in body and body["action"] == "completed"
    }
    found = queries.gathered(
        lambda paging: queries.jobs_by_status(store, InstallationId(INSTALLATION), Status.COMPLETED, paging=paging),
        10_000,
    )
    assert len(found.items) == len(ended) > 50


# The living world


def kept(taken: list[Parcel], parcel: Parcel) -> bool:
    taken.append(parcel)
    return True


def living(path: Path, speed: float = 1) -> LivingWorld:
    return LivingWorld(path / "world", begin, speed=speed)


def test_the_post_is_handed_over_until_it_was_taken(tmp_path: Path) -> None:
    with living(tmp_path) as world:
        world.pass_time(7200)
        waiting = world.parcels_waiting
        assert waiting > 0
        assert world.hand_over_parcels(lambda _: False, 10) == 0
        assert world.parcels_waiting >= waiting
        taken: list[Parcel] = []
        assert world.hand_over_parcels(lambda parcel: kept(taken, parcel), 5) == 5
        assert len(taken) == 5
        world.hand_over_parcels(lambda parcel: kept(taken, parcel), 10_000)
        assert world.parcels_waiting == 0
        assert len(taken) == len(set(taken)) >= waiting


def test_after_a_kill_the_post_comes_again_word_for_word(tmp_path: Path) -> None:
    first: list[Parcel] = []
    world = living(tmp_path)
    world.pass_time(7200)
    world.keep()
    world.hand_over_parcels(lambda parcel: kept(first, parcel), 5)
    world._hold = None  # killed: nothing is kept, and the lock is the kernel's to give back
    second: list[Parcel] = []
    again = LivingWorld(tmp_path / "world", begin, speed=1, writable=False)
    again.hand_over_parcels(lambda parcel: kept(second, parcel), 5)
    assert first == second


def test_another_speed_goes_on_from_now(tmp_path: Path) -> None:
    with living(tmp_path) as world:
        before = world.now()
        world.go_at(3600)
        assert world.speed == 3600
        assert 0 <= world.now().seconds_since(before) < 3600 * 5


@pytest.fixture
def desk(tmp_path: Path) -> Any:
    woken: list[int] = []
    with living(tmp_path) as world:
        yield SimulatorDesk(world, 7, lambda: woken.append(1), SimulatorRuns(lambda: None)), world, woken


def order(zone: str, market: Market) -> LaunchOrder:
    return LaunchOrder(f"{zone} {market}", "lt-0:1", "t3.medium", market, f"subnet-{zone}", zone, TAGS, "")


def test_faults_happen_in_the_living_world(desk: Any) -> None:
    orders, world, woken = desk
    assert orders.inject("spot")["done"].startswith("EC2 gave notice to i-")
    told_of: list[dict[str, Any]] = []
    world.hand_over_events(told_of.append)
    assert [event["detail-type"] for event in told_of] == ["EC2 Spot Instance Interruption Warning"]
    pods = len(world.kube.pods())
    assert orders.inject("burst")["done"] == "30 pods for 30 minutes"
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
    assert len(orders.state({})["orders"]) == len(woken) == 4


def test_without_prometheus_pods_that_wait_are_known_as_its_button_says(desk: Any) -> None:
    """The text beside a button is held to what the ticks see."""
    orders, _, _ = desk
    stage = Stage(workers=2)
    stage.world.k3s.run(Workload("web", 30))
    stage.tick()
    stage.world.prometheus.is_away = True
    ticked = stage.tick()
    assert ticked is not None
    verdicts = {rule.name: str(rule.verdict) for rule in ticked.plan.rules}
    assert (verdicts["cpu_high"], verdicts["pods_waiting"]) == ("unknown", "yes")
    (text,) = [fault["text"] for fault in orders.state({})["faults"] if fault["name"] == "blind"]
    assert "CPU is unknown, and waiting pods are counted by Kubernetes" in text


def test_after_a_start_the_page_does_not_say_that_nothing_was_ordered(desk: Any) -> None:
    """The world still has it; the list is of this process."""
    orders, world, _ = desk
    orders.inject("burst")
    again = SimulatorDesk(world, 7, lambda: None, SimulatorRuns(lambda: None))
    page = ConsoleWorld(access=OPEN, desk=again).get("/simulator").text
    assert burst_pods(world) == 30
    assert "Nothing since this process was started." in page


def burst_pods(world: LivingWorld) -> int:
    return sum(pod.name.startswith("burst") for pod in world.kube.pods())


def test_each_burst_has_its_own_pods_and_its_own_half_hour(desk: Any) -> None:
    orders, world, _ = desk
    orders.inject("burst")
    world.pass_time(20 * 60)
    orders.inject("burst")
    assert burst_pods(world) == 60
    world.pass_time(15 * 60)
    assert burst_pods(world) == 30
    world.pass_time(20 * 60)
    assert burst_pods(world) == 0


def test_a_button_that_is_pressed_on_and_on_does_not_flood_the_world(desk: Any) -> None:
    orders, world, _ = desk
    done = [orders.inject("burst")["done"] for _ in range(7)]
    assert done[4:] == ["30 pods for 30 minutes", *["5 bursts are under way already; nothing was added"] * 2]
    assert burst_pods(world) == 150


def test_a_trouble_that_is_ordered_again_lasts_from_then_on(desk: Any) -> None:
    orders, world, _ = desk
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


def test_no_machine_gets_its_notice_twice(desk: Any) -> None:
    orders, _, _ = desk
    assert orders.inject("spot")["done"].startswith("EC2 gave notice to i-")
    assert orders.inject("spot")["done"] == "there is no spot machine to take"


def test_the_machine_of_a_running_job_is_taken_once(desk: Any) -> None:
    """Its job ends, once, as a failure; until then the next order takes another job's."""
    orders, world, _ = desk
    assert orders.inject("runner")["done"] == "no job runs on a spot machine"
    said: list[dict[str, Any]] = []

    def is_taken(parcel: Parcel) -> bool:
        said.append(json.loads(parcel.body))
        return True

    for _ in range(240):
        world.pass_time(30)
        if orders.inject("runner")["done"].startswith("EC2 gave notice to the runner of "):
            break
    world.pass_time(7200)
    world.hand_over_parcels(is_taken, 100_000)
    assert "runner_interrupted" in {each.get("type") for each in said}
    ended = [each["workflow_job"] for each in said if each.get("action") == "completed" and "workflow_job" in each]
    assert "failure" in {job["conclusion"] for job in ended}
    assert len({job["id"] for job in ended}) == len(ended)


def test_a_broken_machine_is_gone(desk: Any) -> None:
    orders, world, _ = desk
    orders.inject("break")
    assert all(machine.is_gone for machine in world.machines.tagged(TAGS))
    assert orders.inject("break")["done"] == "there is no machine to break"
    assert orders.inject("spot")["done"] == "there is no spot machine to take"


def test_what_is_not_offered_is_refused(desk: Any) -> None:
    orders, world, woken = desk
    with pytest.raises(BadRequest):
        orders.inject("<script>")
    with pytest.raises(BadRequest):
        orders.go_at("1e9")
    with pytest.raises(BadRequest):
        orders.state({"x": "1"})
    assert orders.go_at("240") == {"speed": 240.0}
    assert (world.speed, len(woken)) == (240, 1)
