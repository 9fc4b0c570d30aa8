"""The page with the findings of `holdfast doctor`.

An operator orders it with a button: it calls EC2 and GitHub, and its findings name accounts and roles.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from starlette.concurrency import run_in_threadpool
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route

from holdfast.console.http.access import command_route
from holdfast.console.pages.shell import Shell
from holdfast.kernel.json_types import Shape
from holdfast.views.check_findings import CheckFinding


class ChecksPage(Shape, frozen=True):
    findings: Sequence[CheckFinding]


@dataclass(frozen=True, slots=True)
class CheckPages:
    shell: Shell
    check: Callable[[], Sequence[CheckFinding]]

    def routes(self) -> list[Route]:
        # Who reloads the page, or opens it from a bookmark, runs nothing.
        back = Route("/system/checks", lambda _request: RedirectResponse("/system#checks", 303), methods=["GET"])
        return [back, command_route("/system/checks", self._checks)]

    async def _checks(self, request: Request) -> Response:
        def answer() -> Response:
            return self.shell.page(request, "checks.html", lambda: ChecksPage(self.check()), title="Checks")

        return await run_in_threadpool(answer)
