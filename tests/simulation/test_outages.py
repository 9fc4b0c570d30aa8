"""Faults of the simulated world: each happens in a run, and does what its name says."""

import time
from dataclasses import replace
from pathlib import Path

import pytest

from holdfast.cluster.policy import Policy, ScaleUpRule
from holdfast.cluster.seen import INSTANCE_LABEL
from holdfast.cluster.spot.notice import SpotKind, store_notice
from holdfast.entrypoints.simulation.program import HoldfastProgram
from holdfast.kernel.instants import Instant
from holdfast.ports.machines import LaunchOrder, MachineError, MachineState, Market
from holdfast.simulator.proof.ec2_outages import STRANGERS_TAGS
from holdfast.simulator.proof.faults import HOOK_RATES, IN_WORLD, LATER_RATES, DrawnFaults, FaultKind
from holdfast.simulator.proof.run import Outcome, Run
from holdfast.simulator.proof.scenarios import SCENARIOS
from holdfast.simulator.proof.swarm import ODD_STARTS, Faultiness, Outage, Setup, drawn_setup
from holdfast.simulator.world import tag_names
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.world import DAWN
from tests.simulation.harness import Stage


def scenario(name: str, *outages: Outage) -> Setup:
    return replace(SCENARIOS[name](), outages=outages)


def story(outcome: Outcome) -> str:
    return "\n".join(outcome.story.lines())


def test_ticks_end_well_while_the_api_server_is_away() -> None:
    """Prometheus stands by itself: no tick ends with an error of the API server that a reading raised."""
    outcome = Run(HoldfastProgram(), scenario("scale-up", Outage(30, FaultKind.API_AWAY, 0.0, 900))).outcome()
    assert "the API server is away for 900 s" in story(outcome)
    assert "KubeUnavailable" not in story(outcome)
    assert outcome.invariants == []


def a_full_cluster_with_pending_pods() -> Stage:
    stage = Stage(workers=5, policy=Policy(max_workers=5, scale_up_rule=ScaleUpRule.ANY))
    stage.world.k3s.run(Workload("web", 70))
    for _ in range(6):
        stage.tick()
    return stage


def test_a_short_list_of_ec2_does_not_pass_the_maximum_while_kubernetes_is_unknown() -> None:
    stage = a_full_cluster_with_pending_pods()
    omitted = [machine.id for machine in stage.world.ec2.all_machines()[:3]]
    for machine in omitted:
        stage.world.ec2.omit(machine)
    stage.tick()  # nodes still show the machines that the list omits
    stage.world.k3s.is_away = True
    for _ in range(8):
        stage.tick()
    assert len(stage.world.ec2.launches) == 5
    stage.world.k3s.is_away = False
    for machine in omitted:
        stage.world.ec2.list_again(machine)
    stage.tick()
    assert (len(stage.world.ec2.launches), stage.state.timers.workers) == (5, 5)


def test_a_replacement_is_not_given_up_because_a_list_may_be_short() -> None:
    """While Kubernetes is unknown it waits: at the maximum, giving up would be final."""
    stage = a_full_cluster_with_pending_pods()
    first, second, third, *_ = stage.world.ec2.all_machines()
    stage.world.k3s.is_away = True
    stage.world.ec2.omit(third.id)
    for machine in (first, second):
        store_notice(stage.store, stage.name, machine.id, SpotKind.INTERRUPTION, stage.clock.now())
    for _ in range(4):
        stage.tick()
    stage.world.ec2.list_again(third.id)
    stage.world.k3s.is_away = False
    for _ in range(4):
        stage.tick()
    assert len(stage.world.ec2.launches) == 7


def test_ec2s_lists_omit_a_machine_for_a_while_and_calls_that_name_it_find_it() -> None:
    stage = Stage(workers=2)
    ec2, (first, second) = stage.world.ec2, stage.world.ec2.all_machines()
    stage.clock.sleep(60)
    ec2.omit(first.id)
    assert [machine.id for machine in ec2.tagged({})] == [second.id]
    assert ec2.found([first.id]) == []
    ec2.list_again(first.id)
    assert [machine.id for machine in ec2.tagged({})] == [first.id, second.id]
    ec2.omit(first.id)
    ec2.terminate(first.id)
    assert ec2.all_machines()[0].is_gone


def test_ec2s_lists_have_machines_in_an_earlier_state() -> None:
    stage = Stage(workers=1)
    ec2, (machine,) = stage.world.ec2, stage.world.ec2.all_machines()
    stage.clock.sleep(60)
    ec2.lag_seconds = 40
    ec2.terminate(machine.id)
    stage.clock.sleep(5)
    assert ec2.tagged({})[0].state is MachineState.RUNNING
    assert ec2.all_machines()[0].state is MachineState.SHUTTING_DOWN
    stage.clock.sleep(90)
    assert ec2.tagged({})[0].state is MachineState.TERMINATED


def test_the_node_of_a_running_machine_stays_while_ec2s_list_omits_the_machine() -> None:
    """Its kubelet has not reported for ten minutes, and the list is short: neither shows that the machine is gone."""
    stage = a_full_cluster_with_pending_pods()
    machine = stage.alive[0].id
    stage.world.k3s.set_ready(machine, is_ready=False)
    for _ in range(10):
        stage.tick()
    stage.world.ec2.omit(machine)
    for _ in range(4):
        stage.tick()
    assert stage.world.k3s.node(machine) is not None
    assert len(stage.world.ec2.launches) == 5, "it still counts towards the maximum"


def test_the_node_of_a_machine_that_ec2_has_forgotten_is_removed() -> None:
    stage = a_full_cluster_with_pending_pods()
    machine = stage.alive[0].id
    stage.world.ec2.break_down(machine)
    stage.clock.sleep(2 * 3600)
    stage.tick()
    assert stage.world.k3s.node(machine) is None


def test_a_machine_of_another_cluster_has_other_tags_and_no_node_here() -> None:
    stage = Stage(workers=1)
    stranger = stage.world.add_stranger("eu-west-1a", STRANGERS_TAGS)
    stage.clock.sleep(600)
    assert stranger.id not in {machine.id for machine in stage.world.ec2.tagged({"Cluster": "k3s"})}
    assert stage.world.ec2.found([stranger.id])[0].market is Market.SPOT
    assert stage.world.k3s.node(stranger.id) is None


def test_the_interruption_of_a_strangers_machine_buys_no_replacement() -> None:
    """Nor does a hint; and the checker of that sees it if it did."""
    setup = scenario("spot", Outage(60, FaultKind.STRANGERS, 0.1), Outage(400, FaultKind.STRANGERS, 0.6))
    run = Run(HoldfastProgram(), setup)
    outcome = run.outcome()
    assert outcome.invariants == []
    assert len(run.recorder.facts.strangers) == 4
    assert not any(tag_names.SPOT_ACTION in order.tags.get(tag_names.ACTION, "") for order, _ in run.world.ec2.launches)


def test_a_node_that_flaps_is_not_ready_for_a_while_and_keeps_its_pods() -> None:
    stage = a_full_cluster_with_pending_pods()
    k3s, name = stage.world.k3s, stage.alive[0].id
    before = {pod.uid for pod in k3s.pods_on(name)}
    k3s.set_ready(name, is_ready=False)
    stage.clock.sleep(30)
    node = k3s.node(name)
    assert node is not None
    assert (node.is_ready, node.ready_changed, {pod.uid for pod in k3s.pods_on(name)}) == (
        False,
        stage.clock.now().plus(-30),
        before,
    )
    k3s.set_ready(name, is_ready=True)
    assert (node := k3s.node(name)) is not None
    assert node.is_ready


def test_a_persons_cordon_has_no_annotation_and_no_pod_is_scheduled_there() -> None:
    stage = Stage(workers=1)
    name = stage.alive[0].id
    stage.world.k3s.cordon(name, is_closed=True)
    stage.world.k3s.run(Workload("web", 3))
    assert (node := stage.world.k3s.node(name)) is not None
    assert (node.is_unschedulable, node.annotations, stage.world.k3s.pods_on(name)) == (True, {}, [])
    stage.world.k3s.cordon(name, is_closed=False)
    assert len(stage.world.k3s.pods_on(name)) == 3


def test_a_twin_has_the_address_of_a_worker_and_takes_no_pods() -> None:
    run = Run(HoldfastProgram(), scenario("scale-up", Outage(5, FaultKind.NODE_TWIN, 0.1, 100)))
    run.run_until(6)
    twins = [node for node in run.world.k3s.nodes() if node.name.endswith("-twin")]
    assert len(twins) == 1
    worker = run.world.k3s.node(twins[0].name.removesuffix("-twin"))
    assert worker is not None
    assert (worker.internal_ip, run.world.k3s.pods_on(twins[0].name)) == (twins[0].internal_ip, [])
    run.run_until(106)
    assert run.world.k3s.node(twins[0].name) is None
    run.ended()


@pytest.mark.parametrize(
    ("kind", "error"),
    [(FaultKind.STORE_AWAY, "StoreUnavailable"), (FaultKind.EC2_AWAY, "NoLook: EC2 did not list machines")],
)
def test_while_a_port_is_away_ticks_end_with_its_error_and_change_nothing(kind: FaultKind, error: str) -> None:
    run = Run(HoldfastProgram(), scenario("scale-up", Outage(0, kind, 0.0, 500)))
    run.run_until(490)
    assert f"ended: {error}" in "\n".join(run.story.lines())
    assert len(run.world.ec2.launches) == run.setup.workers
    run.run_until(1100)
    assert len(run.world.ec2.launches) > run.setup.workers
    assert run.ended().invariants == []


def test_a_transaction_that_conflicts_writes_nothing_and_ends_as_the_adapter_lets_it() -> None:
    faults = DrawnFaults(1, {FaultKind.CONFLICT: 1.0})
    outcome = Run(HoldfastProgram(), scenario("spot", Outage(90, FaultKind.SPOT_STORM, 0.001)), faults).outcome()
    assert outcome.faults[FaultKind.CONFLICT] > 0
    assert "ended: StoreUnavailable: simulated: conflict" in story(outcome)
    assert not any("spot#" in line for line in outcome.story.lines() if " → " in line)


def order(token: str, zone: str = "eu-west-1a", market: Market = Market.SPOT) -> LaunchOrder:
    return LaunchOrder(token, "lt-0:1", "t3.medium", market, f"subnet-{zone}", zone, {}, "")


def test_a_machine_that_dies_at_birth_was_pending_and_never_runs() -> None:
    stage = Stage(workers=0)
    stage.world.ec2.dies_at_birth = lambda number: number == 1
    stage.world.ec2.launch(order("first"))
    stage.world.ec2.launch(order("second"))
    assert [machine.state for machine in stage.world.ec2.all_machines()] == [MachineState.PENDING] * 2
    stage.clock.sleep(120)
    assert [m.state for m in stage.world.ec2.all_machines()] == [MachineState.TERMINATED, MachineState.RUNNING]
    assert [node.labels[INSTANCE_LABEL] for node in stage.world.k3s.nodes()] == [stage.alive[0].id]


def test_a_new_machine_gets_the_address_of_one_that_was_terminated_in_its_subnet() -> None:
    stage = Stage(workers=1)
    ec2, (old,) = stage.world.ec2, stage.world.ec2.all_machines()
    stage.clock.sleep(60)
    ec2.terminate(old.id)
    stage.clock.sleep(60)
    ec2.reuses_address = lambda number: number != 2
    addresses = [ec2.launch(order(f"token {number}")).private_ip for number in range(3)]
    assert [address == old.private_ip for address in addresses] == [False, True, False]


def test_one_market_runs_out_alone_and_its_code_is_that_of_the_quota() -> None:
    ec2 = Stage(workers=0).world.ec2
    ec2.run_out("t3.medium", "eu-west-1a", Market.SPOT, "MaxSpotInstanceCountExceeded")
    with pytest.raises(MachineError, match="MaxSpotInstanceCountExceeded"):
        ec2.launch(order("spot"))
    ec2.launch(order("other market", market=Market.ON_DEMAND))
    ec2.restock("t3.medium", "eu-west-1a", Market.SPOT)
    ec2.launch(order("spot again"))
    assert len(ec2.launches) == 2


def test_a_full_subnet_says_so_and_refuses_launches() -> None:
    stage = Stage(workers=0)
    stage.world.ec2.fill_subnet("subnet-eu-west-1a")
    assert [subnet.free_addresses for subnet in stage.world.ec2.subnets(["subnet-eu-west-1a"])] == [0]
    with pytest.raises(MachineError, match="InsufficientFreeAddressesInSubnet"):
        stage.world.ec2.launch(order("one"))
    stage.world.ec2.free_subnet("subnet-eu-west-1a")
    stage.world.ec2.launch(order("another"))


def test_an_unknown_code_may_hide_a_machine_and_its_token_still_finds_it() -> None:
    ec2 = Stage(workers=0).world.ec2
    ec2.refusal, ec2.is_refusal_true = "SomethingNew", False
    with pytest.raises(MachineError, match="SomethingNew"):
        ec2.launch(order("one"))
    ec2.refusal = ""
    assert ec2.launch(order("one")).id == ec2.launches[0][1]
    assert len(ec2.launches) == 1


@pytest.mark.parametrize(
    ("kind", "words"),
    [
        (FaultKind.LIST_OMITS, "EC2's lists omit"),
        (FaultKind.LIST_LAGS, "EC2's lists lag for"),
        (FaultKind.POOL_OUT, "no on-demand t3a.medium in one zone for"),
        (FaultKind.SUBNET_FULL, "subnet-eu-west-1b is full for"),
        (FaultKind.LAUNCH_REFUSED, "EC2 refuses launches: InvalidAMIID.NotFound for"),
        (FaultKind.STRANGERS, ", another cluster's"),
        (FaultKind.NODE_FLAPS, "NotReady, though the machine runs for"),
        (FaultKind.PERSON_CORDONS, "a person cordons i-"),
        (FaultKind.NODE_TWIN, "two nodes with one address for"),
        (FaultKind.STORE_AWAY, "the store is away for"),
        (FaultKind.EC2_AWAY, "EC2 is away for"),
        (FaultKind.GITHUB_AWAY, "GitHub is away for"),
    ],
)
def test_a_fault_of_the_world_happens_and_nothing_breaks(kind: FaultKind, words: str) -> None:
    outages = [Outage(at, kind, size) for at, size in ((20, 0.1), (300, 0.4), (600, 0.7), (900, 0.95))]
    outcome = Run(HoldfastProgram(), scenario("scale-up", *outages)).outcome()
    assert words in story(outcome)
    assert outcome.invariants == []


@pytest.mark.parametrize("kind", LATER_RATES)
def test_a_later_kind_is_in_some_seeds_and_changes_nothing_in_the_others(kind: FaultKind) -> None:
    """Each has a generator of its own, and a number after all earlier ones."""
    having = [seed for seed in range(1, 41) if kind in drawn_setup(seed, Faultiness.WILD).rates]
    assert 4 <= len(having) <= 24
    assert list(FaultKind).index(kind) > list(FaultKind).index(FaultKind.HOOK_TWICE)


def test_the_page_names_every_fault_of_the_world_and_of_webhooks() -> None:
    page = Path("docs/proof.md").read_text(encoding="utf-8")
    kinds = {*IN_WORLD, *HOOK_RATES, *LATER_RATES}
    assert [kind for kind in FaultKind if kind in kinds and f"`{kind}`" not in page] == []


def test_runs_cross_midnight_and_changes_of_clocks() -> None:
    starts = {drawn_setup(seed, Faultiness.WILD).start for seed in range(1, 121)}
    assert DAWN in starts
    for odd in ODD_STARTS:
        assert any(0 <= start.seconds_since(odd) <= 3600 for start in starts)
    assert drawn_setup(1, Faultiness.NONE).start == DAWN


@pytest.mark.parametrize("odd", ODD_STARTS[4:6])
def test_a_run_is_the_same_in_every_time_zone(monkeypatch: pytest.MonkeyPatch, odd: Instant) -> None:
    setup = replace(drawn_setup(11, Faultiness.WILD), start=odd)
    digests = []
    for zone in ("UTC", "Europe/Berlin"):
        monkeypatch.setenv("TZ", zone)
        time.tzset()
        digests.append(Run(HoldfastProgram(), setup).outcome().story.digest())
    monkeypatch.undo()
    time.tzset()
    assert digests[0] == digests[1]


def test_a_machine_that_ec2_does_not_know_yet_is_not_taken_for_gone() -> None:
    """It never joins, and EC2 still answers that its id does not exist when it is cleaned up."""
    setup = replace(SCENARIOS["join-timeout"](), unlisted_seconds=400.0)
    outcome = Run(HoldfastProgram(), setup).outcome()
    assert outcome.invariants == []
    assert "terminated i-" in story(outcome)
