"""The data of the console's cluster pages: overview, cluster, decisions and events."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from msgspec import structs

from holdfast.cluster.policy import ScaleUpRule
from holdfast.jobs.cost.prices import Prices
from holdfast.kernel.errors import BadRequest
from holdfast.kernel.ids import ClusterId
from holdfast.kernel.instants import Instant
from holdfast.kernel.json_types import Shape, Time
from holdfast.kernel.settings import Settings
from holdfast.kernel.text import cut
from holdfast.ports.clock import Clock
from holdfast.ports.store import Store
from holdfast.views.cluster_history import ClusterEvent, ClusterHistory, Moment, recent_events
from holdfast.views.cluster_now import ClusterNow, PolicyShown, TimeLine, cluster_now, policy_shown, time_line
from holdfast.views.headlines import Alert, alerts, headline
from holdfast.views.job_views import JobViews
from holdfast.views.jobs_now import JobsNow, jobs_now
from holdfast.views.latest_tick import HourlyCost, LatestTick, hourly_cost
from holdfast.views.past_decisions import DecisionList, EventList, PastDecisions
from holdfast.views.query_params import QueryParams
from holdfast.views.rule_groups import GroupedRules, rule_groups

Params = Mapping[str, str]

_HOURS: Final = ("1", "3", "6", "24")
_DEFAULT_HOURS: Final = 6
_OVERVIEW_EVENTS: Final = 8
_CLUSTER_EVENTS: Final = 12


class Overview(Shape, frozen=True, kw_only=True):
    """What happens now, in words and numbers."""

    now: Time
    headline: list[str]
    alerts: list[Alert]
    cluster: ClusterNow
    jobs: JobsNow
    cost: HourlyCost | None
    time_line: TimeLine
    latest: list[ClusterEvent]


class ClusterDetails(ClusterNow, frozen=True, kw_only=True):
    """The cluster now, with the rules of the last tick in groups, and its last hours."""

    now: Time
    groups: list[GroupedRules]
    policy: PolicyShown
    time_line: TimeLine
    latest: list[ClusterEvent]


@dataclass(frozen=True)
class Dashboards:
    """Each answer takes a bounded number of reads, however much is stored."""

    settings: Settings
    store: Store
    clock: Clock
    latest_tick: LatestTick
    job_views: JobViews
    prices: Prices
    history: ClusterHistory

    def overview(self, params: Params) -> Overview:
        QueryParams(params)
        now = self.clock.now()
        moments = self.history.since(now.plus(-_DEFAULT_HOURS * 3600), now)
        cluster, jobs = self._cluster(moments, now), jobs_now(self.store, self.job_views, self.prices)
        seen = self.latest_tick.seen
        return Overview(
            now=now.iso(),
            headline=headline(cluster, jobs),
            alerts=alerts(cluster, jobs, self.settings.tick_sec),
            cluster=cluster,
            jobs=jobs,
            cost=None if seen is None else hourly_cost(seen, self.prices),
            time_line=time_line(self.settings, moments, _hours_to_show(moments, now)),
            latest=recent_events(moments, _OVERVIEW_EVENTS),
        )

    def cluster(self, params: Params) -> ClusterDetails:
        hours = QueryParams(params, "hours").text("hours")
        if hours is not None and hours not in _HOURS:
            raise BadRequest(f"hours {cut(hours)!r}: expected one of {', '.join(_HOURS)}")
        now = self.clock.now()
        moments = self.history.since(now.plus(-int(hours or _DEFAULT_HOURS) * 3600), now)
        cluster = self._cluster(moments, now)
        return ClusterDetails(
            **structs.asdict(cluster),
            now=now.iso(),
            groups=rule_groups(cluster.rules, one_suffices=self._one_suffices),
            policy=policy_shown(self.settings),
            time_line=time_line(self.settings, moments, int(hours) if hours else _hours_to_show(moments, now)),
            latest=recent_events(moments, _CLUSTER_EVENTS),
        )

    def decisions(self, params: Params) -> DecisionList:
        QueryParams(params, "until", "acted")
        return self._past.decisions(params, self.clock.now())

    def events(self, params: Params) -> EventList:
        QueryParams(params, "q", "day", "skip")
        return self._past.events(params, self.clock.now())

    def _cluster(self, moments: list[Moment], now: Instant) -> ClusterNow:
        return cluster_now(self.store, self.settings, self.latest_tick, self.prices, moments, now)

    @property
    def _past(self) -> PastDecisions:
        name = ClusterId(self.settings.cluster_id)
        return PastDecisions(self.store, name, self.history, one_suffices=self._one_suffices)

    @property
    def _one_suffices(self) -> bool:
        return ScaleUpRule(self.settings.scale_up_rule) is ScaleUpRule.ANY


def _hours_to_show(moments: list[Moment], now: Instant) -> int:
    """Six hours, or fewer if the history is shorter."""
    known = now.seconds_since(moments[0].at) if moments else _DEFAULT_HOURS * 3600
    return next((hours for hours in (1, 3) if known < hours * 3600), _DEFAULT_HOURS)
