"""The overview, the cluster, its decisions and events; pause and resume."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, Protocol
from urllib.parse import parse_qsl

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.console.access import Visitor
from holdfast.console.answers import Unchanged, answer_of_error, answer_to, body_of, error_response
from holdfast.console.pages.charts import time_line
from holdfast.console.pages.shell import Shell
from holdfast.kernel.errors import BadRequest, HoldfastError

Given = Mapping[str, str]
Answer = Mapping[str, Any]
FORM_BYTES_MOST: Final = 8 * 1024

# What each step of an action is called while people watch it.
_UP_PHASES: Final = (("LAUNCHING", "launch machines"), ("VERIFYING", "wait until they join"), ("CLEANUP", "clear away"))
_DOWN_PHASES: Final = (("DRAINING", "drain"), ("TERMINATING", "terminate"), ("ABORTING", "open the nodes again"))


class ClusterBoards(Protocol):
    """What is shown. Each may raise a `HoldfastError`."""

    def overview(self, given: Given) -> Answer: ...
    def cluster(self, given: Given) -> Answer: ...
    def decisions(self, given: Given) -> Answer: ...
    def events(self, given: Given) -> Answer: ...


@dataclass(frozen=True, slots=True)
class ClusterPages:
    shell: Shell
    boards: ClusterBoards
    pause: Callable[[str, str], Answer]
    resume: Callable[[str, str], Answer]

    def routes(self) -> list[Route]:
        boards = self.boards
        return [
            Route("/", self._overview, methods=["GET"]),
            Route("/cluster", self._cluster, methods=["GET"]),
            Route("/cluster/decisions", self._decisions, methods=["GET"]),
            Route("/events", self._events, methods=["GET"]),
            Route("/cluster/pause", self._pause, methods=["POST"]),
            Route("/cluster/resume", self._resume, methods=["POST"]),
            _json("/api/overview", boards.overview),
            _json("/api/cluster/now", boards.cluster),
            _json("/api/cluster/decisions", boards.decisions),
            _json("/api/events", boards.events),
        ]

    # Plain functions ask the store: Starlette runs them in threads of its own.

    def _overview(self, request: Request) -> Response:
        def ask() -> Answer:
            data = self.boards.overview(_given(request))
            return {**data, "chart": time_line(data["time_line"], data["now"])}

        return self.shell.page(request, "overview.html", ask, title="Overview", json_path="/api/overview")

    def _cluster(self, request: Request) -> Response:
        def ask() -> Answer:
            data = self.boards.cluster(_given(request))
            return {
                **data,
                "chart": time_line(data["time_line"], data["now"]),
                "zones": by_zone(data["nodes"]),
                "steps": action_steps(data["action"], data["nodes"]),
            }

        path = _with_query("/api/cluster/now", request)
        return self.shell.page(request, "cluster.html", ask, title="Cluster", json_path=path)

    def _decisions(self, request: Request) -> Response:
        path = _with_query("/api/cluster/decisions", request)
        return self.shell.page(
            request,
            "decisions.html",
            lambda: self.boards.decisions(_given(request)),
            title="Decisions",
            json_path=path,
        )

    def _events(self, request: Request) -> Response:
        path = _with_query("/api/events", request)
        return self.shell.page(
            request, "events.html", lambda: self.boards.events(_given(request)), title="Events", json_path=path
        )

    async def _pause(self, request: Request) -> Response:
        return await self._switched(request, lambda form: self.pause(_who(request), form.get("reason", "")))

    async def _resume(self, request: Request) -> Response:
        return await self._switched(request, lambda form: self.resume(_who(request), form.get("since", "")))

    async def _switched(self, request: Request, switch: Callable[[dict[str, str]], Answer]) -> Response:
        def carry_out(form: dict[str, str]) -> None:
            answer = switch(form)
            if not answer["done"]:
                raise Unchanged(f"{answer['told'][:1].upper()}{answer['told'][1:]}.")

        return await ordered(self.shell, request, "/cluster#pause", carry_out)


async def ordered(
    shell: Shell, request: Request, onward: str, carry_out: Callable[[dict[str, str]], object]
) -> Response:
    """A form that was sent: carried out, and then back to a page. Who may send one, the guard has judged."""
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


def by_zone(nodes: list[Mapping[str, Any]]) -> list[dict[str, Any]]:
    names = sorted({str(node["zone"]) for node in nodes})
    return [{"zone": name, "nodes": [node for node in nodes if node["zone"] == name]} for name in names]


def action_steps(action: Mapping[str, Any] | None, nodes: list[Mapping[str, Any]]) -> dict[str, Any] | None:
    """The action under way as people follow it: its phases, and how far each machine has come."""
    if action is None:
        return None
    is_up = action["kind"] == "scale-up"
    phases = _UP_PHASES if is_up else _DOWN_PHASES
    names = [name for name, _ in phases]
    at = names.index(action["phase"]) if action["phase"] in names else 0
    # What is only done when something went wrong is shown when it is being done.
    shown = [
        {"name": words, "state": "now" if number == at else "done" if number < at else "next"}
        for number, (_, words) in enumerate(phases)
        if number < 2 or number == at
    ]
    found = {str(node["id"]): node for node in nodes}
    return {"phases": shown, "machines": _slots(action, found) if is_up else _targets(action, found)}


def _slots(action: Mapping[str, Any], nodes: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for number, slot in enumerate(action["slots"]):
        market = "on-demand" if slot["m"] == "od" else str(slot["m"])
        what = f"{slot['t']} {market} in {slot['z']}" + (f", attempt {slot['k'] + 1}" if slot["k"] else "")
        instance = slot.get("i")
        if slot.get("x"):
            state = f"given up: {slot['x']}"
        elif instance is None:
            state = "asking EC2"
        else:
            state = str(nodes[instance]["status"]) if instance in nodes else "launched"
        found.append({"name": str(instance or f"slot {number + 1}"), "what": what, "state": state})
    return found


def _targets(action: Mapping[str, Any], nodes: Mapping[str, Any]) -> list[dict[str, str]]:
    found = []
    for target in action["targets"]:
        node = nodes.get(target)
        pods = f"{node['pods']} pods left" if node else ""
        state = (
            "gone"
            if target in action["completed"]
            else "terminating"
            if target in action["committed"]
            else "draining"
            if node and node["status"] == "draining"
            else "waits its turn"
        )
        found.append({"name": str(target), "what": pods if state == "draining" else "", "state": state})
    return found


def _json(path: str, ask: Callable[[Given], Answer]) -> Route:
    def answer(request: Request) -> Response:
        return answer_to(lambda: ask(_given(request)))

    return Route(path, answer, methods=["GET"])


def _given(request: Request) -> dict[str, str]:
    found = request.query_params.multi_items()
    given = dict(found)
    if len(given) < len(found):
        raise BadRequest("a parameter is given twice; say each once")
    return given


def _with_query(path: str, request: Request) -> str:
    return f"{path}?{request.url.query}" if request.url.query else path


def _who(request: Request) -> str:
    visitor = request.scope.get("visitor")
    return f"{visitor.name}, in the console" if isinstance(visitor, Visitor) else "the console"
