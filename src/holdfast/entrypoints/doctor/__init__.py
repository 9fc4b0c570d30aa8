"""`holdfast doctor`: check everything that Holdfast needs, and say how to fix what is wrong.

It changes nothing. The simulated world has no AWS, Kubernetes, Prometheus or GitHub, so those checks are skipped there.
"""

from collections.abc import Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from holdfast.entrypoints.doctor import aws, aws_services, bootstrap, github, kube, launch_template, signals, store
from holdfast.entrypoints.doctor.findings import (
    LIMIT_SECONDS,
    Check,
    Finding,
    FindingOutcome,
    failed,
    failed_by_error,
    ok,
    run_checks,
    skipped,
    warning,
)
from holdfast.entrypoints.wiring.world import missing_settings
from holdfast.fleet.user_data import user_data
from holdfast.kernel.errors import BadSetting
from holdfast.kernel.settings import SETTINGS, Settings, mistyped
from holdfast.ports.clock import Clock

__all__ = ["Finding", "FindingOutcome", "diagnose", "report_json", "summary"]

_SIMULATED: Final = "simulated; set HOLDFAST_WORLD=aws to check the real one"
_SKEW_SECONDS: Final = 5
_SKEW_SECONDS_MOST: Final = 60  # GitHub rejects an App whose clock is further ahead


def diagnose(
    settings: Settings | BadSetting,
    environment: Mapping[str, str],
    clock: Clock,
    limit_seconds: float = LIMIT_SECONDS,
) -> Iterator[Finding]:
    """Run all checks; yield each finding as soon as it is known."""
    if isinstance(settings, BadSetting):
        for line in str(settings).split("\n"):
            seen, _, fix = line.rpartition("; ")
            yield failed("settings", seen or fix, fix if seen else "'holdfast settings' lists all settings")
        yield skipped("everything else", "fix the settings first")
        return
    yield from run_checks(_checks(settings, environment, clock), limit_seconds)


def summary(findings: Sequence[Finding]) -> dict[str, int]:
    return {str(outcome): sum(finding.outcome is outcome for finding in findings) for outcome in FindingOutcome}


def _checks(settings: Settings, environment: Mapping[str, str], clock: Clock) -> Iterator[Check]:
    s, time = settings, aws.ServerTime()
    is_sim, is_sqlite = s.holdfast_world == "sim", s.holdfast_store.path is not None
    yield Check("settings", partial(_settings, s, environment))
    if not (is_sim and is_sqlite):
        yield Check(aws.REGION, aws.region)
        yield Check(aws.IDENTITY, partial(aws.identity, clock, time), (aws.REGION,))
    first = () if is_sqlite else (aws.IDENTITY,)
    yield Check(store.REACHED, partial(store.reached, s, clock), first)
    yield Check("tables", partial(store.tables, s, clock), first)
    if not is_sqlite:
        yield Check("table permissions", partial(store.permissions, s, clock), (store.REACHED, "tables"))
    if is_sim:
        yield Check("simulated world", partial(store.simulated_world, s))
        for name in ("EC2, SSM and SQS", "Kubernetes", "Prometheus", "GitHub"):
            yield Check(name, list[Finding], why_not=_SIMULATED)
    else:
        yield from _aws_checks(s, environment, clock, time)
    yield Check(
        "clock", partial(_clock, time), why_not="the simulated world has its own clock" if is_sim and is_sqlite else ""
    )


def _aws_checks(s: Settings, environment: Mapping[str, str], clock: Clock, time: aws.ServerTime) -> Iterator[Check]:
    workers = aws.WorkersFound()
    for name, check in (
        (aws.INSTANCES, partial(aws.instances, s, workers)),
        ("SSM parameters", partial(aws_services.parameters, s, clock)),
        ("events queue", partial(aws_services.queue, s)),
        ("notices", partial(aws_services.topic, s)),
        ("migration bucket", partial(aws_services.bucket, s)),
    ):
        yield Check(name, check, (aws.IDENTITY,))
    missing = "SUBNETS is not set" if not s.subnets else ""
    yield Check(aws.SUBNETS, partial(aws.subnets, s), (aws.IDENTITY,), why_not=missing)
    missing = "required settings are missing" if any(unset(s)) else ""
    yield Check(launch_template.LAUNCHES, partial(launch_template.launches, s), (aws.IDENTITY,), why_not=missing)
    missing = "" if s.launch_template else "LAUNCH_TEMPLATE is not set"
    yield Check(launch_template.CONTENT, partial(launch_template.content, s), (aws.IDENTITY,), why_not=missing)
    yield Check(bootstrap.SERVER, partial(bootstrap.server, s), why_not="" if s.k3s_url else "K3S_URL is not set")
    yield Check(bootstrap.PROXY, partial(bootstrap.proxies, environment))
    yield Check(kube.REACHED, partial(kube.reached, s, clock, time))
    yield Check("Kubernetes permissions", partial(kube.rights, s, clock), (kube.REACHED,))
    missing = "" if s.prometheus_url else "PROMETHEUS_URL is not set"
    yield Check("Prometheus", partial(signals.read, s, clock, workers), why_not=missing)
    unconfigured = github.why_not(s)
    yield Check("GitHub webhook secret", partial(github.secret, s))
    yield Check(github.SIGNED_IN, partial(github.signed_in, s, clock, time), why_not=unconfigured)
    yield Check("GitHub webhooks", partial(github.webhooks, s, clock), (github.SIGNED_IN,), why_not=unconfigured)


def _settings(settings: Settings, environment: Mapping[str, str]) -> Iterator[Finding]:
    configured = [name for name, source in settings.sources.items() if source != "default"]
    world = "simulated" if settings.holdfast_world == "sim" else "AWS"
    words = f"{len(configured)} of {len(SETTINGS)} are set; world: {world}; store: {settings.holdfast_store}"
    yield ok("settings", words)
    for name, close in mistyped(environment):
        yield warning("settings", f"{name} in the environment is not a setting", f"did you mean {close}?")
    for line in unset(settings) if settings.holdfast_world == "aws" else ():
        yield failed_by_error("settings", BadSetting(line))


def unset(settings: Settings) -> Iterator[str]:
    """Settings that HOLDFAST_WORLD=aws requires and that are not set."""
    yield from missing_settings(settings)
    try:
        user_data(settings)
    except BadSetting as error:
        yield from str(error).split("\n")


def _clock(time: aws.ServerTime) -> Iterator[Finding]:
    if time.theirs is None or time.ours is None:
        yield skipped("clock", "no server reported its time")
        return
    # The header has whole seconds, and is slightly old.
    ahead = time.ours.seconds_since(time.theirs)
    words = f"{abs(ahead):.0f} s {'ahead of' if ahead > 0 else 'behind'} {time.who}"
    fix = "synchronise this machine's clock with chrony or systemd-timesyncd"
    if abs(ahead) > _SKEW_SECONDS_MOST:
        yield failed("clock", words, fix)
    elif abs(ahead) > _SKEW_SECONDS:
        yield warning("clock", words, fix)
    else:
        yield ok("clock", f"within {_SKEW_SECONDS} s of {time.who}'s")


def report_json(settings: Settings | BadSetting, findings: Sequence[Finding]) -> dict[str, Any]:
    """The report that --json prints."""
    world = None if isinstance(settings, BadSetting) else settings.holdfast_world
    items = [finding.shown() for finding in findings]
    return {"items": items, "cursor": None, "counts": summary(findings), "world": world}
