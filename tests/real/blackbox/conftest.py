"""The servers, one set for each test worker, and a cluster for each scenario."""

from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from tests.servers import kube_apiserver, prometheus
from tests.servers.processes import RunningServer
from tests.support.black_box import QUICK, Servers, Stage, StageMaker, served, staged
from tests.support.real_servers import show_on_failure, skip_or_fail


@pytest.fixture(scope="session")
def servers(
    tmp_path_factory: pytest.TempPathFactory,
    request: pytest.FixtureRequest,
    dynamodb_server: RunningServer,
    moto_server: RunningServer,
) -> Iterator[Servers]:
    with ExitStack() as opened:
        try:
            found = opened.enter_context(served(tmp_path_factory.mktemp("cluster"), dynamodb_server, moto_server))
        except (kube_apiserver.Unavailable, prometheus.Unavailable) as error:
            skip_or_fail(error)
        show_on_failure(request.config, *found.kube.logs, found.prometheus.log)
        yield found


@pytest.fixture
def stage_with(servers: Servers, tmp_path: Path) -> Iterator[StageMaker]:
    """A cluster with quick settings and these changes; one for each test."""
    with ExitStack() as opened:

        def make(program: str = "tests.support.quick_holdfast", **changes: str) -> Stage:
            return opened.enter_context(staged(servers, tmp_path, program=program, **{**QUICK, **changes}))

        yield make
