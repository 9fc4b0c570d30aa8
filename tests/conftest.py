"""Shared by all tests: Hypothesis' settings, and the servers."""

import logging
import os
import signal
import threading
from collections import Counter
from collections.abc import Generator, Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import dynamodb_local, kube_apiserver, moto, prometheus
from tests.servers.kube_apiserver import RunningKube
from tests.servers.processes import RunningServer
from tests.support.prometheus_world import PrometheusWorld, scraped_world
from tests.support.real_servers import logs_of, show_on_failure, skip_or_fail

# Derandomized: a test that passed passes again, on any machine. `make prove` draws afresh and prints what it drew.
settings.register_profile(
    "steady",
    derandomize=True,
    deadline=None,
    database=None,
    print_blob=True,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large, HealthCheck.filter_too_much],
)
settings.register_profile("prove", settings.get_profile("steady"), derandomize=False)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "steady"))

# When started in the background, this process may ignore Ctrl-C, and so would every program that a test starts.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN and threading.current_thread() is threading.main_thread():
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands set up logging for their process; here the next test must not inherit it."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    loggers = [root, *map(logging.getLogger, ("holdfast", "boto3", "botocore", "urllib3", "uvicorn"))]
    levels = [logger.level for logger in loggers]
    yield
    logging.disable(logging.NOTSET)
    root.handlers[:] = handlers
    for logger, level in zip(loggers, levels, strict=True):
        logger.setLevel(level)


@pytest.fixture(scope="session")
def dynamodb_server(
    tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest
) -> Iterator[RunningServer]:
    """DynamoDB Local, one for each test worker."""
    try:
        server = dynamodb_local.start(tmp_path_factory.mktemp("dynamodb-local"))
    except dynamodb_local.Unavailable as error:
        skip_or_fail(str(error))
    show_on_failure(request.config, server.log)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def kube_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningKube]:
    """A Kubernetes API server, one for each test worker."""
    try:
        server = kube_apiserver.start(tmp_path_factory.mktemp("kubernetes"))
    except kube_apiserver.Unavailable as error:
        skip_or_fail(str(error))
    show_on_failure(request.config, *server.logs)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def account_token(kube_server: RunningKube) -> str:
    """A token of the service account that the shipped role creates."""
    return kube_server.shipped_account()


@pytest.fixture(scope="session")
def moto_server(tmp_path_factory: pytest.TempPathFactory, request: pytest.FixtureRequest) -> Iterator[RunningServer]:
    """AWS' models over HTTP, one for each test worker."""
    server = moto.start(tmp_path_factory.mktemp("moto"))
    show_on_failure(request.config, server.log)
    yield server
    server.stop()


@pytest.fixture(scope="session")
def prometheus_world(tmp_path_factory: pytest.TempPathFactory) -> Iterator[PrometheusWorld]:
    """A Prometheus and the exporters that it scrapes, one for each test worker; reset the world before use."""
    try:
        with scraped_world(tmp_path_factory.mktemp("prometheus")) as world:
            yield world
    except prometheus.Unavailable as error:
        skip_or_fail(str(error))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the servers' logs with every failure."""
    report = yield
    if report.failed:
        for log in logs_of(item.config):
            report.sections.append((f"server log {log.name}", log.read_text(errors="replace")[-4000:]))
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """One line for each reason to skip, however many tests it concerns: usually a server that is missing."""
    reasons = Counter(
        report.longrepr[2].removeprefix("Skipped: ")
        for report in terminalreporter.stats.get("skipped", [])
        if isinstance(report.longrepr, tuple)
    )
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"skipped {count} {'test' if count == 1 else 'tests'}: {reason}")
