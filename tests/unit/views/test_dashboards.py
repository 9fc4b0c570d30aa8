"""The overview's headline and alerts follow from what is stored and observed."""

import re
from dataclasses import replace
from typing import Any

import pytest
from msgspec import structs

from holdfast.cli.status import status_lines
from holdfast.cluster.drain import DrainRules
from holdfast.cluster.policy import Policy
from holdfast.cluster.spot.notice import SpotKind
from holdfast.cluster.tick import tick
from holdfast.cluster.tick_summary import cluster_log
from holdfast.control.decision_log import Entry
from holdfast.control.lease import LeaseHeld
from holdfast.control.pause import PauseStatus
from holdfast.control.rules import Verdict
from holdfast.control.steps import Direction
from holdfast.jobs.cost.prices import shipped_prices
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import KubeUnavailable, Resources
from holdfast.ports.machines import Market
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import ZONES
from holdfast.views.cluster_history import (
    ClusterHistory,
    Moment,
    action_spans,
    moment_of,
    recent_events,
    timeline_marks,
)
from holdfast.views.cluster_now import ClusterNow, FailingPool, UndrainableNode
from holdfast.views.cluster_status import ClusterStatus, LeaseStatus, ScaleDownAction, ScaleUpAction, cluster_status
from holdfast.views.decisions import RuleResult, all_decisions, rule_result
from holdfast.views.headlines import alerts, headline
from holdfast.views.jobs_now import JobCount, JobsNow, OpenJobs
from holdfast.views.latest_tick import NodeNotice, NodeStatus, TickFailure, node_statuses
from holdfast.views.rule_groups import reasons_for_no_action, rule_groups
from tests.simulation.harness import Stage
from tests.simulation.hooks import before, raising
from tests.support.console_access import OPEN
from tests.support.console_world import ORIGIN, ConsoleWorld

NOW = Instant.from_iso("2026-01-15T12:00:00Z")
QUIET = ClusterNow(
    name="cluster",
    workers=3,
    runs_ticks=True,
    nodes_are_seen=True,
    nodes=[],
    pods=12,
    pending=0,
    cpu=0.5,
    action=None,
    notices=[],
    paused=None,
    last_scale_at=None,
    pending_since=None,
    idle_since=None,
    up_failures=0,
    up_backoff_until=None,
    lease=LeaseStatus(owner="", until=None, fence=1),
    failure=None,
    newest_failure=None,
    last_tick_at=NOW.iso(),
    last_tick_seconds=10.0,
    rules=[],
    capacity=[],
    undrainable=[],
    min_workers=1,
    max_workers=10,
    pods_per_node=10,
)
COUNTS = OpenJobs(in_progress=JobCount(), scheduled=JobCount(), queued=JobCount(), waiting=JobCount())
NO_JOBS = JobsNow(
    installations=[7],
    problem=None,
    counts=COUNTS,
    runners_usd_per_hour=0.0,
    runners_saved_usd_per_hour=0.0,
    stuck=JobCount(),
    running=[],
    recent=None,
)
NO_INSTALLATION = structs.replace(NO_JOBS, installations=[])
PAUSED = PauseStatus(by="ada", reason="", since=NOW.iso())


def test_a_quiet_cluster_is_one_sentence_and_no_alert() -> None:
    assert headline(QUIET, NO_INSTALLATION) == ["3 workers with 12 pods; no pods pending."]
    assert alerts(QUIET, NO_JOBS, 60) == []


def test_one_job_waits_and_several_jobs_wait() -> None:
    counts = structs.replace(COUNTS, waiting=JobCount(jobs=1))
    said = headline(structs.replace(QUIET, pending=1), structs.replace(NO_JOBS, counts=counts))
    assert said == [
        "3 workers with 12 pods; 1 pod pending.",
        "0 jobs running, 0 queued, 1 held back by GitHub.",
    ]
    assert headline(structs.replace(QUIET, pending=2), NO_JOBS)[0].endswith("; 2 pods pending.")


def test_a_count_that_reached_its_limit_is_shown_as_at_least() -> None:
    many = JobCount(jobs=500, more=True)
    counts = OpenJobs(in_progress=many, scheduled=JobCount(jobs=3), queued=many, waiting=many)
    said = headline(QUIET, structs.replace(NO_JOBS, counts=counts))
    assert said[-1] == "500+ jobs running, 503+ queued, 500+ held back by GitHub."


def test_before_the_first_tick_everything_is_unknown() -> None:
    """It may have any number of workers: "0 workers" would be a guess."""
    unknown = structs.replace(QUIET, workers=None, pods=None, pending=None, last_tick_seconds=None)
    (sentence,) = headline(unknown, NO_INSTALLATION)
    assert sentence == "The state of the cluster is unknown: no tick has been recorded yet."


def node(status: str, notice: NodeNotice | None = None) -> NodeStatus:
    return NodeStatus(
        id="i-1",
        node="worker-1",
        zone="eu-west-1a",
        type="t3.medium",
        market=Market.SPOT,
        machine_state="running",
        launched_at=NOW.iso(),
        age_seconds=60,
        status=status,
        pods=0,
        pod_names=[],
        notice=notice,
        usd_per_hour=None,
        kept_by=[],
    )


def leaving_node(kind: str) -> NodeStatus:
    return node("leaving", NodeNotice(kind=kind, phase="CORDONED"))


def rule(name: str, verdict: str, value: str = "") -> RuleResult:
    return RuleResult(name=name, verdict=Verdict(verdict), value=value, limit="")


def test_each_leaving_machine_is_shown_with_its_own_reason() -> None:
    """EC2 does not reclaim a machine that is replaced because it is NotReady."""
    nodes = [leaving_node(kind) for kind in (*SpotKind, SpotKind.NOT_READY)]
    assert headline(structs.replace(QUIET, nodes=nodes), NO_JOBS)[1] == (
        "EC2 is reclaiming 1 spot machine. Replacing 1 spot machine at risk of interruption. "
        "Replacing 2 NotReady workers."
    )


def test_the_action_under_way_is_shown() -> None:
    up = ScaleUpAction(id="1", phase="VERIFYING", seconds=40, requested=2, machines=[], slots=[])
    down = ScaleDownAction(id="2", phase="DRAINING", seconds=5, targets=["i-1"], committed=[], completed=[])
    assert "Adding 2 workers: verifying for 40 s." in headline(structs.replace(QUIET, action=up), NO_JOBS)
    assert "Removing 1 worker: draining for 5 s." in headline(structs.replace(QUIET, action=down), NO_JOBS)
    leaving = [leaving_node("interruption")]
    said = headline(structs.replace(QUIET, nodes=leaving, paused=PAUSED), NO_JOBS)
    assert said[1] == "EC2 is reclaiming 1 spot machine. Paused: no new action is started."


FAILING: dict[str, Any] = {"failures": 1, "until": NOW.iso(), "is_failing": True}


@pytest.mark.parametrize(
    ("change", "what", "urgent"),
    [
        ({"last_tick_seconds": 400.0}, "no_tick", True),
        ({"last_tick_seconds": None}, "no_tick", True),
        ({"failure": TickFailure(at=NOW.iso(), why="EC2 does not answer")}, "tick_failed", True),
        ({"up_failures": 2}, "up_failed", True),
        ({"nodes": [node("not ready")]}, "not_ready", True),
        ({"paused": PAUSED}, "paused", False),
        ({"rules": [rule("cpu_high", "unknown", "away")]}, "unknown", False),
        (
            {"capacity": [FailingPool(type="t3.medium", zone="a", market="spot", **FAILING)]},
            "no_capacity",
            False,
        ),
        ({"undrainable": [UndrainableNode(id="i-1", **FAILING)]}, "undrainable", False),
        ({"rules": [rule("every_pod_fits", "no", "1 pod")]}, "impossible_pods", False),
    ],
)
def test_each_problem_is_an_alert_with_a_link(change: dict[str, Any], what: str, urgent: bool) -> None:
    (found,) = alerts(structs.replace(QUIET, **change), NO_JOBS, 60)
    assert (found.what, found.is_urgent) == (what, urgent)
    assert found.link.startswith("/")
    assert found.text
    assert found.act


def test_unknown_rules_are_one_alert_per_reason_in_words() -> None:
    away = "Prometheus does not answer"
    rules = [
        rule("cpu_high", "unknown", away),
        rule("nodes_known", "unknown", "no route"),
        rule("cpu_low", "unknown", away),
    ]
    assert [found.text for found in alerts(structs.replace(QUIET, rules=rules), NO_JOBS, 60)] == [
        "It is unknown whether CPU is high or CPU is low: Prometheus does not answer.",
        "It is unknown whether the nodes are known: no route.",
    ]


def test_one_failed_scale_up_is_one_alert() -> None:
    for failures, text in ((1, "The last scale-up failed."), (3, "The last 3 scale-ups failed.")):
        (found,) = alerts(structs.replace(QUIET, up_failures=failures), NO_JOBS, 60)
        assert found.text == text


def test_problems_of_jobs_are_alerts_and_urgent_ones_come_first() -> None:
    stuck = structs.replace(NO_JOBS, stuck=JobCount(jobs=2), problem="no answer")
    found = alerts(structs.replace(QUIET, paused=PAUSED), stuck, 60)
    assert [alert.what for alert in found] == ["stuck_jobs", "jobs_unknown", "paused"]


def test_rules_are_grouped_by_purpose() -> None:
    stage = Stage()
    ticked = stage.tick()
    assert ticked is not None
    up, down = rule_groups([rule_result(rule.shown()) for rule in ticked.plan.rules])[:2]
    assert up.rules[0].name == "cpu_high"
    assert down.rules[0].name == "cpu_low"
    assert up.against == ["CPU is not high", "no pods are pending"]
    assert all(rule.words != rule.name for group in (up, down) for rule in group.rules)
    assert reasons_for_no_action([up, down]) == (
        "not scaling up: CPU is not high, no pods are pending; "
        "not scaling down: the cluster has not been idle long enough, at minimum workers"
    )


@pytest.mark.parametrize(
    ("cpu", "waiting", "long_enough", "against"),
    [
        ("yes", "no", "no", []),
        ("no", "yes", "yes", []),
        ("no", "yes", "no", ["CPU is not high", "pods have not been pending long enough"]),
        ("unknown", "no", "no", ["it is unknown whether CPU is high", "no pods are pending"]),
    ],
)
def test_with_any_one_condition_is_enough_and_the_other_is_not_reported_as_missing(
    cpu: str, waiting: str, long_enough: str, against: list[str]
) -> None:
    """SCALE_UP_RULE=any."""
    rules = [
        rule("cpu_high", cpu),
        rule("pods_waiting", waiting),
        rule("waiting_long_enough", long_enough),
        rule("below_maximum", "yes"),
    ]
    assert rule_groups(rules, one_suffices=True)[0].against == against


def test_a_short_list_leaves_out_routine_steps() -> None:
    steps = (("begin_scale_up", "pods wait"), ("launch_slot", "slot 0"), ("enter_phase", "all launched"))
    moment = Moment(NOW, "tick", 1, 0, 0.5, steps, ("launched i-1",), None)
    assert [event.kind for event in recent_events([moment], 8)] == ["told", "begin_scale_up"]
    assert len(recent_events([moment], None)) == 4


# The time line


def moment(minutes: float, *steps: str, direction: Direction | None = None) -> Moment:
    reasons = tuple((step, "why") for step in steps)
    return Moment(NOW.plus(60 * minutes), "tick", 2, 0, 0.5, reasons, (), None, direction=direction)


def test_actions_have_a_start_and_an_end() -> None:
    found = action_spans(
        [
            moment(0, "begin_scale_up", "launch_slot"),
            moment(1, direction=Direction.UP),
            moment(2, "complete_scale_up", direction=Direction.UP),
            moment(3, "begin_scale_down"),
        ]
    )
    assert [(each.kind, each.result) for each in found] == [("up", "done"), ("down", None)]
    assert (found[0].begin, found[0].end) == (NOW.iso(), NOW.plus(120).iso())


def test_an_action_whose_start_or_end_was_not_logged_is_still_shown() -> None:
    """A tick that was killed, or that lost its lease, writes no steps."""
    found = action_spans(
        [
            moment(0),
            moment(1, direction=Direction.UP),
            moment(2, "complete_scale_up", direction=Direction.UP),
            moment(3),
        ]
    )
    assert [(each.begin, each.end) for each in found] == [(NOW.plus(60).iso(), NOW.plus(120).iso())]
    found = action_spans([moment(0, "begin_scale_down"), moment(1, direction=Direction.DOWN), moment(2), moment(3)])
    assert [(each.kind, each.end, each.result) for each in found] == [("down", NOW.plus(120).iso(), "ended")]
    assert [mark.kind for mark in timeline_marks([moment(0, "cordon_interrupted"), moment(1, "launch_slot")])] == [
        "spot"
    ]


def test_the_log_is_read_once_and_then_only_what_is_new() -> None:
    stage = Stage()
    history = ClusterHistory(stage.store, stage.name)
    read: list[int] = []
    query = stage.store.query

    def counted(*args: Any, **options: Any) -> Any:
        page = query(*args, **options)
        read.append(len(page.items))
        return page

    stage.store.query = counted  # type: ignore[method-assign]
    for _ in range(30):
        stage.tick()
    begin = stage.clock.now().plus(-6 * 3600)
    assert len(history.since(begin, stage.clock.now())) == 30
    assert sum(read) == 30
    read.clear()
    stage.tick()
    now = stage.clock.now()
    assert len(history.since(begin, now)) == 31
    assert sum(read) <= 8  # the last five minutes may have changed
    read.clear()
    assert len(history.since(now.plus(-600), now)) == 11
    assert sum(read) <= 8


def test_a_night_without_readers_is_no_outage() -> None:
    """After a night, the page reads its hours. A longer time line reads the night, too."""
    stage = Stage()
    history = ClusterHistory(stage.store, stage.name)
    stage.tick()
    evening = stage.clock.now()
    assert len(history.since(evening.plus(-6 * 3600), evening)) == 1
    for _ in range(12):
        stage.tick(seconds=3600)
    now = stage.clock.now()
    assert len(history.since(now.plus(-6 * 3600 + 1), now)) == 6
    assert len(history.since(now.plus(-24 * 3600), now)) == 13


def test_an_entry_that_comes_late_is_read_though_the_next_reader_asks_for_less() -> None:
    stage = Stage()
    history = ClusterHistory(stage.store, stage.name)
    begin = stage.clock.now()
    stage.clock.sleep(60)
    assert history.since(begin, stage.clock.now()) == []
    late = stage.clock.now().plus(-40)
    cluster_log(stage.store, stage.name).record_switch("pause", "paused by ada", late)
    stage.clock.sleep(40)
    now = stage.clock.now()
    assert history.since(now.plus(-45), now) == []
    assert [moment.at for moment in history.since(begin, now)] == [late]


def test_ticks_that_failed_are_one_entry_however_often_it_was_read() -> None:
    stage = Stage()
    history = ClusterHistory(stage.store, stage.name)
    begin = stage.clock.now()
    for _ in range(4):
        stage.clock.sleep(20)
        cluster_log(stage.store, stage.name).record_failure(KubeUnavailable("no route"), stage.clock.now())
        found = history.since(begin, stage.clock.now())
    assert [(each.kind, each.at) for each in found] == [("no-tick", stage.clock.now())]


def test_entries_older_than_a_day_are_dropped() -> None:
    stage = Stage()
    history = ClusterHistory(stage.store, stage.name)
    for _ in range(3):
        stage.tick()
    now = stage.clock.now()
    assert len(history.since(now.plus(-3600), now)) == 3
    later = now.plus(25 * 3600)
    assert history.since(later.plus(-24 * 3600), later) == []
    assert not history._known


def test_a_tick_with_many_reports_does_not_fill_a_short_list() -> None:
    wordy = Moment(NOW, "tick", 2, 0, 0.5, (), tuple(f"pod {number} stays" for number in range(9)), None)
    assert [event.text for event in recent_events([wordy], 8)] == ["pod 0 stays", "pod 1 stays", "and 7 more"]
    assert len(recent_events([wordy], None)) == 9


# Nodes


def test_nodes_are_shown_in_every_phase_of_their_life() -> None:
    stage = Stage(workers=3)
    stage.world.k3s.run(Workload("web", 60))
    seen: set[str] = set()
    for minute in range(240):
        if minute == 40:
            spot = [machine for machine in stage.alive if machine.market == "spot"]
            stage.world.ec2.interrupt(spot[0].id)
        if minute == 60:
            stage.world.k3s.run(Workload("web", 6))
        ticked = stage.tick(seconds=20)
        if ticked is not None:
            now = stage.clock.now()
            seen |= {
                node.status for node in node_statuses(ticked.seen, now, shipped_prices(), stage.policy, DrainRules())
            }
    assert {"booting", "joining", "joined", "in service", "draining"} <= seen


def test_a_failure_of_another_process_is_an_alert_until_a_tick_follows() -> None:
    world = ConsoleWorld()
    world.stage.tick()
    world.stage.clock.sleep(60)
    with pytest.raises(StoreUnavailable):
        tick(world.stage.cluster(before("batch_get", raising(StoreUnavailable("no answer")))), "elsewhere")
    data = world.boards.overview({})
    assert [(alert.what, alert.text) for alert in data.alerts] == [("tick_failed", "The last tick failed: no answer.")]
    world.stage.tick()
    data = world.boards.overview({})
    assert data.alerts == []
    assert data.cluster.newest_failure
    assert data.cluster.newest_failure.what == "no answer from the store"


def test_status_knows_of_failed_ticks_until_one_completes() -> None:
    """Failures are stored under the start of their five minutes, which may be before the tick that they follow."""
    stage = ConsoleWorld().stage
    away = before("batch_get", raising(StoreUnavailable("no answer")))

    def status() -> ClusterStatus:
        return cluster_status(stage.store, stage.name, stage.policy, stage.clock.now())

    def fails() -> None:
        stage.clock.sleep(20)
        with pytest.raises(StoreUnavailable):
            tick(stage.cluster(away), "elsewhere")

    fails()
    failed = status().failed_ticks
    assert failed is not None
    assert (failed.stopped, failed.ticks, status().last_tick) == ("no answer", 1, None)
    stage.tick()
    completed = status()
    assert (completed.failed_ticks, completed.last_tick is None) == (None, False)
    fails()
    fails()
    failed = status().failed_ticks
    assert failed is not None
    explained = all_decisions(stage.store, stage.name, stage.clock.now().plus(-3600), stage.clock.now()).items
    assert failed in explained, "status and explain show the same"
    assert status().last_tick == completed.last_tick


def test_another_process_that_acts_is_no_failure() -> None:
    stage = ConsoleWorld().stage
    stage.tick()
    stage.clock.sleep(20)
    cluster_log(stage.store, stage.name).record_failure(LeaseHeld("lease: held by another"), stage.clock.now())
    assert cluster_status(stage.store, stage.name, stage.policy, stage.clock.now()).failed_ticks is None


def test_the_last_ticks_observation_is_shown_after_a_pause() -> None:
    """The pause is the newest entry of the log, without an observation; it does not count as a tick either."""
    world = ConsoleWorld(access=OPEN)
    world.tick()
    before_pause = world.boards.overview({}).cluster
    assert None not in (before_pause.cpu, before_pause.pending)
    world.stage.clock.sleep(3600)
    world.post("/cluster/pause", {"reason": "upgrade"}, ORIGIN)
    data = world.boards.overview({})
    same = ("cpu", "pending", "last_tick_at")
    assert [getattr(data.cluster, name) for name in same] == [getattr(before_pause, name) for name in same]
    assert [alert.what for alert in data.alerts] == ["no_tick", "paused"]


def test_the_last_tick_is_known_even_if_it_is_before_the_timeline() -> None:
    world = ConsoleWorld()
    world.tick()
    world.stage.clock.sleep(2 * 3600)
    assert world.boards.cluster({"hours": "1"}).last_tick_seconds == pytest.approx(2 * 3600, abs=120)


def test_a_pod_that_fits_on_no_machine_and_what_keeps_each_node_are_on_the_page() -> None:
    """A pod's name comes from outside, so the page escapes it."""
    world = ConsoleWorld()
    huge = Workload("huge<b>", 1, template={"requests": Resources(64_000, 0)})
    world.stage.world.k3s.run(huge)
    world.tick()
    found = world.boards.overview({})
    assert found.cluster.pending == 0
    (alert,) = found.alerts
    assert alert.text.startswith("A pod fits on no machine: default/huge<b>-")
    assert alert.text.endswith(": asks 64 CPU; the largest type, t3.medium, has 2.")
    page = world.get("/cluster").text
    assert "huge&lt;b&gt;-" in page
    assert "huge<b>" not in page
    assert [node.kept_by[-1] for node in found.cluster.nodes] == [
        f"it is the last worker in {zone} (ZONES_KEPT=always)" for zone in ZONES
    ]
    assert page.count("(ZONES_KEPT=always)") == 3


def test_a_process_that_does_not_tick_says_so() -> None:
    world = ConsoleWorld(runs_ticks=False)
    world.stage.tick()
    data = world.boards.cluster({})
    assert not data.nodes_are_seen
    assert data.last_tick_at is not None
    assert "This process runs no ticks" in world.get("/cluster").text


def test_a_first_run_that_cannot_reach_ec2_shows_unknown_and_offers_the_checks() -> None:
    world = ConsoleWorld()
    assert "are unknown until the first tick of this process completes" in world.get("/cluster").text
    world.look.failed(KubeUnavailable("EC2 cannot be reached"), world.stage.clock.now())
    data = world.boards.overview({})
    assert data.cluster.workers is None
    assert data.headline[0] == "The state of the cluster is unknown: no tick has completed yet."
    assert [(alert.what, alert.link) for alert in data.alerts] == [("tick_failed", "/system#checks")]
    overview, cluster = world.get("/").text, world.get("/cluster").text
    for page in (overview, cluster):
        assert "no tick of this process has completed. The last one failed: EC2 cannot be reached" in page
        assert "This process runs no ticks" not in page
    assert re.search(r"Workers</a></dt>\s*<dd><a[^>]*>—</a> <small>unknown</small>", overview)
    assert "No recent capacity errors" not in cluster
    assert "No action in progress" not in cluster
    status = cluster_status(world.stage.store, world.stage.name, Policy(), NOW)
    assert next(iter(status_lines(status, None))).endswith(" has an unknown number of workers")


def ticked_by(minute: int, owner: str, direction: Direction | None, *steps: str, begun_by: str | None = None) -> Moment:
    at, reasons = NOW.plus(minute * 60), tuple((kind, "because") for kind in steps)
    return Moment(at, "tick", 3, 0, 0.5, reasons, (), None, f"{at.epoch_ms:013d}#tick#{owner}", direction, begun_by)


def test_the_process_that_resumes_after_a_kill_is_named() -> None:
    killed = [ticked_by(0, "a.example-1-x.7", None), ticked_by(1, "a.example-1-x.8", Direction.UP)]
    after = [ticked_by(2, "a.example-2-y.0", Direction.UP), ticked_by(3, "a.example-2-y.1", Direction.UP)]
    (event,) = recent_events([*killed, *after], None)
    assert event.kind == "taken_over"
    assert event.text == "a.example-2-y resumes the scale-up begun by a.example-1-x"


def carried_on(*moments: Moment) -> list[str]:
    return [event.text for event in recent_events(moments, None) if event.kind == "taken_over"]


def test_the_process_that_resumes_a_just_started_action_is_named() -> None:
    """Killed in the tick that started it: that tick's observation was before."""
    first = [ticked_by(0, "a-1-x.7", None), ticked_by(1, "a-1-x.8", None, "begin_scale_up", "launch_slot")]
    assert carried_on(*first, ticked_by(2, "a-2-y.0", Direction.UP)) == ["a-2-y resumes the scale-up begun by a-1-x"]


def test_the_process_that_resumes_an_unlogged_action_is_named() -> None:
    """Killed within the tick: only the action's name says which process started it."""
    first = [ticked_by(0, "a-1-x.7", None), ticked_by(1, "a-1-x.8", None)]
    after = ticked_by(2, "a-2-y.0", Direction.DOWN, begun_by="a-1-x")
    assert carried_on(*first, after) == ["a-2-y resumes the scale-down begun by a-1-x"]
    assert carried_on(*first, ticked_by(2, "a-2-y.0", Direction.DOWN, begun_by="b-9-z")) == []


def test_a_third_process_knows_which_one_started_the_action() -> None:
    ticks = [ticked_by(minute, f"a-2-y.{minute}", Direction.UP, begun_by="a-1-x") for minute in range(2)]
    takeovers = carried_on(*ticks, ticked_by(2, "a-3-z.0", Direction.UP, begun_by="a-1-x"))
    assert takeovers == ["a-3-z resumes the scale-up begun by a-1-x"]


def test_a_completed_action_is_not_resumed() -> None:
    ended = [ticked_by(0, "a-1-x.7", Direction.UP), ticked_by(1, "a-1-x.8", Direction.UP, "complete_scale_up")]
    assert carried_on(*ended, ticked_by(2, "a-2-y.0", Direction.UP, begun_by="b-9-z")) == []


@pytest.mark.parametrize("owners", [["a-1-x", "a-2-y", "a-3-z"], ["a-1-x.1", "a-1-x.2", "a-1-x.3"]])
def test_one_process_per_tick_or_one_for_all_is_not_a_takeover(owners: list[str]) -> None:
    assert recent_events([ticked_by(minute, owner, Direction.UP) for minute, owner in enumerate(owners)], None) == []


def test_the_log_names_the_process_that_started_the_action() -> None:
    seen = {"action": "1794926722-11-vm-10905-f16aa966.8", "phase": "VERIFYING"}
    entry = Entry(NOW, "0#tick#vm-2-y.1", "tick", seen, [], [], None)
    assert (moment_of(entry).direction, moment_of(entry).begun_by) == ("up", "vm-10905-f16aa966")
    older = replace(entry, seen={**seen, "action": "scale-up-17"})
    assert moment_of(older).begun_by is None


def test_a_start_without_an_action_under_way_is_not_a_takeover() -> None:
    moments = [ticked_by(minute, owner, None) for minute, owner in enumerate(["a-1-x.1", "a-1-x.2", "a-2-y.0"])]
    assert recent_events(moments, None) == []


def test_a_short_list_shows_repeated_attempts_once() -> None:
    def moment(minute: int) -> Moment:
        steps, reports = (("evict_pods", "i-1: 2 pods still on it"), ("repair", "odd")), ("pod a stays on i-1",)
        return Moment(NOW.plus(minute * 60), "tick", 3, 0, 0.5, steps, reports, None)

    shown = recent_events([moment(minute) for minute in range(4)], 8)
    assert [event.kind for event in shown] == ["told", "repair", "evict_pods", "repair", "repair", "repair"]
    assert shown[0].at == NOW.plus(180).iso()
    assert len(recent_events([moment(minute) for minute in range(4)], None)) == 12
