"""What the overview says and warns of follows from what is stored and seen."""

from dataclasses import replace
from typing import Any

import pytest

from holdfast.cluster.log import Entry, log_failure
from holdfast.cluster.spot import SpotKind
from holdfast.cluster.tick import tick
from holdfast.entrypoints.happening import alerts, headline, rule_groups, why_nothing
from holdfast.entrypoints.history import ClusterHistory, Moment, latest, marks, moment_of, spans
from holdfast.entrypoints.last_look import nodes_shown
from holdfast.jobs.cost import shipped_prices
from holdfast.kernel.errors import StoreUnavailable
from holdfast.kernel.instants import Instant
from holdfast.ports.kube import KubeUnavailable
from holdfast.simulator.k3s import Workload
from tests.simulation.harness import Stage
from tests.simulation.hooks import before, raising
from tests.unit.console_world import ORIGIN, ConsoleWorld

NOW = Instant.from_iso("2026-01-15T12:00:00Z")
QUIET: dict[str, Any] = {
    "workers": 3,
    "pods": 12,
    "pending": 0,
    "nodes": [],
    "action": None,
    "paused": None,
    "failure": None,
    "last_tick_seconds": 10.0,
    "rules": [],
    "capacity": [],
    "undrainable": [],
    "up_failures": 0,
}
COUNTS = {name: {"jobs": 0, "more": False} for name in ("in_progress", "scheduled", "queued", "waiting")}
NO_JOBS: dict[str, Any] = {"installations": [7], "problem": None, "counts": COUNTS, "stuck": {"jobs": 0, "more": False}}


def test_a_quiet_cluster_is_one_sentence_and_no_alert() -> None:
    assert headline(QUIET, {**NO_JOBS, "installations": []}) == ["3 workers with 12 pods; nothing waits."]
    assert alerts(QUIET, NO_JOBS, 60) == []


def test_one_waits_and_several_wait() -> None:
    counts = {**COUNTS, "waiting": {"jobs": 1, "more": False}}
    said = headline({**QUIET, "pending": 1}, {**NO_JOBS, "counts": counts})
    assert said == [
        "3 workers with 12 pods; 1 pod waits for a place.",
        "0 jobs running, 0 queued, 1 waits for approval.",
    ]
    assert headline({**QUIET, "pending": 2}, NO_JOBS)[0].endswith("; 2 pods wait for a place.")


def test_what_was_counted_up_to_a_bound_is_not_said_to_be_all() -> None:
    counts = {name: {"jobs": 500, "more": True} for name in COUNTS}
    said = headline(QUIET, {**NO_JOBS, "counts": {**counts, "scheduled": {"jobs": 3, "more": False}}})
    assert said[-1] == "500+ jobs running, 503+ queued, 500+ wait for approval."


def test_where_no_tick_has_looked_nothing_is_said_to_be_known() -> None:
    """It may have any number of workers: "0 workers" would be a guess."""
    unknown = {**QUIET, "workers": 0, "pods": None, "pending": None, "last_tick_seconds": None}
    (sentence,) = headline(unknown, {**NO_JOBS, "installations": []})
    assert sentence == "Nothing is known of the cluster yet: no tick has looked at it."


def leaving_node(kind: str) -> dict[str, Any]:
    return {"id": "i-1", "status": "leaving", "notice": {"kind": kind, "phase": "CORDONED"}}


def test_each_machine_that_leaves_leaves_for_its_own_reason() -> None:
    """EC2 does not take what is replaced for being NotReady."""
    nodes = [leaving_node(kind) for kind in (*SpotKind, SpotKind.NOT_READY)]
    assert headline({**QUIET, "nodes": nodes}, NO_JOBS)[1] == (
        "EC2 takes 1 spot machine back. Replacing 1 spot machine at risk of being taken. "
        "Replacing 2 workers for being NotReady."
    )


def test_what_is_under_way_is_said() -> None:
    up = {"kind": "scale-up", "phase": "VERIFYING", "seconds": 40, "requested": 2}
    down = {"kind": "scale-down", "phase": "DRAINING", "seconds": 5, "targets": ["i-1"]}
    paused = {"by": "ada", "reason": "", "since": NOW.iso()}
    assert "Adding 2 workers: verifying for 40 s." in headline({**QUIET, "action": up}, NO_JOBS)
    assert "Taking 1 worker away: draining for 5 s." in headline({**QUIET, "action": down}, NO_JOBS)
    leaving = [leaving_node("interruption")]
    said = headline({**QUIET, "nodes": leaving, "paused": paused}, NO_JOBS)
    assert said[1] == "EC2 takes 1 spot machine back. Paused: nothing new is begun."


@pytest.mark.parametrize(
    ("change", "what", "urgent"),
    [
        ({"last_tick_seconds": 400.0}, "no_tick", True),
        ({"last_tick_seconds": None}, "no_tick", True),
        ({"failure": {"at": NOW.iso(), "why": "EC2 does not answer"}}, "tick_failed", True),
        ({"up_failures": 2}, "up_failed", True),
        ({"nodes": [{"id": "i-1", "status": "not ready"}]}, "not_ready", True),
        ({"paused": {"by": "ada", "reason": "x", "since": NOW.iso()}}, "paused", False),
        ({"rules": [{"name": "cpu_high", "verdict": "unknown", "value": "away", "limit": ""}]}, "unknown", False),
        (
            {"capacity": [{"type": "t3.medium", "zone": "a", "market": "spot", "is_failing": True}]},
            "no_capacity",
            False,
        ),
        ({"undrainable": [{"id": "i-1", "is_failing": True}]}, "undrainable", False),
    ],
)
def test_each_trouble_is_an_alert_that_leads_somewhere(change: dict[str, Any], what: str, urgent: bool) -> None:
    (found,) = alerts({**QUIET, **change}, NO_JOBS, 60)
    assert (found["what"], found["is_urgent"]) == (what, urgent)
    assert found["link"].startswith("/")
    assert found["text"]
    assert found["act"]


def test_what_cannot_be_judged_is_one_alert_for_each_reason_in_words() -> None:
    def rule(name: str, value: str) -> dict[str, str]:
        return {"name": name, "verdict": "unknown", "value": value, "limit": ""}

    away = "Prometheus does not answer"
    rules = [rule("cpu_high", away), rule("nodes_known", "no route"), rule("cpu_low", away)]
    assert [found["text"] for found in alerts({**QUIET, "rules": rules}, NO_JOBS, 60)] == [
        "It is not known whether CPU is high or CPU is low: Prometheus does not answer.",
        "It is not known whether the nodes can be seen: no route.",
    ]


def test_one_scale_up_that_failed_is_not_several() -> None:
    for failures, text in ((1, "The last scale-up failed."), (3, "The last 3 scale-ups failed.")):
        (found,) = alerts({**QUIET, "up_failures": failures}, NO_JOBS, 60)
        assert found["text"] == text


def test_troubles_of_jobs_are_alerts_and_the_urgent_come_first() -> None:
    stuck = {**NO_JOBS, "stuck": {"jobs": 2, "more": False}, "problem": "no answer"}
    paused = {"by": "ada", "reason": "", "since": NOW.iso()}
    found = alerts({**QUIET, "paused": paused}, stuck, 60)
    assert [alert["what"] for alert in found] == ["stuck_jobs", "jobs_unknown", "paused"]


def test_rules_are_grouped_by_what_they_are_for() -> None:
    stage = Stage()
    ticked = stage.tick()
    assert ticked is not None
    up, down = rule_groups([rule.shown() for rule in ticked.plan.rules])[:2]
    assert up["rules"][0]["name"] == "cpu_high"
    assert down["rules"][0]["name"] == "cpu_low"
    assert up["against"] == ["CPU is not high", "no pod waits"]
    assert all(rule["words"] != rule["name"] for group in (up, down) for rule in group["rules"])
    assert why_nothing([up, down]) == (
        "not up: CPU is not high, no pod waits; "
        "not down: it has not idled long enough, there are as few workers as may be"
    )


@pytest.mark.parametrize(
    ("cpu", "waiting", "long_enough", "against"),
    [
        ("yes", "no", "no", []),
        ("no", "yes", "yes", []),
        ("no", "yes", "no", ["CPU is not high", "they have not waited long enough"]),
        ("unknown", "no", "no", ["it is not known whether CPU is high", "no pod waits"]),
    ],
)
def test_where_one_reason_is_enough_the_other_is_not_missed(
    cpu: str, waiting: str, long_enough: str, against: list[str]
) -> None:
    """SCALE_UP_RULE=any."""
    verdicts = {"cpu_high": cpu, "pods_waiting": waiting, "waiting_long_enough": long_enough, "below_maximum": "yes"}
    rules = [{"name": name, "verdict": verdict, "value": "", "limit": ""} for name, verdict in verdicts.items()]
    assert rule_groups(rules, one_suffices=True)[0]["against"] == against


def test_a_short_list_leaves_out_what_goes_on_behind_it() -> None:
    steps = (("begin_scale_up", "pods wait"), ("launch_slot", "slot 0"), ("enter_phase", "all launched"))
    moment = Moment(NOW, "tick", 1, 0, 0.5, steps, ("launched i-1",), None)
    assert [event["kind"] for event in latest([moment], 8)] == ["told", "begin_scale_up"]
    assert len(latest([moment], None)) == 4


# The time line


def moment(minutes: float, *steps: str, direction: str | None = None) -> Moment:
    told = tuple((step, "why") for step in steps)
    return Moment(NOW.plus(60 * minutes), "tick", 2, 0, 0.5, told, (), None, direction=direction)


def test_actions_have_a_begin_and_an_end() -> None:
    found = spans(
        [
            moment(0, "begin_scale_up", "launch_slot"),
            moment(1, direction="up"),
            moment(2, "complete_scale_up", direction="up"),
            moment(3, "begin_scale_down"),
        ]
    )
    assert [(each["kind"], each["result"]) for each in found] == [("up", "done"), ("down", None)]
    assert (found[0]["begin"], found[0]["end"]) == (NOW.iso(), NOW.plus(120).iso())


def test_an_action_whose_begin_or_end_was_not_logged_is_seen_all_the_same() -> None:
    """A tick that was killed, or that lost its lease, writes no steps."""
    found = spans([moment(0), moment(1, direction="up"), moment(2, "complete_scale_up", direction="up"), moment(3)])
    assert [(each["begin"], each["end"]) for each in found] == [(NOW.plus(60).iso(), NOW.plus(120).iso())]
    found = spans([moment(0, "begin_scale_down"), moment(1, direction="down"), moment(2), moment(3)])
    assert [(each["kind"], each["end"], each["result"]) for each in found] == [("down", NOW.plus(120).iso(), "ended")]
    assert [mark["kind"] for mark in marks([moment(0, "cordon_interrupted"), moment(1, "launch_slot")])] == ["spot"]


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


def test_ticks_that_failed_are_one_entry_however_often_it_was_read() -> None:
    stage = Stage()
    history = ClusterHistory(stage.store, stage.name)
    begin = stage.clock.now()
    for _ in range(4):
        stage.clock.sleep(20)
        log_failure(stage.store, stage.name, KubeUnavailable("no route"), stage.clock.now())
        found = history.since(begin, stage.clock.now())
    assert [(each.kind, each.at) for each in found] == [("no-tick", stage.clock.now())]


def test_what_is_older_than_a_day_is_forgotten() -> None:
    stage = Stage()
    history = ClusterHistory(stage.store, stage.name)
    for _ in range(3):
        stage.tick()
    now = stage.clock.now()
    assert len(history.since(now.plus(-3600), now)) == 3
    later = now.plus(25 * 3600)
    assert history.since(later.plus(-24 * 3600), later) == []
    assert not history._known


def test_a_tick_with_many_words_does_not_fill_a_short_list() -> None:
    wordy = Moment(NOW, "tick", 2, 0, 0.5, (), tuple(f"pod {number} stays" for number in range(9)), None)
    assert [event["text"] for event in latest([wordy], 8)] == ["pod 0 stays", "pod 1 stays", "and 7 more like that"]
    assert len(latest([wordy], None)) == 9


# Nodes


def test_nodes_are_shown_in_every_part_of_their_life() -> None:
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
            seen |= {node["status"] for node in nodes_shown(ticked.seen, now, shipped_prices())}
    assert {"booting", "joining", "joined", "in service", "draining"} <= seen


def test_a_failure_of_another_process_is_an_alert_until_a_tick_follows() -> None:
    world = ConsoleWorld()
    world.stage.tick()
    world.stage.clock.sleep(60)
    with pytest.raises(StoreUnavailable):
        tick(world.stage.cluster(before("batch_get", raising(StoreUnavailable("no answer")))), "elsewhere")
    data = world.boards.overview({})
    assert [(alert["what"], alert["text"]) for alert in data["alerts"]] == [
        ("tick_failed", "The last tick came to nothing: no answer")
    ]
    world.stage.tick()
    data = world.boards.overview({})
    assert data["alerts"] == []
    assert data["cluster"]["newest_failure"]["what"] == "StoreUnavailable"


def test_what_the_last_tick_saw_stands_though_somebody_paused_since() -> None:
    """The pause is the newest entry of the log, and has seen nothing; it is no sign of a tick, either."""
    world = ConsoleWorld()
    world.tick()
    before_pause = world.boards.overview({})["cluster"]
    assert None not in (before_pause["cpu"], before_pause["pending"])
    world.stage.clock.sleep(3600)
    world.post("/cluster/pause", {"reason": "upgrade"}, ORIGIN)
    data = world.boards.overview({})
    same = ("cpu", "pending", "last_tick_at")
    assert [data["cluster"][name] for name in same] == [before_pause[name] for name in same]
    assert [alert["what"] for alert in data["alerts"]] == ["no_tick", "paused"]


def test_the_last_tick_is_known_though_the_time_line_is_shorter() -> None:
    world = ConsoleWorld()
    world.tick()
    world.stage.clock.sleep(2 * 3600)
    assert world.boards.cluster({"hours": "1"})["last_tick_seconds"] == pytest.approx(2 * 3600, abs=120)


def test_a_process_that_does_not_tick_says_so() -> None:
    world = ConsoleWorld()
    world.stage.tick()
    data = world.boards.cluster({})
    assert not data["nodes_are_seen"]
    assert data["last_tick_at"] is not None
    assert "This process does not tick" in world.get("/cluster").text


def ticked_by(minute: int, owner: str, direction: str | None, *steps: str, begun_by: str | None = None) -> Moment:
    at, told = NOW.plus(minute * 60), tuple((kind, "because") for kind in steps)
    return Moment(at, "tick", 3, 0, 0.5, told, (), None, f"{at.epoch_ms:013d}#tick#{owner}", direction, begun_by)


def test_who_carries_on_after_a_kill_is_told() -> None:
    killed = [ticked_by(0, "a.example-1-x.7", None), ticked_by(1, "a.example-1-x.8", "up")]
    after = [ticked_by(2, "a.example-2-y.0", "up"), ticked_by(3, "a.example-2-y.1", "up")]
    (told,) = latest([*killed, *after], None)
    assert told["kind"] == "taken_over"
    assert told["text"] == "a.example-2-y carries on with scale-up, begun by a.example-1-x"


def carried_on(*moments: Moment) -> list[str]:
    return [event["text"] for event in latest(moments, None) if event["kind"] == "taken_over"]


def test_who_carries_on_with_what_was_just_begun_is_told() -> None:
    """Killed by the tick that began it: what that one saw was before."""
    first = [ticked_by(0, "a-1-x.7", None), ticked_by(1, "a-1-x.8", None, "begin_scale_up", "launch_slot")]
    assert carried_on(*first, ticked_by(2, "a-2-y.0", "up")) == ["a-2-y carries on with scale-up, begun by a-1-x"]


def test_who_carries_on_with_what_nobody_logged_is_told() -> None:
    """Killed within the tick: only the action's name tells who began it."""
    first = [ticked_by(0, "a-1-x.7", None), ticked_by(1, "a-1-x.8", None)]
    after = ticked_by(2, "a-2-y.0", "down", begun_by="a-1-x")
    assert carried_on(*first, after) == ["a-2-y carries on with scale-down, begun by a-1-x"]
    assert carried_on(*first, ticked_by(2, "a-2-y.0", "down", begun_by="b-9-z")) == []


def test_the_third_who_carries_on_knows_who_began() -> None:
    ticks = [ticked_by(minute, f"a-2-y.{minute}", "up", begun_by="a-1-x") for minute in range(2)]
    told = carried_on(*ticks, ticked_by(2, "a-3-z.0", "up", begun_by="a-1-x"))
    assert told == ["a-3-z carries on with scale-up, begun by a-1-x"]


def test_what_had_ended_is_not_carried_on() -> None:
    ended = [ticked_by(0, "a-1-x.7", "up"), ticked_by(1, "a-1-x.8", "up", "complete_scale_up")]
    assert carried_on(*ended, ticked_by(2, "a-2-y.0", "up", begun_by="b-9-z")) == []


@pytest.mark.parametrize("owners", [["a-1-x", "a-2-y", "a-3-z"], ["a-1-x.1", "a-1-x.2", "a-1-x.3"]])
def test_a_process_for_each_tick_or_one_for_all_is_nothing_to_tell(owners: list[str]) -> None:
    assert latest([ticked_by(minute, owner, "up") for minute, owner in enumerate(owners)], None) == []


def test_the_log_knows_who_began_what_was_under_way() -> None:
    seen = {"action": "1794926722-11-vm-10905-f16aa966.8", "phase": "VERIFYING"}
    entry = Entry(NOW, "0#tick#vm-2-y.1", "tick", seen, [], [], None)
    assert (moment_of(entry).direction, moment_of(entry).begun_by) == ("up", "vm-10905-f16aa966")
    older = replace(entry, seen={**seen, "action": "scale-up-17"})
    assert moment_of(older).begun_by is None


def test_a_start_with_nothing_under_way_is_nothing_to_tell() -> None:
    moments = [ticked_by(minute, owner, None) for minute, owner in enumerate(["a-1-x.1", "a-1-x.2", "a-2-y.0"])]
    assert latest(moments, None) == []


def test_a_short_list_has_what_is_tried_again_and_again_once() -> None:
    def moment(minute: int) -> Moment:
        steps, told = (("evict_pods", "i-1: 2 pods still on it"), ("repair", "odd")), ("pod a stays on i-1",)
        return Moment(NOW.plus(minute * 60), "tick", 3, 0, 0.5, steps, told, None)

    shown = latest([moment(minute) for minute in range(4)], 8)
    assert [event["kind"] for event in shown] == ["told", "repair", "evict_pods", "repair", "repair", "repair"]
    assert shown[0]["at"] == NOW.plus(180).iso()
    assert len(latest([moment(minute) for minute in range(4)], None)) == 12
