"""The pages of the cluster: overview, cluster, decisions and events; pause and resume."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import groupby
from typing import Final
from urllib.parse import parse_qsl

from msgspec import UNSET, structs
from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.console.http.access import Visitor, command_route, with_query
from holdfast.console.http.answers import Unchanged, answer_of_error, answer_to, body_of, error_response
from holdfast.console.pages.charts import TimeChart, time_chart
from holdfast.console.pages.event_groups import EventGroup, grouped
from holdfast.console.pages.shell import Shell
from holdfast.control.decision_log import TICK_KIND
from holdfast.control.pause import PauseAnswer
from holdfast.kernel.errors import BadRequest, HoldfastError
from holdfast.kernel.json_types import Shape
from holdfast.views.cluster_status import ScaleDownAction, ScaleUpAction, SlotStatus
from holdfast.views.dashboards import ClusterDetails, Dashboards, Overview
from holdfast.views.latest_tick import NodeStatus
from holdfast.views.past_decisions import DecisionList, EventList, GroupedDecision

Params = Mapping[str, str]
FORM_BYTES_MOST: Final = 8 * 1024

# The phases of an action, as people see them. The last one only happens when something went wrong.
_UP_PHASES: Final = (("LAUNCHING", "launch machines"), ("VERIFYING", "wait for nodes to join"), ("CLEANUP", "clean up"))
_DOWN_PHASES: Final = (("DRAINING", "drain"), ("TERMINATING", "terminate"), ("ABORTING", "uncordon the nodes"))


class ZoneNodes(Shape, frozen=True, kw_only=True):
    zone: str
    nodes: list[NodeStatus]


class PhaseShown(Shape, frozen=True, kw_only=True):
    """`state`: done, now or next."""

    name: str
    state: str


class MachineProgress(Shape, frozen=True, kw_only=True):
    name: str
    what: str
    state: str


class ActionProgress(Shape, frozen=True, kw_only=True):
    """The phases of the action in progress, and how far each machine is."""

    phases: list[PhaseShown]
    machines: list[MachineProgress]


class OverviewPage(Overview, frozen=True, kw_only=True):
    chart: TimeChart


class ClusterPage(ClusterDetails, frozen=True, kw_only=True):
    chart: TimeChart
    zones: list[ZoneNodes]
    steps: ActionProgress | None


class EventsPage(EventList, frozen=True, kw_only=True):
    groups: list[EventGroup]


class DecisionRow(Shape, frozen=True, kw_only=True):
    """A tick, and the older ones below it that decided the same; newest first."""

    tick: GroupedDecision
    same: list[GroupedDecision]


class DecisionsPage(DecisionList, frozen=True, kw_only=True):
    rows: list[DecisionRow]


@dataclass(frozen=True, slots=True)
class ClusterPages:
    shell: Shell
    dashboards: Dashboards
    pause: Callable[[str, str], PauseAnswer]
    resume: Callable[[str, str], PauseAnswer]

    def routes(self) -> list[Route]:
        dashboards = self.dashboards
        return [
            Route("/", self._overview, methods=["GET"]),
            Route("/cluster", self._cluster, methods=["GET"]),
            Route("/cluster/decisions", self._decisions, methods=["GET"]),
            Route("/events", self._events, methods=["GET"]),
            command_route("/cluster/pause", self._pause),
            command_route("/cluster/resume", self._resume),
            _json("/api/overview", dashboards.overview),
            _json("/api/cluster/now", dashboards.cluster),
            _json("/api/cluster/decisions", dashboards.decisions),
            _json("/api/events", dashboards.events),
        ]

    # Plain functions, since they read the store: Starlette runs them in its threads.

    def _overview(self, request: Request) -> Response:
        def make_context() -> OverviewPage:
            overview = self.dashboards.overview(_params(request))
            return OverviewPage(**structs.asdict(overview), chart=time_chart(overview.time_line, overview.now))

        return self.shell.page(request, "overview.html", make_context, title="Overview", json_path="/api/overview")

    def _cluster(self, request: Request) -> Response:
        def make_context() -> ClusterPage:
            cluster = self.dashboards.cluster(_params(request))
            return ClusterPage(
                **structs.asdict(cluster),
                chart=time_chart(cluster.time_line, cluster.now),
                zones=nodes_by_zone(cluster.nodes),
                steps=action_progress(cluster.action, cluster.nodes),
            )

        path = with_query("/api/cluster/now", request)
        return self.shell.page(request, "cluster.html", make_context, title="Cluster", json_path=path)

    def _decisions(self, request: Request) -> Response:
        def make_context() -> DecisionsPage:
            found = self.dashboards.decisions(_params(request))
            return DecisionsPage(**structs.asdict(found), rows=folded(found.items))

        path = with_query("/api/cluster/decisions", request)
        return self.shell.page(request, "decisions.html", make_context, title="Decisions", json_path=path)

    def _events(self, request: Request) -> Response:
        path = with_query("/api/events", request)

        def make_context() -> EventsPage:
            found = self.dashboards.events(_params(request))
            # A search shows single lines: what is around them is not of interest.
            groups = [] if found.q else grouped(found.items)
            return EventsPage(**structs.asdict(found), groups=groups)

        return self.shell.page(request, "events.html", make_context, title="Events", json_path=path)

    async def _pause(self, request: Request) -> Response:
        return await self._switched(request, lambda form: self.pause(_who(request), form.get("reason", "")))

    async def _resume(self, request: Request) -> Response:
        return await self._switched(request, lambda form: self.resume(_who(request), form.get("since", "")))

    async def _switched(self, request: Request, switch: Callable[[dict[str, str]], PauseAnswer]) -> Response:
        def carry_out(form: dict[str, str]) -> None:
            answer = switch(form)
            if not answer.done:
                raise Unchanged(f"{answer.message[:1].upper()}{answer.message[1:]}.")

        return await ordered(self.shell, request, "/cluster#pause", carry_out)


async def ordered(
    shell: Shell, request: Request, onward: str, carry_out: Callable[[dict[str, str]], object]
) -> Response:
    """Carry out the order of a form, and redirect to a page. Its route has checked who may send it."""
    body = await body_of(request, FORM_BYTES_MOST)
    if body is None:
        return error_response(413, "too_large", f"at most {FORM_BYTES_MOST} bytes")
    try:
        form = dict(parse_qsl(body.decode(), keep_blank_values=True))
    except ValueError:
        return error_response(400, "bad_request", "not a form")

    def answer() -> Response:
        try:
            carry_out(form)
        except HoldfastError as error:
            is_page = "text/html" in request.headers.get("accept", "")
            return shell.problem(request, error, back=onward) if is_page else answer_of_error(error)
        return RedirectResponse(onward, 303)

    return await run_in_threadpool(answer)


def folded(ticks: Sequence[GroupedDecision]) -> list[DecisionRow]:
    """Neighbours that did nothing for the same reasons, with the same number of workers, as one row."""
    groups = [list(group) for _, group in groupby(enumerate(ticks), lambda each: _sameness(*each))]
    return [DecisionRow(tick=group[0][1], same=[tick for _, tick in group[1:]]) for group in groups]


def _sameness(number: int, tick: GroupedDecision) -> object:
    if tick.kind != TICK_KIND or tick.steps or tick.stopped or tick.messages or tick.seen is None:
        return number  # something happened: a row of its own
    return tick.seen.workers, [(rule.name, rule.verdict) for rule in tick.rules]


def nodes_by_zone(nodes: Sequence[NodeStatus]) -> list[ZoneNodes]:
    zones = sorted({node.zone for node in nodes})
    return [ZoneNodes(zone=zone, nodes=[node for node in nodes if node.zone == zone]) for zone in zones]


def action_progress(
    action: ScaleUpAction | ScaleDownAction | None, nodes: Sequence[NodeStatus]
) -> ActionProgress | None:
    if action is None:
        return None
    by_id = {node.id: node for node in nodes}
    if isinstance(action, ScaleUpAction):
        machines = [_slot_progress(number, slot, by_id) for number, slot in enumerate(action.slots, 1)]
        return ActionProgress(phases=_phases(_UP_PHASES, action.phase), machines=machines)
    machines = [_target_progress(action, target, by_id) for target in action.targets]
    return ActionProgress(phases=_phases(_DOWN_PHASES, action.phase), machines=machines)


def _phases(phases: Sequence[tuple[str, str]], current: str) -> list[PhaseShown]:
    names = [name for name, _ in phases]
    at = names.index(current) if current in names else 0
    return [
        PhaseShown(name=words, state="now" if number == at else "done" if number < at else "next")
        for number, (_, words) in enumerate(phases)
        if number < 2 or number == at
    ]


def _slot_progress(number: int, slot: SlotStatus, nodes: Mapping[str, NodeStatus]) -> MachineProgress:
    market = "on-demand" if slot.market == "od" else slot.market
    what = f"{slot.instance_type} {market} in {slot.zone}" + (f", attempt {slot.attempt + 1}" if slot.attempt else "")
    if slot.gave_up_because:
        state = f"gave up: {slot.gave_up_because}"
    elif slot.instance is UNSET:
        state = "launching"
    else:
        state = nodes[slot.instance].status if slot.instance in nodes else "launched"
    return MachineProgress(name=f"slot {number}" if slot.instance is UNSET else slot.instance, what=what, state=state)


def _target_progress(action: ScaleDownAction, target: str, nodes: Mapping[str, NodeStatus]) -> MachineProgress:
    node = nodes.get(target)
    if target in action.completed:
        state = "gone"
    elif target in action.committed:
        state = "terminating"
    elif node and node.status == "draining":
        return MachineProgress(name=target, what=f"{node.pods} pods left", state="draining")
    else:
        state = "waiting"
    return MachineProgress(name=target, what="", state=state)


def _json(path: str, view: Callable[[Params], object]) -> Route:
    def answer(request: Request) -> Response:
        return answer_to(lambda: view(_params(request)))

    return Route(path, answer, methods=["GET"])


def _params(request: Request) -> dict[str, str]:
    found = request.query_params.multi_items()
    params = dict(found)
    if len(params) < len(found):
        raise BadRequest("a parameter is repeated; give each once")
    return params


def _who(request: Request) -> str:
    visitor = request.scope.get("visitor")
    return f"{visitor.name}, in the console" if isinstance(visitor, Visitor) else "the console"
