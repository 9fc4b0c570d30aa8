"""A spot notice is shown from its start to its end: the machine, its phase, its deadline, and its replacement."""

import pytest
from msgspec import structs

from holdfast.cli.status import significant_state, status_lines
from holdfast.cluster.policy import Policy, Rebalance
from holdfast.cluster.spot.notice import Replacement, SpotKind, SpotNotice, SpotPhase, store_notice
from holdfast.cluster.spot.notice_views import deadline_of
from holdfast.kernel.ids import InstanceId
from holdfast.kernel.instants import Instant
from holdfast.simulator.world.k3s import Workload
from holdfast.views.cluster_status import ClusterStatus, ReplacementStatus, cluster_status
from tests.payloads import CREATED
from tests.simulation.harness import Stage, StageMaker
from tests.support.answer_schemas import check
from tests.support.console_world import ConsoleWorld

AT = Instant.from_iso("2026-01-15T10:00:00Z")


def overview_of(stage: Stage) -> ClusterStatus:
    overview = cluster_status(stage.store, stage.name, stage.policy, stage.clock.now())
    check("cluster", overview)
    return overview


def interrupted(stage: Stage) -> InstanceId:
    victim = stage.alive[0].id
    stage.world.ec2.interrupt(victim)
    store_notice(stage.store, stage.name, victim, SpotKind.INTERRUPTION, stage.clock.now())
    return victim


def test_a_notice_is_shown_from_its_start_to_its_end(stage_of: StageMaker) -> None:
    stage = stage_of(workers=3)
    stage.world.k3s.run(Workload("web", 24))
    stage.tick()
    assert overview_of(stage).notices == []
    victim, noticed = interrupted(stage), stage.clock.now()
    until = Instant.from_epoch_seconds(noticed.epoch_seconds).plus(110).iso()
    (notice,) = overview_of(stage).notices
    assert (notice.instance, notice.kind, notice.phase) == (victim, "interruption", "NOTICED")
    nothing_yet = ReplacementStatus(state=Replacement.OPEN, slot=None, deadline=None)
    assert (notice.deadline, notice.replacement) == (until, nothing_yet)
    stage.tick(seconds=1)
    (notice,) = overview_of(stage).notices
    replacement = notice.replacement
    assert (notice.phase, notice.deadline, replacement.state) == ("CORDONED", until, "LAUNCHED")
    assert replacement.slot is not None
    assert replacement.slot.instance == stage.alive[-1].id
    assert replacement.slot.zone == stage.alive[-1].zone
    assert (replacement.deadline or "") > until
    stage.tick_until(lambda: not stage.open_notices)
    assert overview_of(stage).notices == []


def notice(kind: SpotKind, phase: SpotPhase, replacement: Replacement = Replacement.OPEN) -> SpotNotice:
    return SpotNotice(InstanceId("i-1"), kind, phase, AT, replacement, cordoned=AT.plus(60))


PREFER, REPLACE = Policy(), Policy(rebalance=Rebalance.REPLACE)


@pytest.mark.parametrize(
    ("one", "policy", "seconds"),
    [
        (notice(SpotKind.INTERRUPTION, SpotPhase.NOTICED), PREFER, 110),
        (notice(SpotKind.INTERRUPTION, SpotPhase.CORDONED), PREFER, 110),
        (notice(SpotKind.INTERRUPTION, SpotPhase.EXPIRED), PREFER, 900),
        (notice(SpotKind.INTERRUPTION, SpotPhase.DRAINED), PREFER, None),
        (notice(SpotKind.INTERRUPTION, SpotPhase.OPENING), PREFER, None),
        (notice(SpotKind.REBALANCE, SpotPhase.NOTICED), PREFER, 3600),
        (notice(SpotKind.REBALANCE, SpotPhase.NOTICED), REPLACE, None),
        (notice(SpotKind.REBALANCE, SpotPhase.NOTICED, Replacement.LAUNCHED), PREFER, None),
        (notice(SpotKind.REBALANCE, SpotPhase.CORDONED), REPLACE, 960),
        (notice(SpotKind.NOT_READY, SpotPhase.NOTICED), PREFER, None),
        (notice(SpotKind.NOT_READY, SpotPhase.CORDONED), PREFER, 960),
    ],
)
def test_the_deadline_is_the_time_at_which_the_phase_times_out(
    one: SpotNotice, policy: Policy, seconds: int | None
) -> None:
    assert deadline_of(one, policy) == (None if seconds is None else AT.plus(seconds))


def test_status_has_a_line_for_each_machine_that_leaves() -> None:
    stage = Stage(workers=3)
    stage.tick()
    victim = interrupted(stage)
    before = overview_of(stage)
    stage.tick(seconds=1)
    after = overview_of(stage)
    lines = list(status_lines(after, None))
    header = next(number for number, line in enumerate(lines) if line.split()[:2] == ["INSTANCE", "NOTICE"])
    (shown,) = after.notices
    slot = shown.replacement.slot
    assert slot is not None
    words = lines[header + 1].split()
    assert words[:3] == [victim, "interruption", "CORDONED"]
    assert words[3:5] == [f"{time[:19]}Z" for time in (shown.since, shown.deadline or "")]
    assert " ".join(words[5:]) == f"LAUNCHED {slot.instance} {slot.type} {slot.market} in {slot.zone}"
    assert not any(line.split()[:1] == ["INSTANCE"] for line in status_lines(structs.replace(after, notices=[]), None))
    assert significant_state(structs.replace(before, notices=after.notices)) != significant_state(before), (
        "a pipe shows it"
    )


def test_the_cluster_page_shows_the_machines_that_leave() -> None:
    world = ConsoleWorld(Stage(workers=3, start=CREATED))
    world.tick()
    assert (
        '<section id="notices" data-live class="card" aria-labelledby="notices-title" hidden>'
        in world.get("/cluster").text
    )
    victim = interrupted(world.stage)
    world.tick(seconds=1)
    page = world.get("/cluster").text
    section = page[page.index('<section id="notices"') :].partition("</section>")[0]
    (shown,) = world.get("/api/cluster/now").json["notices"]
    assert " hidden" not in section
    for words in (victim, "interruption", "cordoned", "launched", shown["replacement"]["slot"]["instance"]):
        assert words in section
