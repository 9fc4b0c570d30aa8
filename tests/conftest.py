"""What all tests share: how chance is used, and the servers."""

import logging
import os
from collections.abc import Generator, Iterator
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.servers import dynamodb_local
from tests.servers.processes import RunningServer

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

REAL = os.environ.get("REAL_SERVERS") == "1"
_LOGS = pytest.StashKey[list[Path]]()


@pytest.fixture(autouse=True)
def logging_as_it_was() -> Iterator[None]:
    """Commands set up logging for their process; here the next test must not inherit it."""
    root = logging.getLogger()
    handlers = root.handlers[:]
    loggers = [root, *map(logging.getLogger, ("boto3", "botocore", "urllib3", "uvicorn"))]
    levels = [logger.level for logger in loggers]
    yield
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
        if REAL:
            pytest.fail(str(error))
        pytest.skip(str(error))
    request.config.stash.setdefault(_LOGS, []).append(server.log)
    yield server
    server.stop()


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Show the end of the servers' logs with every failure."""
    report = yield
    if report.failed:
        for log in item.config.stash.get(_LOGS, []):
            report.sections.append((f"server log {log.name}", log.read_text(errors="replace")[-4000:]))
    return report
