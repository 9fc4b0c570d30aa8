"""What single values cannot show: settings that are good each by itself, and wrong together."""

from collections.abc import Iterator
from typing import TYPE_CHECKING

from holdfast.kernel.settings import github

if TYPE_CHECKING:
    from holdfast.kernel.settings import Settings

_JOIN_LEAST = 60
_NOT_READY_LEAST = 60
_TABLES = ("state_table", "logs_table", "jobs_table", "job_events_table", "runs_table", "deployments_table")


def contradictions(settings: "Settings") -> Iterator[str]:
    """A line for each."""
    s = settings
    if s.min_workers > s.max_workers:
        yield (
            f"MIN_WORKERS={s.min_workers} is more than MAX_WORKERS={s.max_workers}; "
            f"for example MIN_WORKERS={s.max_workers}"
        )
    if s.cpu_down >= s.cpu_up:
        yield (
            f"CPU_DOWN={s.cpu_down:g} is not below CPU_UP={s.cpu_up:g}: the cluster would go up and down for ever; "
            f"for example CPU_DOWN={s.cpu_up / 2:g}"
        )
    yield from _of_times(s)
    if s.holdfast_world == "aws":
        yield from _of_kubernetes(s)
    if s.jobs_migration != "off" and s.s3_bucket is None:
        yield (
            f"JOBS_MIGRATION={s.jobs_migration} needs the bucket of the older system, and S3_BUCKET is not set; "
            "for example S3_BUCKET=runs-on-s3bucket-1a2b3c"
        )
    yield from github.contradictions(s)
    if s.console_token is not None and s.console_token == s.console_read_token:
        yield (
            "CONSOLE_READ_TOKEN is the same as CONSOLE_TOKEN: every reader would be an operator; give each its own, "
            'for example CONSOLE_READ_TOKEN="$(openssl rand -hex 16)"'
        )
    first: dict[str, str] = {}
    for attribute in _TABLES:
        name = getattr(s, attribute)
        if name in first:
            yield (
                f"{attribute.upper()}={name} is also the name in {first[name]}: each table needs a name of its own; "
                f"for example {attribute.upper()}={name}-2"
            )
        first.setdefault(name, attribute.upper())


def _of_times(s: "Settings") -> Iterator[str]:
    if s.join_timeout_sec < _JOIN_LEAST:
        yield (
            f"JOIN_TIMEOUT_SEC={s.join_timeout_sec} is less than a machine takes to boot and join: each would be "
            f"terminated; at least {_JOIN_LEAST}, for example JOIN_TIMEOUT_SEC=600"
        )
    if s.stuck_sec < s.drain_sec:
        yield (
            f"STUCK_SEC={s.stuck_sec} is less than DRAIN_SEC={s.drain_sec}: every scale-down would be given up; "
            f"for example STUCK_SEC={3 * s.drain_sec}"
        )
    if 0 < s.not_ready_sec < _NOT_READY_LEAST:
        yield (
            f"NOT_READY_SEC={s.not_ready_sec} would replace nodes that only restart; at least {_NOT_READY_LEAST}, or 0 "
            "for never, for example NOT_READY_SEC=900"
        )


def _of_kubernetes(s: "Settings") -> Iterator[str]:
    """What would be ignored without a word: somebody meant another cluster."""
    if s.kubeconfig is not None and s.kube_server is not None:
        yield "KUBECONFIG and KUBE_SERVER are both set, and name a cluster each; leave one out"
    if s.kube_context is not None and s.kubeconfig is None:
        yield "KUBE_CONTEXT is set and KUBECONFIG is not, so it is not used; set KUBECONFIG, or leave it out"
    for name, value in (("KUBE_TOKEN_PARAMETER", s.kube_token_parameter), ("KUBE_CA_FILE", s.kube_ca_file)):
        if value is not None and s.kube_server is None:
            yield f"{name} is set and KUBE_SERVER is not, so it is not used; set KUBE_SERVER, or leave it out"
    if s.prometheus_token_file is not None and s.prometheus_token_parameter is not None:
        yield "PROMETHEUS_TOKEN_FILE and PROMETHEUS_TOKEN_PARAMETER are both set; leave one out"
