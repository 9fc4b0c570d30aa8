"""Scenarios: small worlds in which one thing happens, from start to end.

They are run by name, and by tests that kill the program at each of their calls. In the scenarios of GitHub's jobs the
cluster is not managed, so every call is the job tracker's.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdfast.simulator.proof.faults import FaultKind
from holdfast.simulator.proof.github.plans import INTERRUPTED, GitHubPlan, JobScript, RunScript
from holdfast.simulator.proof.numbers import Numbers
from holdfast.simulator.proof.swarm import Outage, PlannedPause, Setup
from holdfast.simulator.world.k3s import Workload
from holdfast.simulator.world.workloads import LoadChange

_NUMBERS: Final = Numbers(
    cpu_up=0.95,  # pending pods alone decide, so one action has one cause
    pending_up_seconds=60,
    idle_down_seconds=120,
    cooldown_up_seconds=60,
    cooldown_down_seconds=120,
    join_timeout_seconds=300,
)
_BASE: Final = Setup(
    seed=1, numbers=_NUMBERS, workers=2, spot_share=0.0, safety_seconds=1200, heal_seconds=1800, shape="scenario"
)


def _load(pods: int, at: int = 0, **options: int) -> LoadChange:
    return LoadChange(at, Workload("web", pods, max_unavailable=options.get("unavailable")))


def _scale_up() -> Setup:
    """More pods than the workers have room for: two machines are launched, join and are accepted."""
    return replace(_BASE, load=(_load(35),))


def _partial_launch() -> Setup:
    """Two zones have no capacity."""
    zones = (Outage(0, FaultKind.ZONE_OUT, 0.0, 900), Outage(0, FaultKind.ZONE_OUT, 0.0021, 900))
    return replace(_BASE, load=(_load(35),), outages=zones)


def _no_capacity() -> Setup:
    """No zone has capacity for a while: every slot is exhausted, and the action fails."""
    zones = tuple(Outage(0, FaultKind.ZONE_OUT, size, 600) for size in (0.0, 0.0011, 0.0021))
    return replace(_BASE, load=(_load(35),), outages=zones)


def _join_timeout() -> Setup:
    """Launched machines never join; they are terminated, and the launch is retried later."""
    return replace(_BASE, load=(_load(35),), outages=(Outage(0, FaultKind.NO_JOINS, 0.0, 400),))


def _below_minimum() -> Setup:
    """All machines fail at once."""
    dead = tuple(Outage(70 + number, FaultKind.MACHINE_DIES, 0.0) for number in range(2))
    return replace(_BASE, load=(_load(5),), outages=dead)


def _scale_down() -> Setup:
    """Few pods on many machines: two are removed, one after the other."""
    numbers = replace(_NUMBERS, max_batch_down=2, min_workers=3)
    return replace(_BASE, numbers=numbers, workers=5, load=(_load(6),))


def _scale_down_in_one_go() -> Setup:
    """The same, by invocations that each run several ticks."""
    return replace(_scale_down(), loops=True)


def _api_away() -> Setup:
    """The API server becomes unavailable between a machine's acceptance and the end of its action."""
    return replace(_scale_up(), outages=(Outage(130, FaultKind.API_AWAY, 0.0, 600),))


def _spot_at_maximum() -> Setup:
    """A spot machine is interrupted in a full cluster with pending pods."""
    numbers = replace(_NUMBERS, max_workers=4)
    return replace(_BASE, numbers=numbers, workers=4, spot_share=1.0, load=(_load(60),), outages=(_storm(90),))


def _drain_blocked() -> Setup:
    """A disruption budget blocks the drain until it is removed."""
    numbers = replace(_NUMBERS, min_workers=3)
    return replace(_BASE, numbers=numbers, workers=4, load=(_load(4, unavailable=0), _load(4, at=900)))


def _persons_cordon() -> Setup:
    """The drain of a node that a person had cordoned is blocked, and aborted: it stays cordoned."""
    return replace(_drain_blocked(), outages=(Outage(5, FaultKind.PERSON_CORDONS, seconds=86_400),))


def _critical_pod() -> Setup:
    """All nodes but one run pods that must not be evicted."""
    agent = LoadChange(0, Workload("agent", 3, template={"priority_class": "system-node-critical"}))
    return replace(_BASE, numbers=replace(_NUMBERS, min_workers=3), workers=4, load=(_load(4), agent))


def _spot() -> Setup:
    """One spot machine is interrupted; it is drained and replaced."""
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(12),), outages=(_storm(90),))


def _spot_storm() -> Setup:
    """All spot machines are interrupted within seconds."""
    return replace(
        _BASE, workers=4, spot_share=1.0, load=(_load(12),), outages=(Outage(90, FaultKind.SPOT_STORM, 0.9),)
    )


def _spot_during_drain() -> Setup:
    """The machine that is being drained is interrupted."""
    numbers = replace(_NUMBERS, min_workers=2)
    return replace(
        _BASE,
        numbers=numbers,
        workers=3,
        zones=1,
        spot_share=1.0,
        load=(_load(6, unavailable=1),),
        outages=(_storm(185),),
    )


def _spot_during_scale_up() -> Setup:
    """A machine is interrupted while others are joining."""
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(45),), outages=(_storm(100),))


def _interrupted_replacement() -> Setup:
    """The replacement is interrupted as well."""
    outages = (_storm(90), Outage(260, FaultKind.SPOT_STORM, 0.9))
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(12),), outages=outages)


def _rebalance() -> Setup:
    """A rebalance hint, with REBALANCE=replace."""
    numbers = replace(_NUMBERS, rebalance="replace")
    hint = Outage(90, FaultKind.HINTS, 0.3)
    return replace(_BASE, numbers=numbers, workers=3, spot_share=1.0, load=(_load(12),), outages=(hint,))


def _hint_preferred() -> Setup:
    """A rebalance hint in an idle cluster: that machine is removed first."""
    numbers = replace(_NUMBERS, min_workers=3)
    hint = Outage(60, FaultKind.HINTS, 0.3)
    return replace(_BASE, numbers=numbers, workers=4, spot_share=1.0, load=(_load(4),), outages=(hint,))


def _pause() -> Setup:
    """The cluster is paused while pods are pending and a machine is interrupted; it catches up after the resume."""
    pauses = (PlannedPause(0, 400),)
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(45),), outages=(_storm(100),), pauses=pauses)


def _node_anew() -> Setup:
    """The Node of a worker is deleted, and registered anew while its pods run; no tag shows that it was accepted."""
    third = Outage(310, FaultKind.NODE_ANEW, 0.66172)  # of four: one that was launched by an action
    return replace(_scale_up(), safety_seconds=1800, outages=(third,), is_tagging_refused=True)


def _nodes_anew() -> Setup:
    """A restored snapshot is older than the nodes, some without pods: all of them are registered anew at once."""
    numbers = replace(_NUMBERS, min_workers=4)
    restored = Outage(380, FaultKind.NODES_ANEW)
    return replace(_BASE, numbers=numbers, load=(_load(2),), safety_seconds=1800, outages=(restored,))


def _nodes_anew_in_scale_down() -> Setup:
    """A snapshot is restored just after the first of two machines was committed, and before the second one is."""
    return replace(_scale_down(), outages=(Outage(270, FaultKind.NODES_ANEW),))


def _storm(at: float) -> Outage:
    return Outage(at, FaultKind.SPOT_STORM, 0.001)


def _plain_job() -> Setup:
    """A job is queued, gets a runner, runs and succeeds; another job of the run is cancelled."""
    return _jobs(JobScript("test"), JobScript("lint", ("cancelled",)))


def _gated_job() -> Setup:
    """Two jobs wait for a deployment review: one is approved, the other rejected."""
    rejected = JobScript("deploy to production", environment="production", review="rejected")
    return _jobs(JobScript("deploy to staging", environment="staging"), rejected)


def _interrupted_job() -> Setup:
    """A job's spot runner is interrupted; once the run has ended, its failed job is re-run on-demand."""
    return _jobs(JobScript("test", (INTERRUPTED, "success")), JobScript("lint"))


def _rerun_by_hand() -> Setup:
    """A job's spot runner is interrupted, and a person re-runs it first; that attempt fails on its own."""
    return _jobs(JobScript("test", (INTERRUPTED, "failure"), run_seconds=60), rerun_seconds=5.0)


def _lost_webhook() -> Setup:
    """Two webhooks are lost, a job's completion and another's approval; GitHub's delivery log has them."""
    plan = _jobs(JobScript("test"), JobScript("deploy", environment="production"))
    return _losing(plan, 6, 10)


def _unannounced_job() -> Setup:
    """The webhooks of a queued and of a completed job are lost; polling the run's jobs finds both."""
    setup = _losing(_jobs(JobScript("test", run_seconds=400), JobScript("lint", run_seconds=60)), 2, 5, 6, 7)
    return replace(setup, github=replace(setup.github or GitHubPlan(), reads_log=False))


def _unannounced_run() -> Setup:
    """GitHub never sends the webhooks of a run's second stage, nor any of another run; a walk finds both."""
    setup = _jobs(JobScript("build"))
    stages = ((JobScript("build", run_seconds=60),), (JobScript("deploy", run_seconds=60),))
    plan = GitHubPlan(
        (RunScript(5, stages), RunScript(10, ((JobScript("test", run_seconds=60),),))),
        unsent=frozenset(f"hook-{number}" for number in (*range(5, 9), *range(1000, 1010))),
    )
    return replace(setup, github=plan)


def _jobs(*jobs: JobScript, rerun_seconds: float | None = None) -> Setup:
    plan = GitHubPlan((RunScript(5, (jobs,), rerun_seconds=rerun_seconds),))
    unmanaged = replace(_BASE, numbers=replace(_NUMBERS, min_workers=0), workers=0, ticks=False)
    return replace(unmanaged, safety_seconds=600, heal_seconds=1800, github=plan)


def _losing(setup: Setup, *hooks: int) -> Setup:
    plan = setup.github or GitHubPlan()
    return replace(setup, github=replace(plan, lost=frozenset(f"hook-{number}" for number in hooks)))


SCENARIOS: Final[dict[str, Callable[[], Setup]]] = {
    "scale-up": _scale_up,
    "partial-launch": _partial_launch,
    "no-capacity": _no_capacity,
    "join-timeout": _join_timeout,
    "below-minimum": _below_minimum,
    "scale-down": _scale_down,
    "scale-down-in-one-go": _scale_down_in_one_go,
    "api-away": _api_away,
    "spot-at-maximum": _spot_at_maximum,
    "drain-blocked": _drain_blocked,
    "persons-cordon": _persons_cordon,
    "critical-pod": _critical_pod,
    "spot": _spot,
    "spot-storm": _spot_storm,
    "spot-during-drain": _spot_during_drain,
    "spot-during-scale-up": _spot_during_scale_up,
    "interrupted-replacement": _interrupted_replacement,
    "rebalance": _rebalance,
    "hint-preferred": _hint_preferred,
    "pause": _pause,
    "node-anew": _node_anew,
    "nodes-anew": _nodes_anew,
    "nodes-anew-in-scale-down": _nodes_anew_in_scale_down,
    "plain-job": _plain_job,
    "gated-job": _gated_job,
    "interrupted-job": _interrupted_job,
    "rerun-by-hand": _rerun_by_hand,
    "lost-webhook": _lost_webhook,
    "unannounced-job": _unannounced_job,
    "unannounced-run": _unannounced_run,
}
JOB_SCENARIOS: Final = tuple(name for name, setup in SCENARIOS.items() if setup().github is not None)
