"""The library of scenarios: each a small world in which one thing happens, from beginning to end.

In those of GitHub's jobs nobody looks after the cluster, so that each of their calls is the tracker's.

They are run by name, and by the tests that kill the program at every call of each.
"""

from collections.abc import Callable
from dataclasses import replace
from typing import Final

from holdfast.simulator.faults import Kind
from holdfast.simulator.job_plans import INTERRUPTED, GitHubPlan, JobScript, RunScript
from holdfast.simulator.k3s import Workload
from holdfast.simulator.numbers import Numbers
from holdfast.simulator.swarm import Pause, Setup, Trouble
from holdfast.simulator.workloads import Change

_NUMBERS: Final = Numbers(
    cpu_up=0.95,  # waiting pods alone decide, so that one action follows from one cause
    pending_up_seconds=60,
    idle_down_seconds=120,
    cooldown_up_seconds=60,
    cooldown_down_seconds=120,
    join_timeout_seconds=300,
)
_BASE: Final = Setup(
    seed=1, numbers=_NUMBERS, workers=2, spot_share=0.0, safety_seconds=1200, heal_seconds=1800, shape="scenario"
)


def _load(pods: int, at: int = 0, **options: int) -> Change:
    return Change(at, Workload("web", pods, max_unavailable=options.get("unavailable")))


def _scale_up() -> Setup:
    """More pods than places: two machines are launched, join, and are accepted."""
    return replace(_BASE, load=(_load(35),))


def _partial_launch() -> Setup:
    """Two zones have nothing to offer."""
    zones = (Trouble(0, Kind.ZONE_OUT, 0.0, 900), Trouble(0, Kind.ZONE_OUT, 0.0021, 900))
    return replace(_BASE, load=(_load(35),), troubles=zones)


def _no_capacity() -> Setup:
    """No zone has anything for a while: every slot is exhausted, and the action fails."""
    zones = tuple(Trouble(0, Kind.ZONE_OUT, size, 600) for size in (0.0, 0.0011, 0.0021))
    return replace(_BASE, load=(_load(35),), troubles=zones)


def _join_timeout() -> Setup:
    """What is launched never joins; it is cleaned up, and tried again later."""
    return replace(_BASE, load=(_load(35),), troubles=(Trouble(0, Kind.NO_JOINS, 0.0, 400),))


def _below_minimum() -> Setup:
    """All machines break down at once."""
    dead = tuple(Trouble(70 + number, Kind.MACHINE_DIES, 0.0) for number in range(2))
    return replace(_BASE, load=(_load(5),), troubles=dead)


def _scale_down() -> Setup:
    """Few pods on many machines: two leave, one after the other."""
    numbers = replace(_NUMBERS, max_batch_down=2, min_workers=3)
    return replace(_BASE, numbers=numbers, workers=5, load=(_load(6),))


def _scale_down_in_one_go() -> Setup:
    """The same, by invocations that look again every few seconds."""
    return replace(_scale_down(), loops=True)


def _api_away() -> Setup:
    """The API server goes away between a machine's acceptance and the end of its action."""
    return replace(_scale_up(), troubles=(Trouble(130, Kind.API_AWAY, 0.0, 600),))


def _spot_at_maximum() -> Setup:
    """A machine is taken back from a full cluster in which pods wait."""
    numbers = replace(_NUMBERS, max_workers=4)
    return replace(_BASE, numbers=numbers, workers=4, spot_share=1.0, load=(_load(60),), troubles=(_storm(90),))


def _drain_blocked() -> Setup:
    """A disruption budget forbids the drain until it is lifted."""
    numbers = replace(_NUMBERS, min_workers=3)
    return replace(_BASE, numbers=numbers, workers=4, load=(_load(4, unavailable=0), _load(4, at=900)))


def _critical_pod() -> Setup:
    """Pods that must not be moved are on all nodes but one."""
    agent = Change(0, Workload("agent", 3, template={"priority_class": "system-node-critical"}))
    return replace(_BASE, numbers=replace(_NUMBERS, min_workers=3), workers=4, load=(_load(4), agent))


def _spot() -> Setup:
    """One machine is taken back; it is drained and replaced."""
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(12),), troubles=(_storm(90),))


def _spot_storm() -> Setup:
    """All machines are taken back within seconds."""
    return replace(_BASE, workers=4, spot_share=1.0, load=(_load(12),), troubles=(Trouble(90, Kind.SPOT_STORM, 0.9),))


def _spot_during_drain() -> Setup:
    """The machine that is being drained is taken back."""
    numbers = replace(_NUMBERS, min_workers=2)
    return replace(
        _BASE,
        numbers=numbers,
        workers=3,
        zones=1,
        spot_share=1.0,
        load=(_load(6, unavailable=1),),
        troubles=(_storm(185),),
    )


def _spot_during_scale_up() -> Setup:
    """A machine is taken back while others are on their way."""
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(45),), troubles=(_storm(100),))


def _interrupted_replacement() -> Setup:
    """The replacement is taken back as well."""
    troubles = (_storm(90), Trouble(260, Kind.SPOT_STORM, 0.9))
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(12),), troubles=troubles)


def _rebalance() -> Setup:
    """A hint, and the setting to replace what is hinted at."""
    numbers = replace(_NUMBERS, rebalance="replace")
    hint = Trouble(90, Kind.HINTS, 0.3)
    return replace(_BASE, numbers=numbers, workers=3, spot_share=1.0, load=(_load(12),), troubles=(hint,))


def _hint_preferred() -> Setup:
    """A hint about a machine of an idle cluster: it is the first to leave."""
    numbers = replace(_NUMBERS, min_workers=3)
    hint = Trouble(60, Kind.HINTS, 0.3)
    return replace(_BASE, numbers=numbers, workers=4, spot_share=1.0, load=(_load(4),), troubles=(hint,))


def _pause() -> Setup:
    """Somebody pauses before pods wait and a machine is taken back; what is missing follows when they resume."""
    asked = (Pause(0, 400),)
    return replace(_BASE, workers=3, spot_share=1.0, load=(_load(45),), troubles=(_storm(100),), pauses=asked)


def _storm(at: float) -> Trouble:
    return Trouble(at, Kind.SPOT_STORM, 0.001)


def _plain_job() -> Setup:
    """A job at GitHub is queued, gets a machine, runs and succeeds; another one of its run is cancelled."""
    return _jobs(JobScript("test"), JobScript("lint", ("cancelled",)))


def _gated_job() -> Setup:
    """A job waits for its deployment to be approved, and another one's is rejected."""
    rejected = JobScript("deploy to production", environment="production", review="rejected")
    return _jobs(JobScript("deploy to staging", environment="staging"), rejected)


def _interrupted_job() -> Setup:
    """Spot takes a job's machine; its run is run again, on on-demand, once the others are through."""
    return _jobs(JobScript("test", (INTERRUPTED, "success")), JobScript("lint"))


def _rerun_by_hand() -> Setup:
    """Spot takes a job's machine, and somebody runs it again before we do; that attempt fails by itself."""
    return _jobs(JobScript("test", (INTERRUPTED, "failure"), run_seconds=60), again_seconds=5.0)


def _lost_webhook() -> Setup:
    """The end of a job and the approval of another are not delivered; GitHub's log has them."""
    plan = _jobs(JobScript("test"), JobScript("deploy", environment="production"))
    return _losing(plan, 6, 10)


def _unannounced_job() -> Setup:
    """No webhook tells that a job was queued, or that another one ended; GitHub is asked about their run."""
    setup = _losing(_jobs(JobScript("test", run_seconds=400), JobScript("lint", run_seconds=60)), 2, 5, 6, 7)
    return replace(setup, github=replace(setup.github or GitHubPlan(), reads_log=False))


def _jobs(*jobs: JobScript, again_seconds: float | None = None) -> Setup:
    plan = GitHubPlan((RunScript(5, (jobs,), again_seconds=again_seconds),))
    nobody = replace(_BASE, numbers=replace(_NUMBERS, min_workers=0), workers=0, ticks=False)
    return replace(nobody, safety_seconds=600, heal_seconds=1800, github=plan)


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
    "critical-pod": _critical_pod,
    "spot": _spot,
    "spot-storm": _spot_storm,
    "spot-during-drain": _spot_during_drain,
    "spot-during-scale-up": _spot_during_scale_up,
    "interrupted-replacement": _interrupted_replacement,
    "rebalance": _rebalance,
    "hint-preferred": _hint_preferred,
    "pause": _pause,
    "plain-job": _plain_job,
    "gated-job": _gated_job,
    "interrupted-job": _interrupted_job,
    "rerun-by-hand": _rerun_by_hand,
    "lost-webhook": _lost_webhook,
    "unannounced-job": _unannounced_job,
}
JOB_SCENARIOS: Final = tuple(name for name, setup in SCENARIOS.items() if setup().github is not None)
