"""Checks across settings: values that are each valid, but contradict each other."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.kernel.settings import github

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings

_JOIN_LEAST = 60
_NOT_READY_LEAST = 60


def contradictions(settings: "Settings") -> Iterator[str]:
    """One line per contradiction."""
    s = settings
    if s.min_workers > s.max_workers:
        yield (
            f"MIN_WORKERS={s.min_workers} is more than MAX_WORKERS={s.max_workers}; "
            f"for example MIN_WORKERS={s.max_workers}"
        )
    if s.cpu_down >= s.cpu_up:
        yield (
            f"CPU_DOWN={s.cpu_down:g} is not below CPU_UP={s.cpu_up:g}: the cluster would scale up and down forever; "
            f"for example CPU_DOWN={s.cpu_up / 2:g}"
        )
    yield from _of_times(s)
    if s.holdfast_world == "aws":
        yield from _of_kubernetes(s)
    if s.jobs_migration != "off" and s.s3_bucket is None:
        yield (
            f"JOBS_MIGRATION={s.jobs_migration} needs the bucket of the older system, but S3_BUCKET is not set; "
            "for example S3_BUCKET=runs-on-s3bucket-1a2b3c"
        )
    yield from github.contradictions(s)
    if s.console_token is not None and s.console_token == s.console_read_token:
        yield (
            "CONSOLE_READ_TOKEN is the same as CONSOLE_TOKEN: every reader would be an operator; "
            'use two different tokens, for example CONSOLE_READ_TOKEN="$(openssl rand -hex 16)"'
        )
    yield from _of_proxy(s)
    yield from _of_tables(s)


def _of_proxy(s: "Settings") -> Iterator[str]:
    """A user header is only as trustworthy as the check that the proxy sent it."""
    needed = (
        ("CONSOLE_PROXY_SECRET", s.console_proxy_secret, '"$(openssl rand -hex 16)"'),
        ("CONSOLE_HOSTS", s.console_hosts, "holdfast.example.com"),
    )
    for name, value, example in needed:
        if s.console_user_header is not None and value is None:
            yield f"CONSOLE_USER_HEADER={s.console_user_header} needs {name}; for example {name}={example}"
        if s.console_user_header is None and value is not None:
            yield f"{name} has no effect without CONSOLE_USER_HEADER; set CONSOLE_USER_HEADER, or leave it out"


def _of_times(s: "Settings") -> Iterator[str]:
    if s.join_timeout_sec < _JOIN_LEAST:
        yield (
            f"JOIN_TIMEOUT_SEC={s.join_timeout_sec} is less than a worker takes to boot and join: every new worker "
            f"would be terminated; at least {_JOIN_LEAST}, for example JOIN_TIMEOUT_SEC=600"
        )
    if s.stuck_sec < s.drain_sec:
        yield (
            f"STUCK_SEC={s.stuck_sec} is less than DRAIN_SEC={s.drain_sec}: every scale-down would be aborted; "
            f"for example STUCK_SEC={3 * s.drain_sec}"
        )
    if 0 < s.not_ready_sec < _NOT_READY_LEAST:
        yield (
            f"NOT_READY_SEC={s.not_ready_sec} would replace nodes that are only restarting; at least "
            f"{_NOT_READY_LEAST}, or 0 for never, for example NOT_READY_SEC=900"
        )


def _of_tables(s: "Settings") -> Iterator[str]:
    first: dict[str, str] = {}
    for setting, table in (
        ("STATE_TABLE", s.state_table),
        ("LOGS_TABLE", s.logs_table),
        ("JOBS_TABLE", s.jobs_table),
        ("JOB_EVENTS_TABLE", s.job_events_table),
        ("RUNS_TABLE", s.runs_table),
        ("DEPLOYMENTS_TABLE", s.deployments_table),
    ):
        if table in first:
            yield (
                f"{setting}={table} is also the value of {first[table]}: each table needs its own name; "
                f"for example {setting}={table}-2"
            )
        first.setdefault(table, setting)


def _of_kubernetes(s: "Settings") -> Iterator[str]:
    """Settings that would be silently ignored, or that name two clusters."""
    if s.kubeconfig is not None and s.kube_server is not None:
        yield "KUBECONFIG and KUBE_SERVER are both set, and each names a cluster; leave one out"
    if s.kube_context is not None and s.kubeconfig is None:
        yield "KUBE_CONTEXT has no effect without KUBECONFIG; set KUBECONFIG, or leave it out"
    for name, value in (("KUBE_TOKEN_PARAMETER", s.kube_token_parameter), ("KUBE_CA_FILE", s.kube_ca_file)):
        if value is not None and s.kube_server is None:
            yield f"{name} has no effect without KUBE_SERVER; set KUBE_SERVER, or leave it out"
    if s.prometheus_token_file is not None and s.prometheus_token_parameter is not None:
        yield "PROMETHEUS_TOKEN_FILE and PROMETHEUS_TOKEN_PARAMETER are both set; leave one out"
