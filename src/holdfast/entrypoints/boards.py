"""The data of the overview and the cluster's page, as JSON has it: the state, the last look, the log and the jobs."""

from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from typing import Any, Final

from holdfast.cluster.log import TICK_KIND
from holdfast.cluster.memory import memory_keys, read_memory
from holdfast.cluster.policy import ScaleUpRule
from holdfast.entrypoints.happening import alerts, headline, rule_groups
from holdfast.entrypoints.history import ClusterHistory, Moment, latest, marks, spans
from holdfast.entrypoints.last_look import LastLook, hourly_cost, nodes_shown
from holdfast.entrypoints.looking_back import LookingBack, only
from holdfast.entrypoints.overview import cluster_overview
from holdfast.entrypoints.policies import policy_of
from holdfast.entrypoints.tracking import Tracking
from holdfast.fleet.options import PoolFailure
from holdfast.jobs import queries
from holdfast.jobs.cost import Prices
from holdfast.jobs.facts import Status
from holdfast.jobs.ingest import installations
from holdfast.jobs.queries import Paging
from holdfast.kernel.errors import BadRequest, HoldfastError
from holdfast.kernel.ids import ClusterId, InstallationId
from holdfast.kernel.instants import Instant
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.machines import Market
from holdfast.ports.store import Store
from holdfast.ports.store.tables import STATE

Data = dict[str, Any]
Given = Mapping[str, str]

COUNT_MOST: Final = 500
INSTALLATIONS_MOST: Final = 10
_OPEN: Final = (Status.IN_PROGRESS, Status.SCHEDULED, Status.QUEUED, Status.WAITING)
_HOURS: Final = ("1", "3", "6", "24")
_RUNNING_SHOWN: Final = 6
_STATS_OF: Final = 200


@dataclass(frozen=True)
class Boards:
    """Each question reads the store a bounded number of times, however much is stored."""

    settings: Settings
    store: Store
    clock: Clock
    look: LastLook
    tracking: Tracking
    prices: Prices
    history: ClusterHistory

    @property
    def back(self) -> LookingBack:
        return LookingBack(self.store, self._name, self.history, one_suffices=self._one_suffices)

    @property
    def _one_suffices(self) -> bool:
        return ScaleUpRule(self.settings.scale_up_rule) is ScaleUpRule.ANY

    @property
    def _name(self) -> ClusterId:
        return ClusterId(self.settings.cluster_id)

    def overview(self, given: Given) -> Data:
        only(given)
        now = self.clock.now()
        moments = self.history.since(now.plus(-6 * 3600), now)
        cluster, jobs = self._cluster(now, moments), self._jobs()
        seen = self.look.seen
        return {
            "now": now.iso(),
            "headline": headline(cluster, jobs),
            "alerts": alerts(cluster, jobs, self.settings.tick_sec),
            "cluster": cluster,
            "jobs": jobs,
            "cost": None if seen is None else hourly_cost(seen, self.prices),
            "time_line": self._time_line(moments, _hours_worth(moments, now)),
            "latest": latest(moments, 8),
        }

    def cluster(self, given: Given) -> Data:
        only(given, "hours")
        asked = given.get("hours")
        if asked is not None and asked not in _HOURS:
            raise BadRequest(f"hours {cut(asked)!r}: expected one of {', '.join(_HOURS)}")
        now = self.clock.now()
        moments = self.history.since(now.plus(-int(asked or 6) * 3600), now)
        hours = int(asked) if asked else _hours_worth(moments, now)
        shown = self._cluster(now, moments)
        return {
            "now": now.iso(),
            **shown,
            "groups": rule_groups(shown["rules"], one_suffices=self._one_suffices),
            "policy": self._policy(),
            "time_line": self._time_line(moments, hours),
            "latest": latest(moments, 12),
        }

    def decisions(self, given: Given) -> Data:
        only(given, "until", "acted")
        return self.back.decisions(given, self.clock.now())

    def events(self, given: Given) -> Data:
        only(given, "q", "day", "skip")
        return self.back.events(given, self.clock.now())

    # Parts

    def _cluster(self, now: Instant, moments: list[Moment]) -> Data:
        state = cluster_overview(self.store, self._name, policy_of(self.settings), now)
        items = self.store.batch_get(STATE, memory_keys(self._name))
        memory = read_memory(items)
        seen = self.look.seen
        # Not the newest moment: a pause, or a tick that failed, is in the log too, and has seen nothing.
        last = state["lastTick"] or {}
        last_seen = last.get("seen") or {}
        nodes = [] if seen is None else nodes_shown(seen, now, self.prices)
        return {
            "name": self._name,
            "workers": state["workers"],
            "nodes_are_seen": seen is not None,
            "nodes": nodes,
            "pods": None if seen is None else sum(node["pods"] for node in nodes),
            "pending": (last_seen.get("pending") or {}).get("pods"),
            "cpu": last_seen.get("cpu"),
            "action": state["action"],
            "notices": state["notices"],
            "paused": state["paused"],
            "last_scale_at": state["lastScaleAt"],
            "pending_since": state["pendingSince"],
            "idle_since": state["idleSince"],
            "up_failures": state["upFailures"],
            "up_backoff_until": state["upBackoffUntil"],
            "lease": state["lease"],
            "failure": self.look.failure or _not_followed(state["lastFailure"], moments),
            "newest_failure": state["lastFailure"],
            "last_tick_at": last.get("at"),
            "last_tick_seconds": max(0.0, now.seconds_since(Instant.from_iso(last["at"]))) if last else None,
            "rules": last.get("rules", []),
            "capacity": [_pool(name, failure, now) for name, failure in sorted(memory.failures.items())],
            "undrainable": [
                {"id": str(name), **_failing(failure, now)} for name, failure in sorted(memory.undrainable.items())
            ],
            "min_workers": self.settings.min_workers,
            "max_workers": self.settings.max_workers,
            "pods_per_node": self.settings.pods_per_node,
        }

    def _time_line(self, moments: list[Moment], hours: int) -> Data:
        return {
            "hours": hours,
            "points": [moment.point() for moment in moments if moment.kind == TICK_KIND],
            "actions": spans(moments),
            "marks": marks(moments),
            "cpu_up": self.settings.cpu_up,
            "cpu_down": self.settings.cpu_down,
            "max_workers": self.settings.max_workers,
        }

    def _policy(self) -> Data:
        names = ("cpu_up", "cpu_down", "pending_up_sec", "idle_down_sec", "cooldown_up_sec", "cooldown_down_sec")
        return {name.upper(): getattr(self.settings, name) for name in names}

    def _jobs(self) -> Data:
        try:
            known = installations(self.store)[:INSTALLATIONS_MOST]
            return {"installations": known, "problem": None, **self._counted(known)}
        except HoldfastError as error:
            return {"installations": [], "problem": str(error), **self._counted([])}

    def _counted(self, known: list[InstallationId]) -> Data:
        counts = {str(status): {"jobs": 0, "more": False} for status in _OPEN}
        runners_usd = saved_usd = Decimal(0)
        for installation in known:
            for status in _OPEN:
                found = queries.jobs_by_status(self.store, installation, status, paging=Paging(COUNT_MOST))
                count = counts[str(status)]
                count |= {"jobs": count["jobs"] + len(found.items), "more": count["more"] or found.cursor is not None}
                if status in (Status.IN_PROGRESS, Status.SCHEDULED):
                    for job in found.items:
                        usd, saved = self._runner_usd(job)
                        runners_usd, saved_usd = runners_usd + usd, saved_usd + saved
        stuck = [self.tracking.stuck({"installation_id": str(one), "limit": "100"}) for one in known]
        chosen = {"installation_id": str(known[0])} if known else None
        return {
            "counts": counts,
            "runners_usd_per_hour": float(runners_usd),
            "runners_saved_usd_per_hour": float(saved_usd),
            "stuck": {
                "jobs": sum(len(one["items"]) for one in stuck),
                "more": any(one["cursor"] is not None for one in stuck),
            },
            "running": self.tracking.jobs({**chosen, "status": "in_progress", "limit": str(_RUNNING_SHOWN)})["items"]
            if chosen
            else [],
            "recent": self.tracking.stats({**chosen, "limit": str(_STATS_OF)})["total"] if chosen else None,
        }

    def _runner_usd(self, job: Mapping[str, Any]) -> tuple[Decimal, Decimal]:
        """What a job's machine costs in an hour, and how much less that is than on-demand."""
        kind, lifecycle = str(job.get("instance_type", "")), str(job.get("instance_lifecycle", "on-demand"))
        price, on_demand = (self.prices.of(kind, each, None, None) for each in (lifecycle, str(Market.ON_DEMAND)))
        if price is None or on_demand is None:
            return Decimal(0), Decimal(0)
        return price.usd_per_hour, on_demand.usd_per_hour - price.usd_per_hour


def _not_followed(failure: Data | None, moments: list[Moment]) -> Data | None:
    """A failure that no tick has followed yet, of whichever process it was."""
    ticked = [moment.at for moment in moments if moment.kind == TICK_KIND]
    if failure is None or (ticked and Instant.from_iso(failure["at"]) <= ticked[-1]):
        return None
    return {"at": failure["at"], "why": failure["why"]}


def _hours_worth(moments: list[Moment], now: Instant) -> int:
    """Six hours, unless all that is known is of the last ones."""
    known = now.seconds_since(moments[0].at) if moments else 6 * 3600
    return next((hours for hours in (1, 3) if known < hours * 3600), 6)


def _pool(name: str, failure: PoolFailure, now: Instant) -> Data:
    parts = [*name.split("|"), "", ""]
    return {"type": parts[0], "zone": parts[1], "market": parts[2], **_failing(failure, now)}


def _failing(failure: PoolFailure, now: Instant) -> Data:
    return {"failures": failure.failures, "until": failure.until.iso(), "is_failing": now < failure.until}
